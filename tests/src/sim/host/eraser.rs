//! A host that was booted from an eraser: what it does to the server's own disk, and what it leaves on the eraser.

use super::{Host, State};
use imaging::eraser::{Report, State as Said, Writer, is_named};
use planner::exposure::Slot;
use planner::host::PowerState;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const ERASING: Duration = Duration::from_secs(90);

/// As the installer reports the only disk.
const ERASED: &str = r#"disk {"name":"nvme0n1","serial":"N1","bytes":1073741824,"result":"Erased","method":"Overwrite","read":"all of it is zero","seconds":90}"#;
const FAILED: &str =
    r#"disk {"name":"nvme0n1","serial":"N1","bytes":1073741824,"result":"Failed","why":"it takes no writes"}"#;

/// What the disk in the boot slot is, if an agent made it itself; and whether it is an eraser.
fn made(state: &State) -> Option<(PathBuf, bool)> {
    let disk = state.dpu.disks().into_iter().find(|disk| disk.slot == Slot::Boot)?;
    let path = disk.backend.path().filter(|path| path.starts_with(&state.dpu.run_dir))?.to_owned();
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let is_eraser = File::open(&path).and_then(|disk| is_named(&disk, name)).expect("the disk can be read");
    Some((path, is_eraser))
}

/// The eraser in the boot slot.
fn eraser(state: &State) -> Option<PathBuf> {
    made(state).filter(|(_, is_eraser)| *is_eraser).map(|(path, _)| path)
}

/// A hold disk is in the boot slot, from which nothing starts.
pub(super) fn waits(state: &State) -> bool {
    made(state).is_some_and(|(_, is_eraser)| !is_eraser)
}

/// The server's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalDisk {
    Works,
    /// It takes no writes.
    Broken,
    Absent,
}

impl Host {
    /// False: it was booted from something else.
    pub(super) fn erases(self: &Arc<Self>, state: &mut State) -> bool {
        let Some(eraser) = eraser(state) else { return false };
        say(&eraser, Said::Running, "erases 1 disks");
        self.later(ERASING, state.turn, move |_, state| {
            if state.power != PowerState::On || self::eraser(state).as_ref() != Some(&eraser) {
                return;
            }
            match state.local_disk {
                LocalDisk::Broken => say(&eraser, Said::Failed, FAILED),
                LocalDisk::Absent => say(&eraser, Said::Success, "erases 0 disks"),
                LocalDisk::Works => {
                    state.is_dirty = false;
                    say(&eraser, Said::Success, ERASED);
                }
            }
        });
        true
    }

    /// The server's own disk has what somebody left there.
    pub fn is_dirty(&self) -> bool {
        self.state().is_dirty
    }

    pub fn has(&self, local_disk: LocalDisk) {
        self.state().local_disk = local_disk;
    }
}

fn say(eraser: &PathBuf, state: Said, message: &str) {
    let disk = File::options().read(true).write(true).open(eraser).expect("the eraser is there");
    let report = Report { state, message: message.to_owned() };
    Writer::new(&disk).and_then(|mut writer| writer.write(&report)).expect("the eraser is written");
}
