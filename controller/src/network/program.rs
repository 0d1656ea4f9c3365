//! One VNic's port in OVN.

use crate::Controller;
use crate::clock;
use crate::error::Error;
use crate::index::IndexKey;
use crate::objects;
use api::VNic;
use api::conditions::PROGRAMMED;
use api::network::Programmed;
use planner::machine::observed::uid;
use planner::network::port::{self, Observed};
use planner::network::{admission, ready};
use planner::reason::{Reason, Waiting};
use runtime::queue::Key;
use serde_json::json;
use std::sync::Arc;

/// Writes it, then says so: who grants rests on `VNic.status.programmed`.
pub(super) async fn reconcile(c: &Controller, key: &Key) -> Result<(), Error> {
    let Some(vnic) = c.world.vnics.get(&key.0, &key.1) else {
        return Ok(());
    };
    let plan = plan(c, &vnic);
    let Some(wanted) = plan.port else {
        return match plan.reason {
            Some(reason) => say(c, &vnic, None, Some(reason)).await,
            None => Ok(()),
        };
    };
    match c.network.settle(uid(&vnic.metadata), |site| wanted.rows(site)).await {
        Ok(()) => {
            c.network.tell_programmed(uid(&vnic.metadata));
            let generation = vnic.metadata.generation;
            say(c, &vnic, Some(Programmed { generation, epoch: plan.epoch, nb_cfg: None }), plan.reason).await
        }
        Err(error) => {
            let reason: Option<Reason> = error
                .is_north_bound_away()
                .then(|| Waiting::NorthBoundUnreachable { message: error.to_string() }.into());
            if let Some(reason) = reason {
                say(c, &vnic, None, Some(reason)).await?;
            }
            Err(error)
        }
    }
}

fn plan(c: &Controller, vnic: &VNic) -> port::Plan {
    let world = &c.world;
    let (namespace, subnet) = super::subnet_of(vnic);
    let subnet = world.subnets.get(&namespace, &subnet);
    let vpc = subnet.as_ref().and_then(|subnet| world.vpcs.get(&namespace, admission::vpc_of(subnet)));
    let attachments = world.nics.by(&IndexKey::owner(uid(&vnic.metadata)));
    let holder = vnic.status.as_ref().and_then(|status| status.holder.as_ref());
    let dpu = holder.and_then(|holder| world.dpus.get("", &holder.dpu_name));
    let (subnet, vpc, dpu) = (subnet.as_deref(), vpc.as_deref(), dpu.as_deref());
    port::plan(&Observed { vnic, subnet, vpc, attachments: &attachments, dpu }, |group| {
        world.groups.get(&namespace, group)
    })
}

/// `None`: what was said of the grant stays.
async fn say(
    c: &Controller,
    vnic: &Arc<VNic>,
    programmed: Option<Programmed>,
    reason: Option<Reason>,
) -> Result<(), Error> {
    let meta = &vnic.metadata;
    let status = vnic.status.clone().unwrap_or_default();
    let said = ready::say(&status.conditions, PROGRAMMED, reason.as_ref(), meta, clock::now());
    let programmed = programmed.or(status.programmed.clone());
    if said.is_none() && programmed == status.programmed {
        return Ok(());
    }
    // What is left out of a merge patch would stay.
    let programmed = programmed.map(|said| json!({"generation": said.generation, "epoch": said.epoch}));
    let change = json!({"programmed": programmed, "conditions": said.as_ref().unwrap_or(&status.conditions)});
    let api = c.objects.namespaced::<VNic>(meta.namespace.as_deref().unwrap_or_default());
    objects::patch_status(&api, &c.world.vnics, meta, change).await?;
    if let Some(reason) = reason.filter(|_| said.is_some()) {
        c.events.warn(vnic.as_ref(), "Waiting", &format!("{}: {}", reason.name(), reason.told()));
    }
    Ok(())
}
