//! What cloud-init in an installed system reads: a Secret beside the installation's Workflow, and named like it, in a namespace of which
//! network boot reads Secrets, and nothing else has any.

use crate::install::Record;
use crate::machine::attach::seed;
use crate::machine::claim::strategy;
use crate::machine::named::{SEED_DISK, is_by_disk};
use crate::machine::observed::Observed;
use crate::machine::plan::Seed;
use crate::machine::situation::{Situation, is_bare};
use crate::reason::Reason;
use api::tinkerbell::Hardware;

/// Whether an action has to write it to the server's disk.
pub(super) fn by_action(o: &Situation<'_>) -> bool {
    o.machine.spec.cloud_init.is_some() && is_by_disk(&o.machine)
}

/// A machine that says nothing has an instance-id and a name all the same.
pub(super) fn of(o: &Situation<'_>, hardware: &Hardware, secret_name: &str) -> Result<Seed, Reason> {
    let mac = strategy::netboot(hardware).and_then(|interface| interface.dhcp.as_ref()?.mac.as_deref());
    let data = seed::of_server(o, &mac.unwrap_or_default().to_ascii_lowercase())?;
    Ok(Seed { secret_name: secret_name.to_owned(), data })
}

/// Whether the plan needs what the machine's Secrets say: while its host was not told of it yet. An installation that is on record was told,
/// until another one is asked for.
pub fn is_read(o: &Observed) -> bool {
    let machine = &o.machine;
    if machine.spec.cloud_init.is_none() || o.deleting() {
        return false;
    }
    let claimed = crate::machine::claim::current(o);
    if let Some(hardware) = claimed.filter(|hardware| is_bare(hardware)) {
        return Record::of(&hardware.metadata).is_none() || super::is_asked(machine, &hardware.metadata);
    }
    let is_granted = match is_by_disk(machine) {
        true => o.disk_attachments.iter().any(|a| a.spec.disk_name == SEED_DISK && a.spec.grant.is_some()),
        false => machine.spec.interfaces.iter().all(|interface| {
            let nic = o.nic_attachments.iter().find(|nic| nic.spec.interface_name == interface.name);
            nic.is_some_and(|nic| nic.spec.grant.is_some())
        }),
    };
    !is_granted
}
