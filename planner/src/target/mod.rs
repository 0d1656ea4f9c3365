//! What is behind a volume, read from its CSI attributes: one adapter per kind of storage, one file each.
//!
//! An adapter names every attribute that it understands. Any other may change what the blocks mean (an encrypted volume
//! shown raw is data lost), so it is a refusal, and the volume takes another way to the DPU or none
//! ([`crate::connector`]).

mod iscsi;
mod local;
mod nvmeof;
mod own;
mod rbd;

pub use iscsi::IscsiLun;
pub use local::{LocalVolume, Module};
pub use nvmeof::{NvmeNamespace, Transport};
pub use own::FileVolume;
pub use rbd::RbdImage;

use std::collections::BTreeMap;
use std::fmt;

pub type Attributes = BTreeMap<String, String>;

/// Added by external-provisioner, and true of any volume: they do not change what the blocks mean.
const PROVISIONERS: [&str; 4] = [
    "storage.kubernetes.io/csiProvisionerIdentity",
    "csi.storage.k8s.io/pvc/name",
    "csi.storage.k8s.io/pvc/namespace",
    "csi.storage.k8s.io/pv/name",
];

/// Where the blocks are, in the words of the storage's own protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    File(FileVolume),
    Rbd(RbdImage),
    NvmeOf(NvmeNamespace),
    Iscsi(IscsiLun),
    Local(LocalVolume),
}

/// Why an adapter leaves a volume alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    Unknown { attribute: String },
    Missing { attribute: &'static str },
    Value { attribute: &'static str, value: String },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { attribute } => write!(f, "the attribute '{attribute}' is not understood"),
            Self::Missing { attribute } => write!(f, "the attribute '{attribute}' is missing"),
            Self::Value { attribute, value } => write!(f, "the value '{value}' of '{attribute}' is not understood"),
        }
    }
}

/// One kind of storage.
struct Adapter {
    /// The CSI driver whose volumes it reads.
    driver: &'static str,
    /// Every attribute that it understands.
    understood: &'static [&'static str],
    read: fn(&Given<'_>) -> Result<Target, Refusal>,
}

const ADAPTERS: [Adapter; 5] = [own::ADAPTER, rbd::ADAPTER, nvmeof::ADAPTER, iscsi::ADAPTER, local::ADAPTER];

/// What a PersistentVolume says.
struct Given<'a> {
    handle: &'a str,
    attributes: &'a Attributes,
}

impl Given<'_> {
    fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn need(&self, attribute: &'static str) -> Result<String, Refusal> {
        self.get(attribute).map(str::to_owned).ok_or(Refusal::Missing { attribute })
    }

    fn number<T: std::str::FromStr>(&self, attribute: &'static str) -> Result<T, Refusal> {
        let text = self.need(attribute)?;
        text.parse().map_err(|_| Refusal::Value { attribute, value: text })
    }

    /// An attribute that may only have this value, if it is there at all.
    fn only(&self, attribute: &'static str, wanted: &str) -> Result<(), Refusal> {
        match self.get(attribute) {
            Some(value) if value != wanted => Err(Refusal::Value { attribute, value: value.to_owned() }),
            _ => Ok(()),
        }
    }
}

/// The driver whose connector and fence serve the volume: its own, but that a volume of our driver may be a namespace of an NVMe
/// subsystem, as those of `nvmf.csi.k8s.io` are.
pub fn connector<'a>(driver: &'a str, attributes: &Attributes) -> &'a str {
    let is_namespace = driver == own::ADAPTER.driver && attributes.contains_key(nvmeof::TYPE);
    if is_namespace { nvmeof::ADAPTER.driver } else { driver }
}

/// What is behind the volume; `None`: no adapter knows this CSI driver.
pub fn of(driver: &str, handle: &str, attributes: &Attributes) -> Option<Result<Target, Refusal>> {
    let adapter = ADAPTERS.iter().find(|adapter| adapter.driver == driver)?;
    let known = |key: &&String| adapter.understood.contains(&key.as_str()) || PROVISIONERS.contains(&key.as_str());
    if let Some(attribute) = attributes.keys().find(|key| !known(key)) {
        return Some(Err(Refusal::Unknown { attribute: attribute.clone() }));
    }
    Some((adapter.read)(&Given { handle, attributes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> Attributes {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn read(driver: &str, pairs: &[(&str, &str)]) -> Result<Target, Refusal> {
        of(driver, "handle", &attributes(pairs)).expect("an adapter knows the driver")
    }

    /// Volumes as their drivers make them.
    fn usual() -> [(&'static str, Vec<(&'static str, &'static str)>); 5] {
        [
            ("csi.metalplane.io", vec![("pool", "fast"), ("format", "raw"), ("csi.storage.k8s.io/pv/name", "pvc-1")]),
            (
                "rbd.csi.ceph.com",
                vec![
                    ("clusterID", "c"),
                    ("pool", "rbd"),
                    ("imageName", "csi-vol-1"),
                    ("imageFeatures", "layering"),
                    ("journalPool", "rbd"),
                    ("storage.kubernetes.io/csiProvisionerIdentity", "17-rbd.csi.ceph.com"),
                ],
            ),
            (
                "nvmf.csi.k8s.io",
                vec![
                    ("targetTrAddr", "198.51.100.1"),
                    ("targetTrPort", "4420"),
                    ("targetTrType", "tcp"),
                    ("deviceUUID", "58668891-c3e4-45d0-b90e-824525c16080"),
                ],
            ),
            ("iscsi.csi.k8s.io", vec![("targetPortal", "198.51.100.1"), ("iqn", "iqn.2026-01.test:x"), ("lun", "1")]),
            ("bdev.metalplane.io", vec![("module", "bdev")]),
        ]
    }

    #[test]
    fn volumes_are_read_as_their_drivers_make_them() {
        let [file, rbd, nvme, iscsi, local] = usual().map(|(driver, pairs)| read(driver, &pairs).expect(driver));
        assert_eq!(file, Target::File(FileVolume { pool: Some("fast".into()), handle: "handle".into() }));
        let Target::Rbd(rbd) = rbd else { panic!("{rbd:?}") };
        assert_eq!((rbd.pool.as_str(), rbd.image.as_str()), ("rbd", "csi-vol-1"));
        let Target::NvmeOf(nvme) = nvme else { panic!("{nvme:?}") };
        assert_eq!((nvme.nqn.as_str(), nvme.port, nvme.transport), ("handle", 4420, Transport::Tcp));
        let Target::Iscsi(iscsi) = iscsi else { panic!("{iscsi:?}") };
        assert_eq!((iscsi.portals, iscsi.lun), (vec!["198.51.100.1:3260".to_owned()], 1));
        assert_eq!(local, Target::Local(LocalVolume { module: Module::Bdev, name: "handle".into() }));
    }

    #[test]
    fn volumes_of_our_driver_are_images_or_namespaces() {
        let own = "csi.metalplane.io";
        let [(_, image), .., (_, nvme), _, _] = usual();
        let nvme = [nvme.as_slice(), &[("pool", "fast"), ("nqn", "nqn.2026-01.test:a")]].concat();
        let Ok(Target::NvmeOf(namespace)) = read(own, &nvme) else { panic!("{:?}", read(own, &nvme)) };
        assert_eq!((namespace.nqn.as_str(), namespace.port), ("nqn.2026-01.test:a", 4420));
        assert_eq!(connector(own, &attributes(&nvme)), "nvmf.csi.k8s.io");
        assert_eq!(connector(own, &attributes(&image)), own);
        assert_eq!(connector("other.example.com", &attributes(&nvme)), "other.example.com");
        // Neither fish nor flesh, and the handle is no name of a subsystem.
        let half = [image.as_slice(), &[("targetTrAddr", "198.51.100.1")]].concat();
        assert_eq!(read(own, &half), Err(Refusal::Unknown { attribute: "targetTrAddr".into() }));
        let nameless: Vec<_> = nvme.iter().filter(|(key, _)| *key != "nqn").copied().collect();
        assert_eq!(read(own, &nameless), Err(Refusal::Missing { attribute: "nqn" }));
    }

    #[test]
    fn one_subsystem_may_have_several_ways() {
        let [.., (driver, usual), _, _] = usual();
        let ways = |addresses: &str| {
            let mut all = attributes(&usual);
            all.insert("targetTrAddr".to_owned(), addresses.to_owned());
            match of(driver, "handle", &all).expect("an adapter") {
                Ok(Target::NvmeOf(nvme)) => Some(nvme.addresses),
                _ => None,
            }
        };
        let two = vec!["198.51.100.1".to_owned(), "2001:db8::1".to_owned()];
        assert_eq!(ways("198.51.100.1, 2001:db8::1"), Some(two));
        for wrong in ["storage.example.com", "198.51.100.1,", ","] {
            assert_eq!(ways(wrong), None, "{wrong}");
        }
    }

    /// Never raw: one key more than what is understood, and the volume is left alone, whatever the key says.
    #[test]
    fn any_other_attribute_is_a_refusal() {
        for (driver, usual) in usual() {
            for strange in ["encryptionKMSID", "connector", "luks", "Pool", "mapOptions"] {
                let pairs = [usual.as_slice(), &[(strange, "")]].concat();
                assert_eq!(read(driver, &pairs), Err(Refusal::Unknown { attribute: strange.into() }), "{driver}");
            }
        }
    }

    #[test]
    fn values_that_change_what_the_blocks_mean_are_refusals() {
        for (driver, attribute, value) in [
            ("csi.metalplane.io", "format", "qcow2"),
            ("rbd.csi.ceph.com", "encrypted", "true"),
            ("rbd.csi.ceph.com", "mounter", "rbd-nbd"),
            ("nvmf.csi.k8s.io", "targetTrType", "fc"),
            ("nvmf.csi.k8s.io", "targetTrPort", "many"),
            ("iscsi.csi.k8s.io", "sessionCHAPAuth", "true"),
            ("iscsi.csi.k8s.io", "portals", "[1]"),
            ("bdev.metalplane.io", "module", "ftl"),
            // A file's name has to be a whole path.
            ("bdev.metalplane.io", "module", "uring"),
        ] {
            let (_, usual) = usual().into_iter().find(|(known, _)| *known == driver).expect("a usual volume");
            let mut all = attributes(&usual);
            all.insert(attribute.to_owned(), value.to_owned());
            let refused = of(driver, "handle", &all).expect("an adapter");
            assert_eq!(refused, Err(Refusal::Value { attribute, value: value.to_owned() }), "{driver} {attribute}");
        }
        let without_pool = [("clusterID", "c"), ("imageName", "i")];
        assert_eq!(read("rbd.csi.ceph.com", &without_pool), Err(Refusal::Missing { attribute: "pool" }));
        assert!(of("other.example.com", "handle", &attributes(&[])).is_none());
    }
}
