//! The logical network: who has which address of a Subnet, and what keeps a Subnet.
//!
//! [`addresses`] is about one VNic (what it gets where it asks for nothing is in [`pool`]), [`subnets`] about one Subnet. A machine's interface judges no VNic itself: it waits for the
//! conditions `AddressesAssigned` and `Programmed` of its own (`crate::machine`). [`desired`] and [`port`] say which [`rows`] OVN has of
//! each object; [`admission`] keeps the Subnets of a Vpc apart; [`barrier`] judges whether the rows are in force, [`flows`] what they
//! cost, [`trace`] what they let pass. [`chassis`] is where a port is bound, [`provider`] a network of the data centre, [`outside`] the way out of a Vpc, and in; [`routes`] and [`allowed`] the way by a guest of it.

pub mod addresses;
pub mod admission;
pub mod allowed;
mod asked;
pub mod barrier;
pub mod bound;
pub mod chassis;
pub mod cidr;
pub mod desired;
pub mod flows;
mod groups;
mod judge;
pub mod outside;
pub mod pods;
pub mod pool;
pub mod port;
pub mod provider;
pub mod ready;
pub mod routes;
pub mod rows;
pub mod subnets;
#[cfg(test)]
mod tests;
pub mod trace;

use crate::machine::observed::label;
use api::{NicAttachment, VNic, labels};
use std::sync::Arc;

/// The machine or the pod that a VNic is attached to, or was created for.
fn user_of(vnic: &VNic, attachments: &[Arc<NicAttachment>]) -> Option<String> {
    let attached = attachments.iter().find(|a| Some(&a.spec.vnic_uid) == vnic.metadata.uid.as_ref());
    let owner = attached.map(|attachment| (attachment.spec.owner.kind.as_str(), attachment.spec.owner.name.as_str()));
    let made_for = |kind, of| label(&vnic.metadata, of).map(|name| (kind, name));
    let owner =
        owner.or_else(|| made_for("BareMetalMachine", labels::MACHINE)).or_else(|| made_for("Pod", labels::POD))?;
    Some(format!("{} '{}'", owner.0, owner.1))
}
