//! `migrate MACHINE`, `migrate-cancel MACHINE`.

use super::args::{Migrate, MigrateCancel};
use super::making;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::name_of;
use api::MachineMigration;
use api::machine::HardwareChoice;
use api::verbs::HasPhase;
use api::verbs::migration::MachineMigrationSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};

pub async fn run(cluster: &Cluster, args: &Migrate) -> Result<String, Failure> {
    cluster.machine(&args.machine).await?;
    let target = match (&args.to, args.selector.is_empty()) {
        (Some(name), _) => Some(HardwareChoice { name: Some(name.clone()), selector: None }),
        (None, false) => {
            let match_labels = Some(args.selector.iter().cloned().collect());
            let selector = Some(LabelSelector { match_labels, match_expressions: None });
            Some(HardwareChoice { name: None, selector })
        }
        (None, true) => None,
    };
    let mut wanted = MachineMigration::new("", MachineMigrationSpec { machine_name: args.machine.clone(), target });
    wanted.metadata.name = None;
    wanted.metadata.generate_name = Some(format!("{}-", args.machine));
    let done = if args.making.wait { "done" } else { "submitted" };
    making::make(cluster, &args.making, &wanted, done).await
}

/// Deletes what is under way. The controller gives the target back, or says that it is too late.
pub async fn cancel(cluster: &Cluster, args: &MigrateCancel) -> Result<String, Failure> {
    let api = making::api::<MachineMigration>(cluster);
    let params = ListParams::default().fields(&format!("spec.machineName={}", args.machine));
    let all = api.list(&params).await.map_err(|e| cluster.failure(e, &args.machine))?;
    let mut text = String::new();
    for migration in all.iter().filter(|m| m.spec.machine_name == args.machine && !m.phase().is_over()) {
        let params = DeleteParams { dry_run: args.dry_run, ..DeleteParams::default() };
        let object = making::object::<MachineMigration>(cluster, &migration.name_any());
        let deleted = api.delete(&migration.name_any(), &params).await;
        deleted.map_err(|e| Failure::from_kube(e, &object, cluster.program))?;
        let dry = if args.dry_run { " (server dry run)" } else { "" };
        text.push_str(&format!("{} cancellation submitted{dry}\n", name_of(migration)));
    }
    if text.is_empty() {
        return Err(Failure::Refused {
            object: format!("machine '{}' in namespace '{}'", args.machine, cluster.namespace),
            cause: "no migration of it is under way".to_owned(),
        });
    }
    Ok(text)
}
