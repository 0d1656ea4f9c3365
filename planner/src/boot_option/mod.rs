//! Which boot option of a host's firmware is the boot disk of its DPU.
//!
//! A wrong answer starts somebody else's system, or an old one, on a machine's server. So an option is taken only by what
//! identifies the disk; where no rule finds exactly one option, a person is asked. The rules, in their order:
//!
//! 1. An administrator's word: the annotation `metalplane.io/boot-option`.
//! 2. The namespace's EUI-64 and NSID in the option's device path.
//! 3. The serial number of the DPU's boot controller, as a whole word of the option's name.
//! 4. The device path by which one of the rules 2, 3 and 5 found the disk before ([`Learnt`]).
//! 5. The device path of a network option of the DPU: NIC and disk are functions of one PCIe device.
//! 6. The PCIe address that the host gave to the disk's function.
//!
//! A rule that finds several options ends the search, as does one that contradicts what is known. What identifies nothing
//! is not used: that an option is the only one, or the first; an EUI-64 of zeros; a name of ours; a slot's number. An option
//! of an installed system (`HD(…)`) is bound to no disk: copies of one image have the same partition.

pub mod discovery;
pub mod installed;
mod learnt;
mod path;
mod text;

pub use learnt::Learnt;

use crate::host::BootOption;
use path::{Path, Place};

/// What identifies the boot disk of a DPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Own {
    /// Of the NVMe controller.
    pub serial: Option<String>,
    /// Of the boot namespace; zeros are none.
    pub eui64: Option<[u8; 8]>,
    /// Of the boot namespace.
    pub nsid: u32,
    /// Of the DPU's NICs that the host has.
    pub macs: Vec<[u8; 6]>,
    /// Of the NVMe function in the host.
    pub pci_address: Option<(u8, u8, u8)>,
    /// Where the disk was found before.
    pub learnt: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    Administrator,
    Eui64,
    Serial,
    LearntPath,
    SiblingOfNic,
    PciAddress,
}

impl Rule {
    /// For a message: "by …".
    pub fn words(self) -> &'static str {
        match self {
            Self::Administrator => "the annotation metalplane.io/boot-option",
            Self::Eui64 => "the EUI-64 of the namespace",
            Self::Serial => "the serial number of the controller",
            Self::LearntPath => "the device path in the annotation metalplane.io/boot-path",
            Self::SiblingOfNic => "the PCIe device of the DPU's NIC",
            Self::PciAddress => "the PCIe address of the function",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    Option {
        reference: String,
        rule: Rule,
        /// What is worth remembering: the path of the disk, where a rule proved it.
        path: Option<String>,
    },
    /// An administrator wants whatever disk the firmware takes first.
    AnyDisk,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// By the rule there are several.
    Ambiguous(Rule, Vec<BootOption>),
    NotListed,
}

/// The word of an administrator that stands for a continuous override to the hard disk.
pub const ANY_DISK: &str = "Hdd";

type Matches = fn(&Candidate<'_>, &Own, &[BootOption]) -> bool;

/// `named`: the administrator's word.
pub fn choose(named: Option<&str>, own: &Own, options: &[BootOption]) -> Result<Choice, Refusal> {
    if let Some(named) = named {
        return administrators(named, options);
    }
    let candidates: Vec<Candidate<'_>> = options.iter().filter_map(|option| Candidate::of(option, own)).collect();
    let rules: [(Rule, Matches); 5] = [
        (Rule::Eui64, |c, own, _| c.has_eui64_of(own)),
        (Rule::Serial, |c, own, _| c.has_serial_of(own)),
        (Rule::LearntPath, |c, own, _| c.path.as_ref().is_some_and(|path| own.learnt.as_deref() == Some(path.disk()))),
        (Rule::SiblingOfNic, |c, own, options| c.is_beside_nic_of(own, options)),
        (Rule::PciAddress, |c, own, _| {
            own.pci_address.is_some() && text::pci_address(&c.option.display_name) == own.pci_address
        }),
    ];
    for (rule, matches) in rules {
        let found: Vec<&Candidate<'_>> = candidates.iter().filter(|c| matches(c, own, options)).collect();
        if found.is_empty() {
            continue;
        }
        let one = one_disk(&found).ok_or_else(|| ambiguous(rule, &found))?;
        // A disk that one rule names and another one with the same right to the name: neither is proven.
        let others: Vec<&Candidate<'_>> = match rule {
            Rule::Eui64 => candidates.iter().filter(|c| c.has_serial_of(own) && !c.is_disk_of(one)).collect(),
            _ => Vec::new(),
        };
        if !others.is_empty() {
            return Err(ambiguous(rule, &[&found[..], &others[..]].concat()));
        }
        let lasts = matches!(rule, Rule::Eui64 | Rule::Serial | Rule::SiblingOfNic);
        let path = one.path.as_ref().filter(|_| lasts).map(|path| path.disk().to_owned());
        return Ok(Choice::Option { reference: one.option.reference.clone(), rule, path });
    }
    Err(Refusal::NotListed)
}

/// The one option by which the firmware boots the NIC with this MAC address by PXE over IPv4 (UEFI 2.10, sections 10.3.5.13 and 24.3.2):
/// a path that names a resource is of HTTP boot.
pub fn of_network(mac: [u8; 6], options: &[BootOption]) -> Option<&BootOption> {
    let is_it = |option: &&BootOption| {
        // Some paths begin with the NIC.
        let path = format!("/{}", option.uefi_device_path.as_deref().unwrap_or_default());
        let of_mac = path::nic(&path).is_some_and(|(of, _)| of == mac);
        option.enabled && option.present && of_mac && path.contains("/IPv4(") && !path.contains("/Uri(")
    };
    let mut found = options.iter().filter(is_it);
    found.next().filter(|_| found.next().is_none())
}

/// The firmware lists classes of devices, and no device.
pub fn are_classes(options: &[BootOption]) -> bool {
    let is_class = |option: &BootOption| option.uefi_device_path.as_deref().map(Path::parse) == Some(Place::Opaque);
    !options.is_empty() && options.iter().all(is_class)
}

fn ambiguous(rule: Rule, found: &[&Candidate<'_>]) -> Refusal {
    Refusal::Ambiguous(rule, found.iter().map(|c| c.option.clone()).collect())
}

/// References are the BMC's own and are looked for first; a name may be on several options.
fn administrators(named: &str, options: &[BootOption]) -> Result<Choice, Refusal> {
    let chosen = |option: &BootOption| Choice::Option {
        reference: option.reference.clone(),
        rule: Rule::Administrator,
        path: None,
    };
    if let Some(option) = options.iter().find(|option| option.reference == named) {
        return Ok(chosen(option));
    }
    let found: Vec<&BootOption> = options.iter().filter(|option| option.display_name == named).collect();
    match found.as_slice() {
        [one] => Ok(chosen(one)),
        [] if named == ANY_DISK => Ok(Choice::AnyDisk),
        [] => Err(Refusal::NotListed),
        several => Err(Refusal::Ambiguous(Rule::Administrator, several.iter().map(|&option| option.clone()).collect())),
    }
}

/// An option that may be the disk: nothing that it says of itself is against it.
struct Candidate<'a> {
    option: &'a BootOption,
    /// Of an NVMe namespace.
    path: Option<Path<'a>>,
}

impl<'a> Candidate<'a> {
    fn of(option: &'a BootOption, own: &Own) -> Option<Self> {
        if !option.enabled || !option.present {
            return None;
        }
        let path = match option.uefi_device_path.as_deref().map(Path::parse) {
            None => None,
            // Of a class of devices, as XCC has them: only its name can tell.
            Some(Place::Opaque) => None,
            Some(Place::Other) => return None,
            Some(Place::Namespace(path)) => {
                let eui64 = path.eui64.filter(|eui64| *eui64 != [0; 8]);
                let is_foreign = match (eui64, known(own)) {
                    (Some(seen), Some(known)) => !is_same_eui64(seen, known),
                    _ => false,
                };
                if is_foreign || path.nsid != own.nsid {
                    return None;
                }
                Some(path)
            }
        };
        Some(Self { option, path })
    }

    fn has_eui64_of(&self, own: &Own) -> bool {
        let seen = self.path.as_ref().and_then(|path| path.eui64);
        seen.zip(known(own)).is_some_and(|(seen, known)| is_same_eui64(seen, known))
    }

    fn has_serial_of(&self, own: &Own) -> bool {
        own.serial.as_deref().is_some_and(|serial| text::names_serial(&self.option.display_name, serial, own.nsid))
    }

    fn is_beside_nic_of(&self, own: &Own, options: &[BootOption]) -> bool {
        let Some(path) = &self.path else { return false };
        let nics = options.iter().filter_map(|option| path::nic(option.uefi_device_path.as_deref()?));
        nics.filter(|(mac, _)| own.macs.contains(mac)).any(|(_, device)| path.is_function_beside(device))
    }

    fn is_disk_of(&self, other: &Candidate<'_>) -> bool {
        match (&self.path, &other.path) {
            (Some(one), Some(other)) => one.disk() == other.disk(),
            (None, None) => self.option == other.option,
            _ => false,
        }
    }
}

/// The EUI-64 that identifies something.
fn known(own: &Own) -> Option<[u8; 8]> {
    own.eui64.filter(|eui64| *eui64 != [0; 8])
}

/// Firmware prints the bytes of an EUI-64 from the last to the first, some the other way round.
fn is_same_eui64(seen: [u8; 8], known: [u8; 8]) -> bool {
    let mut reversed = known;
    reversed.reverse();
    seen == known || seen == reversed
}

/// Of several options of one disk the one that leads to the disk itself, not to a partition; `None`: they are of several.
fn one_disk<'a, 'b>(found: &[&'b Candidate<'a>]) -> Option<&'b Candidate<'a>> {
    let (first, others) = found.split_first()?;
    if !others.iter().all(|other| other.is_disk_of(first)) {
        return None;
    }
    found.iter().copied().min_by_key(|c| (c.path.as_ref().map(Path::rest_length), c.option.reference.clone()))
}
