//! The AddressHolds of a Subnet's router: no VNic gets an address that the router has, and it gets none that a VNic has.

use super::vnics;
use crate::Controller;
use crate::error::Error;
use crate::index::IndexKey;
use crate::objects;
use api::{AddressHold, Subnet};
use planner::machine::observed::{name, uid};
use planner::network::subnets;
use planner::reason::Reason;
use runtime::queue::Key;
use std::sync::Arc;

/// Those that a Subnet of this name has, or had.
pub(super) fn held(c: &Controller, (namespace, name): &Key) -> Vec<Arc<AddressHold>> {
    c.world.address_holds.by(&IndexKey::names::<Subnet>(namespace, name))
}

/// The holds are there, and none that it does not need any more; or why not.
pub(super) async fn hold(c: &Controller, subnet: &Subnet) -> Result<Option<Reason>, Error> {
    let own = uid(&subnet.metadata);
    let wanted = subnets::own_holds(subnet);
    for hold in &wanted {
        let there = match c.world.address_holds.get("", name(&hold.metadata)) {
            Some(there) => there,
            None => {
                let api = c.objects.cluster::<AddressHold>();
                let created = objects::create(&api, &c.world.address_holds, hold, |_| true).await?;
                c.world.note(&created);
                Arc::new(created)
            }
        };
        if there.spec.owner.uid != own {
            return Ok(Some(subnets::taken(&there)));
        }
    }
    for hold in held(c, &crate::cache::key(&subnet.metadata)) {
        let is_wanted = wanted.iter().any(|wanted| wanted.metadata.name == hold.metadata.name);
        if hold.spec.owner.uid == own && !is_wanted {
            vnics::delete(c, &hold).await?;
        }
    }
    Ok(None)
}

/// Its rows are deleted, and nobody else is in it.
pub(super) async fn release(c: &Controller, subnet: &Subnet) -> Result<(), Error> {
    for hold in held(c, &crate::cache::key(&subnet.metadata)) {
        if hold.spec.owner.uid == uid(&subnet.metadata) {
            vnics::delete(c, &hold).await?;
        }
    }
    Ok(())
}
