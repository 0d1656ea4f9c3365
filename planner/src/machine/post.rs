//! Nothing is hot-plugged while the server's firmware is in POST: a function that comes then can break it (NVIDIA's release notes of BlueField-2's firmware,
//! 3605828 and 3629606). What a machine has at its start is presented before the power-on.

use super::draft::Draft;
use super::power;
use super::situation::{Host, Reading, Situation};
use crate::host::{BmcNeed, Post, PowerState};
use crate::reason::{Reason, Waiting};
use jiff::{SignedDuration, Timestamp};

/// Servers take 15 minutes to come up. Some BMCs never tell of an end (`SystemHardwareInitializationComplete` under a running system).
const LONGEST: SignedDuration = SignedDuration::from_mins(20);

/// Why nothing more is granted yet. A DPU that shares its host's power comes up in POST itself, and its host is reset once all is there.
pub(super) fn forbids_grant(o: &Situation<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    if host.shares_power() || power::all_granted(o, host) {
        return None;
    }
    let began = o.owned.record.at.into_iter().chain(o.bmc.post_since).max()?;
    let over = began + LONGEST;
    let is_on = matches!(o.owned.reading, Reading::Fresh(PowerState::On) | Reading::Old(PowerState::On));
    let posting = is_on && o.bmc.host.last().is_some_and(|seen| seen.post == Post::Running);
    (posting && now < over).then(|| {
        draft.need_bmc(BmcNeed::Awaiting);
        draft.wake(over);
        Waiting::HostInPost { hardware: host.name().to_owned() }.into()
    })
}
