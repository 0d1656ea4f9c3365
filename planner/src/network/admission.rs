//! Which Subnets are in a Vpc: no two that overlap. `Vpc.status.subnets` is the arbiter, by compare-and-swap: of two that are
//! admitted at once the second one finds that the Vpc has changed, and the first one in it.

use super::cidr::networks;
use super::provider;
use crate::machine::observed::{name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use api::conditions::{self, READY};
use api::network::AdmittedSubnet;
use api::{ProviderNetwork, Subnet, Vpc};
use ipnet::IpNet;

/// The Vpc that a Subnet names.
pub fn vpc_of(subnet: &Subnet) -> &str {
    &subnet.spec.vpc.name
}

pub fn admitted(vpc: &Vpc) -> &[AdmittedSubnet] {
    vpc.status.as_ref().map_or(&[], |status| &status.subnets)
}

/// Those of the Vpc with this Subnet; `None`: it is admitted already, with all of its networks.
pub fn admit(vpc: &Vpc, subnet: &Subnet) -> Result<Option<Vec<AdmittedSubnet>>, Reason> {
    let meta = &subnet.metadata;
    let as_admitted = AdmittedSubnet {
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
        cidr: subnet.spec.cidr.clone(),
        ipv6_cidr: subnet.spec.ipv6_cidr.clone(),
    };
    let before = admitted(vpc).iter().find(|other| other.uid == uid(meta));
    if before == Some(&as_admitted) {
        return Ok(None);
    }
    let vpc_name = name(&vpc.metadata).to_owned();
    if vpc.metadata.deletion_timestamp.is_some() && before.is_none() {
        return Err(Blocked::VpcBeingDeleted { vpc: vpc_name }.into());
    }
    let own = networks(&subnet.spec);
    let others = || admitted(vpc).iter().filter(|other| other.uid != uid(meta));
    for (other, network) in others().flat_map(|other| networks_of(other).map(move |network| (other, network))) {
        if let Some(own) = own.iter().find(|own| overlap(**own, network)) {
            let (cidr, others) = (own.to_string(), network.to_string());
            return Err(Blocked::CidrOverlaps { cidr, vpc: vpc_name, other: other.name.clone(), others }.into());
        }
    }
    Ok(Some(others().cloned().chain([as_admitted]).collect()))
}

/// Why nobody gets an address of the Subnet: another one may have it, of the same Vpc or on the same ProviderNetwork. An admission lasts as
/// long as the Subnet, so a copy of some time ago that knows of it is good enough. `all`: the ProviderNetworks that there are: the Subnet may
/// have been on its own before another one was known that comes first.
pub fn refused<'a>(
    subnet: &Subnet,
    vpc: Option<&Vpc>,
    provider: Option<&ProviderNetwork>,
    all: impl IntoIterator<Item = &'a ProviderNetwork>,
) -> Option<Reason> {
    let in_vpc = vpc.is_some_and(|vpc| matches!(admit(vpc, subnet), Ok(None)));
    let holder = provider.and_then(provider::holder);
    let on_vlan = subnet.spec.provider_network.is_none() || holder.is_some_and(|one| one.uid == uid(&subnet.metadata));
    if in_vpc && on_vlan {
        return provider.and_then(|network| provider::overlaps(network, all).err());
    }
    let said = subnet.status.as_ref().and_then(|status| conditions::get(&status.conditions, READY));
    let message = said.filter(|said| said.status == "False").map(|said| said.message.clone());
    let message =
        message.unwrap_or_else(|| "the controller has not looked whether another Subnet overlaps it".to_owned());
    Some(Waiting::SubnetNotReady { subnet: name(&subnet.metadata).to_owned(), message }.into())
}

pub(super) fn networks_of(subnet: &AdmittedSubnet) -> impl Iterator<Item = IpNet> {
    [Some(&subnet.cidr), subnet.ipv6_cidr.as_ref()].into_iter().flatten().filter_map(|cidr| cidr.parse().ok())
}

/// Those of the Vpc without the Subnet that has this UID; `None`: it is not among them.
pub fn dismiss(vpc: &Vpc, subnet_uid: &str) -> Option<Vec<AdmittedSubnet>> {
    let all = admitted(vpc);
    let left: Vec<AdmittedSubnet> = all.iter().filter(|other| other.uid != subnet_uid).cloned().collect();
    (left.len() < all.len()).then_some(left)
}

fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::network::{SubnetSpec, VpcStatus};

    fn subnet(name: &str, cidr: &str) -> Subnet {
        let spec: SubnetSpec = serde_json::from_value(serde_json::json!({"cidr": cidr})).expect("a spec");
        let mut subnet = Subnet::new(name, spec);
        subnet.metadata.uid = Some(format!("uid-{name}"));
        subnet
    }

    fn with(mut vpc: Vpc, subnets: Vec<AdmittedSubnet>) -> Vpc {
        vpc.status = Some(VpcStatus { subnets, ..VpcStatus::default() });
        vpc
    }

    #[test]
    fn no_two_subnets_of_a_vpc_overlap() {
        let vpc = Vpc::new("default", Default::default());
        let blue = admit(&vpc, &subnet("blue", "10.20.0.0/24")).expect("an empty Vpc").expect("a change");
        let vpc = with(vpc, blue);
        assert_eq!(admit(&vpc, &subnet("blue", "10.20.0.0/24")), Ok(None));
        for (name, cidr) in [("inside", "10.20.0.128/25"), ("around", "10.20.0.0/16"), ("same", "10.20.0.0/24")] {
            let refused = admit(&vpc, &subnet(name, cidr)).expect_err(cidr);
            assert_eq!(refused.name(), "CidrOverlaps");
            assert!(refused.told().contains("'blue'"), "{}", refused.told());
        }
        for (name, cidr) in [("beside", "10.20.1.0/24"), ("six", "fd00:20::/64")] {
            assert_eq!(admit(&vpc, &subnet(name, cidr)).map(|all| all.map(|all| all.len())), Ok(Some(2)), "{cidr}");
        }
        // A second network is judged as the first one was.
        let mut both = subnet("blue", "10.20.0.0/24");
        both.spec.ipv6_cidr = Some("fd00:20::/64".to_owned());
        let grown = with(vpc.clone(), admit(&vpc, &both).expect("nobody else has it").expect("a change"));
        assert_eq!(admit(&grown, &both), Ok(None));
        assert_eq!(admit(&grown, &subnet("six", "fd00:20::/56")).expect_err("in both").name(), "CidrOverlaps");
        assert_eq!(dismiss(&vpc, "uid-blue"), Some(vec![]));
        assert_eq!(dismiss(&vpc, "uid-green"), None);
    }

    #[test]
    fn nobody_gets_an_address_of_a_subnet_that_may_overlap_another() {
        let vpc = Vpc::new("default", Default::default());
        let why = |subnet: &Subnet, vpc: Option<&Vpc>, own: Option<&ProviderNetwork>, all: &[ProviderNetwork]| {
            refused(subnet, vpc, own, all).map(|reason| reason.name())
        };
        let blue = subnet("blue", "10.20.0.0/24");
        assert_eq!(why(&blue, None, None, &[]), Some("SubnetNotReady"), "nobody knows of its Vpc");
        assert_eq!(why(&blue, Some(&vpc), None, &[]), Some("SubnetNotReady"), "the Vpc has not admitted it");
        let admitting = |subnet: &Subnet| with(vpc.clone(), admit(&vpc, subnet).expect("alone").expect("a change"));
        assert_eq!(why(&blue, Some(&admitting(&blue)), None, &[]), None);

        let network = |name: &str, second: u8| -> ProviderNetwork {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
                "spec": {"physicalNetwork": "physnet1", "cidr": "203.0.113.0/24"},
            }))
            .expect("a ProviderNetwork")
        };
        let mut hosts = subnet("hosts", "203.0.113.0/24");
        hosts.spec.provider_network = Some("dc".to_owned());
        let vpc = admitting(&hosts);
        let mut dc = network("dc", 1);
        assert_eq!(why(&hosts, Some(&vpc), None, &[]), Some("SubnetNotReady"), "nobody knows of its ProviderNetwork");
        assert_eq!(why(&hosts, Some(&vpc), Some(&dc), &[]), Some("SubnetNotReady"), "that does not have it");
        dc.status = serde_json::from_value(serde_json::json!({
            "subnet": {"namespace": "", "name": "hosts", "uid": "uid-hosts"},
        }))
        .expect("a status");
        assert_eq!(why(&hosts, Some(&vpc), Some(&dc), &[dc.clone(), network("later", 2)]), None);
        let overlaps = why(&hosts, Some(&vpc), Some(&dc), &[dc.clone(), network("first", 0)]);
        assert_eq!(overlaps, Some("ProviderNetworkOverlaps"), "another ProviderNetwork of the VLAN was there first");
    }

    #[test]
    fn a_vpc_that_is_being_deleted_admits_nobody() {
        let mut vpc = Vpc::new("blue", Default::default());
        vpc.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2026-01-01T00:00:00Z".parse().expect("a time")));
        let refused = admit(&vpc, &subnet("blue", "10.20.0.0/24")).expect_err("no");
        assert_eq!(refused.name(), "VpcBeingDeleted");
    }
}
