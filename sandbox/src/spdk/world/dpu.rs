//! The DPU around SNAP, and its host: what outlives SNAP's process.

use super::World;
use std::collections::BTreeMap;

/// The DPU's own, and its host.
#[derive(Debug, Default)]
pub struct Dpu {
    /// Hot-plugged functions by VUID, and whether the host has them.
    pub plugged: BTreeMap<String, bool>,
    /// Ports of the PCIe switch that are somebody else's.
    pub ports_taken: usize,
    pub ports: usize,
    pub host: Host,
    /// What the host found on each function, by VUID: namespaces with their UUIDs.
    pub(super) found: BTreeMap<String, BTreeMap<u64, String>>,
    /// How `nvme_subsystem_create` calls the serial number.
    pub serial_name: SerialName,
    /// There is no two-step hot-plug, as before SNAP 4.5.
    pub lacks_hot_plug: bool,
    pub(super) made: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Host {
    #[default]
    Off,
    Running,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SerialName {
    #[default]
    Short,
    Long,
    /// It takes none.
    Absent,
}

impl World {
    /// The host's firmware looks at what there is, and starts.
    pub fn start_host(&mut self) {
        self.outside.dpu.host = Host::Running;
        self.outside.dpu.found.clear();
        for vuid in self.outside.functions.clone() {
            match self.snap.shown_on(&vuid) {
                Some(shown) => drop(self.outside.dpu.found.insert(vuid, shown)),
                None => {
                    self.harmful(format!("the host starts, and static function {vuid} has no controller: it hangs"))
                }
            }
        }
    }

    /// The host lets go of everything that was to leave.
    pub fn stop_host(&mut self) {
        self.outside.dpu.host = Host::Off;
        self.outside.dpu.found.clear();
    }

    /// A running host lets go of a function.
    pub fn release_function(&mut self, vuid: &str) {
        self.outside.dpu.plugged.insert(vuid.to_owned(), false);
        self.outside.dpu.found.remove(vuid);
    }

    /// What a running host has under each function.
    pub fn host_found(&self) -> Vec<(String, Vec<u64>)> {
        let found = self.outside.dpu.found.iter();
        found.map(|(vuid, all)| (vuid.clone(), all.keys().copied().collect())).collect()
    }
}
