//! When a failed step may be taken again, and when to look again.

use super::{
    Blocked, Failure, FailureClass, LATER, Observed, SOON, Stage, Step, StepKind, Stuck, Waiting, Why, sooner,
};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);
/// An import that failed reads all of the image again.
const IMPORT_FIRST: Duration = Duration::from_secs(1);
const IMPORT_LONGEST: Duration = Duration::from_secs(300);

/// The step to take now, if any, and why there is none or why it is a repetition.
pub(super) fn retry(
    observed: &Observed,
    look_again: &mut Option<Duration>,
    stage: Stage,
) -> (Option<Step>, Option<Stuck>) {
    let step = match stage {
        Stage::Done => return (None, None),
        Stage::Stuck(stuck) => {
            if let Some(after) = recheck(stuck.why) {
                sooner(look_again, after);
            }
            return (None, Some(stuck));
        }
        Stage::Act(step) => step,
    };
    let Some(failure) = observed.failure(&step) else { return (Some(step), None) };
    let why = why(failure);
    let stuck = Some(Stuck { why, message: failure.message.clone() });
    if is_final(failure) {
        return (None, stuck);
    }
    let waited = observed.now.duration_since(failure.at).max(jiff::SignedDuration::ZERO).unsigned_abs();
    let rest = delay(failure.step.kind(), failure.count).saturating_sub(waited);
    if rest.is_zero() {
        return (Some(step), stuck);
    }
    sooner(look_again, rest);
    (None, stuck)
}

/// Taken again it would fail again.
pub(super) fn is_final(failure: &Failure) -> bool {
    matches!(why(failure), Why::Blocked(Blocked::ResizeNeedsPowerCycle | Blocked::LimitsUnsupported))
}

pub(super) fn why(failure: &Failure) -> Why {
    match (failure.step.kind(), failure.class) {
        (StepKind::Resize, FailureClass::Unsupported) => Why::Blocked(Blocked::ResizeNeedsPowerCycle),
        (StepKind::Limit, FailureClass::Unsupported) => Why::Blocked(Blocked::LimitsUnsupported),
        (StepKind::Connect, FailureClass::Unauthorized) => Why::Blocked(Blocked::Fenced),
        (kind, _) => Why::Failed(kind),
    }
}

/// Doubled with each failure.
fn delay(kind: StepKind, count: u32) -> Duration {
    let (first, longest) = match kind {
        StepKind::Import => (IMPORT_FIRST, IMPORT_LONGEST),
        _ => (FIRST, LONGEST),
    };
    first.saturating_mul(1 << count.saturating_sub(1).min(16)).min(longest)
}

/// Nobody tells us when these change.
fn recheck(why: Why) -> Option<Duration> {
    match why {
        Why::Waiting(Waiting::HostConnecting | Waiting::HostLettingGo | Waiting::PortNotForwarding) => Some(SOON),
        Why::Waiting(
            Waiting::EmulationUnknown
            | Waiting::Recovering
            | Waiting::ConnectorUnknown
            | Waiting::SwitchUnknown
            | Waiting::StorageSmaller
            | Waiting::OtherEpochPresent,
        ) => Some(LATER),
        // The switch tells; that the time is over, nobody does.
        Why::Waiting(
            Waiting::NotGranted | Waiting::NotReleased | Waiting::Importing | Waiting::NotBound | Waiting::NotInForce,
        )
        | Why::Blocked(_)
        | Why::Failed(_) => None,
    }
}
