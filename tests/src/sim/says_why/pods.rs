//! NICs of pods whose node is a machine. What such a pod waits for is its newest Event: a pod has no status of ours.

use super::super::life;
use super::super::network::object;
use super::super::simulation::USER;
use super::made::{at, leaving, machine_with, on_node, subnet, vnic};
use super::{Case, Cure, EVENT};
use api::labels;
use serde_json::{Value, json};

/// The Event that all its NICs are there.
pub(super) const WORKS: &str = "NicGranted";
const NODE: &str = "worker-1";

fn provider_id() -> Value {
    json!(format!("metalplane://{USER}/bm-01"))
}

/// It has not said which machine it is.
fn stranger() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {}})
}

fn node() -> Value {
    let mut node = stranger();
    node["spec"]["providerID"] = provider_id();
    node
}

fn worker(mut machine: Value) -> Value {
    machine["spec"]["nodeName"] = json!(NODE);
    machine
}

/// A machine that runs, and its node.
fn site() -> Vec<Value> {
    vec![node(), worker(life::machine("bm-01", 7))]
}

/// The same, and what is made after it.
fn with(more: Vec<Value>) -> Vec<Value> {
    [site(), more].concat()
}

fn asks(annotation: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "web", "labels": {labels::NETWORKS: ""}, "annotations": {annotation: text},
    }, "spec": {"nodeName": NODE, "containers": []}})
}

fn in_subnet(subnet: &str) -> Value {
    asks(labels::SUBNET, subnet)
}

fn with_vnic(vnic: &str) -> Value {
    asks(labels::NETWORKS, &json!([{"name": "net1", "vnic": vnic}]).to_string())
}

/// It asks for another NIC than before.
fn ask_for_blue(pod: &mut Value) {
    pod["metadata"]["annotations"] = in_subnet("blue")["metadata"]["annotations"].clone();
}

fn shared() -> Value {
    at("shared", "10.20.0.210")
}

pub(super) const CASES: [Case; 15] = [
    Case {
        of: ("Pod", "web"),
        made: || with(vec![asks(labels::NETWORKS, "blue")]),
        says: (EVENT, "PodNetworksInvalid"),
        cure: Cure::Change("Pod", "web", ask_for_blue),
    },
    Case {
        of: ("Pod", "web"),
        made: || with(vec![asks("k8s.v1.cni.cncf.io/networks", "blue")]),
        says: (EVENT, "NetworkDefinitionMissing"),
        cure: Cure::Create(|| {
            let config = json!({"type": "metalplane", "subnet": "blue"}).to_string();
            let mut definition = object("NetworkAttachmentDefinition", "blue", &json!({"config": config}));
            definition["apiVersion"] = json!("k8s.cni.cncf.io/v1");
            definition
        }),
    },
    Case {
        of: ("Pod", "web"),
        made: || vec![node(), life::machine("bm-01", 7), in_subnet("blue")],
        says: (EVENT, "NoAgentForPods"),
        cure: Cure::Change("BareMetalMachine", "bm-01", |machine| machine["spec"]["nodeName"] = json!(NODE)),
    },
    Case {
        of: ("Pod", "web"),
        made: || vec![stranger(), worker(life::machine("bm-01", 7)), in_subnet("blue")],
        says: (EVENT, "NodeNotOfMachine"),
        cure: Cure::Change("Node", NODE, |node| node["spec"]["providerID"] = provider_id()),
    },
    // No server is in that rack.
    Case {
        of: ("Pod", "web"),
        made: || {
            let mut machine = worker(life::machine("bm-01", 7));
            machine["spec"]["hardware"] = json!({"selector": {"matchLabels": {"rack": "7"}}});
            vec![node(), machine, in_subnet("blue")]
        },
        says: (EVENT, "WorkerNotPlaced"),
        cure: Cure::Change("Hardware", "server-1", |server| server["metadata"]["labels"]["rack"] = json!("7")),
    },
    Case {
        of: ("Pod", "web"),
        made: || with(vec![in_subnet("blue")]),
        says: (EVENT, "DpuSilent"),
        cure: Cure::Start("dpu-1"),
    },
    // Its port cannot be in force.
    Case {
        of: ("Pod", "web"),
        made: || with(vec![in_subnet("blue")]),
        says: (EVENT, "Attaching"),
        cure: Cure::Go("dpu-1"),
    },
    Case {
        of: ("Pod", "web"),
        made: || with(vec![in_subnet("green")]),
        says: (EVENT, "SubnetMissing"),
        cure: Cure::Create(|| subnet("green", "default", "10.30.0.0/24")),
    },
    Case {
        of: ("Pod", "web"),
        made: || with(vec![with_vnic("nic")]),
        says: (EVENT, "VNicMissing"),
        cure: Cure::Create(|| at("nic", "10.20.0.200")),
    },
    Case {
        of: ("Pod", "web"),
        made: || with(vec![vnic("nic", &json!({"subnet": "green"})), with_vnic("nic")]),
        says: (EVENT, "VNicNotReady"),
        cure: Cure::Create(|| subnet("green", "default", "10.30.0.0/24")),
    },
    Case {
        of: ("Pod", "web"),
        made: || vec![node(), shared(), worker(machine_with("shared")), with_vnic("shared")],
        says: (EVENT, "VNicHeld"),
        cure: Cure::Change("BareMetalMachine", "bm-01", |machine| {
            machine["spec"]["interfaces"].as_array_mut().expect("a list").truncate(1);
        }),
    },
    Case {
        of: ("Pod", "web"),
        made: || vec![node(), leaving(shared()), worker(machine_with("shared")), with_vnic("shared")],
        says: (EVENT, "VNicBeingDeleted"),
        cure: Cure::Change("Pod", "web", ask_for_blue),
    },
    Case {
        of: ("Pod", "web"),
        made: || with(vec![on_node("nic", "dpu-1"), with_vnic("nic")]),
        says: (EVENT, "VNicOfNode"),
        cure: Cure::Change("Pod", "web", ask_for_blue),
    },
    // What is said of a VNic that no pod has.
    Case {
        of: ("VNic", "nic"),
        made: || with(vec![at("nic", "10.20.0.200")]),
        says: ("InForce", "NotHeld"),
        cure: Cure::Create(|| with_vnic("nic")),
    },
    // And of one whose port the agent does not see in force.
    Case {
        of: ("VNic", "nic"),
        made: || with(vec![at("nic", "10.20.0.200"), with_vnic("nic")]),
        says: ("InForce", "NotBound"),
        cure: Cure::Go("dpu-1"),
    },
];
