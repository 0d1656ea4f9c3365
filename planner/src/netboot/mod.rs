//! Whether a server may boot from the network, and what it is given. One function, [`verdict`], stands behind every route:
//! DHCP, TFTP, script, kernel and the agents' calls. So a server that may not boot gets nothing on any of them.
//!
//! | file | what |
//! |---|---|
//! | `directory.rs` | the Hardware of an inventory, by MAC and by agent |
//! | `firmware.rs` | what a client's architecture and user class say: which program, or the script |
//! | `server.rs` | whether the server that asks is the one that the BMC is of |
//! | `report.rs` | what of all that is seen goes into the server's HardwareReport |
//! | `unserved.rs` | why DHCP does not serve a server, as a reason |
//! | `session.rs` | which start of an installer is the one that is served |

mod directory;
mod firmware;
mod queue;
pub mod report;
mod server;
pub mod session;
#[cfg(test)]
mod tests;
mod unserved;

pub use directory::{Directory, Subject};
pub use firmware::{Asked, BootFile, Client, Programs, boot_file};
pub use server::other_server;
pub use unserved::{SAME_MAC, Unserved, reason_since, same_mac};

use crate::erase;
use crate::install::{self, Phase, Record};
use crate::meta::annotation;
use api::labels::{CLAIMED_BY, MACHINE_UID};
use api::machine::BootStrategy;
use api::names;
use api::tinkerbell::{Hardware, Workflow};
use std::fmt;
use std::net::IpAddr;

/// What a server gets from the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Address and boot program.
    Boot,
    /// Its address; iPXE is told to go on with the disk, and firmware gets no program, which makes it do the same.
    LocalDisk(Why),
    /// Its address, and nothing to boot.
    AddressOnly(Why),
    /// No answer at all.
    Nothing(Why),
}

/// Why a server does not boot from the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    UnknownMac {
        mac: String,
    },
    UnknownAddress {
        address: IpAddr,
    },
    SameMac {
        mac: String,
        names: Vec<String>,
    },
    Claimed {
        hardware: String,
        by: String,
    },
    /// No installation of it is under way.
    BootsLocally {
        hardware: String,
        by: String,
    },
    /// Its last Workflow was a success, and no other one is open.
    Installed {
        hardware: String,
        workflow: String,
    },
    BeingDeleted {
        hardware: String,
    },
    /// The firmware says another UUID than the BMC.
    OtherServer {
        hardware: String,
        told: String,
        expected: String,
    },
    PxeNotAllowed {
        hardware: String,
        mac: String,
    },
    /// There is no Secret of its installation.
    NoSeed {
        hardware: String,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAddress { address } => write!(f, "no Hardware alone has the address {address}"),
            Self::NoSeed { hardware } => write!(
                f,
                "the cloud-init data of the installation of Hardware '{hardware}' is not there: its Secret was deleted, or the installation was \
                 begun by an older controller; ask for another one (bmctl reinstall)"
            ),
            Self::UnknownMac { mac } => write!(f, "no Hardware has the MAC address {mac}"),
            Self::SameMac { mac, names } => write!(
                f,
                "Hardware '{}' have the same MAC address {mac}; none of them is answered",
                names.join("' and '")
            ),
            Self::Claimed { hardware, by } => {
                write!(f, "Hardware '{hardware}' is claimed by {by}: its DPU presents disks")
            }
            Self::BootsLocally { hardware, by } => write!(
                f,
                "Hardware '{hardware}' is claimed by {by}, of which no installation is under way: it boots from \
                 its own disk"
            ),
            Self::Installed { hardware, workflow } => write!(
                f,
                "Hardware '{hardware}' was installed by Workflow '{workflow}' and no other Workflow of it waits: it boots from its \
                 own disk"
            ),
            Self::OtherServer { hardware, told, expected } => write!(
                f,
                "the server that asks is not that of Hardware '{hardware}': its firmware says the UUID {told}, and the BMC of that Hardware \
                 {expected}"
            ),
            Self::BeingDeleted { hardware } => write!(f, "Hardware '{hardware}' is being deleted"),
            Self::PxeNotAllowed { hardware, mac } => {
                write!(f, "Hardware '{hardware}': netboot.allowPXE is not true for the interface {mac}")
            }
        }
    }
}

/// Whether the server may boot by this interface.
///
/// | the Hardware | verdict |
/// |---|---|
/// | is being deleted, or claimed as CloudDisk | nothing: its disks are its DPU's, and no other system may start on it |
/// | is claimed as Workflow, and an installation, or the erasing of its disks, is on record as begun | it boots, whatever its `allowPXE` says; once the installation was a success, as in the next row |
/// | is claimed as Workflow otherwise | its address; it boots from its own disk |
/// | is not claimed, and its last Workflow was a success | its address; it boots from its own disk: its firmware may ask the network first |
/// | is not claimed otherwise | it boots where its `allowPXE` is true |
pub fn verdict(subject: &Subject<'_>) -> Verdict {
    let meta = &subject.hardware.metadata;
    let hardware = meta.name.clone().unwrap_or_default();
    let by = || install::claimer(meta).unwrap_or_default();
    match install::strategy(meta) {
        Some(BootStrategy::CloudDisk | BootStrategy::Auto) => {
            return Verdict::Nothing(Why::Claimed { hardware, by: by() });
        }
        _ if meta.deletion_timestamp.is_some() => return Verdict::Nothing(Why::BeingDeleted { hardware }),
        Some(BootStrategy::Workflow) => {
            return match under_way(subject.hardware) {
                Some(_) if !subject.has_installed => Verdict::Boot,
                _ => Verdict::LocalDisk(Why::BootsLocally { hardware, by: by() }),
            };
        }
        None => {}
    }
    let mac = subject.mac.to_owned();
    if subject.interface.netboot.as_ref().and_then(|netboot| netboot.allow_pxe) != Some(true) {
        return Verdict::AddressOnly(Why::PxeNotAllowed { hardware, mac });
    }
    match subject.installed_by {
        Some(workflow) => Verdict::LocalDisk(Why::Installed { hardware, workflow: workflow.to_owned() }),
        None => Verdict::Boot,
    }
}

/// Whether the agent of this server may run this Workflow: of a claimed server the one that is on record as begun, and no other;
/// of one that nobody has claimed whatever is no machine's.
fn may_run(hardware: &Hardware, workflow: &Workflow) -> bool {
    let meta = &hardware.metadata;
    match install::strategy(meta) {
        _ if meta.deletion_timestamp.is_some() => false,
        Some(BootStrategy::CloudDisk | BootStrategy::Auto) => false,
        Some(BootStrategy::Workflow) => {
            let run = under_way(hardware);
            run.is_some() && run == workflow.metadata.uid
        }
        None => !is_of_machine(workflow),
    }
}

/// The UID of the Workflow that is on record as begun. Once the disks are to be erased no installation counts any more.
fn under_way(hardware: &Hardware) -> Option<String> {
    let meta = &hardware.metadata;
    match erase::is_recorded(meta) {
        true => erase::Record::of(meta).filter(|record| !record.is_over()).map(|record| record.workflow),
        false => installation(hardware),
    }
}

/// The name of the Workflow that is on record at a claimed server, whether it has ended or not.
pub fn on_record(hardware: &Hardware) -> Option<String> {
    let meta = &hardware.metadata;
    let machine = annotation(meta, CLAIMED_BY)?;
    match erase::Record::of(meta) {
        Some(record) => Some(names::erase(machine, record.number)),
        None => Record::of(meta).map(|record| names::install(machine, record.number)),
    }
}

/// The same of an installation alone.
fn installation(hardware: &Hardware) -> Option<String> {
    let meta = &hardware.metadata;
    let record = Record::of(meta).filter(|record| record.phase == Phase::Begun && !erase::is_recorded(meta));
    record.map(|record| record.workflow)
}

fn is_of_machine(workflow: &Workflow) -> bool {
    workflow.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MACHINE_UID))
}
