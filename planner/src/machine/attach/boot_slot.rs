//! A disk in the boot slot that the DPU's agent makes itself, without a volume: an eraser, or a hold disk.

use crate::dpu::eraser::machine;
use crate::machine::situation::{Host, Owned};
use api::attachment::{Consumer, DiskAttachmentSpec, DiskSlot, Eraser, HoldDisk, OwnerReference};
use api::machine::DiskBus;
use api::{DiskAttachment, labels, names};

/// What it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::machine) enum Made {
    Eraser,
    HoldDisk,
}

/// Of `owner`, an object of that kind, under the name `made`; `disk`: what it is called there.
pub(in crate::machine) fn attachment(
    o: &Owned<'_>,
    host: Host<'_>,
    (what, owner): (Made, OwnerReference),
    made: &str,
    disk: &str,
) -> DiskAttachment {
    let buses = host.dpu.dpu.status.as_ref().map(|status| status.buses.as_slice()).unwrap_or_default();
    let bus = if buses.contains(&DiskBus::NVMe) { None } else { buses.first().copied() };
    let machine = machine(host.hardware).to_owned();
    let spec = DiskAttachmentSpec {
        owner,
        dpu_name: host.dpu.name().to_owned(),
        disk_name: disk.to_owned(),
        consumer: Consumer::Host,
        volume: None,
        seed_secret_name: None,
        eraser: (what == Made::Eraser).then(|| Eraser { machine: machine.clone() }),
        hold_disk: (what == Made::HoldDisk).then_some(HoldDisk { machine }),
        import: None,
        bus: bus.unwrap_or(DiskBus::NVMe),
        slot: DiskSlot::Boot,
        // By which the firmware's list has the boot disk, whatever is on it.
        serial: names::boot_serial(host.dpu.name()),
        uuid: o.uid().to_owned(),
        // On an eraser the installer reports.
        read_only: what == Made::HoldDisk,
        size: None,
        qos: None,
        grant: None,
        holder_pod_uid: None,
        release: false,
    };
    let mut attachment = DiskAttachment::new(made, spec);
    attachment.metadata.namespace = Some(host.namespace.to_owned());
    attachment.metadata.labels = Some(o.owner.labels());
    attachment.metadata.finalizers = Some(vec![labels::FINALIZER_EXPOSED.to_owned()]);
    attachment
}
