//! Bringing a claimed attachment to the host, and keeping it there.

use super::presence::{emulation_unknown, presence};
use super::{Blocked, Function, Import, Observed, Presentation, Stage, Step, Stuck, Volume, Waiting};
use super::{nic, recovery, retry};
use crate::exposure::{ExposureId, FunctionKind, Limits};

/// What of a spec may change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// `None`: as it is.
    pub size_bytes: Option<u64>,
    pub limits: Limits,
}

/// The next step for what the record says is claimed as `id`.
pub(super) fn bring(observed: &Observed, id: &ExposureId, function: &Function, asked: Asked) -> Stage {
    if let Some(stuck) = other_epoch(observed, id) {
        return Stage::Stuck(stuck);
    }
    match function {
        Function::Disk { volume, presentation } => disk(observed, id, volume, presentation, asked),
        Function::Seed(seed) => {
            if !observed.seeds.contains(&id.uid) {
                return Stage::Act(Step::WriteSeed { id: id.clone(), secret: seed.secret.clone() });
            }
            expose(observed, id, &seed.presentation, None, asked.limits).unwrap_or(Stage::Done)
        }
        Function::Eraser(eraser) => {
            if !observed.seeds.contains(&id.uid) {
                return Stage::Act(Step::WriteEraser { id: id.clone(), machine: eraser.machine.clone() });
            }
            expose(observed, id, &eraser.presentation, None, asked.limits).unwrap_or(Stage::Done)
        }
        Function::HoldDisk(disk) => {
            if !observed.seeds.contains(&id.uid) {
                return Stage::Act(Step::WriteHoldDisk { id: id.clone(), machine: disk.machine.clone() });
            }
            expose(observed, id, &disk.presentation, None, asked.limits).unwrap_or(Stage::Done)
        }
        Function::Import(import) => fill(observed, id, import),
        Function::Nic(nic) => nic::up(observed, id, nic),
    }
}

/// One epoch of a UID at a time: the host keeps the one that it has.
pub(super) fn other_epoch(observed: &Observed, id: &ExposureId) -> Option<Stuck> {
    let other = observed.other_epoch(id)?;
    let message = format!(
        "the host still has epoch {other} of the attachment, or it is connected; epoch {} follows once the host no longer has epoch {other}",
        id.epoch
    );
    Some(Stuck::waiting(Waiting::OtherEpochPresent, message))
}

/// `None`: connected.
fn connect(observed: &Observed, id: &ExposureId, volume: &Volume) -> Option<Stage> {
    let Some(connections) = observed.connections.get(volume.connector()) else {
        let message = format!("no connector of this DPU understands volumes of {}", volume.connector());
        return Some(Stage::Stuck(Stuck::blocked(Blocked::NoConnector, message)));
    };
    if connections.fresh().is_none() {
        let message = format!("the agent cannot read connector {} now", volume.connector());
        return Some(Stage::Stuck(Stuck::waiting(Waiting::ConnectorUnknown, message)));
    }
    match observed.connection(volume.connector(), id) {
        // Nothing is behind it any more: asked again, the connector says why.
        Some(connected) if connected.size_bytes > 0 => None,
        _ => Some(Stage::Act(Step::Connect { id: id.clone(), volume: volume.clone() })),
    }
}

/// `None`: the host can see it, and it is held to what is asked for.
fn expose(
    observed: &Observed,
    id: &ExposureId,
    presentation: &Presentation,
    driver: Option<&str>,
    asked: Limits,
) -> Option<Stage> {
    if !observed.exposures.tells(FunctionKind::Disk) {
        return Some(emulation_unknown());
    }
    if let Some(stage) = recovery::waits(observed) {
        return Some(stage);
    }
    let Some(exposure) = observed.exposure(id) else {
        return Some(Stage::Act(Step::ExposeDisk {
            id: id.clone(),
            presentation: presentation.clone(),
            driver: driver.map(str::to_owned),
            limits: observed.bounds.and(asked),
        }));
    };
    presence(exposure.presence).map(Stage::Stuck).or_else(|| limit(observed, id, exposure.limits, asked))
}

/// `None`: it is held to what is asked for, or cannot be: that is said beside ([`super::report`]), and stops nothing else.
fn limit(observed: &Observed, id: &ExposureId, held: Limits, asked: Limits) -> Option<Stage> {
    let step = limiting(observed, id, asked);
    let recorded = observed.record.get(&id.uid).is_some_and(|entry| entry.limits == asked);
    let refused = observed.failure(&step).is_some_and(retry::is_final);
    (!refused && (held != observed.bounds.and(asked) || !recorded)).then_some(Stage::Act(step))
}

/// The step that would hold it to what is asked for.
pub(super) fn limiting(observed: &Observed, id: &ExposureId, asked: Limits) -> Step {
    Step::Limit { id: id.clone(), asked, limits: observed.bounds.and(asked) }
}

fn disk(observed: &Observed, id: &ExposureId, volume: &Volume, presentation: &Presentation, asked: Asked) -> Stage {
    if let Some(stage) = connect(observed, id, volume) {
        return stage;
    }
    if let Some(stage) = expose(observed, id, presentation, Some(volume.connector()), asked.limits) {
        return stage;
    }
    let exposed = observed.exposure(id).and_then(|e| e.size_bytes);
    let stored = observed.connection(volume.connector(), id).map(|c| c.size_bytes);
    let (Some(wanted), Some(exposed), Some(stored)) = (asked.size_bytes, exposed, stored) else { return Stage::Done };
    if exposed >= wanted {
        Stage::Done
    } else if stored > exposed {
        Stage::Act(Step::Resize { id: id.clone(), size_bytes: stored })
    } else {
        let message = format!("the storage has {stored} bytes of it, {wanted} are asked for");
        Stage::Stuck(Stuck::waiting(Waiting::StorageSmaller, message))
    }
}

fn fill(observed: &Observed, id: &ExposureId, import: &Import) -> Stage {
    if observed.record.get(&id.uid).is_some_and(|entry| entry.import_done.is_some()) {
        return Stage::Done;
    }
    if let Some(stage) = connect(observed, id, &import.volume) {
        return stage;
    }
    match observed.imports.get(&id.uid) {
        None => Stage::Act(Step::StartImport { id: id.clone(), import: Box::new(import.clone()) }),
        Some(run) => {
            let message = format!("{} bytes of {} read", run.bytes_written, import.url);
            Stage::Stuck(Stuck::waiting(Waiting::Importing, message))
        }
    }
}
