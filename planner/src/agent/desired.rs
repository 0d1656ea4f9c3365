//! Attachments as the agent uses them, from the API's objects.

use crate::connector::{HolderPod, KUBELET};
use crate::exposure::{Bus, ExposureId, Limits, Slot};
use crate::target;
use api::attachment::{
    Connector, Consumer, DiskAttachmentSpec, DiskSlot, FenceIdentity, NicAttachmentSpec, VolumeSource,
};
use api::image::ImageFormat;
use api::machine::DiskBus;
use api::{DiskAttachment, NicAttachment, labels, names, quantity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Which object it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    Disk,
    Nic,
}

/// What an import has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportDone {
    pub bytes: u64,
    /// `sha256:<hex>`.
    pub checksum: String,
}

/// One attachment as the API server has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    pub key: Key,
    pub generation: Option<i64>,
    pub dpu_name: String,
    /// The epoch of the grant, once there is one.
    pub epoch: Option<u64>,
    pub deleting: bool,
    pub release: bool,
    /// Our finalizer is on it.
    pub held: bool,
    /// What to present; or what is wrong with the spec.
    pub function: Result<Function, String>,
    /// What the host should see; grows.
    pub size_bytes: Option<u64>,
    /// What is asked to bound it; may change.
    pub limits: Limits,
    /// `status.fence`.
    pub fence: Option<FenceIdentity>,
    /// `status.import`, if it says done.
    pub import_done: Option<ImportDone>,
}

/// What of a spec never changes, and all that a replay needs: it goes into the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Function {
    Disk { volume: Volume, presentation: Presentation },
    Seed(Seed),
    Eraser(Eraser),
    HoldDisk(HoldDisk),
    Import(Import),
    Nic(Nic),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The CSI driver's name.
    pub driver: String,
    pub handle: String,
    pub attributes: BTreeMap<String, String>,
    pub read_only: bool,
    /// Where kubelet connects it; `None`: natively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderPod>,
}

impl Volume {
    /// The name of the connector that serves it.
    pub fn connector(&self) -> &str {
        if self.holder.is_some() { KUBELET } else { target::connector(&self.driver, &self.attributes) }
    }
}

/// How the host sees a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presentation {
    pub bus: Bus,
    pub slot: Slot,
    pub serial: String,
    pub uuid: String,
    pub read_only: bool,
}

/// A cloud-init disk, made from a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    pub secret: String,
    pub presentation: Presentation,
}

/// The disk from which a host boots the installer to erase its own disks, and on which that reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eraser {
    /// What the host's processors are: `x86_64`.
    pub machine: String,
    pub presentation: Presentation,
}

/// The disk that a host's firmware is to list, and from which nothing starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldDisk {
    /// What the host's processors are: `x86_64`.
    pub machine: String,
    pub presentation: Presentation,
}

/// A volume that the agent fills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    pub volume: Volume,
    pub url: String,
    /// Lower-case hex of the SHA-256 of what the URL answers.
    pub sha256: String,
    /// Authorities, in PEM; `None`: the public ones. A record of an earlier release has none.
    #[serde(default)]
    pub ca_bundle: Option<String>,
    /// A record of an earlier release has none: it read raw images alone.
    #[serde(default)]
    pub format: ImageFormat,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Lower case, colons.
    pub mac: String,
    pub mtu: u16,
    pub logical_port: String,
    /// What a driver that makes the network device itself calls it. Which one stands for the function, the emulation tells
    /// ([`crate::exposure::Exposure::representor`]).
    pub representor: String,
    pub addresses: Vec<IpAddr>,
}

impl Function {
    /// The name of the connector that serves it.
    pub fn connector(&self) -> Option<&str> {
        match self {
            Self::Disk { volume, .. } | Self::Import(Import { volume, .. }) => Some(volume.connector()),
            Self::Seed(_) | Self::Eraser(_) | Self::HoldDisk(_) | Self::Nic(_) => None,
        }
    }

    /// Of a disk whose image the agent makes itself.
    pub fn made(&self) -> Option<&Presentation> {
        match self {
            Self::Seed(Seed { presentation, .. })
            | Self::Eraser(Eraser { presentation, .. })
            | Self::HoldDisk(HoldDisk { presentation, .. }) => Some(presentation),
            Self::Disk { .. } | Self::Import(_) | Self::Nic(_) => None,
        }
    }
}

impl Attachment {
    /// Who is granted; `None` without a grant.
    pub fn id(&self) -> Option<ExposureId> {
        self.epoch.map(|epoch| ExposureId { uid: self.key.uid.clone(), epoch })
    }

    pub fn from_disk(object: &DiskAttachment) -> Self {
        let status = object.status.as_ref();
        let done = status.and_then(|s| s.import.as_ref()).filter(|import| import.done);
        Self {
            dpu_name: object.spec.dpu_name.clone(),
            epoch: object.spec.grant.map(|grant| grant.epoch),
            release: object.spec.release,
            function: disk_function(&object.spec),
            size_bytes: object.spec.size.as_ref().and_then(quantity::bytes),
            limits: object.spec.qos.unwrap_or_default(),
            fence: status.and_then(|s| s.fence.clone()),
            import_done: done.map(|import| ImportDone {
                bytes: import.bytes_written,
                checksum: import.checksum.clone().unwrap_or_default(),
            }),
            ..Self::from_meta(Kind::Disk, &object.metadata)
        }
    }

    pub fn from_nic(object: &NicAttachment) -> Self {
        Self {
            dpu_name: object.spec.dpu_name.clone(),
            epoch: object.spec.grant.map(|grant| grant.epoch),
            release: object.spec.release,
            function: nic_function(&object.spec, object.metadata.uid.as_deref().unwrap_or_default()),
            fence: object.status.as_ref().and_then(|s| s.fence.clone()),
            ..Self::from_meta(Kind::Nic, &object.metadata)
        }
    }

    fn from_meta(kind: Kind, meta: &ObjectMeta) -> Self {
        let key = Key {
            kind,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        };
        Self {
            key,
            generation: meta.generation,
            dpu_name: String::new(),
            epoch: None,
            deleting: meta.deletion_timestamp.is_some(),
            release: false,
            held: meta.finalizers.iter().flatten().any(|f| f == labels::FINALIZER_EXPOSED),
            function: Err(String::new()),
            size_bytes: None,
            limits: Limits::default(),
            fence: None,
            import_done: None,
        }
    }
}

fn disk_function(spec: &DiskAttachmentSpec) -> Result<Function, String> {
    if let Some(size) = &spec.size
        && quantity::bytes(size).is_none()
    {
        return Err(format!("spec.size {:?} is not a whole number of bytes", size.0));
    }
    let presentation = Presentation {
        bus: match spec.bus {
            DiskBus::NVMe => Bus::NVMe,
            DiskBus::VirtioBlk => Bus::VirtioBlk,
        },
        slot: match spec.slot {
            DiskSlot::Boot => Slot::Boot,
            DiskSlot::Seed => Slot::Seed,
            DiskSlot::HotPlug => Slot::HotPlug,
        },
        serial: spec.serial.clone(),
        uuid: spec.uuid.clone(),
        read_only: spec.read_only,
    };
    let volume = spec.volume.as_ref().map(|volume| Volume {
        driver: volume.driver.clone(),
        handle: volume.volume_handle.clone(),
        attributes: volume.attributes.clone(),
        read_only: spec.read_only,
        holder: holder_pod(volume, spec),
    });
    if spec.grant.is_some() && volume.as_ref().and_then(|v| v.holder.as_ref()).is_some_and(|h| h.uid.is_empty()) {
        return Err("spec.holderPodUID must be given: spec.volume.connector is Kubelet".to_owned());
    }
    if let Some(eraser) = &spec.eraser {
        return match (spec.consumer, volume, &spec.seed_secret_name) {
            (Consumer::Host, None, None) => {
                Ok(Function::Eraser(Eraser { machine: eraser.machine.clone(), presentation }))
            }
            _ => Err("spec.eraser goes with consumer Host, without spec.volume and spec.seedSecretName".to_owned()),
        };
    }
    if let Some(disk) = &spec.hold_disk {
        return match (spec.consumer, volume, &spec.seed_secret_name) {
            (Consumer::Host, None, None) => {
                let presentation = Presentation { read_only: true, ..presentation };
                Ok(Function::HoldDisk(HoldDisk { machine: disk.machine.clone(), presentation }))
            }
            _ => Err("spec.holdDisk goes with consumer Host, without spec.volume and spec.seedSecretName".to_owned()),
        };
    }
    match (spec.consumer, volume, &spec.seed_secret_name) {
        (Consumer::Host, Some(volume), None) => Ok(Function::Disk { volume, presentation }),
        (Consumer::Host, None, Some(secret)) => {
            let presentation = Presentation { read_only: true, ..presentation };
            Ok(Function::Seed(Seed { secret: secret.clone(), presentation }))
        }
        (Consumer::Import, Some(volume), None) => {
            let source = spec.import.as_ref().ok_or("spec.import must say what to read: consumer is Import")?;
            let sha256 = source.checksum.strip_prefix("sha256:").unwrap_or_default().to_ascii_lowercase();
            if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(format!("spec.import.checksum {:?} is not sha256: and 64 hex digits", source.checksum));
            }
            if volume.read_only {
                return Err("spec.readOnly: an import writes the volume".to_owned());
            }
            let (url, ca_bundle, format) = (source.url.clone(), source.ca_bundle.clone(), source.format);
            Ok(Function::Import(Import { volume, url, sha256, ca_bundle, format }))
        }
        _ => {
            Err("exactly one of spec.volume and spec.seedSecretName must be given; an import needs a volume".to_owned())
        }
    }
}

fn holder_pod(volume: &VolumeSource, spec: &DiskAttachmentSpec) -> Option<HolderPod> {
    (volume.connector == Connector::Kubelet).then(|| HolderPod {
        uid: spec.holder_pod_uid.clone().unwrap_or_default(),
        persistent_volume_name: volume.persistent_volume_name.clone(),
    })
}

fn nic_function(spec: &NicAttachmentSpec, uid: &str) -> Result<Function, String> {
    let mac = spec.mac_address.to_ascii_lowercase();
    let octets: Vec<_> = mac.split(':').collect();
    if octets.len() != 6 || !octets.iter().all(|o| o.len() == 2 && u8::from_str_radix(o, 16).is_ok()) {
        return Err(format!("spec.macAddress {:?} is not six octets with colons", spec.mac_address));
    }
    let address = |text: &String| {
        let plain = text.split_once('/').map_or(text.as_str(), |(address, _)| address);
        plain.parse().map_err(|_| format!("spec.addresses: {text:?} is no IP address"))
    };
    Ok(Function::Nic(Nic {
        mac,
        mtu: spec.mtu,
        logical_port: spec.logical_port.clone(),
        representor: names::representor(uid),
        addresses: spec.addresses.iter().map(address).collect::<Result<_, _>>()?,
    }))
}
