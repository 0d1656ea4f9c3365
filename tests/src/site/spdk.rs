//! SPDK on a site: a target as a pod on every DPU, which presents the disks, and a storage node with an lvol pool.

use super::pod::ORDINARY_NODE;
use super::{Agents, Site, install};
use anyhow::{Context, Result, ensure};
use sandbox::Sandbox;
use sandbox::handle::Options;
use sandbox::layout::NodeId;
use sandbox::spdk::real;
use sandbox::supervisor::process::ProcessSpec;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Of the lvol pool `fast`.
pub const POOL_CLASS: &str = "metalplane-fast";
const LVSTORE: &str = "lvs0";
const PORT: u16 = 4420;
/// The chart's `controller.nvmeofTargetsDirectory`, and the socket in it.
const SOCKETS: &str = "run/metalplane-storage";
const SOCKET: &str = "storage-1.sock";
const PROCESS: &str = "node-1/storage-target";
const IMAGE: &str = "spdk-target";

/// Of the two DPUs' targets, which have 1 GiB each.
const HUGE_PAGES: u64 = 1024;
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// The storage node: an SPDK of its own beside the controller and the CSI driver, which have its socket.
pub struct Storage {
    address: String,
    socket: PathBuf,
    /// Of the DPUs' targets, as the chart takes it.
    huge_pages: &'static str,
}

impl Storage {
    /// It takes no core of its own, as SPDK's target for NVMe/TCP may where the bdev is a file.
    async fn start(sandbox: &Sandbox) -> Result<Self> {
        let node = NodeId::parse(ORDINARY_NODE)?;
        let folder = sandbox.layout().node_dir(ORDINARY_NODE);
        let (socket, disk) = (folder.join(SOCKETS).join(SOCKET), folder.join("storage.img"));
        std::fs::create_dir_all(folder.join(SOCKETS)).context("make the folder of the target's socket")?;
        std::fs::File::create(&disk).and_then(|file| file.set_len(8 << 30)).context("make the storage node's disk")?;
        let program = real::spdk_program("nvmf_tgt").map_err(anyhow::Error::msg)?;
        let inside = Path::new("/").join(SOCKETS).join(SOCKET);
        let mut words = vec![program.display().to_string(), "--interrupt-mode".to_owned()];
        words.extend(real::arguments(&inside.display().to_string()));
        sandbox.spawn(&ProcessSpec::new(PROCESS, words).enter(ORDINARY_NODE)).await?;
        real::until_listens(&socket).await?;
        let storage = Self { address: format!("{}:{PORT}", node.address()), socket, huge_pages: huge_pages() };
        storage.ask("bdev_aio_create", json!({"name": "disk", "filename": disk, "block_size": 512})).await?;
        let store = json!({"bdev_name": "disk", "lvs_name": LVSTORE, "clear_method": "none"});
        storage.ask("bdev_lvol_create_lvstore", store).await?;
        Ok(storage)
    }

    pub async fn ask(&self, method: &str, params: Value) -> Result<Value> {
        real::ask(&self.socket, method, params).await.with_context(|| format!("ask the storage node for {method}"))
    }

    pub(super) fn values(&self) -> Vec<String> {
        vec![
            "agent.disksBy=spdk".to_owned(),
            "agent.spdkVolumes={nvmeof}".to_owned(),
            "spdkTarget.enabled=true".to_owned(),
            format!("spdkTarget.hugePages={}", self.huge_pages),
            "lvolPools[0].name=fast".to_owned(),
            format!("lvolPools[0].lvstore={LVSTORE}"),
            format!("lvolPools[0].address={}", self.address),
            format!("lvolPools[0].socket={SOCKET}"),
        ]
    }
}

/// Where the machine has enough of them: nobody but its owner reserves some.
fn huge_pages() -> &'static str {
    let free = std::fs::read_to_string(FREE).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if free.is_some_and(|free| free >= HUGE_PAGES) { "2Mi" } else { "" }
}

impl Site {
    /// What a site with SPDK lacks on this machine.
    pub fn spdk_is_missing() -> Option<String> {
        let image = Site::image_file(IMAGE);
        let written = image.is_file().then_some(());
        let none = || format!("{} is not there: `cargo xtask image` writes it where SPDK is", image.display());
        written.ok_or_else(none).and_then(|()| real::spdk_program("nvmf_tgt").map(drop)).err()
    }

    /// A site whose servers take their disks from a target on their DPU, by vfio-user.
    pub async fn start_with_spdk(name: &str, say: &dyn Fn(&str)) -> Result<Self> {
        say("starting the cluster: control plane, two DPUs and an ordinary node");
        let sandbox = Sandbox::start(name, Options { vfio_user: true, ..Options::default() }).await?;
        say("starting a storage node on the ordinary node");
        let storage = Storage::start(&sandbox).await?;
        say(match storage.huge_pages {
            "" => "the DPUs' targets take ordinary memory: this machine has too few free huge pages of 2 MiB",
            _ => "the DPUs' targets take huge pages",
        });
        let spdk = Some(storage);
        let site = Self { sandbox, helm: install::helm().await?, agents: Agents::DaemonSet, spdk, ceph: None };
        site.install(say).await?;
        Ok(site)
    }

    /// What a DPU's target answers; asked from outside its pod, where its socket is.
    pub async fn ask_target(&self, dpu: &str, method: &str) -> Result<Value> {
        ensure!(self.spdk.is_some(), "the site has no targets");
        let socket = self.sandbox.layout().node_dir(dpu).join("run/spdk/rpc.sock");
        real::ask(&socket, method, Value::Null).await.with_context(|| format!("ask the target of {dpu} for {method}"))
    }
}
