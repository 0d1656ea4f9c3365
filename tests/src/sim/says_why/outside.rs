//! The same of what leads out of it.

use super::made::{
    allowing, at, copy_of_dpu_1, elsewhere, floating, hosts, network, outside, subnet, vnic, vpc, way_out,
};
use super::{Case, Cure};
use serde_json::{Value, json};

pub(super) const CASES: [Case; 25] = [
    Case {
        of: ("NatGateway", "out"),
        made: || vec![way_out("out")],
        says: ("Ready", "ProviderNetworkMissing"),
        cure: Cure::Create(outside),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![outside(), way_out("first"), way_out("out")],
        says: ("Ready", "VpcHasNatGateway"),
        cure: Cure::Delete("NatGateway", "first"),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![elsewhere(), way_out("out")],
        says: ("Ready", "ProviderNetworkNotReady"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| network["spec"]["gatewayNodes"] = json!(["dpu-1"])),
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || vec![elsewhere()],
        says: ("Ready", "NoGatewayNode"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| network["spec"]["gatewayNodes"] = json!(["dpu-1"])),
    },
    Case {
        of: ("ProviderNetwork", "outside"),
        made: || {
            let mut two = outside();
            two["spec"]["gatewayNodes"] = json!(["dpu-1", "copy"]);
            vec![copy_of_dpu_1("dpu-1"), two]
        },
        says: ("GatewayNodesUsed", "GatewayNodeUnused"),
        cure: Cure::Report(|| copy_of_dpu_1("another")),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![outside(), way_out("out"), floating("in", &json!({"vnic": "nic"}))],
        says: ("Ready", "VNicMissing"),
        cure: Cure::Create(|| at("nic", "10.20.0.200")),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![outside(), at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))],
        says: ("Ready", "NatGatewayMissing"),
        cure: Cure::Create(|| way_out("out")),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || {
            let mut narrow = outside();
            narrow["spec"]["addresses"] = json!(["203.0.113.10"]);
            vec![narrow, way_out("out"), at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))]
        },
        says: ("Ready", "ProviderNetworkFull"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| {
            network["spec"]["addresses"] = json!(["203.0.113.10-203.0.113.12"]);
        }),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || {
            let same = json!({"vnic": "nic", "address": "203.0.113.11"});
            let first = floating("first", &json!({"vnic": "other", "address": "203.0.113.11"}));
            let nics = [at("nic", "10.20.0.200"), at("other", "10.20.0.201")];
            [vec![outside(), way_out("out")], nics.to_vec(), vec![first, floating("in", &same)]].concat()
        },
        says: ("Ready", "ExternalAddressTaken"),
        cure: Cure::Delete("FloatingIP", "first"),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![floating("in", &json!({}))],
        says: ("Ready", "ProviderNetworkMissing"),
        cure: Cure::Create(outside),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || {
            let nic = vnic("nic", &json!({"subnet": "green"}));
            vec![outside(), way_out("out"), nic, floating("in", &json!({"vnic": "nic"}))]
        },
        says: ("Ready", "VNicNotReady"),
        cure: Cure::Create(|| subnet("green", "default", "10.30.0.0/24")),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || {
            let mut out = way_out("out");
            out["spec"]["addresses"] = json!(["203.0.113.10"]);
            let first = floating("first", &json!({"address": "203.0.113.10"}));
            vec![outside(), first, out, at("nic", "10.20.0.200"), floating("in", &json!({"vnic": "nic"}))]
        },
        says: ("Ready", "NatGatewayNotReady"),
        cure: Cure::Delete("FloatingIP", "first"),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || {
            let mut both = outside();
            both["spec"]["ipv6Cidr"] = json!("2001:db8:1::/64");
            both["spec"]["addresses"] = json!(["203.0.113.10", "2001:db8:1::10-2001:db8:1::12"]);
            let six = vnic("six", &json!({"subnet": "green"}));
            let nics = [subnet("green", "default", "fd00:30::/64"), six, at("nic", "10.20.0.200")];
            let floating = floating("in", &json!({"vnic": "nic", "address": "2001:db8:1::11"}));
            [vec![both, way_out("out")], nics.to_vec(), vec![floating]].concat()
        },
        says: ("Ready", "AddressFamilyMissing"),
        cure: Cure::Change("FloatingIP", "in", |floating| floating["spec"]["vnic"] = json!("six")),
    },
    Case {
        of: ("Subnet", "hosts"),
        made: || vec![hosts("hosts", "default")],
        says: ("Ready", "ProviderNetworkMissing"),
        cure: Cure::Create(|| network("outside", "physnet1")),
    },
    Case {
        of: ("Subnet", "hosts"),
        made: || vec![network("outside", "physnet1"), vpc("one"), hosts("first", "one"), hosts("hosts", "default")],
        says: ("Ready", "ProviderNetworkTaken"),
        cure: Cure::Delete("Subnet", "first"),
    },
    Case {
        of: ("ProviderNetwork", "second"),
        made: || vec![network("outside", "physnet1"), network("second", "physnet1")],
        says: ("Ready", "ProviderNetworkOverlaps"),
        cure: Cure::Delete("ProviderNetwork", "outside"),
    },
    Case {
        of: ("Subnet", "hosts"),
        made: || {
            let mut hosts = hosts("hosts", "default");
            hosts["spec"]["providerNetwork"] = json!("second");
            vec![network("outside", "physnet1"), hosts, network("second", "physnet1")]
        },
        says: ("Ready", "ProviderNetworkOverlaps"),
        cure: Cure::Delete("ProviderNetwork", "outside"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = json!({"subnet": "hosts", "addresses": ["203.0.113.7"], "nodeName": "dpu-1"});
            vec![network("outside", "physnet2"), hosts("hosts", "default"), vnic("nic", &nic)]
        },
        says: ("Programmed", "PhysicalNetworkUnmapped"),
        cure: Cure::Map("dpu-1", "physnet2"),
    },
    Case {
        of: ("VNic", "nic"),
        made: || {
            let nic = json!({"subnet": "hosts", "addresses": ["203.0.113.11"]});
            vec![outside(), hosts("hosts", "default"), vnic("nic", &nic)]
        },
        says: ("AddressesAssigned", "AddressReserved"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| {
            network["spec"]["addresses"] = json!(["203.0.113.10"]);
        }),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![allowing(outside()), way_out("out")],
        says: ("Ready", "ProviderNotAllowed"),
        cure: Cure::Label("team", "a"),
    },
    Case {
        of: ("NatGateway", "out"),
        made: || vec![allowing(outside()), way_out("out")],
        says: ("Ready", "ProviderNotAllowed"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| network["spec"]["allowedNamespaces"] = Value::Null),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![allowing(outside()), floating("in", &json!({}))],
        says: ("Ready", "ProviderNotAllowed"),
        cure: Cure::Label("team", "a"),
    },
    Case {
        of: ("Subnet", "hosts"),
        made: || vec![allowing(network("outside", "physnet1")), hosts("hosts", "default")],
        says: ("Ready", "ProviderNotAllowed"),
        cure: Cure::Label("team", "a"),
    },
    Case {
        of: ("Subnet", "hosts"),
        made: || {
            let mut hosts = hosts("hosts", "default");
            hosts["spec"]["ipv6Cidr"] = json!("2001:db8:1::/64");
            vec![network("outside", "physnet1"), hosts]
        },
        says: ("Ready", "CidrNotOfProviderNetwork"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| {
            network["spec"]["ipv6Cidr"] = json!("2001:db8:1::/64");
        }),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![outside(), floating("in", &json!({"address": "203.0.113.50"}))],
        says: ("Ready", "ExternalAddressOutside"),
        cure: Cure::Change("ProviderNetwork", "outside", |network| {
            network["spec"]["addresses"] = json!(["203.0.113.10-203.0.113.60"]);
        }),
    },
];
