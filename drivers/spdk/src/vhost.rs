//! [`Emulation`] by vhost-user-blk: disks of virtual machines, each behind a socket of its own.
//!
//! The virtual machine is told once where its disks are: `mp-boot`, `mp-seed`, and for a hot-plugged one the name that its
//! bdev has, `mp-<uid>-<epoch>`. It connects again by itself when the target was started anew, and finds the same disk behind the
//! same socket; its I/O waits meanwhile.
//!
//! To take a disk away needs the virtual machine's consent: it closes the socket. SPDK's request to delete a controller
//! waits for that for ever, so it is sent only when nobody is connected; until then the disk is leaving.
//!
//! Other limits need it, too: SPDK's request begins with opening the bdev, which starts to keep the limits that it has, and with no
//! virtual machine there that never comes to an end ("Resource temporarily unavailable").

use crate::rpc::methods::bdev::{Bdev, GetBdevs};
use crate::rpc::methods::vhost::{Controller, CreateBlkController, DeleteController, GetControllers};
use crate::rpc::{self, Rpc};
use crate::{backing, check_disk, names, statistics};
use async_trait::async_trait;
use planner::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Presence, Slot};
use ports::emulation::{DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction};
use ports::{Emulation, ErrorClass, PortError};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Mutex;

/// How often to look whether a virtual machine came or went: nothing tells of it.
const WATCH: Duration = Duration::from_secs(1);
const BOOT: &str = "mp-boot";
const SEED: &str = "mp-seed";

pub struct VhostEmulation {
    rpc: Rpc,
    hot_plug: u32,
    /// Asked to leave by this process. Holding it is what makes verbs exclusive.
    leaving: Mutex<BTreeSet<ExposureId>>,
}

/// What the target has now.
struct Seen {
    controllers: Vec<Controller>,
    bdevs: Vec<Bdev>,
}

impl Seen {
    fn disks(&self) -> impl Iterator<Item = (ExposureId, &Controller)> {
        self.controllers.iter().filter_map(|c| Some((names::parse_bdev(c.bdev()?)?, c)))
    }

    fn bdev(&self, name: &str) -> Option<&Bdev> {
        self.bdevs.iter().find(|bdev| bdev.name == name)
    }
}

fn is_ours(controller: &Controller) -> bool {
    let name = controller.ctrlr.as_str();
    name == BOOT || name == SEED || names::parse_bdev(name).is_some()
}

impl VhostEmulation {
    /// `socket`: the target's, for JSON-RPC.
    pub fn new(socket: impl Into<PathBuf>, hot_plug: u32) -> Self {
        Self { rpc: Rpc::new(socket, rpc::LIMIT), hot_plug, leaving: Mutex::default() }
    }

    async fn see(&self, step: &str) -> Result<Seen, PortError> {
        let seen = async {
            let (controllers, all) = (&GetControllers {}, &GetBdevs { name: None });
            let (controllers, bdevs) = tokio::try_join!(self.rpc.call(controllers), self.rpc.call(all))?;
            Ok::<_, rpc::RpcError>(Seen { controllers, bdevs })
        };
        seen.await.map_err(|error| error.at(step))
    }

    fn socket<'a>(&self, seen: &Seen, slot: Slot, object: &'a str) -> Result<&'a str, PortError> {
        let busy = |what: String| Err(PortError::new(ErrorClass::Busy, format!("{object}: {what}")));
        let hot_plugged = seen.controllers.iter().filter(|c| names::parse_bdev(&c.ctrlr).is_some()).count();
        let name = match slot {
            Slot::Boot => BOOT,
            Slot::Seed => SEED,
            Slot::HotPlug if u32::try_from(hot_plugged).is_ok_and(|count| count >= self.hot_plug) => {
                return busy(format!("all {} hot-plug places are taken", self.hot_plug));
            }
            Slot::HotPlug => object,
        };
        match seen.controllers.iter().find(|c| c.ctrlr == name) {
            None => Ok(name),
            Some(taken) => busy(format!("{name} is taken by {}", taken.bdev().unwrap_or("a disk that is lost"))),
        }
    }

    async fn delete(&self, controller: &Controller) -> Result<(), PortError> {
        let ctrlr = controller.ctrlr.as_str();
        match self.rpc.call(&DeleteController { ctrlr }).await {
            Err(error) if !error.is_gone() => Err(error.at(ctrlr)),
            _ => Ok(()),
        }
    }

    /// Ends what nobody holds any more: sockets of disks that leave or that lost what was behind them, and bdevs without
    /// a socket.
    async fn settle(&self, leaving: &mut BTreeSet<ExposureId>) -> Result<Seen, PortError> {
        let mut seen = self.see("list").await?;
        let ends = |controller: &&Controller| {
            let id = controller.bdev().and_then(names::parse_bdev);
            let wanted = id.map_or(controller.bdev().is_some(), |id| !leaving.contains(&id));
            controller.sessions.is_empty() && is_ours(controller) && !wanted
        };
        let ending: Vec<_> = seen.controllers.iter().filter(ends).cloned().collect();
        for controller in &ending {
            self.delete(controller).await?;
        }
        seen.controllers.retain(|c| !ending.iter().any(|ended| ended.ctrlr == c.ctrlr));
        let shown = |bdev: &Bdev| seen.controllers.iter().any(|c| c.bdev() == Some(bdev.name.as_str()));
        let unused: Vec<_> =
            seen.bdevs.iter().filter(|bdev| names::parse_bdev(&bdev.name).is_some() && !shown(bdev)).cloned().collect();
        for bdev in &unused {
            backing::delete(&self.rpc, bdev).await.map_err(|e| e.at(&format!("{}: deleting it", bdev.name)))?;
        }
        seen.bdevs.retain(|bdev| !unused.iter().any(|deleted| deleted.name == bdev.name));
        leaving.retain(|id| seen.disks().any(|(shown, _)| shown == *id));
        Ok(seen)
    }
}

#[async_trait]
impl Emulation for VhostEmulation {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        Ok(EmulationCapabilities {
            disks: self.hot_plug + 2,
            nics: 0,
            hot_plug_ports: self.hot_plug,
            switch_ports: 0,
            buses: vec![Bus::VirtioBlk],
            online_resize: vec![Bus::VirtioBlk],
        })
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let mut leaving = self.leaving.lock().await;
        let seen = self.settle(&mut leaving).await?;
        let exposure = |(id, controller): (ExposureId, &Controller)| {
            let presence = if leaving.contains(&id) { Presence::Leaving } else { Presence::Present };
            let bdev = controller.bdev().and_then(|name| seen.bdev(name));
            let (kind, size_bytes) = (FunctionKind::Disk, bdev.map(Bdev::size_bytes));
            let limits = bdev.map(Bdev::limits).unwrap_or_default();
            Exposure { id, kind, presence, size_bytes, limits, representor: None, link_up: None }
        };
        Ok(seen.disks().map(exposure).collect())
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        let object = names::bdev(&disk.id);
        check_disk(disk, Bus::VirtioBlk, &object)?;
        let leaving = self.leaving.lock().await;
        let seen = self.see(&object).await?;
        if let Some((there, controller)) = seen.disks().find(|(id, _)| id.uid == disk.id.uid) {
            return if there.epoch != disk.id.epoch {
                let what = format!("{object}: the host has epoch {} of it as {}", there.epoch, controller.ctrlr);
                Err(PortError::new(ErrorClass::Conflict, what))
            } else if leaving.contains(&there) {
                Err(PortError::new(ErrorClass::Busy, format!("{object}: it is still leaving")))
            } else {
                Ok(())
            };
        }
        let ctrlr = self.socket(&seen, disk.slot, &object)?;
        backing::make(&self.rpc, &seen.bdevs, disk, &object).await?;
        backing::measure(&self.rpc, &object, disk.limits).await?;
        let create = CreateBlkController { ctrlr, dev_name: &object, readonly: disk.read_only };
        self.rpc.call(&create).await.map(drop).map_err(|error| error.at(&format!("{object} as {ctrlr}")))
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        let what = format!("{:?}: SPDK presents disks only", nic.id);
        Err(PortError::new(ErrorClass::Unsupported, what))
    }

    async fn set_link(&self, id: &ExposureId, _: bool) -> Result<(), PortError> {
        Err(PortError::new(ErrorClass::NotFound, format!("{id:?}: SPDK presents no NIC")))
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        if kind != FunctionKind::Disk {
            return Ok(());
        }
        let mut leaving = self.leaving.lock().await;
        leaving.insert(id.clone());
        self.settle(&mut leaving).await.map(drop)
    }

    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError> {
        let object = names::bdev(id);
        let _turn = self.leaving.lock().await;
        let seen = self.see(&object).await?;
        let shown = seen.disks().any(|(shown, _)| shown == *id);
        match seen.bdev(&object).filter(|_| shown) {
            None => Err(PortError::new(ErrorClass::NotFound, format!("{object}: the host does not have it"))),
            Some(bdev) if bdev.size_bytes() == size_bytes => Ok(()),
            Some(bdev) => backing::grow(&self.rpc, bdev, size_bytes).await,
        }
    }

    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError> {
        let object = names::bdev(id);
        let _turn = self.leaving.lock().await;
        let seen = self.see(&object).await?;
        let Some((_, controller)) = seen.disks().find(|(shown, _)| shown == id) else {
            return Err(PortError::new(ErrorClass::NotFound, format!("{object}: the host does not have it")));
        };
        let held = seen.bdev(&object).map(Bdev::limits).unwrap_or_default();
        if held == *limits {
            return Ok(());
        }
        if !held.is_empty() && controller.sessions.is_empty() {
            let what = format!(
                "{object}: it keeps its limits ({held}) until a virtual machine opens it, and then gets {limits}"
            );
            return Err(PortError::new(ErrorClass::Busy, what));
        }
        backing::limit(&self.rpc, &object, *limits).await
    }

    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        statistics::read(&self.rpc).await.map_err(|error| error.at("statistics of the disks"))
    }

    async fn reads(&self, id: &ExposureId) -> Result<Option<u64>, PortError> {
        statistics::reads(&self.rpc, id).await.map_err(|error| error.at("reads of a disk"))
    }

    async fn changed(&self) {
        let look = async || {
            let controllers = self.rpc.call(&GetControllers {}).await.ok()?;
            Some(controllers.into_iter().map(|c| (c.bdev().map(str::to_owned), c.sessions.len(), c.ctrlr)).collect())
        };
        let before: Option<Vec<_>> = look().await;
        loop {
            tokio::time::sleep(WATCH).await;
            if look().await != before {
                return;
            }
        }
    }
}
