//! `restore MACHINE SNAPSHOT`.

use super::args::Restore;
use super::making;
use crate::cluster::Cluster;
use crate::failure::Failure;
use api::MachineRestore;
use api::verbs::restore::MachineRestoreSpec;

pub async fn run(cluster: &Cluster, args: &Restore) -> Result<String, Failure> {
    cluster.machine(&args.machine).await?;
    let spec = MachineRestoreSpec { machine_name: args.machine.clone(), snapshot_name: args.snapshot.clone() };
    let mut wanted = MachineRestore::new("", spec);
    wanted.metadata.name = None;
    wanted.metadata.generate_name = Some(format!("{}-", args.machine));
    let done = if args.making.wait { "done" } else { "submitted" };
    making::make(cluster, &args.making, &wanted, done).await
}
