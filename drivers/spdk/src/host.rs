//! The host's NVMe controller: one subsystem, in which every disk is a namespace.
//!
//! A controller that stays is what makes hot-plug safe: the host sees a namespace come, grow and go by itself, while a
//! function that is taken away needs the host's consent, and QEMU 11.1 does not survive the removal of a vfio-user one.

use crate::door::Door;
use crate::rpc::{
    Rpc, RpcError,
    methods::nvmf::{
        AddHost, AddListener, AllowAnyHost, CreateSubsystem, CreateTransport, DISCONNECT_MS, GetTransports, RemoveHost,
        Subsystem,
    },
};
use ports::{ErrorClass, PortError};

/// What [`crate::SpdkEmulation`] shows to its host, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Names the subsystem; the same for ever.
    pub nqn: String,
    /// The controller's, at most 20 bytes. Disks are told apart by their UUID.
    pub serial: String,
    pub door: Door,
    /// Hot-plugged disks at a time.
    pub hot_plug: u32,
}

/// What the guest reads as the disk's model.
pub(crate) const MODEL: &str = "Metalplane disk";

impl Host {
    /// The highest namespace ID.
    pub fn namespaces(&self) -> u32 {
        crate::names::FIRST_HOT_PLUG_NSID - 1 + self.hot_plug
    }

    pub fn check(&self) -> Result<(), PortError> {
        let invalid = |what: String| Err(PortError::new(ErrorClass::Invalid, what));
        if self.serial.is_empty() || self.serial.len() > crate::SERIAL_BYTES || !self.serial.is_ascii() {
            return invalid(format!("the controller's serial {:?} is not 1 to 20 ASCII bytes", self.serial));
        }
        self.door.check()
    }

    /// Makes the subsystem, if it is not there.
    pub(crate) async fn create(&self, rpc: &Rpc, subsystems: &[Subsystem]) -> Result<(), PortError> {
        if subsystems.iter().any(|s| s.nqn == self.nqn) {
            return Ok(());
        }
        let create = CreateSubsystem {
            nqn: &self.nqn,
            serial_number: &self.serial,
            model_number: MODEL,
            allow_any_host: self.door.only_host().is_none(),
            max_namespaces: self.namespaces(),
        };
        rpc.call(&create).await.map(drop).map_err(|e| e.at(&format!("subsystem {}", self.nqn)))
    }

    /// Lets the host connect.
    pub(crate) async fn listen(&self, rpc: &Rpc, subsystems: &[Subsystem]) -> Result<(), PortError> {
        let address = self.door.address();
        let step = format!("subsystem {} on {}", self.nqn, address.traddr);
        let intruders = self.door.intruders(subsystems, &self.nqn);
        if !intruders.is_empty() {
            let message = format!("{step}: {} listens there", intruders.join(", "));
            return Err(PortError::new(ErrorClass::Conflict, message));
        }
        let own = subsystems.iter().find(|s| s.nqn == self.nqn);
        if let Some(host) = self.door.only_host() {
            self.admit(rpc, own, host).await.map_err(|e| e.at(&format!("{step}: letting in {host} alone")))?;
        }
        if own.is_some_and(|own| own.listen_addresses.iter().any(|l| l.is(&address))) {
            return Ok(());
        }
        self.transport(rpc).await.map_err(|e| e.at(&step))?;
        let room = self.door.prepare().await;
        room.map_err(|e| PortError::new(ErrorClass::Busy, format!("{step}: making room for the socket: {e}")))?;
        rpc.call(&AddListener { nqn: &self.nqn, listen_address: address }).await.map(drop).map_err(|e| e.at(&step))
    }

    /// A host of another name is thrown out: the DPU has one server.
    async fn admit(&self, rpc: &Rpc, own: Option<&Subsystem>, host: &str) -> Result<(), RpcError> {
        let nqn = self.nqn.as_str();
        if own.is_some_and(|own| own.allow_any_host) {
            rpc.call(&AllowAnyHost { nqn, allow_any_host: false }).await?;
        }
        let listed = || own.into_iter().flat_map(|own| &own.hosts).map(|host| host.nqn.as_str());
        for other in listed().filter(|other| *other != host) {
            rpc.call(&RemoveHost { nqn, host: other, timeout_ms: DISCONNECT_MS }).await?;
        }
        if !listed().any(|there| there == host) {
            rpc.call(&AddHost { nqn, host }).await?;
        }
        Ok(())
    }

    async fn transport(&self, rpc: &Rpc) -> Result<(), RpcError> {
        let trtype = self.door.transport();
        if rpc.call(&GetTransports {}).await?.iter().any(|t| trtype.is(&t.trtype)) {
            return Ok(());
        }
        rpc.call(&CreateTransport { trtype }).await.map(drop)
    }
}
