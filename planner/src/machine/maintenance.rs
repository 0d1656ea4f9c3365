//! A DPU that its administrator takes out of service (`Dpu.spec.maintenance`): nothing is started there, so that it empties.
//!
//! `Drain` leaves a running machine to its own `maintenancePolicy`: `Stop` is stopped, `Wait` runs until somebody stops or moves
//! it, or its guest powers itself off. `OutOfService` stops every machine. Disks and NICs stay attached; a machine that was
//! stopped for maintenance alone starts again when that is over, or on the server that it is moved to.
//!
//! `ColdMigrate` moves it, on or off, in either case: a `MachineMigration` is made, one for each time that a DPU is taken out
//! of service, which chooses the target and says what it waits for. It is taken back while nothing has begun, if the machine may
//! stay after all. What is over is left for people to read.

use super::claim::{self, Host};
use super::draft::Draft;
use super::observed::{Observed, label, name, uid};
use super::plan::{Action, Target};
use crate::reason::{Blocked, Reason};
use api::dpu::Maintenance;
use api::machine::MaintenancePolicy;
use api::verbs::OperationPhase;
use api::verbs::migration::MachineMigrationSpec;
use api::{MachineMigration, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

fn reason(host: Host<'_>) -> Reason {
    Blocked::HostInMaintenance { dpu: host.dpu.name().to_owned() }.into()
}

/// Why the machine shall be off although its spec asks for something else.
pub(super) fn stops(o: &Observed) -> Option<Reason> {
    let host = claim::host(o, claim::current(o)?).ok()?;
    let stops = match host.dpu.dpu.spec.maintenance {
        Maintenance::None => false,
        Maintenance::Drain => o.machine.spec.maintenance_policy == MaintenancePolicy::Stop,
        Maintenance::OutOfService => true,
    };
    stops.then(|| reason(host))
}

pub(super) fn forbids_start(host: Host<'_>) -> Option<Reason> {
    (host.dpu.dpu.spec.maintenance != Maintenance::None).then(|| reason(host))
}

/// Asks for the machine's migration, or takes it back.
pub(super) fn migrate(o: &Observed, draft: &mut Draft) {
    if claim::moves_to(o).is_some() {
        return;
    }
    let mut open = o.migrations.iter().filter(|m| !phase(m).is_over() && m.metadata.deletion_timestamp.is_none());
    match shall_leave(o) {
        // Whoever asked for one that is open: it goes to where this one would.
        Some(host) if open.next().is_none() => draft.act(Action::CreateMigration(Box::new(migration(o, host)))),
        Some(_) => {}
        None => {
            for unneeded in open.filter(|m| is_own(o, m) && phase(m) == OperationPhase::Pending) {
                let meta = &unneeded.metadata;
                let (name, uid) = (name(meta).to_owned(), uid(meta).to_owned());
                draft
                    .act(Action::DeleteMigration { target: Target { namespace: o.namespace().to_owned(), name, uid } });
            }
        }
    }
}

/// One that was made for a time that is over, by a leader that is gone for instance: it is taken back, and does not begin.
pub fn is_over(o: &Observed, migration: &MachineMigration) -> bool {
    is_own(o, migration) && shall_leave(o).is_none()
}

fn shall_leave(o: &Observed) -> Option<Host<'_>> {
    let host = claim::host(o, claim::current(o)?).ok()?;
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

pub(super) fn is_why(reason: Option<&Reason>) -> bool {
    matches!(reason, Some(Reason::Blocked(Blocked::HostInMaintenance { .. })))
}
