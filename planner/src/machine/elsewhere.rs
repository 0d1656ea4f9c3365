//! A host that was powered on and has not read its boot disk once was not started from it: its firmware booted another disk, or none. The
//! number of reads is its DPU's agent's (`dpu::boot_disk`), so it counts only what the agent has counted all the time; where nothing is
//! counted, nothing is concluded. That some of the disk was read proves nothing: firmware looks at each disk.
//!
//! A host whose guest is not heard either is powered off, and stays off until its user asks again: what runs there is not the machine. One whose
//! guest answers is left on and told of, for a number is a weak reason to stop what somebody may use.

use super::attach::disks;
use super::draft::Draft;
use super::situation::{Power, Situation, answered};
use crate::dpu::boot_disk::BootDiskReads;
use crate::exposure::ExposureId;
use crate::host::{BmcNeed, Post, PowerAction};
use crate::reason::{Blocked, Reason};
use jiff::{SignedDuration, Timestamp};

/// Servers take 15 minutes to come up; a boot loader reads its disk soon after.
const WITHIN: SignedDuration = SignedDuration::from_mins(20);
/// As long as the BMC says that POST is not over. Some never say that it is.
const IN_POST: SignedDuration = SignedDuration::from_mins(40);

pub(super) struct Elsewhere {
    pub disk: String,
    pub minutes: i64,
    /// Something answers at the address of the machine.
    pub answers: bool,
}

/// What is on record of a power-on: reads of the boot disk so far.
pub(super) fn before(o: &Situation<'_>, host: Power<'_>) -> Option<String> {
    let (_, disk) = boot_disk(o)?;
    let told = host.boot_disk_reads.filter(|told| told.disk == disk.version());
    Some(told.cloned().unwrap_or_else(|| BootDiskReads::not_told(&disk)).to_string())
}

/// Its name, and what presents it.
fn boot_disk<'a>(o: &'a Situation<'_>) -> Option<(&'a str, ExposureId)> {
    let disk = o.machine.spec.disks.iter().find(|disk| disk.boot_order == Some(1))?;
    let attachment = disks::current(o, &disk.name)?;
    let (uid, grant) = (attachment.metadata.uid.clone()?, attachment.spec.grant.as_ref()?);
    Some((&disk.name, ExposureId { uid, epoch: grant.epoch }))
}

/// Of a host that was read on.
pub(super) fn judge(o: &Situation<'_>, host: Power<'_>, now: Timestamp, draft: &mut Draft) -> Option<Elsewhere> {
    let record = o.owned.record;
    let (Some(PowerAction::On), Some(at)) = (record.action, record.at) else { return None };
    let (name, disk) = boot_disk(o)?;
    let before = record.boot_disk_reads.and_then(BootDiskReads::parse)?;
    if !host.boot_disk_reads?.none_since(&before, &disk) {
        return None;
    }
    // Or somebody sits in the firmware's setup, to choose what is booted.
    let in_post = o.bmc.host.last().is_some_and(|host| matches!(host.post, Post::Running | Post::InSetup));
    let waited = if in_post { IN_POST } else { WITHIN };
    if now < at + waited {
        draft.wake(at + waited);
        return None;
    }
    Some(Elsewhere { disk: name.to_owned(), minutes: waited.as_mins(), answers: answered(o, now).is_some() })
}

/// It was reset to start from its disk, and sits in its firmware's setup all the time: a BMC may take a reset and do nothing. That goes for
/// hosts that share their power with their DPU too, which are started by a reset.
pub(super) fn left_in_setup(o: &Situation<'_>, hardware: &str, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let record = o.owned.record;
    let (Some(PowerAction::WarmReset), Some(at), false) = (record.action, record.at, record.in_setup) else {
        return None;
    };
    let is_in_setup = o.bmc.host.last().is_some_and(|host| host.post == Post::InSetup);
    if !is_in_setup || answered(o, now).is_some() {
        return None;
    }
    let over = at + WITHIN;
    if now < over {
        draft.wake(over);
        return None;
    }
    if o.bmc.read_at.is_none_or(|read_at| read_at < over) {
        draft.need_bmc(BmcNeed::Now);
        return None;
    }
    Some(Blocked::LeftInSetup { hardware: hardware.to_owned(), minutes: WITHIN.as_mins() }.into())
}
