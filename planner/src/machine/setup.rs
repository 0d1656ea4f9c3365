//! A start into the firmware's setup, so that the firmware lists the DPU's boot disk.
//!
//! A firmware lists a disk once it has seen the disk in a POST. A server that is new has not, and by its boot order it would start something
//! else. So it is started into its setup once, where nothing is booted, with all that the machine has presented; it is powered off when the disk
//! is listed, and started again from the disk. At most twice; then a person is asked. The host is off before, by a reading of this moment, and
//! the override to the setup has been read back: no host that runs is disturbed.
//!
//! A DPU that shares its host's power presents nothing in the POST in which it gets that power. So such a host is powered on into its setup, reset
//! into it once all is presented, and reset once more when the disk is listed: the DPU keeps its power all the while. Where the disk is listed
//! already, the power-on is into the setup too ([`boot::Next::SetupFirst`]), so that nothing else is booted while the DPU comes up. The host may have
//! been on before, with a system that nobody started through us: that one is reset anyway, for its DPU has presented nothing to it.
//!
//! An override may be ignored. A host whose guest answers meanwhile is taken as started.

use super::boot;
use super::draft::Draft;
use super::observed::Belongings;
use super::situation::{Host, Owned, Reading, SETTLE, Situation, Want};
use crate::host::{BmcNeed, BootSource, HostObserved, Post, PowerAction, PowerState};
use crate::writer::down;
use jiff::{SignedDuration, Timestamp};

/// For one machine, until its user asks for another start.
const STARTS: u32 = 2;
/// How often the options are read.
const EVERY: SignedDuration = SignedDuration::from_secs(10);
/// A list that has been the same for so long is whole: of a BMC that says that POST is over, of one that tells nothing of POST, and of one that
/// says that POST runs. That may be so for as long as the setup is open; or firmware is being updated, and the power shall stay.
const WHOLE: SignedDuration = SignedDuration::from_secs(10);
const WHOLE_UNTOLD: SignedDuration = SignedDuration::from_secs(60);
const WHOLE_IN_POST: SignedDuration = SignedDuration::from_mins(5);
/// Firmware tells its BMC of the options at the end of POST. So long after that the disk is not listed.
const TOLD: SignedDuration = SignedDuration::from_mins(2);
/// Servers take 15 minutes to come up, longer where something is updated. Some BMCs never tell of an end.
const LONGEST: SignedDuration = SignedDuration::from_mins(20);
const LONGEST_IN_POST: SignedDuration = SignedDuration::from_mins(40);

/// What such a start asks of the host's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setup {
    /// The next start is into the setup.
    Next,
    /// The host is in it.
    Running,
    /// It has been for long enough.
    Over,
}

/// Whether the host is started so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    No,
    /// Once nothing else forbids it, and the list of its options has stood still.
    Soon,
    Now,
}

/// A host that is off, or that runs nothing of its machine's and is reset. `starts`: nothing but the boot order forbids that.
pub(super) fn begin(o: &Situation<'_>, host: Host<'_>, starts: bool, now: Timestamp, draft: &mut Draft) -> Begin {
    let record = &o.owned.record;
    let asked_again = || o.owned.owner.restart_request().is_some_and(|asked| record.at.is_none_or(|at| asked > at));
    let helps =
        |seen: &HostObserved| seen.boot.allowed_next.contains(&BootSource::Setup) && boot::may_be_unseen(host, seen);
    if o.want != Want::On || !o.bmc.host.last().is_some_and(helps) {
        return Begin::No;
    }
    let goes_on = is_half_done(o) || is_lost(o, now);
    if record.setup_starts >= STARTS && !asked_again() && !goes_on {
        return Begin::No;
    }
    if !starts {
        // Of the other hosts it is what they are presented that is waited for.
        return if host.shares_power() { Begin::Soon } else { Begin::No };
    }
    if o.owned.is_off() {
        return Begin::Now;
    }
    if o.owned.was_off() {
        draft.need_bmc(BmcNeed::Now);
        return Begin::No;
    }
    if !host.shares_power() || record.started_boot_id == host.boot_id() || !is_on(&o.owned) {
        return Begin::No;
    }
    if goes_on || is_whole(&o.owned, Wait::ToStandStill, now, draft) { Begin::Now } else { Begin::Soon }
}

/// The host of a DPU that shares its power was powered on into its setup, and not reset since.
fn is_half_done(o: &Situation<'_>) -> bool {
    o.owned.is_in_setup() && o.owned.record.action == Some(PowerAction::On)
}

/// The reset into the setup may never have been sent: its record is written before.
fn is_lost(o: &Situation<'_>, now: Timestamp) -> bool {
    let record = &o.owned.record;
    record.in_setup && record.reset_may_be_lost() && record.at.is_some_and(|at| now >= at + SETTLE)
}

fn is_on(o: &Owned<'_>) -> bool {
    matches!(o.reading, Reading::Fresh(PowerState::On) | Reading::Old(PowerState::On))
}

/// Of a host that is in its setup, or on the way there. `presented`: all that the machine has.
pub(super) fn stage(
    o: &Situation<'_>,
    host: Host<'_>,
    presented: bool,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Setup> {
    let record = &o.owned.record;
    if !o.owned.is_in_setup() || o.owned.was_off() {
        return None;
    }
    match record.action {
        // Once all is presented it is reset: into the setup again, or from the disk.
        Some(PowerAction::On) if host.shares_power() => {
            (!is_listed(&o.owned, host) && (!presented || !is_on(&o.owned))).then_some(Setup::Running)
        }
        Some(PowerAction::WarmReset) if is_lost(o, now) || is_over(&o.owned, host, now, draft) => None,
        Some(PowerAction::On) if is_over(&o.owned, host, now, draft) => Some(Setup::Over),
        Some(PowerAction::On | PowerAction::WarmReset) => Some(Setup::Running),
        // Powered off already, and not off yet.
        _ => Some(Setup::Over),
    }
}

/// The options are read again, of a host that is in its setup.
pub(super) fn look(o: &Belongings, now: Timestamp, draft: &mut Draft) {
    down::read_host(o.bmc.read_at, EVERY, now, draft);
}

/// The disk is in a list that is whole, or will not come any more.
pub(super) fn is_over(o: &Owned<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) -> bool {
    is_whole(o, if is_listed(o, host) { Wait::ToStandStill } else { Wait::ForTheDisk }, now, draft)
}

fn is_listed(o: &Owned<'_>, host: Host<'_>) -> bool {
    o.bmc.host.last().is_some_and(|seen| boot::is_listed(host, seen))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    ToStandStill,
    ForTheDisk,
}

/// The list of a host that is on has been the same for long enough since the last action, or that was long ago.
fn is_whole(o: &Owned<'_>, wait: Wait, now: Timestamp, draft: &mut Draft) -> bool {
    let (true, Some(seen), Some(read_at)) = (is_on(o), o.bmc.host.last(), o.bmc.read_at) else { return false };
    let (whole, told, longest) = match seen.post {
        Post::InSetup | Post::Done => (WHOLE, TOLD, LONGEST),
        Post::Unknown => (WHOLE_UNTOLD, LONGEST, LONGEST),
        Post::Running => (WHOLE_IN_POST, LONGEST_IN_POST, LONGEST_IN_POST),
    };
    let wait = if wait == Wait::ToStandStill { whole } else { told };
    let at = o.record.at;
    let same_since = o.bmc.listing_since.unwrap_or(read_at);
    let same_since = at.map_or(same_since, |at| same_since.max(at));
    if read_at >= same_since + wait || at.is_some_and(|at| now >= at + longest) {
        return true;
    }
    down::read_host(Some(read_at), EVERY, now, draft);
    false
}
