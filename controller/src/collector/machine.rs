//! What a machine that was deleted has left.

use crate::Controller;
use crate::clock;
use crate::error::Error;
use crate::index::IndexKey;
use crate::machine::gather::{self, Memo};
use crate::machine::hosts::disrupt_for_gone;
use api::conditions;
use api::{BareMetalMachine, labels};
use executor::act;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::machine::claim::current;
use planner::machine::observed::annotation;
use planner::machine::{Action, Observed, Plan};
use runtime::queue::Next;
use std::sync::Arc;

pub(super) struct Left {
    o: Observed,
    pub plan: Plan,
}

impl Left {
    pub async fn of(c: &Controller, uid: &str, memo: &mut Memo) -> Result<Self, Error> {
        let o = observed(c, uid, memo).await?;
        let plan = planner::machine::leftovers(&o, clock::now());
        Ok(Self { o, plan })
    }

    pub async fn act(&self, c: &Controller) -> Result<(), Error> {
        act::all(c, &self.o, &self.plan.actions).await?;
        let hardware = current(&self.o);
        for (told, hardware) in self.plan.actions.iter().filter_map(Action::told).zip(hardware) {
            c.events.told(hardware, &told);
        }
        match self.plan.actions.is_empty() {
            true => disrupt_for_gone(c, &self.o, &self.plan).await,
            false => Ok(()),
        }
    }

    pub fn wait(&self, c: &Controller) -> Next {
        tell(c, &self.o, &self.plan);
        Next::at(self.plan.wake_at)
    }
}

async fn observed(c: &Controller, uid: &str, memo: &mut Memo) -> Result<Observed, Error> {
    let mut machine = BareMetalMachine::new("", Default::default());
    machine.metadata.uid = Some(uid.to_owned());
    machine.metadata.namespace = namespace(c, uid);
    machine.metadata.deletion_timestamp = Some(Time(clock::now()));
    let held = c.world.hardware.by(&IndexKey::owner(uid));
    machine.status = held.first().and_then(|hardware| planner::erase::power_status(hardware));
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
        (Some(hardware), _) => c.events.warn(hardware.as_ref(), &ready.reason, &ready.message),
        (None, Some(disk)) => c.events.warn(disk.as_ref(), &ready.reason, &ready.message),
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
    let of_claim = || {
        let hardware = world.hardware.by(uid).into_iter().next()?;
        let name = annotation(&hardware.metadata, labels::CLAIMED_BY_NAME)?;
        name.split_once('/').map(|(namespace, _)| namespace.to_owned())
    };
    disks.or_else(of_claim).or_else(nics).or_else(pods).or_else(vnics).or_else(claims)
}
