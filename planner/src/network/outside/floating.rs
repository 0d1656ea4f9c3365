//! A FloatingIP: a translation to one VNic, where that VNic's Vpc has a NatGateway to the same ProviderNetwork.

use super::{chassis, is_true, message};
use crate::machine::observed::{name, uid};
use crate::network::chassis::reported;
use crate::network::{addresses, admission, port, rows};
use crate::reason::{Blocked, Reason, Waiting};
use api::{Dpu, FloatingIP, NatGateway, NicAttachment, ProviderNetwork, Subnet, VNic, Vpc, conditions, names};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Whether a VNic may be translated to: it has its addresses, and keeps them.
pub fn serves(vnic: &VNic) -> bool {
    vnic.metadata.deletion_timestamp.is_none() && addresses::is_assigned(vnic)
}

/// What a FloatingIP is to do, as its spec and the VNic that it names are now.
#[derive(Debug, Clone, PartialEq)]
pub enum Use {
    /// OVN may be translating to another VNic: first no more, then the status says so.
    TakeBack,
    /// Translate to the VNic that it names.
    Translate,
    /// It names none: the address is kept.
    Keep,
    /// The VNic that it names cannot be translated to.
    Wait(Reason),
}

/// `vnic`: the one that it names.
pub fn used_for(floating: &FloatingIP, vnic: Option<&VNic>) -> Use {
    let serving = vnic.filter(|vnic| serves(vnic));
    let before = floating.status.as_ref().and_then(|status| status.vnic_uid.as_ref());
    if before.is_some() && serving.and_then(|vnic| vnic.metadata.uid.as_ref()) != before {
        return Use::TakeBack;
    }
    match (&floating.spec.vnic, vnic) {
        (None, _) => Use::Keep,
        (Some(named), None) => Use::Wait(Blocked::VNicMissing { vnic: named.clone() }.into()),
        (Some(_), Some(vnic)) if serves(vnic) => Use::Translate,
        (Some(named), Some(vnic)) if vnic.metadata.deletion_timestamp.is_some() => {
            Use::Wait(Waiting::VNicBeingDeleted { vnic: named.clone() }.into())
        }
        (Some(named), Some(_)) => {
            let why = "the VNic has no addresses yet".to_owned();
            Use::Wait(Waiting::VNicNotReady { vnic: named.clone(), why }.into())
        }
    }
}

/// What a FloatingIP rests on.
pub struct Target<'a> {
    pub vnic: &'a VNic,
    /// The one that the VNic names, and the Vpc of it.
    pub subnet: Option<&'a Subnet>,
    pub vpc: Option<&'a Vpc>,
    /// The one of the Vpc that is in force.
    pub gateway: Option<&'a NatGateway>,
    pub network: &'a ProviderNetwork,
    /// [`bound`].
    pub bound: Option<(String, String)>,
}

/// The chassis on which the VNic's port is bound, and what the port is called. `dpu`: that of its holder.
pub fn bound(vnic: &VNic, dpu: Option<&Dpu>, attachments: &[Arc<NicAttachment>]) -> Option<(String, String)> {
    let holder = vnic.status.as_ref()?.holder.as_ref()?;
    let dpu = dpu.filter(|dpu| uid(&dpu.metadata) == holder.dpu_uid)?;
    let chassis = reported(dpu)?.to_owned();
    Some((chassis, port::name_of(vnic, attachments)))
}

/// Which chassis have to install its rows: those that may translate.
pub fn concerned(to: &Target<'_>) -> Result<BTreeSet<String>, Reason> {
    Ok(chassis(to.network)?.into_iter().chain(to.bound.iter().map(|(chassis, _)| chassis.clone())).collect())
}

/// `address`: the one that it has the hold of.
pub fn floating(floating: &FloatingIP, address: &str, to: &Target<'_>) -> Result<rows::Floating, Reason> {
    let subnet = to.subnet.ok_or_else(|| Blocked::SubnetMissing { subnet: to.vnic.spec.subnet.clone() })?;
    let vpc = to.vpc.ok_or_else(|| Blocked::VpcMissing { vpc: admission::vpc_of(subnet).to_owned() })?;
    let gateway = to.gateway.filter(|gateway| gateway.spec.provider_network == floating.spec.provider_network);
    let Some(gateway) = gateway else {
        let (vpc, network) = (name(&vpc.metadata).to_owned(), floating.spec.provider_network.clone());
        return Err(Blocked::NatGatewayMissing { vpc, network }.into());
    };
    let said = gateway.status.as_ref().map(|status| &status.conditions);
    if !is_true(said, conditions::PROGRAMMED) {
        let gateway = name(&gateway.metadata).to_owned();
        return Err(Waiting::NatGatewayNotReady { gateway, message: message(said) }.into());
    }
    let vnic_name = name(&to.vnic.metadata).to_owned();
    let outer: Option<IpAddr> = address.parse().ok();
    let inner = to.vnic.status.iter().flat_map(|status| &status.addresses);
    let inner = inner
        .filter_map(|own| own.parse::<IpAddr>().ok())
        .find(|own| Some(own.is_ipv4()) == outer.map(|outer| outer.is_ipv4()));
    let (Some(outer), Some(inner)) = (outer, inner) else {
        return Err(Blocked::AddressFamilyMissing { vnic: vnic_name, address: address.to_owned() }.into());
    };
    let carries = chassis(to.network)?;
    let here = to.bound.clone().filter(|(chassis, _)| carries.contains(chassis));
    let own = uid(&floating.metadata);
    Ok(rows::Floating {
        uid: own.to_owned(),
        vpc_uid: uid(&vpc.metadata).to_owned(),
        outer,
        inner,
        here: here.map(|(_, port)| (port, names::mac(own, 0))),
    })
}
