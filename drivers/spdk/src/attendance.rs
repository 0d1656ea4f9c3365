//! Whether the host was there when the target died.
//!
//! A vfio-user host does not find back to a new target: its disks are gone until it is powered off and on. Nothing that
//! a new target says tells of that, so what was seen is kept in a file. It lies where a reboot of the DPU forgets it,
//! as the host forgets its functions then.

use std::{io, path::PathBuf};

#[derive(Debug)]
pub struct Attendance {
    file: PathBuf,
    now: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Never seen, or gone of its own accord: it was powered off.
    Absent,
    Connected,
    /// The target was lost under it.
    Stranded,
}

const CONNECTED: &[u8] = b"connected\n";
const STRANDED: &[u8] = b"stranded\n";

impl Attendance {
    /// A file that cannot be read is as good as none: the host's next connection puts it right.
    pub fn open(file: PathBuf) -> Self {
        let now = match std::fs::read(&file).as_deref() {
            Ok(CONNECTED) => State::Connected,
            Ok(STRANDED) => State::Stranded,
            _ => State::Absent,
        };
        Self { file, now }
    }

    pub fn is_stranded(&self) -> bool {
        self.now == State::Stranded
    }

    /// `subsystem`: the target has ours; `None` means that it is not the target that the host knew.
    pub fn saw(&mut self, subsystem: bool, connected: bool) -> io::Result<()> {
        let next = match (self.now, subsystem, connected) {
            (_, true, true) => State::Connected,
            (State::Connected, false, _) => State::Stranded,
            (State::Connected, true, false) => State::Absent,
            (before, _, _) => before,
        };
        if next == self.now {
            return Ok(());
        }
        let content = match next {
            State::Absent => b"absent\n",
            State::Connected => CONNECTED,
            State::Stranded => STRANDED,
        };
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let new = self.file.with_extension("new");
        std::fs::write(&new, content)?;
        std::fs::rename(&new, &self.file)?;
        self.now = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_target_lost_under_the_host_strands_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("spdk/host");
        let mut attendance = Attendance::open(file.clone());
        let cases = [
            ((false, false), false, "nothing is presented yet"),
            ((true, false), false, "presented, and the host is off"),
            ((true, true), false, "the host is on"),
            ((true, false), false, "the host was powered off"),
            ((false, false), false, "the target died while the host was off"),
            ((true, true), false, "the host is on"),
            ((false, false), true, "the target died under it"),
            ((true, false), true, "presented again, and not seen"),
            ((true, true), false, "the host was powered off and on"),
        ];
        for ((subsystem, connected), stranded, when) in cases {
            attendance.saw(subsystem, connected).expect("written");
            assert_eq!(attendance.is_stranded(), stranded, "{when}");
            assert_eq!(Attendance::open(file.clone()).is_stranded(), stranded, "{when}, after a restart");
            attendance = Attendance::open(file.clone());
        }
    }
}
