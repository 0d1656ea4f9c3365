//! `restore MACHINE SNAPSHOT`.

use super::args::Restore;
use super::making::{self, Operation};
use crate::cluster::Cluster;
use crate::failure::Failure;
use api::MachineRestore;
use api::verbs::OperationPhase;
use api::verbs::restore::MachineRestoreSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

impl Operation for MachineRestore {
    fn progress(&self) -> (OperationPhase, &[Condition]) {
        let status = self.status.as_ref();
        (status.map(|s| s.phase).unwrap_or_default(), status.map(|s| s.conditions.as_slice()).unwrap_or_default())
    }
}

pub async fn run(cluster: &Cluster, args: &Restore) -> Result<String, Failure> {
    cluster.machine(&args.machine).await?;
    let spec = MachineRestoreSpec { machine_name: args.machine.clone(), snapshot_name: args.snapshot.clone() };
    let mut wanted = MachineRestore::new("", spec);
    wanted.metadata.name = None;
    wanted.metadata.generate_name = Some(format!("{}-", args.machine));
    let done = if args.making.wait { "done" } else { "submitted" };
    making::make(cluster, &args.making, &wanted, done).await
}
