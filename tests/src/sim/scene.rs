//! Everything around the controllers and the agents: API server, storage, hosts; and the watch over the invariants.

use super::api::Server;
use super::api::watch::Manners;
use super::csi::Driver;
use super::faults::{Effect, Faults, Plan, Who};
use super::host::{Dpu, Host, Shared};
use super::random::Random;
use super::signal::Signal;
use super::simulation::INVENTORY;
use super::storage;
use api::dpu::PowerDomain;
use futures::FutureExt;
use planner::exposure::{ExposureId, Slot};
use planner::host::{PowerAction, PowerState};
use planner::network::rows::{KIND, Row};
use ports::conformance::memory::{MemoryNorthBound, MemoryStorage};
use ports::emulation::Backend;
use ports::{Switch, VolumeConnector};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub struct Scene {
    pub server: Arc<Server>,
    pub storage: MemoryStorage,
    pub north_bound: MemoryNorthBound,
    /// How long a controller that opens it has no copy of it.
    copying: Mutex<Duration>,
    pub faults: Faults,
    pub hosts: Vec<Arc<Host>>,
    /// Of the storage whose volumes only kubelet can connect.
    pub driver: Driver,
    pub random: Random,
    manners: BTreeMap<Who, Arc<Mutex<Manners>>>,
    /// By the name of a DPU: its agent is cut off from the API server.
    cuts: BTreeMap<String, Arc<Signal<bool>>>,
    /// All other processes are.
    away: Arc<Signal<bool>>,
    violations: Mutex<Vec<String>>,
    /// UIDs of the claims of which the storage has refused a node.
    refused_nodes: Mutex<BTreeSet<String>>,
    /// Where the blocks of the volumes are.
    pub volumes: PathBuf,
    /// Rows of others in OVN.
    foreign: OnceLock<Vec<Row>>,
    /// By which agents have shown who they are.
    tokens: Mutex<BTreeSet<String>>,
}

impl Scene {
    pub fn new(hosts: usize, power_domain: PowerDomain, seed: u64, plan: Plan, dir: &Path) -> Arc<Self> {
        let random = Random::new(seed);
        let shared = Shared::default();
        let host = |number| Host::new(number, power_domain, dir, &shared, random.clone());
        let hosts: Vec<Arc<Host>> = (1..=hosts).map(host).collect();
        Arc::new(Self {
            server: Server::new(),
            faults: Faults::new(plan, random.clone()),
            cuts: hosts.iter().map(|host| (host.dpu_name.clone(), Signal::new(false))).collect(),
            away: Signal::new(false),
            hosts,
            driver: Driver::default(),
            random,
            manners: [Who::Controller, Who::Agent, Who::Boot].map(|who| (who, Arc::default())).into(),
            storage: shared.storage,
            north_bound: shared.north_bound,
            copying: Mutex::default(),
            volumes: dir.join("volumes"),
            foreign: OnceLock::new(),
            tokens: Mutex::default(),
            violations: Mutex::default(),
            refused_nodes: Mutex::default(),
        })
    }

    /// Another cluster, in which the same servers are registered. Its network is another one, too.
    pub fn beside(&self) -> Arc<Self> {
        Arc::new(Self {
            server: Server::new(),
            faults: Faults::new(Plan::None, self.random.clone()),
            cuts: self.hosts.iter().map(|host| (host.dpu_name.clone(), Signal::new(false))).collect(),
            away: Signal::new(false),
            hosts: self.hosts.clone(),
            driver: Driver::default(),
            random: self.random.clone(),
            manners: [Who::Controller, Who::Agent, Who::Boot].map(|who| (who, Arc::default())).into(),
            storage: self.storage.clone(),
            north_bound: MemoryNorthBound::default(),
            copying: Mutex::default(),
            volumes: self.volumes.clone(),
            foreign: OnceLock::new(),
            tokens: Mutex::default(),
            violations: Mutex::default(),
            refused_nodes: Mutex::default(),
        })
    }

    /// Who opens the north-bound database from now on has its copy after so long.
    pub fn copies_north_bound_for(&self, long: Duration) {
        *self.copying.lock().unwrap_or_else(PoisonError::into_inner) = long;
    }

    pub fn copying(&self) -> Duration {
        *self.copying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file with a volume's blocks: handles are the same in every run, folders are not.
    pub fn blocks(&self, handle: &Path) -> PathBuf {
        self.volumes.join(handle.file_name().unwrap_or_default())
    }

    /// Whether a backend is a volume, and not a file of an agent's own.
    pub fn is_volume(&self, backend: &Path) -> bool {
        backend.starts_with(&self.volumes) || backend.starts_with(storage::path(""))
    }

    /// How watches of these processes behave from now on.
    pub fn watches(&self, who: Who, manners: Manners) {
        *self.manners[&who].lock().unwrap_or_else(PoisonError::into_inner) = manners;
    }

    pub fn manners(&self, who: Who) -> Arc<Mutex<Manners>> {
        self.manners[&who].clone()
    }

    /// True the first time that it is asked about this claim.
    pub fn refuses_node(&self, claim_uid: &str) -> bool {
        self.refused_nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(claim_uid.to_owned())
    }

    /// Cuts the agent of a DPU off from the API server, or connects it again. All else goes on.
    pub fn cut(&self, dpu: &str, cut: bool) {
        self.cuts[dpu].set(cut);
    }

    /// The API server answers nobody, or does again: neither requests nor watches. All else goes on.
    pub fn api_server_is_away(&self, away: bool) {
        self.cuts.values().chain([&self.away]).for_each(|cut| cut.set(away));
    }

    /// Whether the process of this name is cut off; the agent's begins with its DPU's.
    pub fn cuts(&self, process: &str) -> Arc<Signal<bool>> {
        let of_agent = self.cuts.iter().find(|(dpu, _)| process.split(' ').next() == Some(dpu));
        of_agent.map_or(&self.away, |(_, cut)| cut).clone()
    }

    pub fn has_token(&self, token: &str) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(token.to_owned());
    }

    pub fn tokens(&self) -> BTreeSet<String> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn violated(&self, what: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn journal(&self) -> Vec<Effect> {
        self.faults.journal()
    }

    /// After every effect: no volume is writable from two DPUs. Every host writes to all of its disks at that moment: what the
    /// storage takes from an earlier holder after a later one has written is a late write that arrived.
    pub fn check(&self, after: &str) {
        let mut writers: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
        for host in &self.hosts {
            let disks = host.dpu().disks().into_iter().filter(|disk| !disk.read_only);
            // An eraser is no volume: its agent made it.
            for disk in disks.filter(|disk| disk.backend.path().is_none_or(|path| self.is_volume(path))) {
                if !self.storage.accepts(&disk.backend, disk.id.epoch) {
                    continue;
                }
                if let Some(later) = self.storage.write(&disk.backend, disk.id.epoch, 0) {
                    self.violated(format!("{:?} wrote after epoch {later} did, after {after}", disk.id));
                }
                let Some(path) = disk.backend.path() else { continue };
                writers.entry(path.to_owned()).or_default().push(&host.dpu_name);
            }
        }
        for (path, dpus) in writers.iter().filter(|(_, dpus)| dpus.len() > 1) {
            self.violated(format!("{} is writable from {} after {after}", path.display(), dpus.join(" and ")));
        }
        let rows = self.north_bound.rows();
        let mut wrong = super::workers::strangers(self);
        wrong.extend(super::in_force::not_installed(self, &rows));
        wrong.extend(super::once::on_ports(self, &rows));
        wrong.extend(super::once::in_statuses(self, &rows));
        wrong.extend(super::held::unheld(self, &rows));
        wrong.extend(super::shared::twice(self));
        wrong.extend(self.foreign.get().and_then(|there| super::foreign::touched(self, there)));
        wrong.into_iter().for_each(|what| self.violated(format!("{what} after {after}")));
    }

    /// These rows of others stay as they are.
    pub fn keep(&self, foreign: Vec<Row>) {
        self.foreign.set(foreign).expect("once");
    }

    /// A link goes up only where OVN drops what is not allowed: the port is bound to this very grant.
    pub fn before_link_up(&self, dpu: &Dpu, id: &ExposureId) {
        let seen = dpu.switch.list().now_or_never().and_then(Result::ok).unwrap_or_default();
        if !seen.iter().any(|seen| seen.port.id == *id && seen.in_force) {
            self.violated(format!("the link of {id:?} goes up before its port is in force: {seen:?}"));
        }
    }

    fn attachments(&self, host: &Host) -> Vec<Arc<Value>> {
        let of = |object: &Arc<Value>| object["spec"]["dpuName"] == json!(host.dpu_name);
        let kinds = ["metalplane.io/diskattachments", "metalplane.io/nicattachments"];
        kinds.iter().flat_map(|kind| self.server.list(kind)).filter(of).collect()
    }

    /// A host is started only with everything presented that it was granted.
    pub fn before_power(&self, host: &Host, action: PowerAction) {
        if !host.is_itself() {
            self.violated(format!("{action:?} of another server than {}", host.name));
        }
        let starts = match action {
            // A DPU that shares its host's power can present nothing before that.
            PowerAction::On => host.power() == PowerState::Off && host.power_domain == PowerDomain::Standby,
            PowerAction::WarmReset => true,
            PowerAction::SoftOff | PowerAction::ForceOff => false,
        };
        if !starts || host.has_just_lost_its_dpu() {
            return;
        }
        let dpu = host.dpu();
        let there = dpu.exposures();
        let server = self.server.get("tinkerbell.org/hardware", INVENTORY, &host.name).unwrap_or_default();
        let annotations = &server["metadata"]["annotations"];
        let bare = annotations["metalplane.io/boot-strategy"] == "Workflow";
        let of_job = annotations["metalplane.io/job"].is_string() && annotations["metalplane.io/claimed-by"].is_null();
        if !bare && !of_job && !dpu.disks().iter().any(|disk| disk.slot == Slot::Boot) {
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

    /// A disk or NIC leaves a host that is on only where its release was asked for, its storage refused it, or an administrator
    /// said so; the boot disk never but by his word.
    pub fn before_hide(&self, host: &Host, id: &ExposureId) {
        if host.power() == PowerState::Off || self.is_forgotten(host, id) {
            return;
        }
        let disk = host.dpu().disks().into_iter().find(|disk| disk.id == *id);
        let refused =
            disk.as_ref().is_some_and(|disk| !disk.read_only && !self.storage.accepts(&disk.backend, id.epoch));
        if !refused && !self.server.store().was_released(&id.uid) {
            self.violated(format!("{id:?} is taken from {} without a release", host.name));
        }
        if disk.is_some_and(|disk| disk.slot == Slot::Boot) {
            self.violated(format!("the boot disk {id:?} is taken from {}, which is on", host.name));
        }
    }

    fn is_forgotten(&self, host: &Host, id: &ExposureId) -> bool {
        let dpu = self.server.get("metalplane.io/dpus", "", &host.dpu_name).unwrap_or_default();
        dpu["spec"]["forget"].as_array().into_iter().flatten().any(|uid| *uid == json!(id.uid))
    }

    /// Several disks of one machine are taken together only while nothing can be written to any of them.
    pub fn before_cut(&self, snapshot: &Value) {
        let operation = &snapshot["metadata"]["labels"][api::labels::OPERATION_UID];
        let all = self.server.list("metalplane.io/machinesnapshots");
        let Some(of) = all.iter().find(|of| of["metadata"]["uid"] == *operation) else { return };
        let together = of["status"]["consistency"] == "Machine" && of["status"]["disks"][1].is_object();
        for attachment in self.server.list("metalplane.io/diskattachments") {
            let host = self.hosts.iter().find(|host| attachment["spec"]["dpuName"] == json!(host.dpu_name));
            let on = host.is_some_and(|host| host.power() != PowerState::Off);
            if together && on && attachment["spec"]["owner"]["name"] == of["spec"]["machineName"] {
                self.violated(format!("{} is cut while its machine is on", snapshot["metadata"]["name"]));
            }
        }
    }

    /// Or by one group, which has all of them, while the machine is locked.
    pub fn before_group_taken(&self, group: &Value, content: &Value) {
        let operation = &group["metadata"]["labels"][api::labels::OPERATION_UID];
        let all = self.server.list("metalplane.io/machinesnapshots");
        // Deleted meanwhile: nobody asks what is in it.
        let Some(of) = all.iter().find(|of| of["metadata"]["uid"] == *operation) else { return };
        let has = |claim: &Value| content["spec"]["claims"].as_array().is_some_and(|all| all.contains(claim));
        let disks = of["status"]["disks"].as_array().cloned().unwrap_or_default();
        if !disks.iter().all(|disk| has(&disk["claimName"])) {
            self.violated(format!("{} lacks a disk of {disks:?}: {content}", group["metadata"]["name"]));
        }
        let machine = of["spec"]["machineName"].as_str().unwrap_or_default();
        let namespace = of["metadata"]["namespace"].as_str().unwrap_or_default();
        let machine = self.server.get("metalplane.io/baremetalmachines", namespace, machine).unwrap_or_default();
        let lock = machine["metadata"]["annotations"][api::labels::OPERATION].as_str().unwrap_or_default();
        if !lock.ends_with(operation.as_str().unwrap_or_default()) {
            self.violated(format!("{} is taken without the lock of its machine: '{lock}'", group["metadata"]["name"]));
        }
    }

    pub fn before_volume_deleted(&self, path: &Path) {
        use futures::FutureExt;
        let blocks = self.blocks(path);
        let is_it =
            |backend: &Backend| *backend == Backend::Path(path.to_owned()) || *backend == Backend::Path(blocks.clone());
        for host in &self.hosts {
            let dpu = host.dpu();
            let shown = dpu.disks().iter().any(|disk| is_it(&disk.backend));
            let listed = [dpu.volumes.list(), dpu.kubelet.list()].map(|list| list.now_or_never().and_then(Result::ok));
            let connections: Vec<_> = listed.into_iter().flatten().flatten().collect();
            let connected = connections.iter().any(|c| is_it(&c.backend));
            if shown || connected {
                self.violated(format!("{} is deleted while {} uses it", path.display(), host.dpu_name));
            }
        }
    }
}

/// Rows of others may say of no kind.
pub fn is_of_vnic(row: &Row) -> bool {
    row.external_ids.get(KIND).is_some_and(|kind| kind == "VNic")
}
