//! A DPU that its administrator takes out of service (`Dpu.spec.maintenance`): nothing is started there, so that it empties.
//!
//! `Drain` leaves a running machine to its own `maintenancePolicy`: `Stop` is stopped, `Wait` runs until somebody stops or moves
//! it, or its guest powers itself off. `OutOfService` stops every machine. Disks and NICs stay attached; a machine that was
//! stopped for maintenance alone starts again when that is over, or on the server that it is moved to.
//!
//! `ColdMigrate` moves it, on or off, in either case: a `MachineMigration` is made, one for each time that a DPU is taken out
//! of service, which chooses the target and says what it waits for. It is taken back while nothing has begun, if the machine may
//! stay after all. What is over is left for people to read.

use super::observed::Observed;
use super::situation::Host;
use crate::reason::{Blocked, Reason};
use api::dpu::Maintenance;
use api::machine::MaintenancePolicy;

fn reason(host: Host<'_>) -> Reason {
    Blocked::HostInMaintenance { dpu: host.dpu.name().to_owned() }.into()
}

/// Why the machine shall be off although its spec asks for something else.
pub(super) fn stops(o: &Observed, host: Host<'_>) -> Option<Reason> {
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

pub(super) fn is_why(reason: Option<&Reason>) -> bool {
    matches!(reason, Some(Reason::Blocked(Blocked::HostInMaintenance { .. })))
}
