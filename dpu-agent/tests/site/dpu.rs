//! A DPU in memory, with its agent in this process, and the test in the place of the controller.

use super::{ApiServer, until};
use api::attachment::{DiskAttachment, NicAttachment};
use api::{Dpu, labels};
use dpu_agent::Ports;
use dpu_agent::args::{Args, PodDevicesBy};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use ports::conformance::memory::{InstallsAll, MemoryEmulation, MemoryStorage, MemorySwitch, MemoryVolumes};
use ports::volume::Volume;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const DRIVER: &str = "memory.example.com";

pub struct TestDpu<'a> {
    pub site: &'a ApiServer,
    pub name: String,
    pub namespace: String,
    pub emulation: MemoryEmulation,
    pub volumes: MemoryVolumes,
    pub switch: MemorySwitch,
    pub dir: TempDir,
    agent: Option<Agent>,
}

struct Agent {
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl<'a> TestDpu<'a> {
    /// Registered, approved, joined.
    pub async fn joined(site: &'a ApiServer, name: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let storage = MemoryStorage::in_folder(dir.path());
        let emulation = MemoryEmulation::new(storage.clone(), 4);
        let devices = emulation.clone();
        let mut dpu = Self {
            site,
            name: name.to_owned(),
            namespace: format!("metalplane-dpu-{name}"),
            volumes: MemoryVolumes::new(DRIVER, storage),
            switch: MemorySwitch::new(move || devices.devices(), InstallsAll::default()),
            emulation,
            dir,
            agent: None,
        };
        dpu.set_boot("boot-1");
        site.apply(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})]).await;
        dpu.start();
        let dpus: Api<Dpu> = Api::all(site.admin.clone());
        until("the Dpu is registered", async || dpus.get(name).await.map_err(|error| error.to_string())).await;
        site.approve(name, &dpu.namespace).await;
        dpu.until_ready().await;
        dpu
    }

    pub fn set_boot(&self, boot: &str) {
        std::fs::write(self.dir.path().join("boot-id"), format!("{boot}\n")).expect("write");
    }

    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn start(&mut self) {
        let args = Args {
            node_name: self.name.clone(),
            kubeconfig: Some(self.site.kubeconfig.clone()),
            boot_id_file: self.dir.path().join("boot-id"),
            pods: false,
            worker: false,
            pod_devices: PodDevicesBy::Veth,
            slots_socket: PathBuf::new(),
            host_serial_file: self.dir.path().join("serial-number"),
            host_privilege_file: self.dir.path().join("host-privilege"),
            disks_by: dpu_agent::args::DisksBy::Qemu,
            nics_by: dpu_agent::args::NicsBy::Qemu,
            virtnet: PathBuf::new(),
            virtnet_root: PathBuf::new(),
            virtnet_device: String::new(),
            virtnet_queues: 4,
            switch_ports: 0,
            spdk_socket: PathBuf::new(),
            vfio_user_folder: PathBuf::new(),
            host_listen: None,
            host_nqn_file: PathBuf::new(),
            host_rdma: false,
            sanitize: false,
            disk_iops: 0,
            disk_mib_per_second: 0,
            spdk_volumes: Vec::new(),
            ceph_clusters: Vec::new(),
            ceph_programs: None,
            qemu_rbd: false,
            qemu_rbd_daemon: None,
            ovsdb: String::new(),
            bridge: String::new(),
            file_pools: Vec::new(),
            kubelet_dir: None,
            run_dir: self.run_dir(),
            erasers: PathBuf::new(),
            hold_disks: PathBuf::new(),
            eraser_arguments: String::new(),
            metrics: None,
            log_format: runtime::process::LogFormat::Text,
            log_filter: String::new(),
        };
        let ports = Ports {
            emulation: Arc::new(self.emulation.clone()),
            connectors: vec![Arc::new(self.volumes.clone())],
            switch: Arc::new(self.switch.clone()),
            pods: None,
            metadata: None,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            Box::pin(dpu_agent::run(&args, ports, async {
                let _ = stopped.await;
            }))
            .await
        });
        self.agent = Some(Agent { stop, task });
    }

    /// As SIGTERM ends it.
    pub async fn stop(&mut self) {
        let agent = self.agent.take().expect("it runs");
        agent.stop.send(()).expect("it runs");
        agent.task.await.expect("it does not panic").expect("it ends well");
    }

    /// The status is of this life of the agent: the Lease is renewed, the Dpu has this boot.
    pub async fn until_ready(&self) {
        let dpus: Api<Dpu> = Api::all(self.site.admin.clone());
        let boot = std::fs::read_to_string(self.dir.path().join("boot-id")).expect("read");
        until("the Dpu is Ready on this boot", async || {
            let status = dpus.get(&self.name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
            let ready = api::conditions::is_true(&status.conditions, api::conditions::READY);
            let is_now = ready && status.boot_id.as_deref() == Some(boot.trim());
            is_now.then_some(()).ok_or_else(|| format!("{status:?}"))
        })
        .await;
    }

    /// Status and reason of a condition of the Dpu.
    pub async fn until_condition(&self, type_: &str, wanted: &str) {
        let dpus: Api<Dpu> = Api::all(self.site.admin.clone());
        until(&format!("{type_} is {wanted}"), async || {
            let status = dpus.get(&self.name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
            let condition = api::conditions::get(&status.conditions, type_);
            let seen = condition.map(|it| format!("{} {}", it.status, it.reason)).unwrap_or_default();
            if seen == wanted { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    pub async fn dpu(&self) -> Dpu {
        Api::all(self.site.admin.clone()).get(&self.name).await.expect("its Dpu")
    }

    /// As the controller does.
    pub async fn patch_dpu_status(&self, patch: &Value) {
        let dpus: Api<Dpu> = Api::all(self.site.admin.clone());
        dpus.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patch");
    }

    pub fn disks(&self) -> Api<DiskAttachment> {
        Api::namespaced(self.site.admin.clone(), &self.namespace)
    }

    pub fn nics(&self) -> Api<NicAttachment> {
        Api::namespaced(self.site.admin.clone(), &self.namespace)
    }

    fn meta(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "finalizers": [labels::FINALIZER_EXPOSED]})
    }

    /// Creates a DiskAttachment for a volume; `more` is merged into its spec.
    pub async fn disk(&self, name: &str, volume: Option<&Volume>, more: Value) -> String {
        let mut spec = json!({
            "owner": {"kind": "BareMetalMachine", "namespace": "a", "name": "m", "uid": "u"},
            "dpuName": self.name,
            "diskName": name,
            "slot": "HotPlug",
            "serial": "MP1",
            "uuid": "0d7e1f52-0000-4000-8000-000000000001",
        });
        if let Some(volume) = volume {
            spec["volume"] = json!({
                "driver": DRIVER,
                "volumeHandle": volume.handle,
                "persistentVolumeName": "pv",
                "claim": {"namespace": "a", "name": "c", "uid": "u"},
            });
        }
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let object = json!({"metadata": self.meta(name), "spec": spec});
        let object = serde_json::from_value(object).expect("a DiskAttachment");
        let made = self.disks().create(&PostParams::default(), &object).await.expect("create");
        made.uid().expect("a UID")
    }

    pub async fn nic(&self, name: &str) -> String {
        let spec = json!({
            "owner": {"kind": "BareMetalMachine", "namespace": "a", "name": "m", "uid": "u"},
            "dpuName": self.name,
            "interfaceName": name,
            "vnicName": "v",
            "vnicUID": "v",
            "logicalPort": "a.v",
            "macAddress": "02:00:00:00:00:07",
            "addresses": ["10.20.0.7"],
            "mtu": 1400,
            "grant": {"epoch": 1},
        });
        let object =
            serde_json::from_value(json!({"metadata": self.meta(name), "spec": spec})).expect("a NicAttachment");
        self.nics().create(&PostParams::default(), &object).await.expect("create").uid().expect("a UID")
    }

    pub async fn patch_disk(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.disks().patch(name, &PatchParams::default(), &patch).await.expect("patch");
    }

    pub async fn delete_disk(&self, name: &str) {
        self.disks().delete(name, &DeleteParams::default()).await.expect("delete");
    }

    pub async fn until_disk<T>(&self, name: &str, what: &str, look: impl Fn(&DiskAttachment) -> Option<T>) -> T {
        until(&format!("{name}: {what}"), async || {
            let object = self.disks().get(name).await.map_err(|error| error.to_string())?;
            look(&object).ok_or_else(|| format!("{:?}", object.status))
        })
        .await
    }

    pub async fn until_gone(&self, name: &str) {
        until(&format!("{name} no longer exists"), async || match self.disks().get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }
}
