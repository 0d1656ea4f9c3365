//! `adddisk`, `removedisk`.

use crate::args::{AddDisk, Bus, RemoveDisk};
use crate::change;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::wait;
use api::machine::{Blank, ClaimReference, DeletionPolicy, Disk, DiskBus, DiskSource};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub async fn add(cluster: &Cluster, args: &AddDisk) -> Result<String, Failure> {
    let source = match &args.claim {
        Some(claim) => DiskSource {
            persistent_volume_claim: Some(ClaimReference { claim_name: claim.clone() }),
            ..DiskSource::default()
        },
        None => DiskSource { blank: Some(Blank {}), ..DiskSource::default() },
    };
    let disk = Disk {
        name: args.disk.clone(),
        bus: match args.bus {
            Bus::NVMe => DiskBus::NVMe,
            Bus::VirtioBlk => DiskBus::VirtioBlk,
        },
        source,
        size: args.size.clone().map(Quantity),
        storage_class_name: args.storage_class.clone(),
        deletion_policy: DeletionPolicy::Delete,
        ..Disk::default()
    };
    let machine = change::machine(cluster, &args.machine, &args.change, |machine| {
        if machine.spec.disks.iter().any(|d| d.name == args.disk) {
            return Err(Failure::Told {
                object: format!("machine '{}'", args.machine),
                cause: format!("it has a disk '{}' already", args.disk),
                next: format!("choose another name, or: {} removedisk {} {}", cluster.program, args.machine, args.disk),
            });
        }
        machine.spec.disks.push(disk.clone());
        Ok(())
    })
    .await?;
    wait::after(cluster, &args.machine, &args.change, &wait::Goal::DiskAttached(args.disk.clone())).await?;
    change::report(&machine, &args.change, &format!("disk {} submitted", args.disk))
}

pub async fn remove(cluster: &Cluster, args: &RemoveDisk) -> Result<String, Failure> {
    let machine = change::machine(cluster, &args.machine, &args.change, |machine| {
        let before = machine.spec.disks.len();
        machine.spec.disks.retain(|d| d.name != args.disk);
        if machine.spec.disks.len() == before {
            let names: Vec<&str> = machine.spec.disks.iter().map(|d| d.name.as_str()).collect();
            return Err(Failure::Told {
                object: format!("machine '{}'", args.machine),
                cause: format!("it has no disk '{}'; it has: {}", args.disk, names.join(", ")),
                next: format!("{} explain {}", cluster.program, args.machine),
            });
        }
        Ok(())
    })
    .await?;
    wait::after(cluster, &args.machine, &args.change, &wait::Goal::DiskGone(args.disk.clone())).await?;
    change::report(&machine, &args.change, &format!("disk {} removal submitted; its claim is kept", args.disk))
}
