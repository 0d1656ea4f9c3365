//! By which way a host reaches its controller.
//!
//! *vfio-user*: a virtual host, by a socket in a folder; whoever may enter the folder may connect. It does not find back
//! to a new target.
//!
//! *NVMe over fabrics*: a host that boots over the network, by TCP or RDMA. The subsystem lets in its host NQN alone. It
//! connects again by itself, also to a new target, and its I/O waits meanwhile.

use crate::rpc::methods::nvme::Family;
use crate::rpc::methods::nvmf::{Address, Subsystem, TransportType};
use ports::{ErrorClass, PortError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// The folder that vfio-user puts its socket `cntrl` into, the same path for the agent and the target.
    VfioUser { folder: PathBuf },
    Fabric {
        fabric: Fabric,
        listen: SocketAddr,
        /// The NQN that the host's initiator has.
        host_nqn: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fabric {
    Tcp,
    Rdma,
}

/// `sun_path` of a Unix address, without the final zero.
const SOCKET_PATH_BYTES: usize = 107;
/// NVM Express Base Specification 2.0, section 4.5.
const NQN_BYTES: usize = 223;

/// What most initiators call themselves.
const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";

fn is_nqn(name: &str) -> bool {
    let uuid = name.strip_prefix(UUID_NQN).is_none_or(|uuid| uuid::Uuid::try_parse(uuid).is_ok());
    name.starts_with("nqn.") && name.len() <= NQN_BYTES && uuid
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("cntrl")
}

impl Door {
    pub(crate) fn check(&self) -> Result<(), PortError> {
        let invalid = |what: String| Err(PortError::new(ErrorClass::Invalid, what));
        match self {
            Self::VfioUser { folder } if socket(folder).as_os_str().len() > SOCKET_PATH_BYTES => {
                invalid(format!("{} is too long for the path of a socket", socket(folder).display()))
            }
            Self::Fabric { host_nqn, .. } if !is_nqn(host_nqn) => invalid(format!(
                "the host's NQN {host_nqn:?} is none: nqn., year and month, a domain, or {UUID_NQN} and a UUID; at most {NQN_BYTES} bytes"
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn transport(&self) -> TransportType {
        match self {
            Self::VfioUser { .. } => TransportType::VfioUser,
            Self::Fabric { fabric: Fabric::Tcp, .. } => TransportType::Tcp,
            Self::Fabric { fabric: Fabric::Rdma, .. } => TransportType::Rdma,
        }
    }

    pub(crate) fn address(&self) -> Address {
        let trtype = self.transport();
        match self {
            Self::VfioUser { folder } => {
                Address { trtype, traddr: folder.display().to_string(), adrfam: None, trsvcid: None }
            }
            Self::Fabric { listen, .. } => Address {
                trtype,
                traddr: listen.ip().to_string(),
                adrfam: Some(if listen.is_ipv6() { Family::Ipv6 } else { Family::Ipv4 }),
                trsvcid: Some(listen.port().to_string()),
            },
        }
    }

    /// Who alone may connect; `None`: whoever reaches the door.
    pub(crate) fn only_host(&self) -> Option<&str> {
        match self {
            Self::VfioUser { .. } => None,
            Self::Fabric { host_nqn, .. } => Some(host_nqn),
        }
    }

    /// The host connects again to a target that was started anew.
    pub(crate) fn is_found_again(&self) -> bool {
        matches!(self, Self::Fabric { .. })
    }

    /// Another subsystem at this door would be accepted by SPDK, and the host would get either. Over a fabric hosts ask
    /// for a subsystem by name.
    pub(crate) fn intruders<'a>(&self, subsystems: &'a [Subsystem], own: &str) -> Vec<&'a str> {
        if self.is_found_again() {
            return Vec::new();
        }
        let address = self.address();
        let here = subsystems.iter().filter(|s| s.listen_addresses.iter().any(|l| l.is(&address)));
        here.map(|s| s.nqn.as_str()).filter(|nqn| *nqn != own).collect()
    }

    /// A target that was killed leaves its socket behind, and a new one then refuses the folder.
    pub(crate) async fn prepare(&self) -> std::io::Result<()> {
        let Self::VfioUser { folder } = self else { return Ok(()) };
        tokio::fs::create_dir_all(folder).await?;
        match tokio::fs::remove_file(socket(folder)).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_target_would_refuse_are_refused() {
        let door = |host_nqn: &str| Door::Fabric {
            fabric: Fabric::Tcp,
            listen: ([127, 0, 0, 1], 4420).into(),
            host_nqn: host_nqn.to_owned(),
        };
        for good in ["nqn.2014-08.org.nvmexpress:uuid:5f0c1c9e-58a4-4b1c-9a63-0123456789ab", "nqn.2026-01.test:host"] {
            assert_eq!(door(good).check(), Ok(()), "{good}");
        }
        let long = format!("nqn.2026-01.test:{}", "x".repeat(NQN_BYTES));
        for bad in ["", "host", "nqn.2014-08.org.nvmexpress:uuid:host", &long] {
            assert_eq!(door(bad).check().map_err(|error| error.class), Err(ErrorClass::Invalid), "{bad}");
        }
    }
}
