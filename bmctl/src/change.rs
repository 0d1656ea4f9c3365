//! Changes a machine as `kubectl edit` would: read, change, patch what differs with its resourceVersion, again on a conflict.

use crate::args::Change;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{changed, dry, name_of};
use api::BareMetalMachine;
use kube::Api;
use kube::api::{Patch, PatchParams};
use runtime::change::Raw;

/// virtctl tries as often.
const ATTEMPTS: usize = 15;

/// Applies `edit` and returns the object as the server now has it. `edit` may refuse with a sentence for the user.
pub async fn machine(
    cluster: &Cluster,
    name: &str,
    change: &Change,
    edit: impl Fn(&mut BareMetalMachine) -> Result<(), Failure>,
) -> Result<BareMetalMachine, Failure> {
    let machines: Api<Raw<BareMetalMachine>> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let params =
        PatchParams { dry_run: change.dry_run, field_manager: Some("bmctl".to_owned()), ..PatchParams::default() };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let read = machines.get(name).await.map_err(|error| cluster.failure(error, name))?;
        let mut machine = read.object.clone();
        edit(&mut machine)?;
        let Some(differs) = read.change(&machine).map_err(anyhow::Error::from)? else { return Ok(machine) };
        match machines.patch(name, &params, &Patch::Merge(differs)).await {
            Ok(changed) => return Ok(changed.object),
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {}
            Err(error) => return Err(cluster.failure(error, name)),
        }
    }
}

/// What is printed after a change: `… what it did`, or the object with `-o`.
pub fn report(machine: &BareMetalMachine, change: &Change, done: &str) -> Result<String, Failure> {
    let told = || format!("{} {done}{}\n", name_of(machine), dry(change.dry_run));
    Ok(changed(change.output, machine, told)?)
}
