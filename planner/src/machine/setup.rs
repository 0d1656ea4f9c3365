//! A start into the firmware's setup, so that the firmware lists the DPU's boot disk.
//!
//! A firmware lists a disk once it has seen the disk in a POST. A server that is new has not, and by its boot order it would start something
//! else. So it is started into its setup once, where nothing is booted, with all that the machine has presented; it is powered off when the disk
//! is listed, and started again from the disk. At most twice; then a person is asked. The host is off before, by a reading of this moment, and
//! the override to the setup has been read back: no host that runs is disturbed.
//!
//! An override may be ignored. A host whose guest answers meanwhile is taken as started.

use super::boot;
use super::draft::Draft;
use super::situation::{Host, Reading, Situation, Want};
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

/// The host is off, and may be started so. `starts`: nothing but the boot order forbids a start.
pub(super) fn may_begin(o: &Situation<'_>, host: Host<'_>, starts: bool, draft: &mut Draft) -> bool {
    let record = &o.owned.record;
    let asked_again = || o.owned.owner.restart_request().is_some_and(|asked| record.at.is_none_or(|at| asked > at));
    // A DPU that shares its host's power presents nothing yet in the POST of its host.
    let may = starts && o.want == Want::On && o.owned.was_off() && !host.shares_power();
    let helps =
        |seen: &HostObserved| seen.boot.allowed_next.contains(&BootSource::Setup) && boot::may_be_unseen(host, seen);
    if !may || !o.bmc.host.last().is_some_and(helps) || (record.setup_starts >= STARTS && !asked_again()) {
        return false;
    }
    if !o.owned.is_off() {
        draft.need_bmc(BmcNeed::Now);
    }
    o.owned.is_off()
}

/// Of a host that is in its setup, or on the way there.
pub(super) fn stage(o: &Situation<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) -> Option<Setup> {
    let record = &o.owned.record;
    if !o.owned.is_in_setup() || o.owned.was_off() {
        return None;
    }
    let (Some(PowerAction::On), Some(at)) = (record.action, record.at) else {
        // Powered off already, and not off yet.
        return Some(Setup::Over);
    };
    let is_on = matches!(o.owned.reading, Reading::Fresh(PowerState::On) | Reading::Old(PowerState::On));
    let (true, Some(seen), Some(read_at)) = (is_on, o.bmc.host.last(), o.bmc.read_at) else {
        return Some(Setup::Running);
    };
    let (whole, told, longest) = match seen.post {
        Post::InSetup | Post::Done => (WHOLE, TOLD, LONGEST),
        Post::Unknown => (WHOLE_UNTOLD, LONGEST, LONGEST),
        Post::Running => (WHOLE_IN_POST, LONGEST_IN_POST, LONGEST_IN_POST),
    };
    let wait = if boot::is_listed(host, seen) { whole } else { told };
    let same_since = o.bmc.listing_since.unwrap_or(read_at).max(at);
    if read_at >= same_since + wait || now >= at + longest {
        return Some(Setup::Over);
    }
    down::read_host(Some(read_at), EVERY, now, draft);
    Some(Setup::Running)
}
