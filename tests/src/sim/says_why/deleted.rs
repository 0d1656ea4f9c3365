//! What the deletion of an object waits for, which that says of itself: once it is not used any more, it no longer exists.

use super::made::{at, empty_group, floating, hosts, machine_with, member, outside, subnet, vnic, vpc, way_out};
use super::{Case, Cure, DELETABLE};
use serde_json::{Value, json};

pub(super) const CASES: [Case; 13] = [
    Case {
        of: ("Vpc", "one"),
        made: || vec![vpc("one"), subnet("green", "one", "10.30.0.0/24")],
        says: (DELETABLE, "VpcInUse"),
        cure: Cure::Delete("Subnet", "green"),
    },
    Case {
        of: ("Vpc", "one"),
        made: || vec![vpc("one"), empty_group("web", "one")],
        says: (DELETABLE, "VpcInUse"),
        cure: Cure::Delete("SecurityGroup", "web"),
    },
    Case {
        of: ("Vpc", "one"),
        made: || {
            let mut out = way_out("out");
            out["spec"]["vpc"] = json!({"name": "one"});
            vec![vpc("one"), outside(), out]
        },
        says: (DELETABLE, "VpcInUse"),
        cure: Cure::Delete("NatGateway", "out"),
    },
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("green", "default", "10.30.0.0/24"), vnic("nic", &json!({"subnet": "green"}))],
        says: (DELETABLE, "SubnetInUse"),
        cure: Cure::Delete("VNic", "nic"),
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![empty_group("web", "default"), member("nic", "10.20.0.200")],
        says: (DELETABLE, "SecurityGroupInUse"),
        cure: Cure::Delete("VNic", "nic"),
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![empty_group("web", "default"), member("nic", "10.20.0.200")],
        says: (DELETABLE, "SecurityGroupInUse"),
        cure: Cure::Change("VNic", "nic", |nic| nic["spec"]["securityGroups"] = json!([])),
    },
    // A member that has no port: no row tells that it left.
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![empty_group("web", "default"), member("nic", "10.99.0.7")],
        says: (DELETABLE, "SecurityGroupInUse"),
        cure: Cure::Change("VNic", "nic", |nic| nic["spec"]["securityGroups"] = json!([])),
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || vec![outside(), way_out("out")],
        says: (DELETABLE, "ProviderNetworkInUse"),
        cure: Cure::Delete("NatGateway", "out"),
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || vec![outside(), floating("in", &json!({}))],
        says: (DELETABLE, "ProviderNetworkInUse"),
        cure: Cure::Delete("FloatingIP", "in"),
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || vec![outside(), hosts("hosts", "default")],
        says: (DELETABLE, "ProviderNetworkInUse"),
        cure: Cure::Delete("Subnet", "hosts"),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![outside(), way_out("out"), at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))],
        says: (DELETABLE, "NatGatewayInUse"),
        cure: Cure::Delete("FloatingIP", "in"),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![outside(), way_out("out"), at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))],
        says: (DELETABLE, "NatGatewayInUse"),
        cure: Cure::Change("FloatingIP", "in", |floating| floating["spec"]["vnic"] = Value::Null),
    },
    Case {
        of: ("VNic", "shared"),
        made: || vec![at("shared", "10.20.0.210"), machine_with("shared")],
        says: (DELETABLE, "VNicInUse"),
        cure: Cure::Change("BareMetalMachine", "bm-01", |machine| {
            machine["spec"]["interfaces"].as_array_mut().expect("a list").truncate(1);
        }),
    },
];
