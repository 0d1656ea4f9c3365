//! The host's NVMe controller: one subsystem, in which every disk is a namespace.
//!
//! A controller that stays is what makes hot-plug safe: the host sees a namespace come, grow and go by itself, while a
//! function that is taken away needs the host's consent, and QEMU 11.1 does not survive the removal of a vfio-user one.

use crate::rpc::{
    Rpc, RpcError,
    methods::nvmf::{AddListener, Address, CreateSubsystem, CreateTransport, GetTransports, Subsystem, TransportType},
};
use ports::{ErrorClass, PortError};
use std::path::{Path, PathBuf};

/// What [`crate::SpdkEmulation`] shows to its host, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Names the subsystem; the same for ever.
    pub nqn: String,
    /// The controller's, at most 20 bytes. Disks are told apart by their UUID.
    pub serial: String,
    /// Folder that vfio-user puts its socket `cntrl` into, the same path for the agent and the target.
    pub folder: PathBuf,
    /// Hot-plugged disks at a time.
    pub hot_plug: u32,
}

/// `sun_path` of a Unix address, without the final zero.
const SOCKET_PATH_BYTES: usize = 107;
/// What the guest reads as the disk's model.
const MODEL: &str = "Metalplane disk";

impl Host {
    /// The highest namespace ID.
    pub fn namespaces(&self) -> u32 {
        crate::names::FIRST_HOT_PLUG_NSID - 1 + self.hot_plug
    }

    pub(crate) fn address(&self) -> Address {
        Address { trtype: TransportType::VfioUser, traddr: self.folder.display().to_string() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("cntrl")
    }

    pub fn check(&self) -> Result<(), PortError> {
        let invalid = |what: String| Err(PortError::new(ErrorClass::Invalid, what));
        if self.socket().as_os_str().len() > SOCKET_PATH_BYTES {
            return invalid(format!("{} is too long for the path of a socket", self.socket().display()));
        }
        if self.serial.is_empty() || self.serial.len() > crate::SERIAL_BYTES || !self.serial.is_ascii() {
            return invalid(format!("the controller's serial {:?} is not 1 to 20 ASCII bytes", self.serial));
        }
        Ok(())
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
            // The socket's folder says who may connect.
            allow_any_host: true,
            max_namespaces: self.namespaces(),
        };
        rpc.call(&create).await.map(drop).map_err(|e| e.at(&format!("subsystem {}", self.nqn)))
    }

    /// Lets the host connect. Another subsystem on the same folder would be accepted by SPDK, and the host would get
    /// either: it is refused here.
    pub(crate) async fn listen(&self, rpc: &Rpc, subsystems: &[Subsystem]) -> Result<(), PortError> {
        let step = format!("subsystem {} on {}", self.nqn, self.folder.display());
        let address = self.address();
        let here = subsystems.iter().filter(|s| s.listen_addresses.iter().any(|l| l.is(&address)));
        let nqns: Vec<_> = here.map(|s| s.nqn.as_str()).collect();
        match nqns.as_slice() {
            [] => {}
            [nqn] if *nqn == self.nqn => return Ok(()),
            others => {
                let message = format!("{step}: {} listens there", others.join(", "));
                return Err(PortError::new(ErrorClass::Conflict, message));
            }
        }
        self.transport(rpc).await.map_err(|e| e.at(&step))?;
        prepare(&self.folder, &self.socket())
            .await
            .map_err(|e| PortError::new(ErrorClass::Busy, format!("{step}: making room for the socket: {e}")))?;
        rpc.call(&AddListener { nqn: &self.nqn, listen_address: address }).await.map(drop).map_err(|e| e.at(&step))
    }

    async fn transport(&self, rpc: &Rpc) -> Result<(), RpcError> {
        let trtype = TransportType::VfioUser;
        if rpc.call(&GetTransports {}).await?.iter().any(|t| trtype.is(&t.trtype)) {
            return Ok(());
        }
        rpc.call(&CreateTransport { trtype }).await.map(drop)
    }
}

/// A target that was killed leaves its socket behind, and a new one then refuses the folder.
async fn prepare(folder: &Path, socket: &Path) -> std::io::Result<()> {
    tokio::fs::create_dir_all(folder).await?;
    match tokio::fs::remove_file(socket).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
