//! What the agent is told of the server around its DPU, by whoever installed it.

use crate::args::Args;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct Placement {
    host_serial_file: PathBuf,
    host_privilege_file: PathBuf,
}

impl From<&Args> for Placement {
    fn from(args: &Args) -> Self {
        Self { host_serial_file: args.host_serial_file.clone(), host_privilege_file: args.host_privilege_file.clone() }
    }
}

impl Placement {
    /// Read each time: the file may be written after the agent was started.
    pub fn host_serial_number(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.host_serial_file).ok()?;
        // As long as the field may be; the first line, for an editor may have added another.
        let serial: String = text.lines().next()?.trim().chars().take(128).collect();
        (!serial.is_empty()).then_some(serial)
    }

    /// What the host may do to the DPU, as it was printed into the file; read each time, too.
    pub fn host_privilege(&self) -> Option<String> {
        std::fs::read_to_string(&self.host_privilege_file).ok()
    }
}
