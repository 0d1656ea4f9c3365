//! Whether a server may boot from the network, and what it is given. One function, [`verdict`], stands behind every route:
//! DHCP, TFTP, script, kernel and the agents' calls. So a server that may not boot gets nothing on any of them.
//!
//! | file | what |
//! |---|---|
//! | `directory.rs` | the Hardware of an inventory, by MAC and by agent |
//! | `firmware.rs` | what a client's architecture and user class say: which program, or the script |

mod directory;
mod firmware;
#[cfg(test)]
mod tests;

pub use directory::{Directory, Subject};
pub use firmware::{Asked, BootFile, Client, Programs, boot_file};

use api::labels;
use std::fmt;
use std::net::IpAddr;

/// What a server gets from the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Address and boot program.
    Boot,
    /// Its address, and nothing to boot.
    AddressOnly(Why),
    /// No answer at all.
    Nothing(Why),
}

/// Why a server does not boot from the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    UnknownMac { mac: String },
    UnknownAddress { address: IpAddr },
    SameMac { mac: String, names: Vec<String> },
    Claimed { hardware: String, by: String },
    BeingDeleted { hardware: String },
    PxeNotAllowed { hardware: String, mac: String },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAddress { address } => write!(f, "no Hardware alone has the address {address}"),
            Self::UnknownMac { mac } => write!(f, "no Hardware has the MAC address {mac}"),
            Self::SameMac { mac, names } => write!(
                f,
                "Hardware '{}' have the same MAC address {mac}; none of them is answered",
                names.join("' and '")
            ),
            Self::Claimed { hardware, by } => {
                write!(f, "Hardware '{hardware}' is claimed by BareMetalMachine '{by}', whose disks its DPU presents")
            }
            Self::BeingDeleted { hardware } => write!(f, "Hardware '{hardware}' is being deleted"),
            Self::PxeNotAllowed { hardware, mac } => {
                write!(f, "Hardware '{hardware}': netboot.allowPXE is not true for the interface {mac}")
            }
        }
    }
}

/// Whether the server may boot by this interface. A server that a machine has claimed has its disks from its DPU: nothing on
/// the network may start another system on it, whatever its `allowPXE` says.
pub fn verdict(subject: &Subject<'_>) -> Verdict {
    let meta = &subject.hardware.metadata;
    let hardware = meta.name.clone().unwrap_or_default();
    let annotations = meta.annotations.as_ref();
    let annotation = |key: &str| annotations.and_then(|all| all.get(key)).cloned();
    if let Some(uid) = annotation(labels::CLAIMED_BY) {
        let by = annotation(labels::CLAIMED_BY_NAME).unwrap_or(uid);
        return Verdict::Nothing(Why::Claimed { hardware, by });
    }
    if meta.deletion_timestamp.is_some() {
        return Verdict::Nothing(Why::BeingDeleted { hardware });
    }
    let mac = subject.mac.to_owned();
    if subject.interface.netboot.as_ref().and_then(|netboot| netboot.allow_pxe) != Some(true) {
        return Verdict::AddressOnly(Why::PxeNotAllowed { hardware, mac });
    }
    Verdict::Boot
}
