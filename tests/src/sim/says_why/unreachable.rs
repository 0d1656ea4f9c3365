//! What is made, what is changed, and what is deleted, while the north-bound database is away. Whoever rests on another object that cannot be written says that object.

use super::made::{at, costly, empty_group, floating, member, outside, routed, subnet, vnic, vpc, way_out};
use super::{Case, Cure, DELETABLE};
use serde_json::{Value, json};

/// A FloatingIP of this VNic, and another VNic.
fn inward(vnic: &Value) -> Vec<Value> {
    let nics = [at("nic", "10.20.0.200"), at("other", "10.20.0.201")];
    [vec![outside(), way_out("out")], nics.to_vec(), vec![floating("in", &json!({"vnic": vnic}))]].concat()
}

pub(super) const CASES: [Case; 25] = [
    Case { of: ("Vpc", "one"), made: || vec![vpc("one")], says: ("Ready", "NorthBoundUnreachable"), cure: Cure::Reach },
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("green", "default", "10.30.0.0/24")],
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![empty_group("web", "default")],
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![at("nic", "10.20.0.200")],
        says: ("Programmed", "SubnetNotReady"),
        cure: Cure::Reach,
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || vec![outside()],
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![outside(), way_out("out")],
        says: ("Ready", "ProviderNetworkNotReady"),
        cure: Cure::Reach,
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![outside(), way_out("out"), at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))],
        says: ("Ready", "ProviderNetworkNotReady"),
        cure: Cure::Reach,
    },
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("green", "one", "10.30.0.0/24"), vpc("one")],
        says: ("Ready", "VpcNotReady"),
        cure: Cure::Reach,
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || [inward(&json!("nic")), vec![floating("in", &json!({"vnic": "other"}))]].concat(),
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || [inward(&json!("nic")), vec![floating("in", &json!({}))]].concat(),
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || [inward(&Value::Null), vec![floating("in", &json!({"vnic": "nic"}))]].concat(),
        says: ("Ready", "ProviderNetworkNotReady"),
        cure: Cure::Reach,
    },
    Case {
        of: ("Vpc", "one"),
        made: || {
            let hop = vnic("hop", &json!({"subnet": "green", "addresses": ["10.30.0.7"]}));
            vec![vpc("one"), subnet("green", "one", "10.30.0.0/24"), hop, routed("one")]
        },
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("Subnet", "green"),
        made: || {
            let mut other = subnet("green", "default", "10.30.0.0/24");
            other["spec"]["dhcp"] = json!({"enabled": false});
            vec![subnet("green", "default", "10.30.0.0/24"), other]
        },
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || {
            let mut open = empty_group("web", "default");
            open["spec"]["ingress"] = json!([{}]);
            vec![empty_group("web", "default"), open]
        },
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![costly("web")],
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::ReachTo("TooManyFlows"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![empty_group("web", "default"), at("nic", "10.20.0.200"), member("nic", "10.20.0.200")],
        says: ("Programmed", "SubnetNotReady"),
        cure: Cure::Reach,
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || {
            let mut more = outside();
            more["spec"]["addresses"] = json!(["203.0.113.10-203.0.113.20"]);
            vec![outside(), more]
        },
        says: ("Ready", "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    // Its FloatingIP keeps its addresses, and cannot be written either.
    Case {
        of: ("VNic", "nic"),
        made: || inward(&json!("nic")),
        says: (DELETABLE, "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("Vpc", "one"),
        made: || vec![vpc("one")],
        says: (DELETABLE, "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("green", "default", "10.30.0.0/24")],
        says: (DELETABLE, "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![empty_group("web", "default")],
        says: (DELETABLE, "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![at("nic", "10.20.0.200")],
        says: (DELETABLE, "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || vec![outside()],
        says: (DELETABLE, "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![outside(), way_out("out")],
        says: (DELETABLE, "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![outside(), way_out("out"), at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))],
        says: (DELETABLE, "NorthBoundUnreachable"),
        cure: Cure::Reach,
    },
];
