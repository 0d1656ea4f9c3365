//! Calls as Multus 4 makes them of a NetworkAttachmentDefinition of our type: the configuration is the whole list, the interface is named
//! by the runtime, and nothing was there before.

use super::agent::{self, Agent};
use super::{Call, Pods, error, ip, offer};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

/// As Multus sets them (its `CNI_ARGS`, in its order).
const ARGS: &str = "IgnoreUnknown=true;K8S_POD_NAMESPACE=team;K8S_POD_NAME=web;\
    K8S_POD_INFRA_CONTAINER_ID=9d3b4d1c62f7;K8S_POD_UID=uid-1";

fn config(folder: &Path, own: &Value, given: &Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "blue", "type": "metalplane",
        "capabilities": {"ips": true, "mac": true, "deviceID": true},
        "socket": folder.join("agent.sock"), "stateDirectory": folder.join("state"),
        "runtimeConfig": given,
    });
    let members = config.as_object_mut().expect("an object");
    members.extend(own.as_object().expect("an object").clone());
    config
}

fn call(verb: &str, netns: &str, config: &Value) -> Output {
    Call { verb, container: "c1", netns }.run_as("net3", &config.to_string(), ARGS)
}

fn said(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[test]
fn the_agent_is_asked_for_what_the_definition_names() {
    let dir = TempDir::new().expect("a folder");
    let folder = dir.path();
    let agent = Agent::start(folder, Err(tonic::Status::unavailable("NotBound: OVN has not bound it")));
    for (own, given, asked) in [
        (
            json!({"subnet": "blue", "securityGroups": ["web"]}),
            json!({"ips": ["10.20.0.7/24", "fd00:20::7"], "mac": "02:00:00:00:20:0A"}),
            json!([{
                "name": "net3", "subnet": "blue", "securityGroups": ["web"],
                "addresses": ["10.20.0.7", "fd00:20::7"], "macAddress": "02:00:00:00:20:0a",
            }]),
        ),
        (
            json!({"vnic": "web-1", "configure": false}),
            json!({}),
            json!([{"name": "net3", "vnic": "web-1", "configure": false}]),
        ),
    ] {
        let (code, message) = error(&call("ADD", "/run/netns/none", &config(folder, &own, &given)));
        assert!(code == 11 && message.contains("NotBound"), "{code}: {message}");
        let asked_for: Value = serde_json::from_str(&agent.asked()).expect("a list");
        assert_eq!(asked_for, asked);
    }
    for (own, given, named) in [
        (json!({"subnet": "blue"}), json!({"deviceID": "0000:3b:00.2"}), "runtimeConfig.deviceID: '0000:3b:00.2'"),
        (json!({"subnet": "blue"}), json!({"ips": "10.20.0.7"}), "runtimeConfig.ips"),
        (json!({"subnet": "blue", "master": "eth1"}), json!({}), "master: a network configuration"),
        (json!({}), json!({}), "prevResult is missing"),
    ] {
        let (code, message) = error(&call("ADD", "/run/netns/none", &config(folder, &own, &given)));
        assert!(code == 7 && message.contains(named), "{code}: {message}, not {named}");
    }
    // A NIC that was made with something else is not attached.
    let with = |mac: &str| {
        let mut interface = agent::interface("net3", "mqnone");
        interface.mac_address = mac.to_owned();
        interface
    };
    agent.answer(Ok(with("02:00:00:00:20:07")));
    for (given, named) in [
        (json!({"mac": "02:00:00:00:20:08"}), "runtimeConfig.mac: 02:00:00:00:20:08 is asked for"),
        (json!({"ips": ["10.20.0.8/24"]}), "runtimeConfig.ips: 10.20.0.8 is asked for"),
    ] {
        let config = config(folder, &json!({"subnet": "blue"}), &given);
        let (code, message) = error(&call("ADD", "/run/netns/none", &config));
        assert!(code == 7 && message.contains(named), "{code}: {message}");
    }
    assert!(!folder.join("state").exists(), "nothing is left");
}

#[test]
fn a_definition_attaches_one_interface_and_takes_it_away() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP a_definition_attaches_one_interface_and_takes_it_away: needs root for network namespaces");
        return;
    }
    let dir = TempDir::new().expect("a folder");
    let folder = dir.path();
    let pods = Pods::start(&["multus"]);
    let device = format!("d{}", std::process::id() % 1_000_000);
    let (netns, config) = (pods.path(0), config(folder, &json!({"subnet": "blue"}), &json!({"ips": ["10.20.0.7/24"]})));
    let agent = Agent::start(folder, Ok(agent::interface("net3", &format!("mq{device}"))));
    offer(&device);
    let result = said(&call("ADD", &netns, &config));
    let own = json!({"name": "net3", "mac": "02:00:00:00:20:07", "sandbox": netns});
    assert_eq!(
        result,
        json!({
            "cniVersion": "1.0.0", "interfaces": [own], "ips": [{"address": "10.20.0.7/24", "interface": 0}],
            "routes": [{"dst": "10.30.0.0/24", "gw": "10.20.0.1"}],
        })
    );
    // Multus gives later verbs what ADD answered.
    let mut later = config.clone();
    later["prevResult"] = result;
    said(&call("CHECK", &netns, &later));
    said(&call("DEL", &netns, &later));
    assert!(!pods.devices(0).contains("net3"), "{}", pods.devices(0));
    assert_eq!(error(&call("CHECK", &netns, &later)).0, 100);
    said(&call("DEL", &netns, &later));
    assert_eq!(agent.detached(), ["c1"]);

    // A virtual machine's: no address, and whatever MAC address the device has by now.
    let mut left = agent::interface("net3", &format!("mq{device}"));
    (left.addresses, left.routes, left.configured_by_pod) = (vec![], vec![], true);
    agent.answer(Ok(left));
    offer(&device);
    let mut config = config;
    config["configure"] = json!(false);
    let result = said(&call("ADD", &netns, &config));
    assert_eq!((&result["ips"], &result["interfaces"][0]["name"]), (&Value::Null, &json!("net3")));
    ip(&format!("-n {} link set net3 address 02:00:00:00:99:99", pods.0[0]));
    config["prevResult"] = result;
    said(&call("CHECK", &netns, &config));
    said(&call("DEL", &netns, &config));
    assert!(!pods.devices(0).contains("net3"), "{}", pods.devices(0));
}
