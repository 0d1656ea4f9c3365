//! A Subnet that is being deleted: it goes after the last VNic that has an address of it.

use super::vnics::forget_ended;
use crate::Controller;
use crate::clock;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::objects;
use api::{AddressHold, Subnet, VNic, labels};
use kube::api::ListParams;
use planner::machine::observed::{name, uid};
use planner::network::subnets::{self, Observed};
use runtime::queue::{Key, Next};
use serde_json::json;

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    settle(c, key).await.map(|()| Next::Wait)
}

async fn settle(c: &Controller, key: &Key) -> Result<(), Error> {
    let world = &c.world;
    let Some(subnet) = world.subnets.get(&key.0, &key.1) else { return Ok(()) };
    if subnet.metadata.deletion_timestamp.is_none() {
        return Ok(());
    }
    let vnics = world.vnics.by(&IndexKey::names::<Subnet>(&key.0, &key.1));
    let attachments = vnics.iter().flat_map(|vnic| world.nics.by(&IndexKey::owner(uid(&vnic.metadata)))).collect();
    let holds = world.address_holds.by(&IndexKey::owner(uid(&subnet.metadata)));
    let plan = subnets::plan(&Observed { subnet: subnet.clone(), vnics, holds, attachments }, clock::now());
    if plan.release {
        confirm_unused(c, &subnet).await?;
        return finalizer(c, &subnet, false).await;
    }
    let (Some(conditions), Some(reason)) = (plan.conditions, plan.reason) else { return Ok(()) };
    let api = c.objects.namespaced::<Subnet>(&key.0);
    objects::patch_status(&api, &world.subnets, &subnet.metadata, json!({"conditions": conditions})).await?;
    c.events.tell(subnet.as_ref(), "Waiting", &format!("{}: {}", reason.name(), reason.told()));
    Ok(())
}

/// From quorum: no VNic has an address of it. One that is created from now on reads the Subnet from quorum before it gets one.
async fn confirm_unused(c: &Controller, subnet: &Subnet) -> Result<(), Error> {
    let meta = &subnet.metadata;
    let what = format!("list VNics of Subnet '{}'", name(meta));
    let api = c.objects.namespaced::<VNic>(meta.namespace.as_deref().unwrap_or_default());
    let all = call(&what, api.list(&ListParams::default())).await?.items;
    let keeps = |vnic: &VNic| vnic.spec.subnet == name(meta) && subnets::keeps(vnic);
    if let Some(vnic) = all.into_iter().find(keeps) {
        let message = format!("VNic '{}' is in it", name(&vnic.metadata));
        c.world.vnics.put(vnic);
        return Err(Error::NotConfirmed { what, message });
    }
    let what = format!("list AddressHolds of Subnet '{}'", name(meta));
    let api = c.objects.cluster::<AddressHold>();
    let held = call(&what, api.list(&ListParams::default())).await?.items;
    match held.into_iter().find(|hold| hold.spec.subnet.uid == uid(meta)) {
        Some(hold) => {
            let message = format!("AddressHold '{}' is of it", name(&hold.metadata));
            c.world.address_holds.put(hold);
            Err(Error::NotConfirmed { what, message })
        }
        None => Ok(()),
    }
}

pub(super) async fn finalizer(c: &Controller, subnet: &Subnet, present: bool) -> Result<(), Error> {
    let meta = &subnet.metadata;
    let finalizers = objects::finalizers(meta, labels::FINALIZER_IN_USE, present);
    let change = json!({"metadata": {"finalizers": finalizers}});
    let api = c.objects.namespaced::<Subnet>(meta.namespace.as_deref().unwrap_or_default());
    let version = meta.resource_version.as_deref();
    match objects::patch(&api, &c.world.subnets, name(meta), uid(meta), version, change).await {
        Ok(patched) => forget_ended(&patched.metadata, |meta| c.world.subnets.forget(meta)),
        Err(Error::NotFound { .. }) if !present => c.world.subnets.forget(meta),
        Err(error) => return Err(error),
    }
    Ok(())
}
