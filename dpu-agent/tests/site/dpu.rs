//! A DPU in memory, with its agent in this process.

use super::{ApiServer, InCluster};
use dpu_agent::Ports;
use dpu_agent::args::{Args, PodDevicesBy};
use ports::conformance::memory::{InstallsAll, MemoryEmulation, MemoryStorage, MemorySwitch, MemoryVolumes};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const DRIVER: &str = "memory.example.com";

pub struct TestDpu<'a> {
    cluster: InCluster<'a>,
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

impl<'a> Deref for TestDpu<'a> {
    type Target = InCluster<'a>;

    fn deref(&self) -> &InCluster<'a> {
        &self.cluster
    }
}

impl<'a> TestDpu<'a> {
    /// Registered, approved, joined.
    pub async fn joined(site: &'a ApiServer, name: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let storage = MemoryStorage::in_folder(dir.path());
        let emulation = MemoryEmulation::new(storage.clone(), 4);
        let devices = emulation.clone();
        let mut dpu = Self {
            cluster: InCluster::node(site, name).await,
            volumes: MemoryVolumes::new(DRIVER, storage),
            switch: MemorySwitch::new(move || devices.devices(), InstallsAll::default()),
            emulation,
            dir,
            agent: None,
        };
        dpu.set_boot("boot-1");
        dpu.start();
        dpu.approve().await;
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
        let boot = std::fs::read_to_string(self.dir.path().join("boot-id")).expect("read");
        self.until_ready_on(boot.trim()).await;
    }
}
