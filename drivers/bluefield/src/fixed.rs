//! The host's own physical functions (devlink: flavour `pcipf`, `external`): the only NICs that are there before anything was plugged.
//!
//! - *expose*: the first function that is nobody's gets the MAC address, and its representor the owner's name, link down.
//! - *hide*: link down, and it is nobody's. The function itself stays: the host sees it, without a link.
//! - A function of nobody's has its link down, whoever set it up: a stock system image bridges the host to the DPU's uplink. The kernel tells
//!   when somebody sets a link ([`Emulation::changed`]), and whoever is told lists.
//!
//! A host's driver that runs takes another MAC address when it is loaded again, or with the host's next start.

use crate::devlink::{Devlink, HostFunction, Wire};
use crate::links::Links;
use crate::representor::{self, Representor};
use async_trait::async_trait;
use planner::exposure::{Exposure, ExposureId, FunctionKind, Limits, Presence};
use ports::emulation::{DiskFunction, EmulationCapabilities, NicFunction};
use ports::{Emulation, ErrorClass, PortError};
use rtnetlink::Handle;
use std::sync::Arc;
use tokio::sync::Mutex;

pub struct FixedNics {
    devlink: Arc<Devlink>,
    links: Links,
    /// Holding it is what makes verbs exclusive.
    turn: Mutex<()>,
}

const NONE: &str = "devlink tells of no function of the host (flavour pcipf, external true). Next: devlink port show; is the DPU in DPU \
                    mode (mlxconfig: INTERNAL_CPU_MODEL=1, INTERNAL_CPU_OFFLOAD_ENGINE=0), and its e-switch in switchdev mode?";

impl FixedNics {
    pub fn new(wire: impl Wire + 'static) -> Self {
        Self { devlink: Arc::new(Devlink::new(wire)), links: Links::default(), turn: Mutex::default() }
    }

    /// On a thread of its own: a driver that asks its firmware takes seconds.
    async fn devlink<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Devlink) -> Result<T, PortError> + Send + 'static,
    ) -> Result<T, PortError> {
        let devlink = self.devlink.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&devlink)).await;
        asked.unwrap_or_else(|error| Err(PortError::new(ErrorClass::Unreachable, format!("ask devlink: {error}"))))
    }

    /// The host's functions with their representors, in the order of controller and number. One without a network device, as while the
    /// switch's driver starts, is left out.
    async fn see(&self, handle: &Handle) -> Result<Vec<(HostFunction, Representor)>, PortError> {
        let functions = self.devlink(Devlink::host_functions).await?;
        if functions.is_empty() {
            return Err(PortError::new(ErrorClass::Unsupported, NONE));
        }
        let devices = representor::read(handle).await?;
        let with_device = |function: HostFunction| {
            let device = devices.iter().find(|device| Some(&device.name) == function.device.as_ref())?.clone();
            Some((function, device))
        };
        Ok(functions.into_iter().filter_map(with_device).collect())
    }
}

fn refuse<T>(class: ErrorClass, id: &ExposureId, what: &str) -> Result<T, PortError> {
    Err(PortError::new(class, format!("NIC {} epoch {}: {what}", id.uid, id.epoch)))
}

#[async_trait]
impl Emulation for FixedNics {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let with_device =
            self.devlink(Devlink::host_functions).await?.into_iter().filter(|function| function.device.is_some());
        let count = u32::try_from(with_device.count()).unwrap_or(u32::MAX);
        let (buses, online_resize) = (Vec::new(), Vec::new());
        Ok(EmulationCapabilities {
            disks: 0,
            nics: count,
            hot_plug_ports: count,
            switch_ports: 0,
            buses,
            online_resize,
        })
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let _turn = self.turn.lock().await;
        self.links.follow()?;
        let handle = representor::connect()?;
        let all = self.see(&handle).await?;
        self.links.watch(all.iter().map(|(_, device)| device));
        let mut exposures = Vec::new();
        for (_, device) in all {
            match &device.owner {
                Some(id) => exposures.push(Exposure {
                    id: id.clone(),
                    kind: FunctionKind::Nic,
                    presence: Presence::Present,
                    size_bytes: None,
                    limits: Limits::default(),
                    representor: Some(device.name),
                    link_up: Some(device.up),
                }),
                None if device.up => {
                    tracing::warn!(
                        device = device.name,
                        "no attachment has this function of the host: its link goes down"
                    );
                    device.set_link(&handle, false).await?;
                }
                None => {}
            }
        }
        Ok(exposures)
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        refuse(ErrorClass::Unsupported, &disk.id, "the host's own functions are NICs, no disks")
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        let _turn = self.turn.lock().await;
        let handle = representor::connect()?;
        let all = self.see(&handle).await?;
        let owners = || all.iter().filter_map(|(_, device)| Some((device.owner.as_ref()?, device)));
        if let Some((owner, device)) = owners().find(|(owner, _)| owner.uid == nic.id.uid) {
            return match *owner == nic.id {
                true => Ok(()),
                false => {
                    refuse(ErrorClass::Conflict, &nic.id, &format!("{} has epoch {} of it", device.name, owner.epoch))
                }
            };
        }
        let free = || all.iter().filter(|(_, device)| device.owner.is_none());
        // One that an interrupted call gave the address already.
        let given = free().find(|(function, _)| function.mac.as_deref() == Some(nic.mac.as_str()));
        let Some((function, device)) = given.or_else(|| free().next()) else {
            let what = format!("all {} functions of the host are taken", all.len());
            return refuse(ErrorClass::Busy, &nic.id, &what);
        };
        device.set_link(&handle, false).await?;
        if function.mac.as_deref() != Some(nic.mac.as_str()) {
            let (function, mac) = (function.clone(), nic.mac.clone());
            self.devlink(move |devlink| devlink.set_mac(&function, &mac)).await?;
        }
        device.take(&handle, &nic.id, nic.mtu).await
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        let _turn = self.turn.lock().await;
        let handle = representor::connect()?;
        let all = self.see(&handle).await?;
        match all.iter().find(|(_, device)| device.owner.as_ref() == Some(id)) {
            Some((_, device)) if device.up == up => Ok(()),
            Some((_, device)) => device.set_link(&handle, up).await,
            None => refuse(ErrorClass::NotFound, id, "no function of the host is its"),
        }
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        if kind != FunctionKind::Nic {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let handle = representor::connect()?;
        let all = self.see(&handle).await?;
        match all.iter().find(|(_, device)| device.owner.as_ref() == Some(id)) {
            Some((_, device)) => device.release(&handle).await,
            None => Ok(()),
        }
    }

    async fn resize_disk(&self, id: &ExposureId, _: u64) -> Result<(), PortError> {
        refuse(ErrorClass::NotFound, id, "the host's own functions are NICs, no disks")
    }

    async fn limit_disk(&self, id: &ExposureId, _: &Limits) -> Result<(), PortError> {
        refuse(ErrorClass::NotFound, id, "the host's own functions are NICs, no disks")
    }

    async fn changed(&self) {
        self.links.changed().await;
    }
}
