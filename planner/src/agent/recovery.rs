//! What presents disks was started anew and shows the host nothing yet, or never showed it anything.
//!
//! A host that sees some of its disks takes the others for gone. So nothing is presented one by one: all that the record says the host was
//! shown is connected first, and handed over as one set. After a reboot of the DPU, which forgets the record, the set is empty,
//! and the controller is there before any machine is.

use super::{Eraser, Function, HoldDisk, Observed, Presentation, Seed, Stage, Stuck, Waiting};
use crate::exposure::{ExposureId, Limits};
use jiff::SignedDuration;

/// The kernel's NVMe driver gives a command 30 s (nvme_core.io_timeout): a disk whose storage does not answer may not take the others down.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);

/// The whole set that the host is to find.
#[derive(Debug, Clone, PartialEq)]
pub struct Recover {
    pub disks: Vec<Shown>,
    /// The others have waited long enough: a disk that is refused is left out.
    pub partial: bool,
}

/// A disk that the host is to find.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    pub id: ExposureId,
    pub presentation: Presentation,
    /// Whose connection holds the blocks; `None`: the seed's image does.
    pub driver: Option<String>,
    pub limits: Limits,
}

/// The whole set, once it can be presented; `None`: not now, or nothing has to be recovered.
pub(super) fn due(observed: &Observed) -> Option<Recover> {
    let recovery = observed.recovery.as_ref()?;
    let (ready, missing) = split(observed);
    let partial = observed.now.duration_since(recovery.since) >= PATIENCE;
    (missing.is_empty() || partial).then_some(Recover { disks: ready, partial })
}

/// Why no disk is presented by itself now; `None`: it may be.
pub(super) fn waits(observed: &Observed) -> Option<Stage> {
    let recovery = observed.recovery.as_ref()?;
    let (_, missing) = split(observed);
    let what = match (&recovery.error, missing.as_slice()) {
        (Some(error), _) => format!("the last attempt failed: {error}"),
        (None, []) => "that is under way".to_owned(),
        (None, some) => format!(
            "{} of them are not connected yet ({}), which is waited for {} s at most",
            some.len(),
            some.join(", "),
            PATIENCE.as_secs()
        ),
    };
    let message = format!("what presents disks was started anew and gets all disks of the host at once: {what}");
    Some(Stage::Stuck(Stuck::waiting(Waiting::Recovering, message)))
}

/// What can be presented, and the names of what cannot yet.
fn split(observed: &Observed) -> (Vec<Shown>, Vec<String>) {
    let (mut ready, mut missing) = (Vec::new(), Vec::new());
    for entry in observed.record.values().filter(|entry| entry.shown && !observed.released.contains(&entry.id)) {
        let (presentation, driver, is_there) = match &entry.function {
            Function::Disk { volume, presentation } => {
                let connected = observed.connections.get(volume.connector()).and_then(|seen| seen.fresh());
                let is_it = |all: &Vec<super::Connected>| all.iter().any(|c| c.id == entry.id && c.size_bytes > 0);
                (presentation, Some(volume.connector().to_owned()), connected.is_some_and(is_it))
            }
            Function::Seed(Seed { presentation, .. })
            | Function::Eraser(Eraser { presentation, .. })
            | Function::HoldDisk(HoldDisk { presentation, .. }) => {
                (presentation, None, observed.seeds.contains(&entry.id.uid))
            }
            Function::Import(_) | Function::Nic(_) => continue,
        };
        match is_there {
            true => ready.push(Shown {
                id: entry.id.clone(),
                presentation: presentation.clone(),
                driver,
                limits: observed.bounds.and(entry.limits),
            }),
            false => missing.push(entry.key.name.clone()),
        }
    }
    (ready, missing)
}
