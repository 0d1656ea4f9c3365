//! What is missing, or in the way, inside of a Vpc.

use super::made::{
    at, beside, copy_of_dpu_1, costly, group, machine_with, mute, on_node, routed, showing, subnet, vnic, vpc,
};
use super::{Case, Cure};
use serde_json::json;

pub(super) const CASES: [Case; 28] = [
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("green", "one", "10.30.0.0/24")],
        says: ("Ready", "VpcMissing"),
        cure: Cure::Create(|| vpc("one")),
    },
    Case {
        of: ("Subnet", "green"),
        made: || vec![subnet("wide", "default", "10.30.0.0/16"), subnet("green", "default", "10.30.1.0/24")],
        says: ("Ready", "CidrOverlaps"),
        cure: Cure::Delete("Subnet", "wide"),
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![group("peers", "one"), group("web", "one")],
        says: ("Ready", "VpcMissing"),
        cure: Cure::Create(|| vpc("one")),
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![group("web", "default")],
        says: ("Ready", "SecurityGroupMissing"),
        cure: Cure::Create(|| group("peers", "default")),
    },
    Case {
        of: ("Vpc", "one"),
        made: || vec![subnet("green", "one", "10.30.0.0/24"), routed("one")],
        says: ("Ready", "NextHopMissing"),
        cure: Cure::Create(|| vnic("hop", &json!({"subnet": "green", "addresses": ["10.30.0.7"]}))),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![vnic("nic", &json!({"subnet": "green"}))],
        says: ("AddressesAssigned", "SubnetMissing"),
        cure: Cure::Create(|| subnet("green", "default", "10.30.0.0/24")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![subnet("green", "one", "10.30.0.0/24"), vnic("nic", &json!({"subnet": "green"}))],
        says: ("AddressesAssigned", "SubnetNotReady"),
        cure: Cure::Create(|| vpc("one")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![vnic("nic", &json!({"subnet": "blue", "securityGroups": ["peers"]}))],
        says: ("Programmed", "SecurityGroupMissing"),
        cure: Cure::Create(|| group("peers", "default")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = vnic("nic", &json!({"subnet": "blue", "securityGroups": ["peers"]}));
            vec![vpc("one"), group("peers", "one"), nic]
        },
        says: ("Programmed", "GroupOfOtherVpc"),
        cure: Cure::Change("VNic", "nic", |nic| nic["spec"]["securityGroups"] = json!([])),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![at("first", "10.20.0.200"), at("nic", "10.20.0.200")],
        says: ("AddressesAssigned", "AddressTaken"),
        cure: Cure::Delete("VNic", "first"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let mac = json!({"subnet": "blue", "macAddress": "02:00:00:00:00:07"});
            vec![vnic("first", &mac), vnic("nic", &mac)]
        },
        says: ("AddressesAssigned", "MacTaken"),
        cure: Cure::Delete("VNic", "first"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let small = |name| vnic(name, &json!({"subnet": "small"}));
            vec![subnet("small", "default", "10.30.0.0/30"), small("first"), small("nic")]
        },
        says: ("AddressesAssigned", "SubnetFull"),
        cure: Cure::Delete("VNic", "first"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = json!({"subnet": "green", "addresses": ["10.30.1.7"]});
            let subnets = [subnet("wide", "default", "10.30.0.0/16"), subnet("green", "default", "10.30.1.0/24")];
            [subnets.to_vec(), vec![vnic("nic", &nic)]].concat()
        },
        says: ("AddressesAssigned", "SubnetNotReady"),
        cure: Cure::Delete("Subnet", "wide"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = json!({"subnet": "blue", "addresses": ["10.20.0.200"], "nodeName": "copy"});
            vec![copy_of_dpu_1("dpu-1"), vnic("nic", &nic)]
        },
        says: ("Programmed", "ChassisTaken"),
        cure: Cure::Report(|| copy_of_dpu_1("another")),
    },
    Case {
        of: ("Vpc", "one"),
        made: || vec![vnic("hop", &json!({"subnet": "green", "addresses": ["10.30.0.7"]})), routed("one")],
        says: ("Ready", "NextHopUnreachable"),
        cure: Cure::Create(|| subnet("green", "one", "10.30.0.0/24")),
    },
    Case {
        of: ("Vpc", "one"),
        made: || {
            let nets = [subnet("green", "one", "10.30.0.0/24"), subnet("inner", "one", "10.90.0.0/24")];
            let hop = vnic("hop", &json!({"subnet": "green", "addresses": ["10.30.0.7"]}));
            let mut one = routed("one");
            one["spec"]["routes"][0]["destination"] = json!("10.90.0.128/25");
            [nets.to_vec(), vec![hop, one]].concat()
        },
        says: ("Ready", "RouteInSubnet"),
        cure: Cure::Delete("Subnet", "inner"),
    },
    Case {
        of: ("SecurityGroup", "web"),
        made: || vec![costly("web")],
        says: ("Ready", "TooManyFlows"),
        cure: Cure::Change("SecurityGroup", "web", |group| group["spec"]["ingress"] = json!([])),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![at("nic", "10.20.0.1")],
        says: ("AddressesAssigned", "AddressReserved"),
        cure: Cure::Anew(|| at("nic", "10.20.0.201")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = json!({"subnet": "green", "addresses": ["10.30.0.1"]});
            vec![subnet("green", "default", "10.30.0.0/24"), vnic("nic", &nic)]
        },
        says: ("AddressesAssigned", "AddressReserved"),
        cure: Cure::Change("Subnet", "green", |green| green["spec"]["routed"] = json!(false)),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![at("nic", "fd00:20::7")],
        says: ("AddressesAssigned", "AddressOutsideSubnet"),
        cure: Cure::Change("Subnet", "blue", |blue| blue["spec"]["ipv6Cidr"] = json!("fd00:20::/64")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![beside("nic", "10.20.0.210")],
        says: ("Programmed", "AllowedAddressInSubnet"),
        cure: Cure::Create(|| at("shared", "10.20.0.210")),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![subnet("green", "default", "10.30.0.0/24"), beside("nic", "10.30.0.128/25")],
        says: ("Programmed", "AllowedAddressInSubnet"),
        cure: Cure::Delete("Subnet", "green"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![at("shared", "10.20.0.210"), machine_with("shared"), beside("nic", "10.20.0.210")],
        says: ("Programmed", "AllowedAddressTaken"),
        cure: Cure::Change("VNic", "nic", |nic| nic["spec"]["allowedAddresses"] = json!([])),
    },
    // Whoever is root on that node has the address.
    Case {
        of: ("VNic", "nic"),
        made: || {
            let fixed = json!({"subnet": "blue", "addresses": ["10.20.0.210"], "nodeName": "dpu-1"});
            vec![vnic("fixed", &fixed), beside("nic", "10.20.0.210")]
        },
        says: ("Programmed", "AllowedAddressTaken"),
        cure: Cure::Change("VNic", "nic", |nic| nic["spec"]["allowedAddresses"] = json!([])),
    },
    Case {
        of: ("Subnet", "green"),
        made: || {
            let nic = vnic("nic", &json!({"subnet": "green", "addresses": ["10.30.0.1"]}));
            let routed = |is: bool| {
                let mut green = subnet("green", "default", "10.30.0.0/24");
                green["spec"]["routed"] = json!(is);
                green
            };
            vec![routed(false), nic, routed(true)]
        },
        says: ("Ready", "GatewayTaken"),
        cure: Cure::Delete("VNic", "nic"),
    },
    // The agent of the node runs, and has not told its chassis.
    Case {
        of: ("VNic", "nic"),
        made: || vec![mute("copy"), on_node("nic", "copy")],
        says: ("Programmed", "ChassisUnknown"),
        cure: Cure::Report(|| copy_of_dpu_1("another")),
    },
    // Nobody has registered the node.
    Case {
        of: ("VNic", "nic"),
        made: || vec![on_node("nic", "copy")],
        says: ("Programmed", "ChassisUnknown"),
        cure: Cure::Create(|| copy_of_dpu_1("another")),
    },
    // A host has the address by an attachment that no longer exists.
    Case {
        of: ("VNic", "nic"),
        made: || vec![showing(&["10.20.0.200"]), at("nic", "10.20.0.200")],
        says: ("AddressesAssigned", "AddressShownElsewhere"),
        cure: Cure::Report(|| showing(&[])),
    },
];
