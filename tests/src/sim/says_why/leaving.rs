//! What nothing new rests on, for it is being deleted.

use super::made::{
    another_outside, at, empty_group, floating, leaving, machine_with, outside, subnet, vnic, vpc, way_out,
};
use super::{Case, Cure};
use serde_json::json;

pub(super) const CASES: [Case; 5] = [
    Case {
        of: ("VNic", "nic"),
        made: || {
            let in_green = |name| vnic(name, &json!({"subnet": "green"}));
            vec![leaving(subnet("green", "default", "10.30.0.0/24")), in_green("first"), in_green("nic")]
        },
        says: ("AddressesAssigned", "SubnetBeingDeleted"),
        cure: Cure::Anew(|| at("nic", "10.20.0.200")),
    },
    Case {
        of: ("Subnet", "green"),
        made: || {
            let green = subnet("green", "one", "10.30.0.0/24");
            vec![leaving(vpc("one")), empty_group("web", "one"), green]
        },
        says: ("Ready", "VpcBeingDeleted"),
        cure: Cure::Anew(|| subnet("green", "default", "10.30.0.0/24")),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || vec![another_outside("second"), leaving(outside()), way_out("out"), floating("in", &json!({}))],
        says: ("Ready", "ProviderNetworkBeingDeleted"),
        cure: Cure::Anew(|| {
            let mut other = floating("in", &json!({}));
            other["spec"]["providerNetwork"] = json!("second");
            other
        }),
    },
    Case {
        of: ("VNic", "nic"),
        made: || vec![leaving(at("shared", "10.20.0.210")), machine_with("shared"), at("nic", "10.20.0.210")],
        says: ("AddressesAssigned", "AddressReleasing"),
        cure: Cure::Change("BareMetalMachine", "bm-01", |machine| {
            machine["spec"]["interfaces"].as_array_mut().expect("a list").truncate(1);
        }),
    },
    Case {
        of: ("FloatingIP", "in"),
        made: || {
            let nics = [leaving(at("shared", "10.20.0.210")), machine_with("shared"), at("nic", "10.20.0.200")];
            let floating = floating("in", &json!({"vnic": "shared"}));
            [nics.to_vec(), vec![outside(), way_out("out"), floating]].concat()
        },
        says: ("Ready", "VNicBeingDeleted"),
        cure: Cure::Change("FloatingIP", "in", |floating| floating["spec"]["vnic"] = json!("nic")),
    },
];
