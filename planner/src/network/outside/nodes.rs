//! The gateway nodes of a ProviderNetwork: which chassis carry its gateways, and why a node that it names does not.

use crate::machine::observed::name;
use crate::network::chassis::reported;
use crate::reason::{Blocked, Reason};
use api::{Dpu, ProviderNetwork};

/// One of `spec.gatewayNodes` as it is now.
pub struct Node<'a> {
    pub name: &'a str,
    pub dpu: Option<&'a Dpu>,
    /// Which other Dpu has its chassis ([`crate::network::chassis::taken`]).
    pub taken: Option<Reason>,
    /// Whether its chassis maps the physical network to a bridge; unknown is no reason.
    pub maps: Option<bool>,
}

impl Node<'_> {
    /// Its chassis. One that would lose what it carries is none.
    fn chassis(&self, network: &ProviderNetwork) -> Result<String, String> {
        let dpu = self.dpu.ok_or("there is no such Dpu")?;
        let chassis = reported(dpu).ok_or("its agent reports no chassis")?;
        if let Some(taken) = &self.taken {
            return Err(taken.message());
        }
        if self.maps == Some(false) {
            return Err(format!("its chassis does not map '{}' to a bridge", network.spec.physical_network));
        }
        Ok(chassis.to_owned())
    }
}

/// The chassis that carry, and what is said where a node is left out: of all of them (Ready), or of some.
pub struct Carriers {
    pub chassis: Vec<String>,
    pub none: Option<Reason>,
    pub unused: Option<Reason>,
}

pub fn carriers(network: &ProviderNetwork, nodes: &[Node<'_>]) -> Carriers {
    let (mut chassis, mut left_out) = (Vec::new(), Vec::new());
    for node in nodes {
        match node.chassis(network) {
            Ok(own) => chassis.push(own),
            Err(why) => left_out.push(format!("{}: {why}", node.name)),
        }
    }
    let (network, nodes) = (name(&network.metadata).to_owned(), left_out.join("; "));
    let unused = || Blocked::GatewayNodeUnused { network: network.clone(), nodes: nodes.clone() }.into();
    let none = || Blocked::NoGatewayNode { network: network.clone(), nodes: nodes.clone() }.into();
    let (some, all) = (!left_out.is_empty(), !left_out.is_empty() && chassis.is_empty());
    Carriers { none: all.then(none), unused: some.then(unused), chassis }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::{DpuNetwork, DpuSpec, DpuStatus};
    use serde_json::json;

    fn dpu(name: &str) -> Dpu {
        let mut dpu = Dpu::new(name, DpuSpec::default());
        let network = Some(DpuNetwork { chassis: format!("chassis-{name}") });
        dpu.status = Some(DpuStatus { network, ..DpuStatus::default() });
        dpu
    }

    #[test]
    fn each_node_that_carries_nothing_is_named_with_what_it_lacks() {
        let spec = json!({"physicalNetwork": "physnet1", "cidr": "203.0.113.0/24"});
        let network = ProviderNetwork::new("outside", serde_json::from_value(spec).expect("a spec"));
        let (a, b, c) = (dpu("a"), dpu("b"), Dpu::new("c", DpuSpec::default()));
        let of = |dpu| Node { name: "n", dpu, taken: None, maps: None };
        let told = |node: Node<'_>| {
            let carriers = carriers(&network, &[node]);
            assert!(carriers.chassis.is_empty());
            assert_eq!(carriers.unused.expect("it is left out").name(), "GatewayNodeUnused");
            carriers.none.expect("nobody carries").told()
        };
        assert!(told(of(None)).contains("n: there is no such Dpu"));
        assert!(told(of(Some(&c))).contains("n: its agent reports no chassis"));
        assert!(told(Node { maps: Some(false), ..of(Some(&a)) }).contains("does not map 'physnet1'"));
        let by = || Blocked::ChassisTaken { dpu: "a".to_owned(), chassis: "same".to_owned(), by: "old".to_owned() };
        assert!(told(Node { taken: Some(by().into()), ..of(Some(&a)) }).contains("Dpu 'old'"));

        let some = carriers(&network, &[of(Some(&a)), Node { maps: Some(false), ..of(Some(&b)) }]);
        assert_eq!((some.chassis, some.none), (vec!["chassis-a".to_owned()], None));
        assert_eq!(some.unused.expect("one is left out").name(), "GatewayNodeUnused");
        let all = carriers(&network, &[of(Some(&a)), Node { maps: Some(true), ..of(Some(&b)) }]);
        assert_eq!((all.chassis.len(), all.none, all.unused), (2, None, None));
    }
}
