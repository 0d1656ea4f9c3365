//! One run: starts the processes, changes objects as a user would, waits for what should come, and tells what is there.

use super::api::path::Id;
use super::api::store::Part;
use super::faults::Plan;
use super::host::{Host, serial_number};
use super::restarts::Lives;
use super::scene::Scene;
use super::{kubelet, secrets, storage, web};
use api::dpu::PowerDomain;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::{Pages, Settings};
use planner::host::InstallerIso;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

pub const SYSTEM: &str = "metalplane-system";
pub const INVENTORY: &str = "metalplane-inventory";
/// As the chart has it.
pub const SEEDS: &str = "metalplane-seeds";
pub const USER: &str = "team-a";
/// After this much simulated time what has not come will not come.
pub const PATIENCE: Duration = Duration::from_secs(900);

pub struct Simulation {
    pub scene: Arc<Scene>,
    tasks: Vec<JoinHandle<()>>,
    controllers: Vec<Lives>,
    /// What each controller serves, by its name.
    pages: BTreeMap<String, Pages>,
    /// By the name of the DPU.
    agents: BTreeMap<String, Lives>,
    /// What controllers that are started from now on tell BMCs of the installer's ISO.
    pub installer_iso: Option<InstallerIso>,
    pub discover_boot_options: bool,
    /// Of the cluster that was there first.
    _dir: Option<tempfile::TempDir>,
}

impl Drop for Simulation {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        for lives in self.agents.values().chain(&self.controllers) {
            lives.abort();
        }
    }
}

impl Simulation {
    /// Hosts with their DPUs, on standby power, approved; one golden snapshot, one controller, and an agent on each DPU.
    pub fn start(hosts: usize, seed: u64, plan: Plan) -> Self {
        Self::start_on(PowerDomain::Standby, hosts, seed, plan)
    }

    pub fn start_on(power_domain: PowerDomain, hosts: usize, seed: u64, plan: Plan) -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.expect("a folder for the agents' files");
        std::fs::create_dir(dir.path().join("volumes")).expect("a folder for the volumes");
        let scene = Scene::new(hosts, power_domain, seed, plan, dir.path());
        let mut simulation = Self {
            scene: scene.clone(),
            tasks: Vec::new(),
            controllers: Vec::new(),
            pages: BTreeMap::new(),
            agents: BTreeMap::new(),
            installer_iso: None,
            discover_boot_options: false,
            _dir: Some(dir),
        };
        simulation.furnish();
        simulation.tasks.push(tokio::spawn(storage::run(scene.clone())));
        simulation.tasks.push(tokio::spawn(kubelet::run(scene.clone())));
        simulation.start_controller("controller-1", SYSTEM);
        for host in scene.hosts.clone() {
            simulation.start_agent(&host);
        }
        simulation
    }

    /// Another cluster with the same servers, a controller of its own, and no agent. It ends before this one.
    pub fn beside(&self) -> Self {
        let mut other = Self {
            scene: self.scene.beside(),
            tasks: Vec::new(),
            controllers: Vec::new(),
            pages: BTreeMap::new(),
            agents: BTreeMap::new(),
            installer_iso: None,
            discover_boot_options: false,
            _dir: None,
        };
        other.furnish();
        other.start_controller("controller-1", SYSTEM);
        other
    }

    fn furnish(&self) {
        for name in ["kube-system", SYSTEM, INVENTORY, USER] {
            self.create("namespaces", "", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        let policy = json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "HardwarePolicy",
            "metadata": {"name": "default"}, "spec": {"releasePolicy": {"localDisks": "Keep"}}});
        self.create("metalplane.io/hardwarepolicies", INVENTORY, policy);
        for host in &self.scene.hosts {
            self.rack(host);
        }
        self.create(
            "snapshot.storage.k8s.io/volumesnapshots",
            USER,
            json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": {"name": "golden"}, "spec": {"source": {"volumeSnapshotContentName": "golden"}},
            }),
        );
        self.create(
            "metalplane.io/machineimages",
            USER,
            json!({
                "apiVersion": "metalplane.io/v1alpha1", "kind": "MachineImage", "metadata": {"name": "debian"},
                "spec": {"source": {"snapshot": {"name": "golden"}}, "storageClassName": "fast"},
            }),
        );
        self.create(
            "metalplane.io/subnets",
            USER,
            json!({
                "apiVersion": "metalplane.io/v1alpha1", "kind": "Subnet", "metadata": {"name": "blue"},
                "spec": {"cidr": "10.20.0.0/24", "gateway": "10.20.0.1"},
            }),
        );
    }

    fn rack(&self, host: &Host) {
        let name = &host.name;
        let [user, password] = ["admin", secrets::PASSWORD].map(|text| STANDARD.encode(text));
        self.create(
            "secrets",
            INVENTORY,
            json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name}, "data": {"username": user, "password": password}}),
        );
        self.bmc(name, name);
        self.create(
            "tinkerbell.org/hardware",
            INVENTORY,
            json!({
                "apiVersion": "tinkerbell.org/v1alpha1", "kind": "Hardware", "metadata": {"name": name},
                "spec": {"bmcRef": {"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": name}},
            }),
        );
        self.create(
            "metalplane.io/dpus",
            "",
            json!({
                "apiVersion": "metalplane.io/v1alpha1", "kind": "Dpu", "metadata": {"name": host.dpu_name},
                "spec": {"hardwareRef": {"name": name, "serialNumber": serial_number(name)},
                    "powerDomain": host.power_domain, "approved": true},
            }),
        );
    }

    /// The object that says where the BMC of this name answers.
    fn bmc(&self, name: &str, secret: &str) {
        self.create_bmc(name, name, secret);
    }

    /// The same, of a BMC that answers elsewhere.
    pub fn create_bmc(&self, name: &str, address: &str, secret: &str) {
        self.create(
            "bmc.tinkerbell.org/machines",
            INVENTORY,
            json!({
                "apiVersion": "bmc.tinkerbell.org/v1alpha1", "kind": "Machine", "metadata": {"name": name},
                "spec": {"connection": {"host": address, "port": 623, "insecureTLS": true,
                    "authSecretRef": {"name": secret, "namespace": INVENTORY}}},
            }),
        );
    }

    /// An administrator says where the DPUs' own BMCs are.
    pub fn name_dpu_bmcs(&self) {
        for host in &self.scene.hosts {
            self.bmc(&host.dpu_name, &host.name);
            let reference = json!({"name": host.dpu_name, "serialNumber": serial_number(&host.dpu_name)});
            self.change("metalplane.io/dpus", "", &host.dpu_name, |dpu| dpu["spec"]["bmcRef"] = reference);
        }
    }

    /// `namespace`: where its Lease is; two controllers with different ones both lead.
    pub fn start_controller(&mut self, name: &str, namespace: &str) {
        let settings = Settings {
            namespace: namespace.to_owned(),
            inventory_namespace: INVENTORY.to_owned(),
            seeds_namespace: SEEDS.to_owned(),
            identity: name.to_owned(),
            nonce: 0,
            holder_image: "pause".to_owned(),
            holder_pull_secrets: Vec::new(),
            discovers: true,
            installer_iso: self.installer_iso.clone(),
            discover_boot_options: self.discover_boot_options,
            concurrency: 16,
            bmc_concurrency: 16,
            http: None,
            pages: self.pages.entry(name.to_owned()).or_default().clone(),
        };
        self.controllers.push(Lives::of_controller(&self.scene, settings));
    }

    /// What a controller tells Prometheus, the name with its labels. `None`: nothing of that name.
    pub fn metric(&self, controller: &str, name: &str) -> Option<f64> {
        let text = self.pages.get(controller)?.read("/metrics")?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Of all controllers that run, what each tells Prometheus.
    pub fn metrics(&self) -> Vec<(&str, String)> {
        self.pages.iter().filter_map(|(name, pages)| Some((name.as_str(), pages.read("/metrics")?))).collect()
    }

    /// No controller runs any more, and whoever led has not given its Lease back.
    pub fn stop_controllers(&mut self) {
        self.controllers.drain(..).for_each(Lives::end);
    }

    pub fn start_agent(&mut self, host: &Arc<Host>) {
        self.agents.insert(host.dpu_name.clone(), Lives::of_agent(&self.scene, host));
    }

    /// The agent is gone, and what it presented is still presented.
    pub fn stop_agent(&mut self, host: &Host) {
        if let Some(agent) = self.agents.remove(&host.dpu_name) {
            agent.end();
        }
    }

    /// The DPU starts anew, and its agent with it.
    pub fn reboot_dpu(&self, host: &Host) {
        host.reboot_dpu();
    }

    pub fn create(&self, resource: &str, namespace: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let id = Id::new(resource, namespace, &name);
        self.scene.server.write(|store| store.create(&id, object)).unwrap_or_else(|e| panic!("{id}: {}", e.message));
    }

    /// Changes what is there, as a user with the newest version would.
    pub fn change(&self, resource: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let id = Id::new(resource, namespace, name);
        self.scene
            .server
            .write(|store| {
                let mut object = Value::clone(&*store.get(&id)?);
                change(&mut object);
                store.update(&id, Part::Main, object)
            })
            .unwrap_or_else(|e| panic!("{id}: {}", e.message));
    }

    /// Says in its status what is in that of `object`, as an agent would.
    pub fn report(&self, resource: &str, namespace: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let id = Id::new(resource, namespace, &name);
        let said = self.scene.server.write(|store| store.update(&id, Part::Status, object));
        said.unwrap_or_else(|e| panic!("{id}: {}", e.message));
    }

    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        self.delete_with(resource, namespace, name, &Value::Null);
    }

    /// `--cascade=foreground`.
    pub fn delete_in_foreground(&self, resource: &str, namespace: &str, name: &str) {
        self.delete_with(resource, namespace, name, &json!({"propagationPolicy": "Foreground"}));
    }

    fn delete_with(&self, resource: &str, namespace: &str, name: &str, options: &Value) {
        let id = Id::new(resource, namespace, name);
        let deleted = self.scene.server.write(|store| store.delete(&id, options));
        deleted.unwrap_or_else(|e| panic!("{id}: {}", e.message));
    }

    pub fn machine(&self, name: &str) -> Option<Arc<Value>> {
        self.scene.server.get("metalplane.io/baremetalmachines", USER, name)
    }

    /// Waits until `is_so`; an error says what was awaited, and what is there instead.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let wait = async {
            loop {
                let turn = self.scene.server.changed.turn();
                if is_so(self) {
                    return;
                }
                // Hosts change by themselves too.
                let _ = tokio::time::timeout(Duration::from_secs(1), self.scene.server.changed.changed(turn)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        let violations = self.scene.violations();
        if !violations.is_empty() {
            return Err(format!("{what}: {}\n{}", violations.join("; "), self.story()));
        }
        waited.map_err(|_| format!("{what}: not within {PATIENCE:?}\n{}", self.story()))
    }

    /// For whoever has to find out why.
    pub fn story(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for object in self.scene.server.list("metalplane.io/baremetalmachines") {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let bad = conditions.iter().filter(|c| c["status"] != "True");
            let bad: Vec<String> = bad.map(|c| format!("{}: {} {}", c["type"], c["reason"], c["message"])).collect();
            lines.push(format!("machine {} {}\n  {}", object["metadata"], object["status"]["state"], bad.join("\n  ")));
        }
        for kind in [
            "diskattachments",
            "nicattachments",
            "volumeholds",
            "vnics",
            "addressholds",
            "vpcs",
            "subnets",
            "securitygroups",
        ] {
            for object in self.scene.server.list(&format!("metalplane.io/{kind}")) {
                lines.push(format!("{kind} {} {}", object["metadata"], object["status"]));
            }
        }
        for host in &self.scene.hosts {
            let dpu = host.dpu();
            lines.push(format!("{} {:?} {:?} {:?}", host.name, host.power(), host.actions(), dpu.exposures()));
        }
        let journal = self.scene.journal();
        for effect in journal.iter().rev().take(60).rev() {
            let fault = effect.fault.map(|fault| format!(" <-- {fault:?}")).unwrap_or_default();
            lines.push(format!("{} {}: {}{fault}", effect.at, effect.process, effect.what));
        }
        lines.join("\n")
    }

    /// Every effect and every version of every object, with their times.
    pub fn whole_journal(&self) -> String {
        let mut lines = Vec::new();
        for effect in self.scene.journal() {
            lines.push(format!("{} {} {} {:?}", effect.at, effect.process, effect.what, effect.fault));
        }
        for event in &self.scene.server.store().log {
            // kube's recorder names and dates Events by the clock of the machine.
            if event.id.resource != "events.k8s.io/events" {
                lines.push(format!("{} {:?} {} {}", event.version, event.change, event.id, event.object));
            }
        }
        web::without_port(&lines.join("\n"))
    }

    /// Of two runs that went the same way it is the same.
    pub fn digest(&self) -> String {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(self.whole_journal());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// All objects and hosts, without what differs from run to run: times and versions.
    pub fn state(&self) -> BTreeMap<String, Value> {
        let ignored = ["coordination.k8s.io/leases", "events.k8s.io/events"];
        let mut all: BTreeMap<String, Value> = self
            .scene
            .server
            .store()
            .all()
            .filter(|(id, _)| !ignored.contains(&id.resource.as_str()))
            .map(|(id, object)| (id.to_string(), timeless(object)))
            .collect();
        for host in &self.scene.hosts {
            let dpu = host.dpu();
            let mut shown: Vec<String> = dpu.exposures().iter().map(|e| format!("{e:?}")).collect();
            shown.sort();
            let seen = json!({"power": format!("{:?}", host.power()), "boot": host.boot_order(), "shown": shown,
                "files": files(&dpu.run_dir)});
            all.insert(host.name.clone(), seen);
        }
        for row in self.scene.north_bound.rows() {
            let sets: Vec<String> = row.member_of.iter().map(|set| format!("{set:?}")).collect();
            all.insert(
                format!("{} {}", row.table.name(), row.id.name()),
                json!({"columns": format!("{:?}", row.columns), "in": sets}),
            );
        }
        all
    }
}

/// What an agent has in its folders.
fn files(run_dir: &std::path::Path) -> Vec<String> {
    let mut all: Vec<String> = ["record", "seeds"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(run_dir.join(folder)).into_iter().flatten())
        .filter_map(|file| Some(file.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    all.sort();
    all
}

fn timeless(value: &Value) -> Value {
    // How often a start was tried, and whether a stop had to be forced, depends on the fault; what a guest last said, on
    // when the agent looked, as what it had told of the boot disk when the host was powered on; which number OVN was asked for, on how often
    // it was asked.
    const VARIES: [&str; 9] = [
        "resourceVersion",
        "generation",
        "observedGeneration",
        "timeline",
        "powerOnAttempts",
        "lastAction",
        "guest",
        "bootDiskReads",
        "nbCfg",
    ];
    let varies =
        |key: &str| VARIES.contains(&key) || key.ends_with("At") || key.ends_with("Time") || key.ends_with("Timestamp");
    match value {
        Value::Object(map) => {
            map.iter().filter(|(key, _)| !varies(key)).map(|(key, value)| (key.clone(), timeless(value))).collect()
        }
        // The order of conditions, finalizers and the like says nothing.
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().map(timeless).collect();
            list.sort_by_key(Value::to_string);
            Value::Array(list)
        }
        other => other.clone(),
    }
}
