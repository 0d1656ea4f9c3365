//! The ports as one process reaches them: each changing call is an effect, and is looked at by the invariants.

use super::host::{DRIVER, Dpu, Host};
use super::kubelet::KubeletPart;
use super::process::Process;
use async_trait::async_trait;
use controller::Fences;
use planner::exposure::{Exposure, ExposureId, FunctionKind, Limits};
use ports::conformance::memory::MemoryFence;
use ports::emulation::{Backend, DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction};
use ports::fence::Admission;
use ports::switch::{GuestObserved, MetadataPlug, PortObserved, SwitchPort};
use ports::volume::{Connection, Fence, Volume};
use ports::{Emulation, ErrorClass, PortError, StorageFence, Switch, VolumeConnector};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

fn lost<T>() -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Unreachable, "no answer in time"))
}

fn busy<T>() -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Busy, "not now"))
}

/// The storage as the controller may fence it.
pub fn fences(process: &Arc<Process>) -> Fences {
    let fence = MemoryFence::new(DRIVER, process.scene.storage.clone());
    Fences::new(vec![Arc::new(CountedFence { process: process.clone(), fence })])
}

struct CountedFence {
    process: Arc<Process>,
    fence: MemoryFence,
}

#[async_trait]
impl StorageFence for CountedFence {
    fn driver(&self) -> &str {
        self.fence.driver()
    }

    fn kind(&self) -> Fence {
        self.fence.kind()
    }

    fn fence_identity(&self, id: &ExposureId) -> String {
        self.fence.fence_identity(id)
    }

    async fn admit(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let (fence, of, whom) = (self.fence.clone(), volume.clone(), identity.to_owned());
        let act = async move { fence.admit(&of, &whom).await };
        self.process.effect(&format!("admit {identity}"), act, lost, busy).await
    }

    async fn forgotten(&self, admitted: &[Admission]) -> Result<Vec<usize>, PortError> {
        self.process.travel().await;
        self.fence.forgotten(admitted).await
    }

    async fn fence(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let (fence, of, whom) = (self.fence.clone(), volume.clone(), identity.to_owned());
        let act = async move { fence.fence(&of, &whom).await };
        self.process.effect(&format!("fence {identity}"), act, lost, busy).await
    }

    async fn verify_fenced(&self, volume: &Volume, identity: &str) -> Result<bool, PortError> {
        self.process.travel().await;
        self.fence.verify_fenced(volume, identity).await
    }
}

/// What one agent's life sees of its DPU.
#[derive(Clone)]
pub struct Parts {
    pub process: Arc<Process>,
    pub host: Arc<Host>,
    pub dpu: Arc<Dpu>,
}

impl Parts {
    pub fn ports(&self) -> dpu_agent::Ports {
        dpu_agent::Ports {
            emulation: Arc::new(self.clone()),
            connectors: vec![Arc::new(self.clone()), Arc::new(self.kubelet())],
            switch: Arc::new(self.clone()),
            pods: None,
            metadata: None,
        }
    }

    /// A connection with the file that its blocks are in.
    fn with_blocks(&self, connection: Connection) -> Connection {
        match connection.backend.path() {
            Some(handle) => Connection { backend: Backend::Path(self.process.scene.blocks(handle)), ..connection },
            None => connection,
        }
    }

    /// A volume's backend is the name of its connection, and goes with it: a request that arrives later opens nothing.
    async fn opens(&self, disk: &DiskFunction) -> Result<(), PortError> {
        let lists = [self.dpu.volumes.list().await?, self.dpu.kubelet.list().await?];
        let connected = lists.iter().flatten().any(|connection| connection.id == disk.id);
        match disk.backend.path() {
            Some(path) if !connected && self.process.scene.is_volume(path) => {
                Err(PortError::new(ErrorClass::NotFound, format!("{}: no such file", path.display())))
            }
            _ => Ok(()),
        }
    }

    fn kubelet(&self) -> KubeletPart {
        KubeletPart { process: self.process.clone(), host: self.host.clone(), dpu: self.dpu.clone() }
    }

    fn what(&self, verb: &str, id: &ExposureId) -> String {
        format!("{} {verb} {} {}", self.host.dpu_name, id.uid, id.epoch)
    }
}

#[async_trait]
impl Emulation for Parts {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        self.process.travel().await;
        self.dpu.emulation.capabilities().await
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        self.process.travel().await;
        Emulation::list(&self.dpu.emulation).await
    }

    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        self.process.travel().await;
        match self.host.counts() {
            true => self.dpu.emulation.statistics().await,
            false => Ok(Vec::new()),
        }
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        let (parts, dpu, wanted) = (self.clone(), self.dpu.clone(), disk.clone());
        let act = async move {
            parts.opens(&wanted).await?;
            dpu.emulation.expose_disk(&wanted).await?;
            dpu.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(wanted.id.clone(), wanted);
            Ok(())
        };
        self.process.effect(&self.what("expose_disk", &disk.id), act, lost, busy).await
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        let (dpu, wanted) = (self.dpu.clone(), nic.clone());
        let act = async move { dpu.emulation.expose_nic(&wanted).await };
        self.process.effect(&self.what("expose_nic", &nic.id), act, lost, busy).await
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        let (parts, wanted) = (self.clone(), id.clone());
        let act = async move {
            if up {
                parts.process.scene.before_link_up(&parts.dpu, &wanted);
            }
            parts.dpu.emulation.set_link(&wanted, up).await
        };
        self.process.effect(&self.what(if up { "link_up" } else { "link_down" }, id), act, lost, busy).await
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        let (parts, wanted) = (self.clone(), id.clone());
        let act = async move {
            parts.process.scene.before_hide(&parts.host, &wanted);
            parts.dpu.emulation.hide(&wanted, kind).await?;
            parts.host.asked_to_leave();
            Ok(())
        };
        self.process.effect(&self.what("hide", id), act, lost, busy).await
    }

    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError> {
        let (dpu, wanted) = (self.dpu.clone(), id.clone());
        let act = async move { dpu.emulation.resize_disk(&wanted, size_bytes).await };
        self.process.effect(&self.what("resize_disk", id), act, lost, busy).await
    }

    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError> {
        let (dpu, wanted, limits) = (self.dpu.clone(), id.clone(), *limits);
        let act = async move { dpu.emulation.limit_disk(&wanted, &limits).await };
        self.process.effect(&self.what("limit_disk", id), act, lost, busy).await
    }
}

#[async_trait]
impl VolumeConnector for Parts {
    fn driver(&self) -> &str {
        self.dpu.volumes.driver()
    }

    fn fence(&self) -> Fence {
        VolumeConnector::fence(&self.dpu.volumes)
    }

    fn identity(&self, id: &ExposureId) -> String {
        self.dpu.volumes.identity(id)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let (dpu, wanted, of) = (self.dpu.clone(), id.clone(), volume.clone());
        let act = async move { dpu.volumes.connect(&wanted, &of).await };
        let connected = self.process.effect(&self.what("connect", id), act, lost, busy).await;
        connected.map(|connection| self.with_blocks(connection))
    }

    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        self.process.travel().await;
        let all = VolumeConnector::list(&self.dpu.volumes).await?;
        Ok(all.into_iter().map(|connection| self.with_blocks(connection)).collect())
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let (dpu, wanted) = (self.dpu.clone(), id.clone());
        let act = async move { dpu.volumes.disconnect(&wanted).await };
        self.process.effect(&self.what("disconnect", id), act, lost, busy).await
    }
}

#[async_trait]
impl Switch for Parts {
    async fn list(&self) -> Result<Vec<PortObserved>, PortError> {
        self.process.travel().await;
        Switch::list(&self.dpu.switch).await
    }

    async fn plug(&self, port: &SwitchPort) -> Result<(), PortError> {
        let (dpu, wanted) = (self.dpu.clone(), port.clone());
        let act = async move { dpu.switch.plug(&wanted).await };
        self.process.effect(&self.what("plug", &port.id), act, lost, busy).await
    }

    async fn unplug(&self, id: &ExposureId) -> Result<(), PortError> {
        let (dpu, wanted) = (self.dpu.clone(), id.clone());
        let act = async move { dpu.switch.unplug(&wanted).await };
        self.process.effect(&self.what("unplug", id), act, lost, busy).await
    }

    async fn plug_metadata(&self, plugs: &[MetadataPlug]) -> Result<(), PortError> {
        self.dpu.switch.plug_metadata(plugs).await
    }

    async fn begin_boot(&self, boot_id: &str, known: &[ExposureId]) -> Result<Vec<String>, PortError> {
        self.process.travel().await;
        self.dpu.switch.begin_boot(boot_id, known).await
    }

    async fn not_secure(&self) -> Result<Option<String>, PortError> {
        self.dpu.switch.not_secure().await
    }

    async fn metadata_plugs(&self) -> Result<Vec<MetadataPlug>, PortError> {
        self.dpu.switch.metadata_plugs().await
    }

    async fn chassis(&self) -> Result<Option<String>, PortError> {
        self.dpu.switch.chassis().await
    }

    async fn changed(&self) {
        self.dpu.switch.changed().await;
    }

    /// A guest that runs has spoken, and answers for any address that it is asked for.
    async fn observe_guest(&self, port: &SwitchPort, addresses: &[IpAddr]) -> Result<GuestObserved, PortError> {
        self.process.travel().await;
        self.dpu.switch.observe_guest(port, addresses).await?;
        let (Some(since), true) = (self.host.guest_since(), self.dpu.emulation.devices().contains(&port.device)) else {
            return Ok(GuestObserved::default());
        };
        let address = addresses.first().copied();
        Ok(GuestObserved {
            first_packet_at: Some(since),
            answered_at: address.map(|_| since),
            answered_address: address,
        })
    }
}
