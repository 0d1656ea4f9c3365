//! What a bmc.tinkerbell.org Machine says of its BMC.

use crate::bmc::{Owner, Which};
use crate::error::Error;
use crate::{Controller, clock, objects};
use api::tinkerbell::Machine;
use planner::host::BmcNeed;
use planner::job;
use runtime::queue::{Key, Next};

/// More than that it does not write in one go.
const LOOKS: usize = 4;

/// The event of its own write does not wake it: it ends well once there is nothing left to write.
pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let owner = Owner::Contact(key.clone());
    for _ in 0..LOOKS {
        let Some(machine) = c.hosts.machines().get(&key.0, &key.1) else {
            c.hosts.needs(&owner, &[]);
            return Ok(Next::Wait);
        };
        let which = Which::Machine(key.1.clone());
        c.hosts.needs(&owner, &[(which.clone(), BmcNeed::Seldom)]);
        let Some(status) = job::contact(&machine, &c.hosts.seen(&which), clock::now()) else { return Ok(Next::Wait) };
        let updated = Machine { status: Some(status), ..Machine::clone(&machine) };
        let api = c.objects.namespaced::<Machine>(&key.0);
        objects::change_status(&api, c.hosts.machines(), machine.as_ref(), &updated).await?;
    }
    Ok(Next::BackOff)
}
