//! `clone SOURCE NEW`: a new machine with the source's shape and copy-on-write clones of its disks.
//!
//! What makes a machine itself is new: name, cloud-init instance, MAC addresses, and the addresses: those that are given, else chosen ones.

use super::args::{CloneMachine, Making};
use super::making;
use crate::args::Change;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{changed, dry, name_of};
use crate::wait;
use api::conditions::{READY, is_true};
use api::machine::{BareMetalMachineSpec, Disk, DiskSource, HardwareChoice, Interface, RunStrategy};
use api::quantity::bytes;
use api::verbs::snapshot::{MachineSnapshotSpec, MachineSnapshotStatus};
use api::{BareMetalMachine, MachineSnapshot, Named};
use kube::ResourceExt;
use kube::api::PostParams;

pub async fn run(cluster: &Cluster, args: &CloneMachine) -> Result<String, Failure> {
    let source = cluster.machine(&args.source).await?;
    // Before anything is made: what cannot be cloned is said at once.
    let interfaces = interfaces(cluster, args, &source)?;
    let snapshot_name = match &args.snapshot {
        Some(name) => name.clone(),
        None => take(cluster, args).await?,
    };
    let snapshot = making::api::<MachineSnapshot>(cluster).get(&snapshot_name).await;
    let object = making::object::<MachineSnapshot>(cluster, &snapshot_name);
    let snapshot = snapshot.map_err(|e| match e {
        kube::Error::Api(status) if status.code == 404 => {
            Failure::NotFound { object, next: format!("{} snapshot list {}", cluster.program, args.source) }
        }
        error => Failure::from_kube(error, &object, cluster.program),
    })?;
    let wanted = machine(cluster, args, &source, &snapshot, interfaces)?;
    let params = PostParams { dry_run: args.dry_run, field_manager: Some("bmctl".to_owned()) };
    let made = cluster.machines().create(&params, &wanted).await.map_err(|e| cluster.failure(e, &args.name))?;
    eprintln!(
        "warning: the disks of '{}' carry the same partition and filesystem UUIDs as those of '{}': do not attach disks of \
         both to one host",
        args.name, args.source
    );
    if args.snapshot.is_none() {
        eprintln!(
            "MachineSnapshot '{snapshot_name}' was taken for it; once the clone runs: {} snapshot delete {snapshot_name}",
            cluster.program
        );
    }
    let change = Change { wait: args.wait, timeout: args.timeout, dry_run: args.dry_run, output: args.output };
    let goal = if made.spec.run_strategy == RunStrategy::Halted { wait::Goal::Stopped } else { wait::Goal::Ready };
    wait::after(cluster, &args.name, &change, &goal).await?;
    let told = || format!("{} cloned from {}{}\n", name_of(&made), args.source, dry(args.dry_run));
    Ok(changed(args.output, &made, told)?)
}

/// A snapshot of this moment, named after the clone.
async fn take(cluster: &Cluster, args: &CloneMachine) -> Result<String, Failure> {
    let name = format!("{}-clone", args.name);
    let spec = MachineSnapshotSpec { machine_name: args.source.clone(), ..MachineSnapshotSpec::default() };
    let making = Making { wait: true, timeout: args.timeout, dry_run: false, output: None };
    making::make(cluster, &making, &MachineSnapshot::new(&name, spec), "taken").await?;
    Ok(name)
}

fn refused(args: &CloneMachine, cause: String, next: String) -> Failure {
    Failure::Told { object: format!("the clone '{}'", args.name), cause, next }
}

/// The source's interfaces with what was given: one that has a VNic needs another.
fn interfaces(cluster: &Cluster, args: &CloneMachine, source: &BareMetalMachine) -> Result<Vec<Interface>, Failure> {
    let again = |more: String| format!("{} clone {} {} {more}", cluster.program, args.source, args.name);
    let known = |name: &String| source.spec.interfaces.iter().any(|interface| interface.name == *name);
    if let Some((name, _)) = args.address.iter().chain(&args.vnic).find(|(name, _)| !known(name)) {
        let cause = format!("machine '{}' has no interface '{name}'", args.source);
        return Err(refused(args, cause, format!("{} get {} -o yaml", cluster.program, args.source)));
    }
    let mut all = Vec::new();
    for interface in &source.spec.interfaces {
        let name = &interface.name;
        let addresses: Vec<String> = given(&args.address, name);
        let vnic = given(&args.vnic, name).pop();
        all.push(match (&interface.vnic, vnic, addresses.is_empty()) {
            (_, Some(vnic), true) => {
                Interface { name: name.clone(), vnic: Some(Named { name: vnic }), ..Interface::default() }
            }
            (None, None, _) => {
                let addresses = Some(addresses).filter(|addresses| !addresses.is_empty());
                Interface { addresses, mac_address: None, ..interface.clone() }
            }
            (Some(vnic), None, _) => {
                let cause = format!("interface '{name}' has VNic '{}', which only one machine can use", vnic.name);
                return Err(refused(args, cause, again(format!("--vnic {name}=VNIC"))));
            }
            (_, Some(_), false) => {
                let cause = format!("interface '{name}' gets either a VNic or addresses");
                return Err(refused(args, cause, again(format!("--address {name}=ADDRESS"))));
            }
        });
    }
    Ok(all)
}

fn given(pairs: &[(String, String)], name: &str) -> Vec<String> {
    pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
}

fn machine(
    cluster: &Cluster,
    args: &CloneMachine,
    source: &BareMetalMachine,
    snapshot: &MachineSnapshot,
    interfaces: Vec<Interface>,
) -> Result<BareMetalMachine, Failure> {
    let name = snapshot.name_any();
    let status = snapshot.status.clone().unwrap_or_default();
    if snapshot.spec.machine_name != args.source {
        let cause = format!("MachineSnapshot '{name}' is of machine '{}'", snapshot.spec.machine_name);
        return Err(refused(args, cause, format!("{} snapshot list {}", cluster.program, args.source)));
    }
    if !is_true(&status.operation.conditions, READY) {
        let cause = format!("MachineSnapshot '{name}' is not ready");
        return Err(refused(args, cause, format!("kubectl describe machinesnapshot {name}")));
    }
    let disks = source.spec.disks.iter().map(|disk| one(cluster, args, disk, &name, &status));
    let spec = BareMetalMachineSpec {
        run_strategy: if args.halted { RunStrategy::Halted } else { source.spec.run_strategy },
        // One server cannot be both; which kind of server it is stays.
        hardware: source
            .spec
            .hardware
            .clone()
            .and_then(|own| own.selector)
            .map(|selector| HardwareChoice { name: None, selector: Some(selector) }),
        disks: disks.collect::<Result<Vec<Disk>, Failure>>()?,
        interfaces,
        ..source.spec.clone()
    };
    let mut wanted = BareMetalMachine::new(&args.name, spec);
    wanted.metadata.labels = source.metadata.labels.clone();
    Ok(wanted)
}

/// A disk that the machine only reads is shared as it is.
fn one(
    cluster: &Cluster,
    args: &CloneMachine,
    disk: &Disk,
    snapshot: &str,
    status: &MachineSnapshotStatus,
) -> Result<Disk, Failure> {
    if disk.read_only {
        return Ok(disk.clone());
    }
    let Some(taken) = status.disks.iter().find(|taken| taken.name == disk.name) else {
        let cause = format!("disk '{}' is not in MachineSnapshot '{snapshot}'", disk.name);
        return Err(refused(
            args,
            cause,
            format!("{} clone {} {} (without --snapshot)", cluster.program, args.source, args.name),
        ));
    };
    let larger = [taken.size.clone(), disk.size.clone()].into_iter().flatten().max_by_key(bytes);
    Ok(Disk {
        source: DiskSource {
            snapshot: Some(Named { name: taken.volume_snapshot_name.clone() }),
            ..DiskSource::default()
        },
        size: larger,
        storage_class_name: taken.storage_class_name.clone(),
        ..disk.clone()
    })
}
