//! `bmctl net trace`: ends by the names that users have for them.

use super::bmctl;
use super::fake::{Fake, machine};
use serde_json::{Value, json};

fn object(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    let meta = json!({"name": name, "namespace": "team-a", "uid": format!("uid-{name}"), "generation": 1});
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec, "status": status})
}

/// bm-01 has eth0; VNic `other` is in the same Subnet, and its group lets TCP 443 in.
fn site() -> Fake {
    let fake = Fake::with(machine());
    let vnic = |name: &str, address: &str| {
        let holder = json!({"attachmentNamespace": "n", "attachmentName": "a", "attachmentUID": "a", "dpuName": "dpu-1", "dpuUID": "d"});
        let status =
            json!({"addresses": [address], "grant": {"epoch": 1}, "programmed": {"epoch": 1}, "holder": holder});
        object("VNic", name, &json!({"subnet": "blue", "addresses": [address]}), &status)
    };
    let rules = json!({"vpc": {"name": "v"}, "ingress": [{"ports": [{"protocol": "TCP", "port": 443}]}]});
    let mut state = fake.lock();
    // A tenant cannot read what is in the DPUs' namespaces.
    state.tenant = true;
    state.network = [
        ("vpcs", vec![object("Vpc", "v", &json!({"defaultSecurityGroups": ["web"]}), &Value::Null)]),
        (
            "subnets",
            vec![object("Subnet", "blue", &json!({"vpc": {"name": "v"}, "cidr": "10.20.0.0/24"}), &Value::Null)],
        ),
        ("securitygroups", vec![object("SecurityGroup", "web", &rules, &Value::Null)]),
        ("vnics", vec![vnic("bm-01-eth0", "10.20.0.7"), vnic("other", "10.20.0.8")]),
    ]
    .into();
    drop(state);
    fake
}

#[tokio::test]
async fn a_packet_is_traced_between_machines_vnics_and_addresses() {
    let fake = site();
    let traced = bmctl(&fake, "net trace bm-01 other --tcp 443").await.expect("an answer");
    assert!(traced.starts_with("allowed: TCP port 443 from 10.20.0.7 to 10.20.0.8\n"), "{traced}");
    assert!(traced.contains("  pass SecurityGroup 'web': spec.ingress[0]\n"), "{traced}");
    for line in ["net trace bm-01/eth0 other --tcp 443", "net trace bm-01-eth0 10.20.0.8 --tcp 443"] {
        assert_eq!(bmctl(&fake, line).await.expect("an answer"), traced, "{line}");
    }
    let denied = bmctl(&fake, "net trace 10.20.0.8 bm-01 --icmp").await.expect("an answer");
    assert!(denied.starts_with("denied: ICMP echo from 10.20.0.8 to 10.20.0.7\n"), "{denied}");
    assert!(denied.contains("  drop Subnet 'blue': default deny: "), "{denied}");
    let json = bmctl(&fake, "net trace other bm-01 --udp 53 -o json").await.expect("an answer");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["allowed"], &json["packet"]), (&json!(false), &json!("UDP port 53")), "{json}");
}

#[tokio::test]
async fn an_end_that_is_not_there_says_what_can_be_named() {
    let fake = site();
    for (line, word) in [
        ("net trace bm-01 nobody --icmp", "kubectl get vnic -n team-a, or bmctl get"),
        ("net trace bm-01/eth7 other --icmp", "name one of: bm-01/eth0"),
        ("net trace bm-01 bm-01 --icmp", "the same"),
        ("net trace 10.20.0.7 10.20.0.8 --icmp", "two addresses tell no Vpc"),
    ] {
        let failure = bmctl(&fake, line).await.expect_err("refused").to_string();
        assert!(failure.contains(word), "{line}: {failure}");
    }
}
