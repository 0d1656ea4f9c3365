//! What is made, and what is deleted, while the north-bound database is away. Whoever rests on another object that cannot be written says that object.

use super::made::{at, empty_group, floating, outside, subnet, vpc, way_out};
use super::{Case, Cure, DELETABLE};
use serde_json::json;

pub(super) const CASES: [Case; 14] = [
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
