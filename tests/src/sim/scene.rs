//! Everything around the controllers and the agents: API server, storage, hosts; and the watch over the invariants.

use super::api::Server;
use super::api::watch::Manners;
use super::faults::{Effect, Faults, Plan, Who};
use super::host::Host;
use super::random::Random;
use planner::exposure::{ExposureId, Slot};
use planner::host::{PowerAction, PowerState};
use ports::VolumeConnector;
use ports::conformance::memory::MemoryStorage;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub struct Scene {
    pub server: Arc<Server>,
    pub storage: MemoryStorage,
    pub faults: Faults,
    pub hosts: Vec<Arc<Host>>,
    pub random: Random,
    manners: BTreeMap<Who, Arc<Mutex<Manners>>>,
    violations: Mutex<Vec<String>>,
}

impl Scene {
    pub fn new(hosts: usize, seed: u64, plan: Plan, dir: &Path) -> Arc<Self> {
        let random = Random::new(seed);
        let storage = MemoryStorage::default();
        let host = |number| Host::new(number, dir, &storage, random.clone());
        Arc::new(Self {
            server: Server::new(),
            faults: Faults::new(plan, random.clone()),
            hosts: (1..=hosts).map(host).collect(),
            random,
            manners: [Who::Controller, Who::Agent].map(|who| (who, Arc::default())).into(),
            storage,
            violations: Mutex::default(),
        })
    }

    /// How watches of these processes behave from now on.
    pub fn watches(&self, who: Who, manners: Manners) {
        *self.manners[&who].lock().unwrap_or_else(PoisonError::into_inner) = manners;
    }

    pub fn manners(&self, who: Who) -> Arc<Mutex<Manners>> {
        self.manners[&who].clone()
    }

    fn violated(&self, what: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn journal(&self) -> Vec<Effect> {
        self.faults.journal()
    }

    /// After every effect: no volume is writable from two DPUs.
    pub fn check(&self, after: &str) {
        let mut writers: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
        for host in &self.hosts {
            for disk in host.dpu().disks().into_iter().filter(|disk| !disk.read_only) {
                let ports::emulation::Backend::Path(path) = disk.backend;
                writers.entry(path).or_default().push(&host.dpu_name);
            }
        }
        for (path, dpus) in writers.iter().filter(|(_, dpus)| dpus.len() > 1) {
            self.violated(format!("{} is writable from {} after {after}", path.display(), dpus.join(" and ")));
        }
    }

    fn attachments(&self, host: &Host) -> Vec<Arc<Value>> {
        let of = |object: &Arc<Value>| object["spec"]["dpuName"] == json!(host.dpu_name);
        let kinds = ["metalplane.io/diskattachments", "metalplane.io/nicattachments"];
        kinds.iter().flat_map(|kind| self.server.list(kind)).filter(of).collect()
    }

    /// A host is started only with everything presented that it was granted.
    pub fn before_power(&self, host: &Host, action: PowerAction) {
        let starts = match action {
            PowerAction::On => host.power() == PowerState::Off,
            PowerAction::WarmReset => true,
            PowerAction::SoftOff | PowerAction::ForceOff => false,
        };
        if !starts {
            return;
        }
        let dpu = host.dpu();
        let there = dpu.exposures();
        if !dpu.disks().iter().any(|disk| disk.slot == Slot::Boot) {
            self.violated(format!("{action:?} of {} without a boot disk", host.name));
        }
        for attachment in self.attachments(host) {
            let (uid, meta) = (&attachment["metadata"]["uid"], &attachment["metadata"]);
            let wanted = meta.get("deletionTimestamp").is_none() && attachment["spec"].get("grant").is_some();
            if wanted && !there.iter().any(|exposure| json!(exposure.id.uid) == *uid) {
                self.violated(format!("{action:?} of {} without {}", host.name, meta["name"]));
            }
        }
    }

    /// A disk leaves a host that is on only by an unplug that was asked for, and the boot disk never.
    pub fn before_hide(&self, host: &Host, id: &ExposureId) {
        let dpu = host.dpu();
        let Some(disk) = dpu.disks().into_iter().find(|disk| disk.id == *id) else { return };
        if host.power() == PowerState::Off {
            return;
        }
        let attachment = self.attachments(host).into_iter().find(|a| a["metadata"]["uid"] == json!(id.uid));
        let released = attachment
            .is_some_and(|a| a["metadata"].get("deletionTimestamp").is_some() && a["spec"]["release"] == json!(true));
        if !released {
            self.violated(format!("disk {id:?} is taken from {} without a release", host.name));
        }
        if disk.slot == Slot::Boot {
            self.violated(format!("the boot disk {id:?} is taken from {}, which is on", host.name));
        }
    }

    pub fn before_volume_deleted(&self, path: &Path) {
        use futures::FutureExt;
        for host in &self.hosts {
            let dpu = host.dpu();
            let shown = dpu.disks().iter().any(|disk| disk.backend == ports::emulation::Backend::Path(path.to_owned()));
            let connections = dpu.volumes.list().now_or_never().and_then(Result::ok).unwrap_or_default();
            let connected = connections.iter().any(|c| c.backend == ports::emulation::Backend::Path(path.to_owned()));
            if shown || connected {
                self.violated(format!("{} is deleted while {} uses it", path.display(), host.dpu_name));
            }
        }
    }
}
