//! What is written, and not in force: a chassis has stopped, or the south-bound database is away, so that nobody knows.
//!
//! By `later` each of the first ones says two things: that the chassis are installing it, and after a while which one does not answer.

use super::made::{at, empty_group, on_node, outside, routed, subnet, vnic, vpc, way_out};
use super::{Case, Cure};
use serde_json::json;

pub(super) const CASES: [Case; 9] = [
    Case {
        of: ("SecurityGroup", "web"),
        made: || {
            let spec = json!({"subnet": "blue", "addresses": ["10.20.0.200"], "nodeName": "dpu-1",
                "securityGroups": ["web"]});
            let mut open = empty_group("web", "default");
            open["spec"]["ingress"] = json!([{}]);
            vec![empty_group("web", "default"), vnic("nic", &spec), open]
        },
        says: ("InForce", "NotInForce"),
        cure: Cure::Go("dpu-1"),
    },
    Case {
        of: ("Subnet", "green"),
        made: || {
            let green = subnet("green", "default", "10.30.0.0/24");
            let mut other = green.clone();
            other["spec"]["dhcp"] = json!({"leaseSeconds": 600});
            let nic = json!({"subnet": "green", "addresses": ["10.30.0.7"], "nodeName": "dpu-1"});
            vec![green, vnic("nic", &nic), other]
        },
        says: ("InForce", "NotInForce"),
        cure: Cure::Go("dpu-1"),
    },
    Case {
        of: ("Vpc", "one"),
        made: || {
            let hop = json!({"subnet": "green", "addresses": ["10.30.0.7"], "nodeName": "dpu-1"});
            vec![vpc("one"), subnet("green", "one", "10.30.0.0/24"), vnic("hop", &hop), routed("one")]
        },
        says: ("InForce", "NotInForce"),
        cure: Cure::Go("dpu-1"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let mut slow = on_node("nic", "dpu-1");
            slow["spec"]["qos"] = json!({"egressMbps": 50});
            vec![on_node("nic", "dpu-1"), slow]
        },
        says: ("InForce", "NotInForce"),
        cure: Cure::Go("dpu-1"),
    },
    Case {
        of: ("Vpc", "one"),
        made: || vec![vpc("one")],
        says: ("InForce", "SouthBoundUnreachable"),
        cure: Cure::ReachChassis,
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![empty_group("web", "default")],
        says: ("InForce", "SouthBoundUnreachable"),
        cure: Cure::ReachChassis,
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![on_node("nic", "dpu-1")],
        says: ("InForce", "SouthBoundUnreachable"),
        cure: Cure::ReachChassis,
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![outside(), at("nic", "10.20.0.200"), way_out("out")],
        says: ("InForce", "SouthBoundUnreachable"),
        cure: Cure::ReachChassis,
    },
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("green", "default", "10.30.0.0/24")],
        says: ("InForce", "SouthBoundUnreachable"),
        cure: Cure::ReachChassis,
    },
];
