//! How long one decision takes: `cargo bench --profile dev --workspace --bench planner` (the profile that ships).

use api::tinkerbell::Hardware;
use api::{BareMetalMachine, DiskAttachment, Dpu, HardwarePolicy};
use divan::{Bencher, black_box};
use jiff::Timestamp;
use planner::agent;
use planner::exposure::{Exposure, ExposureId, FunctionKind, Presence};
use planner::machine::observed::{Belongings, DpuSeen};
use planner::machine::{self, Action};
use planner::seen::Seen;
use serde_json::{Value, json};
use std::sync::Arc;

fn main() {
    divan::main();
}

fn object<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("the bench's objects are valid")
}

/// A new machine that may choose among so much Hardware.
fn new_machine(hardware: usize) -> machine::Observed {
    let server = |number: usize| -> Hardware {
        let name = format!("server-{number}");
        object(json!({
            "apiVersion": "tinkerbell.org/v1alpha1", "kind": "Hardware",
            "metadata": {"name": name, "namespace": "inventory", "uid": name, "resourceVersion": "1"},
            "spec": {"bmcRef": {"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": name}},
        }))
    };
    let dpu = |number: usize| -> Dpu {
        object(json!({
            "apiVersion": "metalplane.io/v1alpha1", "kind": "Dpu", "metadata": {"name": format!("dpu-{number}")},
            "spec": {"hardwareRef": {"name": format!("server-{number}")}, "approved": true},
            "status": {
                "namespace": format!("metalplane-dpu-dpu-{number}"), "bootID": "b",
                "capacity": {"disks": 8, "nics": 8, "hotPlugPorts": 14}, "buses": ["NVMe", "VirtioBlk"],
                "conditions": [{"type": "Ready", "status": "True", "reason": "AgentRunning", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        }))
    };
    let policy: HardwarePolicy = object(json!({
        "apiVersion": "metalplane.io/v1alpha1", "kind": "HardwarePolicy",
        "metadata": {"name": "default", "namespace": "inventory"}, "spec": {},
    }));
    let machine: BareMetalMachine = object(json!({
        "apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine",
        "metadata": {"name": "bm", "namespace": "a", "uid": "u", "finalizers": ["metalplane.io/machine"]},
        "spec": {"disks": [{"name": "root", "bootOrder": 1, "source": {"blank": {}}, "size": "1Gi"}]},
    }));
    let own = Belongings {
        hardware: (1..=hardware).map(|number| Arc::new(server(number))).collect(),
        policies: vec![Arc::new(policy)],
        dpus: (1..=hardware).map(|number| DpuSeen { dpu: Arc::new(dpu(number)), ..DpuSeen::default() }).collect(),
        ..Belongings::default()
    };
    machine::Observed { machine: Arc::new(machine), own, ..machine::Observed::default() }
}

#[divan::bench(args = [10, 100, 1000])]
fn choose_hardware(bencher: Bencher, hardware: usize) {
    let observed = new_machine(hardware);
    let now = Timestamp::UNIX_EPOCH;
    let plan = machine::plan(&observed, now);
    assert!(matches!(plan.actions.as_slice(), [Action::ClaimHardware { .. }]), "{:?}", plan.actions);
    bencher.bench_local(|| machine::plan(black_box(&observed), now));
}

/// An agent whose disks are all presented.
fn settled_agent(disks: usize) -> agent::Observed {
    let mut observed = agent::Observed {
        now: Timestamp::UNIX_EPOCH,
        dpu_name: "dpu-1".to_owned(),
        boot_id: "b".to_owned(),
        ports: Seen::Fresh(Vec::new()),
        ..agent::Observed::default()
    };
    let (mut attachments, mut exposures, mut connected) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..disks {
        let uid = format!("uid-{number}");
        let disk: DiskAttachment = object(json!({
            "apiVersion": "metalplane.io/v1alpha1", "kind": "DiskAttachment",
            "metadata": {"name": format!("disk-{number}"), "namespace": "d", "uid": uid,
                "finalizers": ["metalplane.io/exposed"]},
            "spec": {
                "owner": {"kind": "BareMetalMachine", "namespace": "a", "name": "m", "uid": "u"},
                "dpuName": "dpu-1", "diskName": format!("disk-{number}"), "slot": "HotPlug",
                "serial": format!("MP{number}"), "uuid": uid, "size": "1Gi", "grant": {"epoch": 1},
                "volume": {"driver": "d", "volumeHandle": uid, "persistentVolumeName": "pv",
                    "claim": {"namespace": "a", "name": "c", "uid": "u"}},
            },
        }));
        let attachment = agent::Attachment::from_disk(&disk);
        let id = ExposureId { uid: uid.clone(), epoch: 1 };
        observed.record.insert(
            uid,
            agent::Entry {
                key: attachment.key.clone(),
                id: id.clone(),
                boot_id: "b".to_owned(),
                identity: "i".to_owned(),
                function: attachment.function.clone().expect("the spec is valid"),
                limits: Default::default(),
                import_done: None,
                shown: true,
            },
        );
        exposures.push(Exposure {
            id: id.clone(),
            kind: FunctionKind::Disk,
            presence: Presence::Present,
            size_bytes: Some(1 << 30),
            limits: Default::default(),
            representor: None,
            link_up: None,
        });
        connected.push(agent::Connected { id, size_bytes: 1 << 30 });
        attachments.push(attachment);
    }
    observed.attachments = Seen::Fresh(attachments);
    observed.exposures = agent::Exposures::new(&Seen::Fresh(exposures), &Seen::Fresh(Vec::new()));
    observed.connections = [("d".to_owned(), Seen::Fresh(connected))].into();
    observed
}

#[divan::bench(args = [1, 8, 64])]
fn settled_dpu(bencher: Bencher, disks: usize) {
    let observed = settled_agent(disks);
    let plan = agent::plan(&observed);
    let steps: Vec<_> = plan.items.iter().filter_map(|item| item.step.as_ref()).collect();
    assert!(steps.is_empty() && plan.clear.is_empty(), "it is not settled: {steps:?} {:?}", plan.clear);
    bencher.bench_local(|| agent::plan(black_box(&observed)));
}
