//! virtio-net functions of NVIDIA's virtio-net-controller, hot-plugged by its program `virtnet`.
//!
//! - *expose*: `virtnet list`, and `virtnet hotplug` where no function has the MAC address yet; then the representor that it names gets its
//!   owner's name, link down. Interrupted in between, it leaves a function that the next call finds by its MAC address.
//! - *hide*: link down, `virtnet unplug`; the function is gone when the list no longer names it.
//! - *Places* are the ports of the DPU's emulated PCIe switch, which SNAP's hot-plugged functions take from, too.
//!
//! A representor loses its alias when the controller makes it anew, as after a reboot of the DPU. The function is then nobody's until
//! somebody is granted its MAC address. It is never unplugged for that: a host may run on it.

mod command;

pub use command::{Program, Queues, enter};

use crate::representor::{self, Representor};
use async_trait::async_trait;
use command::{Device, Listed};
use planner::exposure::{Exposure, ExposureId, FunctionKind, Limits, Presence};
use ports::emulation::{DiskFunction, EmulationCapabilities, NicFunction};
use ports::{Emulation, ErrorClass, PortError};
use rtnetlink::Handle;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long udev may take to name a representor.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct Config {
    pub program: Program,
    /// The RDMA device of the port on which functions are made, as `mlx5_0`.
    pub parent: String,
    pub queues: Queues,
    /// Ports of the PCIe switch, for versions that do not tell.
    pub ports: u32,
}

pub struct VirtnetNics {
    config: Config,
    /// Holding it is what makes verbs exclusive. The content: whom this process asked the host to let go of; `virtnet` does not tell. After a
    /// restart they count as present until they are hidden again.
    leaving: Mutex<BTreeSet<ExposureId>>,
}

/// What there is of functions that were hot-plugged.
struct Seen {
    listed: Listed,
    devices: Vec<Representor>,
}

impl Seen {
    fn functions(&self) -> impl Iterator<Item = (&Device, Option<&Representor>)> {
        self.listed.hot_plugged().map(|device| {
            let name = device.representor();
            (device, name.and_then(|name| self.devices.iter().find(|there| there.name == name)))
        })
    }

    fn owned(&self) -> impl Iterator<Item = (&ExposureId, &Device, &Representor)> {
        self.functions().filter_map(|(device, there)| Some((there?.owner.as_ref()?, device, there?)))
    }
}

impl VirtnetNics {
    pub fn new(config: Config) -> Self {
        Self { config, leaving: Mutex::default() }
    }

    async fn see(&self, handle: &Handle) -> Result<Seen, PortError> {
        let listed = self.config.program.list().await?;
        Ok(Seen { listed, devices: representor::read(handle).await? })
    }

    fn places(&self, seen: &Seen) -> u32 {
        seen.listed.most().unwrap_or(self.config.ports)
    }
}

fn refuse<T>(class: ErrorClass, id: &ExposureId, what: &str) -> Result<T, PortError> {
    Err(PortError::new(class, format!("NIC {} epoch {}: {what}", id.uid, id.epoch)))
}

/// The device of this name, which udev gives it a moment after the function is made.
async fn named(handle: &Handle, name: &str, id: &ExposureId) -> Result<Representor, PortError> {
    let deadline = Instant::now() + NAMED_WITHIN;
    loop {
        let found = representor::read(handle).await?.into_iter().find(|device| device.name == name);
        match found {
            Some(device) => return Ok(device),
            None if Instant::now() < deadline => tokio::time::sleep(LOOK_AGAIN).await,
            None => {
                let what = format!("virtnet names representor '{name}', and there is no such network device");
                return refuse(ErrorClass::Busy, id, &what);
            }
        }
    }
}

#[async_trait]
impl Emulation for VirtnetNics {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let seen = self.see(&representor::connect()?).await?;
        // What somebody else has plugged is not ours to give.
        let others = seen.functions().filter(|(_, there)| there.is_none_or(|there| there.owner.is_none())).count();
        let places = self.places(&seen).saturating_sub(u32::try_from(others).unwrap_or(u32::MAX));
        let (buses, online_resize) = (Vec::new(), Vec::new());
        let capabilities = EmulationCapabilities {
            disks: 0,
            nics: places,
            hot_plug_ports: 0,
            switch_ports: places,
            buses,
            online_resize,
        };
        Ok(capabilities)
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let mut leaving = self.leaving.lock().await;
        let seen = self.see(&representor::connect()?).await?;
        leaving.retain(|id| seen.owned().any(|(owner, ..)| owner == id));
        let exposure = |(id, _, device): (&ExposureId, &Device, &Representor)| Exposure {
            id: id.clone(),
            kind: FunctionKind::Nic,
            presence: if leaving.contains(id) { Presence::Leaving } else { Presence::Present },
            size_bytes: None,
            limits: Limits::default(),
            representor: Some(device.name.clone()),
            link_up: Some(device.up),
        };
        Ok(seen.owned().map(exposure).collect())
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        refuse(ErrorClass::Unsupported, &disk.id, "virtnet presents NICs only")
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        let leaving = self.leaving.lock().await;
        let handle = representor::connect()?;
        let seen = self.see(&handle).await?;
        if let Some((owner, _, device)) = seen.owned().find(|(owner, ..)| owner.uid == nic.id.uid) {
            return match (*owner == nic.id, leaving.contains(owner)) {
                (true, false) => Ok(()),
                (true, true) => refuse(ErrorClass::Busy, &nic.id, "the host has not let go of it"),
                (false, _) => {
                    refuse(ErrorClass::Conflict, &nic.id, &format!("{} has epoch {} of it", device.name, owner.epoch))
                }
            };
        }
        let twin = seen.functions().find(|(device, _)| device.mac() == nic.mac);
        let name = match twin {
            Some((_, Some(Representor { owner: Some(owner), .. }))) => {
                let what = format!("{} epoch {} has MAC address {} still", owner.uid, owner.epoch, nic.mac);
                return refuse(ErrorClass::Busy, &nic.id, &what);
            }
            Some((device, _)) => device.representor().unwrap_or_default().to_owned(),
            None => {
                let places = self.places(&seen);
                if seen.functions().count() >= usize::try_from(places).unwrap_or(usize::MAX) {
                    return refuse(
                        ErrorClass::Busy,
                        &nic.id,
                        &format!("all {places} ports of the PCIe switch are taken"),
                    );
                }
                let Config { program, parent, queues, .. } = &self.config;
                program.hot_plug(parent, &nic.mac, nic.mtu, *queues).await?.sf_rep_net_device
            }
        };
        named(&handle, &name, &nic.id).await?.take(&handle, &nic.id, nic.mtu).await
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        let _exclusive = self.leaving.lock().await;
        let handle = representor::connect()?;
        let seen = self.see(&handle).await?;
        match seen.owned().find(|(owner, ..)| *owner == id) {
            Some((.., device)) if device.up == up => Ok(()),
            Some((.., device)) => device.set_link(&handle, up).await,
            None => refuse(ErrorClass::NotFound, id, "virtnet presents no such NIC"),
        }
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        if kind != FunctionKind::Nic {
            return Ok(());
        }
        let mut leaving = self.leaving.lock().await;
        let handle = representor::connect()?;
        let seen = self.see(&handle).await?;
        let Some((_, function, device)) = seen.owned().find(|(owner, ..)| *owner == id) else { return Ok(()) };
        device.set_link(&handle, false).await?;
        match self.config.program.unplug(function).await {
            // The host has let go of it meanwhile.
            Err(error) if error.class == ErrorClass::NotFound => {}
            result => result?,
        }
        leaving.insert(id.clone());
        Ok(())
    }

    async fn resize_disk(&self, id: &ExposureId, _: u64) -> Result<(), PortError> {
        refuse(ErrorClass::NotFound, id, "virtnet presents NICs only")
    }

    async fn limit_disk(&self, id: &ExposureId, _: &Limits) -> Result<(), PortError> {
        refuse(ErrorClass::NotFound, id, "virtnet presents NICs only")
    }
}
