//! `kubectl get` of every kind: a line per object, within 80 columns, with what a reader looks for. The statuses are
//! written by hand, as controller and agent write them.

use super::session::{Said, Session};
use anyhow::Result;
use api::names;
use serde_json::{Value, json};

pub(super) const DPU_NAMESPACE: &str = "metalplane-dpu-dpu-1";
const WIDTH: usize = 80;
/// As discovery names a server.
const DISCOVERED: &str = "discovery-52-54-00-88-00-07";
const UID: &str = "0d7e1f52-6b1c-4f0e-9d5c-3f2b8a7c1e55";

/// As long as names are that somebody thinks of.
const GROUP: &str = "web-servers-of-team-blue";

/// The attachment that later steps use.
pub(super) fn disk_attachment() -> String {
    names::attachment(UID, "bm-01", "root")
}

pub(super) fn run(session: &mut Session) -> Result<()> {
    for object in objects().into_iter().chain(network()) {
        create(session, object);
    }
    let machines = ["get", "bmm"];
    shows(session, "get bmm", &machines, &["bm-01", "Running", "True", "10.20.0.7", "rack1-u07"]);
    shows(session, "get mi", &["get", "mi"], &["debian-12", "True", "Ready", "4Gi", "debian-12-golden"]);
    shows(session, "get cmi", &["get", "cmi"], &["ubuntu-24-04", "False", "Importing"]);
    shows(session, "get dpu", &["get", "dpu"], &["dpu-1", "True", "rack1-u07", "Standby", "true"]);
    shows(session, "get hp", &["get", "hp", "-n", "metalplane-inventory"], &["default", "Keep"]);
    let summary = "J1234567, 2 disks, 960 GB";
    let parts = ["rack1-u07", "LocalDisk", "True", DISCOVERED, "Agent", "False", summary];
    shows(session, "get hwr", &["get", "hwr"], &parts);
    let wide = ["get", "hwr", "-o", "wide"];
    session.works("get hwr -o wide says what is heard", &wide, None, &["10.88.100.103", "MAC", "J1234567"]);
    shows(session, "get vh", &["get", "vh"], &["vh-", "dpu-1", "3"]);
    shows(session, "get da", &["get", "da", "-n", DPU_NAMESPACE], &["bm-01-root-", "root", "Attached"]);
    shows(session, "get na", &["get", "na", "-n", DPU_NAMESPACE], &["bm-01-eth0-", "eth0", "Attached"]);
    shows(
        session,
        "get vnic",
        &["get", "vnic"],
        &["shared-nic", "blue", "10.20.0.9", "02:00:00:00:00:09", "dpu-1", "True"],
    );
    shows(session, "get ah", &["get", "ah"], &["ah-", "blue", "10.20.0.9", "shared-nic"]);
    shows(session, "get subnet", &["get", "subnet"], &["blue", "10.20.0.0/24"]);
    shows(session, "get vpc", &["get", "vpc"], &["team-network", "True"]);
    shows(session, "get sg", &["get", "sg"], &[GROUP, "team-network", "12", "10/12", "False"]);
    shows(session, "get hardware", &["get", "hardware", "-n", "metalplane-inventory"], &["rack1-u07"]);
    shows(session, "get msnap", &["get", "msnap"], &["before-upgrade", "bm-01", "False", "SeveralDisksRun"]);
    shows(session, "get mrestore", &["get", "mrestore"], &["back", "bm-01", "before-upgrade", "Succeeded"]);
    shows(session, "get mmig", &["get", "mmig"], &["away", "bm-01", "rack1-u07", "rack1-u08", "Running"]);
    let bmcs = ["get", "machines.bmc.tinkerbell.org", "-n", "metalplane-inventory"];
    shows(session, "get machines.bmc.tinkerbell.org", &bmcs, &["rack1-u07"]);
    let kinds = ["baremetalmachine", "machineimage", "clustermachineimage", "dpu", "hardwarepolicy", "volumehold"];
    let rest = [
        "hardwarereport",
        "diskattachment",
        "nicattachment",
        "vnic",
        "subnet",
        "vpc",
        "securitygroup",
        "machinesnapshot",
        "machinerestore",
        "machinemigration",
    ];
    let all: Vec<String> = kinds.iter().chain(&rest).map(|kind| format!("{kind}.metalplane.io/")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    session.works("the category metal is every kind", &["get", "metal", "-A"], None, &all);
    session.works("get -o wide says why", &["get", "bmm", "-o", "wide"], None, &["POWER", "REASON", "dpu-1"]);
    session.works("get -o name", &["get", "bmm", "-o", "name"], None, &["baremetalmachine.metalplane.io/bm-01"]);
    let path = ["get", "bmm", "bm-01", "-o", "jsonpath={.status.disks[0].wwid}"];
    session.works("get -o jsonpath", &path, None, &["uuid."]);
    let columns = "custom-columns=NAME:.metadata.name,HW:.status.hardwareName";
    session.works("get -o custom-columns", &["get", "bmm", "-o", columns], None, &["HW", "rack1-u07"]);
    Ok(())
}

/// Makes an object and writes its status, as its owner would. Each is a step: a wrong schema would refuse it.
fn create(session: &mut Session, mut object: Value) {
    let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
    let done =
        session.works(&format!("apply {kind} {name}"), &["apply", "-f", "-"], Some(&object.to_string()), &[&name]);
    if let (0, Some(status)) = (done.code, status) {
        let patch = json!({ "status": status }).to_string();
        let group = object["apiVersion"].as_str().unwrap_or_default().split('/').next().unwrap_or_default();
        let typed = if kind == "namespace" { kind.clone() } else { format!("{kind}.{group}") };
        let words = ["patch", &typed, &name, "-n", &namespace, "--subresource=status", "--type=merge", "-p", &patch];
        session.works(&format!("its status: {kind} {name}"), &words, None, &[]);
    }
}

fn shows(session: &mut Session, what: &str, words: &[&str], parts: &[&str]) {
    let said = session.say(words, None);
    if said.code == 0
        && let Err(why) = narrow(&said)
    {
        return session.step(what, Err(why));
    }
    session.judged(what, &said, true, parts);
}

fn narrow(said: &Said) -> Result<(), String> {
    match said.out.lines().find(|line| line.trim_end().chars().count() > WIDTH) {
        Some(line) => Err(format!("{} columns: {line}", line.trim_end().chars().count())),
        None => Ok(()),
    }
}

pub(super) fn condition(type_: &str, status: &str, reason: &str) -> Value {
    let at = "2026-01-01T00:00:00Z";
    json!({"type": type_, "status": status, "reason": reason, "message": "as it is", "lastTransitionTime": at})
}

fn network() -> [Value; 2] {
    let (api, namespace, vpc) = ("metalplane.io/v1alpha1", "default", "team-network");
    [
        json!({"apiVersion": api, "kind": "Vpc", "metadata": {"name": vpc, "namespace": namespace}, "spec": {},
            "status": {"conditions": [condition("Ready", "True", "Programmed")]}}),
        json!({"apiVersion": api, "kind": "SecurityGroup", "metadata": {"name": GROUP, "namespace": namespace},
            "spec": {"vpc": {"name": vpc}},
            "status": {"members": 12, "acls": 40, "chassis": "10/12",
                "conditions": [condition("InForce", "False", "ChassisUnresponsive")]}}),
    ]
}

fn objects() -> Vec<Value> {
    let api = "metalplane.io/v1alpha1";
    let owner = json!({"kind": "BareMetalMachine", "namespace": "default", "name": "bm-01", "uid": UID});
    let holder = json!({"attachmentUID": UID, "attachmentNamespace": DPU_NAMESPACE,
        "attachmentName": disk_attachment(), "dpuUID": UID, "dpuName": "dpu-1"});
    let exposed = [condition("Connected", "True", "Connected"), condition("Exposed", "True", "Exposed")];
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    vec![
        node("dpu-1"),
        node("dpu-2"),
        json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": DPU_NAMESPACE, "labels": {"metalplane.io/dpu": "dpu-1"}}}),
        json!({"apiVersion": api, "kind": "Dpu", "metadata": {"name": "dpu-1"},
            "spec": {"hardwareRef": {"name": "rack1-u07"}, "powerDomain": "Standby", "approved": true},
            "status": {"type": "DPU", "namespace": DPU_NAMESPACE, "bootID": UID, "agentVersion": "0.1.0",
                "capacity": {"disks": 16, "nics": 8, "hotPlugPorts": 14},
                "allocatable": {"disks": 15, "nics": 7, "hotPlugPorts": 13}, "buses": ["NVMe", "VirtioBlk"],
                "onlineResizeBuses": ["VirtioBlk"], "connectors": [{"driver": "csi.metalplane.io", "fence": "None"}],
                "conditions": [condition("Ready", "True", "Ready"), condition("Approved", "True", "Approved")]}}),
        json!({"apiVersion": api, "kind": "ClusterMachineImage", "metadata": {"name": "ubuntu-24-04"},
            "spec": {"source": {"http": {"url": "https://images.example.com/u.raw",
                "checksum": format!("sha256:{}", "0".repeat(64))}}, "size": "8Gi"},
            "status": {"observedGeneration": 1, "virtualSize": "8Gi", "snapshotName": "cluster-ubuntu-24-04-golden",
                "conditions": [condition("Ready", "False", "Importing")]}}),
        json!({"apiVersion": api, "kind": "VNic", "metadata": {"name": "shared-nic", "namespace": "default"},
            "spec": {"subnet": "blue", "addresses": ["10.20.0.9"]},
            "status": {"addresses": ["10.20.0.9"], "macAddress": "02:00:00:00:00:09",
                "conditions": [condition("AddressesAssigned", "True", "Assigned"), condition("InForce", "True", "InForce")],
                "holder": holder, "grant": {"epoch": 2}}}),
        json!({"apiVersion": api, "kind": "AddressHold", "metadata": {"name": names::address_hold(UID, "10.20.0.9")},
            "spec": {"subnet": {"namespace": "default", "name": "blue", "uid": UID}, "address": "10.20.0.9",
                "owner": {"kind": "VNic", "namespace": "default", "name": "shared-nic", "uid": UID}}}),
        json!({"apiVersion": api, "kind": "MachineSnapshot",
            "metadata": {"name": "before-upgrade", "namespace": "default"}, "spec": {"machineName": "bm-01"},
            "status": {"observedGeneration": 1, "phase": "Pending", "machineUID": UID,
                "disks": [{"name": "root", "claimName": "bm-01-root", "volumeSnapshotName": "before-upgrade-root"}],
                "conditions": [condition("Ready", "False", "SeveralDisksRun")]}}),
        json!({"apiVersion": api, "kind": "MachineRestore", "metadata": {"name": "back", "namespace": "default"},
            "spec": {"machineName": "bm-01", "snapshotName": "before-upgrade"},
            "status": {"observedGeneration": 1, "phase": "Succeeded", "machineUID": UID,
                "disks": [{"name": "root", "claimName": "bm-01-root-x", "previousClaimName": "bm-01-root",
                    "volumeSnapshotName": "before-upgrade-root"}],
                "conditions": [condition("Complete", "True", "Succeeded")]}}),
        json!({"apiVersion": api, "kind": "MachineMigration", "metadata": {"name": "away", "namespace": "default"},
            "spec": {"machineName": "bm-01", "target": {"name": "rack1-u08"}},
            "status": {"observedGeneration": 1, "phase": "Running", "sourceHardwareName": "rack1-u07",
                "targetHardwareName": "rack1-u08", "startedAt": "2026-01-01T00:00:00.000000Z",
                "conditions": [condition("Complete", "False", "Moving")]}}),
        json!({"apiVersion": api, "kind": "HardwareReport", "metadata": {"name": DISCOVERED, "namespace": "default"},
            "spec": {}, "status": {
                "netboot": {"stage": "Agent", "at": "2026-01-01T00:00:00.000000Z", "beganAt": "2026-01-01T00:00:00.000000Z",
                    "macAddress": "52:54:00:88:00:07"},
                "attributes": {"product": {"serialNumber": "J1234567"}}, "summary": "J1234567, 2 disks, 960 GB",
                "conditions": [condition("Approved", "False", "HardwareNotApproved")]}}),
        json!({"apiVersion": api, "kind": "HardwareReport", "metadata": {"name": "rack1-u07", "namespace": "default"},
            "spec": {}, "status": {
                "netboot": {"stage": "LocalDisk", "at": "2026-01-01T00:00:00.000000Z", "beganAt": "2026-01-01T00:00:00.000000Z",
                    "macAddress": "02:00:00:00:00:09", "firmware": "PXE of UEFI (x86-64)", "message": "it is installed"},
                "guest": {"address": "10.88.100.103", "macAddress": "02:00:00:00:00:09", "by": "Dhcp",
                    "at": "2026-01-01T00:00:00.000000Z"},
                "identity": {"uuid": UID}, "summary": "K7654321, 1 disk, 3.8 TB",
                "conditions": [condition("Approved", "True", "Approved")]}}),
        json!({"apiVersion": api, "kind": "VolumeHold",
            "metadata": {"name": names::hold("csi.metalplane.io", "default/0d7e1f52")},
            "spec": {"driver": "csi.metalplane.io", "volumeHandle": "default/0d7e1f52", "holder": holder, "epoch": 3}}),
        json!({"apiVersion": api, "kind": "DiskAttachment",
            "metadata": {"name": disk_attachment(), "namespace": DPU_NAMESPACE,
                "finalizers": ["metalplane.io/exposed"]},
            "spec": {"owner": owner, "dpuName": "dpu-1", "diskName": "root", "bus": "NVMe", "slot": "Boot",
                "serial": names::serial(UID), "uuid": UID, "size": "4Gi", "grant": {"epoch": 3},
                "volume": {"driver": "csi.metalplane.io", "volumeHandle": "default/0d7e1f52",
                    "persistentVolumeName": "pvc-0d7e1f52", "attributes": {"pool": "default"},
                    "claim": {"namespace": "default", "name": "bm-01-root", "uid": UID}}},
            "status": {"phase": "Attached", "exposedBootID": UID, "capacity": "4Gi", "serial": names::serial(UID),
                "wwid": format!("uuid.{UID}"), "fence": {"bootID": UID, "identity": "x", "epoch": 3},
                "conditions": exposed}}),
        json!({"apiVersion": api, "kind": "NicAttachment",
            "metadata": {"name": names::attachment(UID, "bm-01", "eth0"), "namespace": DPU_NAMESPACE},
            "spec": {"owner": owner, "dpuName": "dpu-1", "interfaceName": "eth0", "vnicName": "bm-01-eth0",
                "vnicUID": UID, "logicalPort": "default.bm-01-eth0", "macAddress": names::mac(UID, 0),
                "addresses": ["10.20.0.7"], "mtu": 1400, "grant": {"epoch": 1}},
            "status": {"phase": "Attached", "exposedBootID": UID, "representor": names::representor(UID),
                "guest": {"answeredAt": "2026-01-01T00:00:00.000000Z", "answeredAddress": "10.20.0.7"},
                "conditions": exposed}}),
    ]
}
