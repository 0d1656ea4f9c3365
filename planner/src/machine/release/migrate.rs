//! The migration that moves a machine with `maintenancePolicy: ColdMigrate` off a DPU that is taken out of service.

use crate::machine::draft::Draft;
use crate::machine::observed::Observed;
use crate::machine::plan::Action;
use crate::machine::situation::{Host, Situation};
use crate::meta::{label, target};
use api::dpu::Maintenance;
use api::machine::MaintenancePolicy;
use api::verbs::OperationPhase;
use api::verbs::migration::MachineMigrationSpec;
use api::{MachineMigration, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Asks for the machine's migration, or takes it back.
pub(in crate::machine) fn migrate(o: &Situation<'_>, draft: &mut Draft) {
    if o.moves_to.is_some() {
        return;
    }
    let mut open = o.migrations.iter().filter(|m| !phase(m).is_over() && m.metadata.deletion_timestamp.is_none());
    match shall_leave(o) {
        // Whoever asked for one that is open: it goes to where this one would.
        Some(host) if open.next().is_none() => draft.act(Action::CreateMigration(Box::new(migration(o, host)))),
        Some(_) => {}
        None => {
            for unneeded in open.filter(|m| is_own(o, m) && phase(m) == OperationPhase::Pending) {
                draft.act(Action::DeleteMigration { target: target(&unneeded.metadata) });
            }
        }
    }
}

/// One that was made for a time that is over, by a leader that is gone for instance: it is taken back, and does not begin.
pub fn is_over(o: &Observed, migration: &MachineMigration) -> bool {
    is_own(o, migration) && shall_leave(&Situation::of(o)).is_none()
}

fn shall_leave<'a>(o: &Situation<'a>) -> Option<Host<'a>> {
    let host = o.host?;
    let moves = o.machine.spec.maintenance_policy == MaintenancePolicy::ColdMigrate;
    (moves && host.dpu.dpu.spec.maintenance != Maintenance::None).then_some(host)
}

fn phase(migration: &MachineMigration) -> OperationPhase {
    migration.status.as_ref().map(|status| status.operation.phase).unwrap_or_default()
}

/// Made here, for this very machine.
fn is_own(o: &Observed, migration: &MachineMigration) -> bool {
    label(&migration.metadata, labels::MACHINE_UID) == Some(o.uid())
}

/// Its name is of this DPU as it was last told something: another time is another name, another leader's is the same.
fn migration(o: &Observed, host: Host<'_>) -> MachineMigration {
    let generation = host.dpu.dpu.metadata.generation.unwrap_or_default();
    let occasion = format!("{}/{}/{generation}", o.uid(), host.dpu.uid());
    let spec = MachineMigrationSpec { machine_name: o.name().to_owned(), target: None };
    let mut migration = MachineMigration::new(&names::migration(o.name(), &occasion), spec);
    let own =
        [(labels::MANAGED_BY, labels::MANAGED_BY_VALUE), (labels::MACHINE, o.name()), (labels::MACHINE_UID, o.uid())];
    migration.metadata = ObjectMeta {
        name: migration.metadata.name,
        namespace: Some(o.namespace().to_owned()),
        labels: Some(own.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        owner_references: Some(vec![OwnerReference {
            api_version: "metalplane.io/v1alpha1".to_owned(),
            kind: "BareMetalMachine".to_owned(),
            name: o.name().to_owned(),
            uid: o.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    };
    migration
}
