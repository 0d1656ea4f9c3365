//! The boot option of a DPU's disk is found when its server joins, so that no machine's start pays for it.
//!
//! A firmware lists a disk once it has seen the disk in a POST ([`super::setup`]). So a server that nobody has, and that is off, is claimed by
//! its Dpu, is presented a *hold disk* in the boot slot (its DPU's agent makes it; whoever boots it waits for ever), and is started into its firmware's setup,
//! at most twice; where the disk was found stays on record, and the server is given back as it was. Nothing is powered off that was not powered on for
//! this, and no disk of the server is touched.
//!
//! It is planned as what a machine left that no longer exists ([`super::leftovers`]): there is no spec, and what is on record of power actions is at
//! the Hardware. Whatever becomes of the Dpu, or of the controller that began, the server is given back by the same plan.

use super::attach::boot_slot::{self, Made};
use super::attach::orphans;
use super::attach::seen::{Seen, not_exposed};
use super::boot::{self, Found};
use super::draft::Draft;
use super::erase::GLANCE;
use super::install::creating;
use super::plan::Action;
use super::power::{self, For};
use super::prepare::ATTEMPTS;
use super::release::{take_back, unclaim};
use super::setup;
use super::situation::{Host, Owned, Reading, host, is_granted, unread};
use crate::about::About;
use crate::boot_option::discovery::{Outcome, Record};
use crate::host::{BmcNeed, BootSource, PowerAction, PowerState};
use crate::meta::{name, target, uid};
use crate::reason::{Reason, Waiting};
use crate::writer::{self, down};
use api::attachment::OwnerReference;
use api::tinkerbell::Hardware;
use api::{DiskAttachment, names};
use jiff::{SignedDuration, Timestamp};

/// Two POSTs of servers whose firmware is being updated meanwhile, and some.
const LIMIT: SignedDuration = SignedDuration::from_mins(100);
/// Starts into the setup. A DPU that shares its host's power takes two for each: by the first it comes up.
const STARTS: u32 = 2;
const DISK: &str = "hold-disk";

enum End {
    Is(Outcome, String),
    Waits(Reason),
}

/// `None`: it is over, and the server is given back.
pub(super) fn plan(o: &Owned<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let begun = Record::of(&hardware.metadata).filter(|record| record.dpu == o.uid() && record.outcome.is_none());
    let Some(record) = begun else { return give_back(o, hardware, now, draft) };
    let over = record.since + LIMIT;
    draft.wake(over.max(now));
    let (outcome, message) = match pursue(o, hardware, now, draft) {
        End::Waits(reason) if now < over => return Some(reason),
        End::Waits(reason) => {
            let minutes = LIMIT.as_mins();
            (Outcome::Failed, format!("it was not over within {minutes} minutes: {}", reason.message()))
        }
        End::Is(outcome, message) => (outcome, message),
    };
    let record = Record { outcome: Some(outcome), message, ..record };
    draft.act(Action::RecordDiscovery { name: name(&hardware.metadata).to_owned(), record });
    Some(creating(About::DiscoveryRecord))
}

fn pursue(o: &Owned<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> End {
    let host = match host(o, hardware) {
        Ok(host) => host,
        Err(reason) => return End::Is(Outcome::Failed, reason.message()),
    };
    if uid(&host.dpu.dpu.metadata) != o.uid() {
        let message = format!("Dpu '{}' was assigned to the server meanwhile", host.dpu.name());
        return End::Is(Outcome::Failed, message);
    }
    if host.dpu.dpu.metadata.deletion_timestamp.is_some() || !host.dpu.dpu.spec.approved {
        return End::Is(
            Outcome::Failed,
            format!("Dpu '{}' is no longer approved, or is being deleted", host.dpu.name()),
        );
    }
    if let Some(reason) = orphans::shown(o, host, |_| true).or_else(|| o.no_grants.clone()) {
        draft.wake(now + orphans::EVERY);
        return End::Waits(reason);
    }
    let Some(seen) = o.bmc.host.last() else {
        draft.need_bmc(BmcNeed::Now);
        return End::Waits(unread(o, host.name().to_owned()));
    };
    if o.record.action.is_none() {
        match o.reading {
            Reading::Fresh(PowerState::Off) => {}
            Reading::Fresh(_) => {
                let message = "the server was on, and is left as it is: its first machine's start finds the disk";
                return End::Is(Outcome::HostOn, message.to_owned());
            }
            _ => {
                draft.need_bmc(BmcNeed::Now);
                return End::Waits(unread(o, host.name().to_owned()));
            }
        }
    }
    if o.is_in_setup() && !o.was_off() && o.record.asked_on() {
        return in_setup(o, host, now, draft);
    }
    if !o.is_off() {
        // What was started for this is powered off before the next start.
        return End::Waits(power::off(o, host.name(), now, draft).unwrap_or_else(|| unread(o, host.name().to_owned())));
    }
    let not_listed = match boot::find(host, seen, draft) {
        Found::Listed if draft.actions.is_empty() => return End::Is(Outcome::Listed, String::new()),
        Found::Listed => return End::Waits(creating(About::DiscoveryRecord)),
        Found::Nobody(reason) => return End::Is(Outcome::NotListed, reason.message()),
        Found::Unlisted(reason) => reason.message(),
    };
    let helps = seen.boot.allowed_next.contains(&BootSource::Setup) && boot::may_be_unseen(host, seen);
    if !helps || o.record.setup_starts >= most(host) {
        return End::Is(Outcome::NotListed, not_listed);
    }
    start(o, host, now, draft)
}

fn most(host: Host<'_>) -> u32 {
    if host.shares_power() { 2 * STARTS } else { STARTS }
}

/// Of a host that is off, by a reading of this moment.
fn start(o: &Owned<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) -> End {
    let disk = match granted(o, host, draft, now) {
        Ok(disk) => disk,
        Err(reason) => return End::Waits(reason),
    };
    let not_exposed = not_exposed(host, About::HoldDisk, Seen::disk(disk)).filter(|_| !host.shares_power());
    if let Some(reason) = not_exposed {
        return End::Waits(reason);
    }
    match boot::into_setup(o, host, now, draft) {
        Some(reason) if o.bmc.boot_attempts >= ATTEMPTS => End::Is(Outcome::NotListed, reason.message()),
        Some(reason) => End::Waits(reason),
        None => End::Waits(power::start_for(o, host.power(), None, run(disk), now, draft)),
    }
}

fn run(disk: &DiskAttachment) -> For<'_> {
    For { run: uid(&disk.metadata), into_setup: true, netboot_by: None }
}

/// Of a host that was started into its setup, and is on as far as anybody knows.
fn in_setup(o: &Owned<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) -> End {
    let hardware = || host.name().to_owned();
    let awaited = || End::Waits(Waiting::BootOptionAwaited { hardware: hardware() }.into());
    let Some(seen) = o.bmc.host.last() else { return awaited() };
    match o.reading {
        Reading::Fresh(PowerState::On) | Reading::Old(PowerState::On) => {}
        Reading::Rising(settled) => {
            draft.need_bmc(BmcNeed::Awaiting);
            draft.wake(settled);
            return End::Waits(Waiting::PoweringOn { hardware: hardware() }.into());
        }
        _ => {
            draft.need_bmc(BmcNeed::Now);
            return End::Waits(unread(o, hardware()));
        }
    }
    if host.shares_power() && o.record.action == Some(PowerAction::On) && !boot::is_listed(host, seen) {
        return reset(o, host, now, draft);
    }
    if !setup::is_over(o, host, now, draft) {
        return awaited();
    }
    let off = |draft: &mut Draft| power::off(o, host.name(), now, draft).unwrap_or_else(|| unread(o, hardware()));
    match boot::find(host, seen, draft) {
        Found::Listed if draft.actions.is_empty() => End::Is(Outcome::Listed, String::new()),
        Found::Listed => End::Waits(creating(About::DiscoveryRecord)),
        Found::Nobody(reason) => End::Is(Outcome::NotListed, reason.message()),
        Found::Unlisted(_) if o.record.setup_starts < most(host) => End::Waits(off(draft)),
        Found::Unlisted(reason) => End::Is(Outcome::NotListed, reason.message()),
    }
}

/// Of a host whose DPU came up with it: into the setup once more, now that the hold disk is presented.
fn reset(o: &Owned<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) -> End {
    let disk = match granted(o, host, draft, now) {
        Ok(disk) => disk,
        Err(reason) => return End::Waits(reason),
    };
    if let Some(reason) = not_exposed(host, About::HoldDisk, Seen::disk(disk)) {
        return End::Waits(reason);
    }
    if let Some(reason) = boot::into_setup(o, host, now, draft) {
        return End::Waits(reason);
    }
    if o.reading != Reading::Fresh(PowerState::On) {
        draft.need_bmc(BmcNeed::Now);
        return End::Waits(unread(o, host.name().to_owned()));
    }
    End::Waits(power::reset_for(o, host.power(), run(disk), draft))
}

/// The hold disk, granted.
fn granted<'a>(
    o: &'a Owned<'_>,
    host: Host<'_>,
    draft: &mut Draft,
    now: Timestamp,
) -> Result<&'a DiskAttachment, Reason> {
    let made = names::attachment(o.uid(), host.dpu.name(), DISK);
    let is_it = |a: &&DiskAttachment| name(&a.metadata) == made && a.metadata.deletion_timestamp.is_none();
    let mut all = o.disk_attachments.iter().map(AsRef::as_ref);
    if let Some(old) = all.clone().find(|a| !is_it(a)) {
        return Err(writer::release(&o.writer(now), old, draft));
    }
    let Some(disk) = all.next() else {
        draft.act(Action::CreateDiskAttachment(Box::new(attachment(o, host, &made))));
        return Err(creating(About::HoldDiskAttachment));
    };
    if disk.spec.grant.is_none() {
        // No volume and no writer, so nobody's hold on one.
        draft.act(Action::GrantDisk { target: target(&disk.metadata), epoch: 1, seed: None, holder_pod_uid: None });
        return Err(Waiting::Granting { what: About::HoldDisk, message: String::new() }.into());
    }
    Ok(disk)
}

fn attachment(o: &Owned<'_>, host: Host<'_>, made: &str) -> DiskAttachment {
    let (name, uid) = (host.dpu.name().to_owned(), o.uid().to_owned());
    let owner = OwnerReference { kind: "Dpu".to_owned(), namespace: None, name, uid };
    boot_slot::attachment(o, host, (Made::HoldDisk, owner), made, DISK)
}

/// As it was: off if it was started for this, without the hold disk, its boot order put back.
fn give_back(o: &Owned<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let was_started = o.record.action.is_some();
    if was_started && let Some(reason) = power::off(o, name(&hardware.metadata), now, draft) {
        return Some(reason);
    }
    if !was_started && is_granted(o) && !o.is_off() {
        down::read_host(o.bmc.read_at, GLANCE, now, draft);
        return Some(Waiting::PoweredOnByOther { hardware: name(&hardware.metadata).to_owned() }.into());
    }
    if let Some(reason) = take_back(o, now, draft).or_else(|| boot::restore(o, hardware, now, draft)) {
        return Some(reason);
    }
    unclaim(o, draft);
    None
}
