//! What a machine that is no more has left. A machine goes when nothing of it is there any more; but a controller that does not
//! know yet that it was deposed, or a request of one that arrives late, may make something for it afterwards: an attachment, by
//! which its Dpu could never be deleted, a hold, a claim on a server.

use super::gather::{self, Memo};
use super::{ROUNDS, want_bmc};
use crate::Controller;
use crate::bmc::Owner;
use crate::clock;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::work::Work;
use api::BareMetalMachine;
use api::conditions;
use executor::act;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::ListParams;
use planner::machine::{Observed, Plan};
use runtime::queue::{Key, Next};
use std::sync::Arc;

/// `key`: no namespace, and the UID of a machine.
pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let (mut memo, owner) = (Memo::default(), Owner::Gone(key.clone()));
    let mut confirmed = false;
    for _ in 0..ROUNDS {
        if c.world.has_machine(&key.1) {
            break;
        }
        let o = observed(c, &key.1, &mut memo).await?;
        let plan = planner::machine::leftovers(&o, clock::now());
        want_bmc(c, &owner, &plan);
        if plan.actions.is_empty() {
            tell(c, &o, &plan);
            return Ok(Next::at(plan.wake_at));
        }
        if !confirmed && is_there(c, &key.1).await? {
            break;
        }
        if !std::mem::replace(&mut confirmed, true) {
            tracing::warn!(machine = %key.1, actions = plan.actions.len(), "a machine that is no more has left something");
        }
        act::all(c, &o, &plan.actions).await?;
    }
    // It is there, or others go first.
    c.hosts.needs(&owner, &[]);
    if confirmed {
        c.world.look(Work::MachineLeftovers, key.clone());
    }
    Ok(Next::Wait)
}

async fn observed(c: &Controller, uid: &str, memo: &mut Memo) -> Result<Observed, Error> {
    let mut machine = BareMetalMachine::new("", Default::default());
    machine.metadata.uid = Some(uid.to_owned());
    machine.metadata.namespace = namespace(c, uid);
    machine.metadata.deletion_timestamp = Some(Time(clock::now()));
    let o = gather::gather(c, Arc::new(machine), memo).await?;
    let mut o = Observed { gone: true, hardware: c.world.hardware.all(), ..o };
    o.bmc = gather::bmc(c, &o);
    Ok(o)
}

/// There is no machine to say it of: its server does, or what is left on a DPU.
fn tell(c: &Controller, o: &Observed, plan: &Plan) {
    let Some(ready) = conditions::get(&plan.status.conditions, conditions::READY) else { return };
    let hardware = o.hardware.iter().find(|hardware| hardware.metadata.name == plan.status.hardware_name);
    match (hardware, o.disk_attachments.first()) {
        (Some(hardware), _) => c.events.tell(hardware.as_ref(), &ready.reason, &ready.message),
        (None, Some(disk)) => c.events.tell(disk.as_ref(), &ready.reason, &ready.message),
        (None, None) => {}
    }
}

/// Where it was.
fn namespace(c: &Controller, uid: &str) -> Option<String> {
    let (world, uid) = (&c.world, &IndexKey::owner(uid));
    let disks = world.disks.by(uid).into_iter().find_map(|disk| disk.spec.owner.namespace.clone());
    let nics = || world.nics.by(uid).into_iter().find_map(|nic| nic.spec.owner.namespace.clone());
    let pods = || world.holder_pods.by(uid).into_iter().find_map(|pod| pod.metadata.namespace.clone());
    let vnics = || world.vnics.by(uid).into_iter().find_map(|vnic| vnic.metadata.namespace.clone());
    let claims = || world.claims.by(uid).into_iter().find_map(|claim| claim.metadata.namespace.clone());
    disks.or_else(nics).or_else(pods).or_else(vnics).or_else(claims)
}

/// From quorum. A UID that is gone never comes back.
async fn is_there(c: &Controller, uid: &str) -> Result<bool, Error> {
    let api: Api<BareMetalMachine> = Api::all(c.objects.client.clone());
    let all = call("list BareMetalMachines", api.list_metadata(&ListParams::default())).await?;
    Ok(all.items.iter().any(|machine| machine.metadata.uid.as_deref() == Some(uid)))
}
