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
    UnknownMac { mac: String },
    UnknownAddress { address: IpAddr },
    SameMac { mac: String, names: Vec<String> },
    Claimed { hardware: String, by: String },
    BeingDeleted { hardware: String },
    Installed { hardware: String, workflow: String },
    NothingBegun { hardware: String, by: String },
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
            Self::Installed { hardware, workflow } => write!(
                f,
                "Hardware '{hardware}' was installed by Workflow '{workflow}' and no other Workflow of it waits; the server \
                 boots its disk"
            ),
            Self::NothingBegun { hardware, by } => write!(
                f,
                "Hardware '{hardware}' is claimed by BareMetalMachine '{by}', which has no installation under way; the server \
                 boots its disk"
            ),
            Self::BeingDeleted { hardware } => write!(f, "Hardware '{hardware}' is being deleted"),
            Self::PxeNotAllowed { hardware, mac } => {
                write!(f, "Hardware '{hardware}': netboot.allowPXE is not true for the interface {mac}")
            }
        }
    }
}

/// What the claim of a Hardware says of booting from the network.
enum Claim<'a> {
    None,
    /// Its disks come from its DPU.
    CloudDisk { by: &'a str },
    /// `begun`: UID of the Workflow that installs it now.
    Workflow { by: &'a str, begun: Option<&'a str> },
}

impl<'a> Claim<'a> {
    fn of(hardware: &'a Hardware) -> Self {
        let annotations = hardware.metadata.annotations.as_ref();
        let annotation = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
        let Some(uid) = annotation(labels::CLAIMED_BY) else { return Self::None };
        let by = annotation(labels::CLAIMED_BY_NAME).unwrap_or(uid);
        if annotation(labels::BOOT_STRATEGY) != Some("Workflow") {
            return Self::CloudDisk { by };
        }
        let mut record = annotation(labels::INSTALL).unwrap_or_default().splitn(3, '/').skip(1);
        let begun = (record.next() == Some("Begun")).then(|| record.next()).flatten();
        Self::Workflow { by, begun }
    }
}

/// Whether the server may boot by this interface.
///
/// - A server that a machine has claimed has its disks from its DPU: nothing on the network may start another system on it,
///   whatever its `allowPXE` says.
/// - One that a machine installs by a Workflow boots the installer while the record beside the claim says that an installation
///   has begun, and at no other time.
/// - One that nobody has claimed boots as its `allowPXE` says, but for one that its last Workflow has installed: its firmware may
///   ask the network first at every start, and the system that was installed has to come up.
pub fn verdict(subject: &Subject<'_>) -> Verdict {
    let meta = &subject.hardware.metadata;
    let hardware = meta.name.clone().unwrap_or_default();
    match Claim::of(subject.hardware) {
        Claim::CloudDisk { by } => return Verdict::Nothing(Why::Claimed { hardware, by: by.to_owned() }),
        Claim::Workflow { begun: Some(_), .. } => return Verdict::Boot,
        Claim::Workflow { by, begun: None } => {
            return Verdict::LocalDisk(Why::NothingBegun { hardware, by: by.to_owned() });
        }
        Claim::None => {}
    }
    if meta.deletion_timestamp.is_some() {
        return Verdict::Nothing(Why::BeingDeleted { hardware });
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

/// Whether this Workflow may do something to the server now: on one that a machine has claimed, only the Workflow that the record
/// beside the claim names.
pub fn may_run(hardware: &Hardware, workflow: &Workflow) -> bool {
    match Claim::of(hardware) {
        Claim::None => hardware.metadata.deletion_timestamp.is_none(),
        Claim::CloudDisk { .. } => false,
        Claim::Workflow { begun, .. } => begun.is_some() && begun == workflow.metadata.uid.as_deref(),
    }
}
