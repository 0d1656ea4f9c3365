//! Verbs that act on whole machines.

use super::bmctl;
use super::fake::{Fake, machine};
use serde_json::{Value, json};

fn made(fake: &Fake) -> Value {
    fake.lock().operations.last().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_snapshot_is_made_listed_and_deleted() {
    let fake = Fake::with(machine());
    let said = bmctl(&fake, "snapshot create bm-01 s1 --per-disk --retain").await.expect("made");
    assert_eq!(said, "machinesnapshot.metalplane.io/s1 submitted\n");
    let spec = json!({"machineName": "bm-01", "consistency": "PerDisk", "deletionPolicy": "Retain"});
    assert_eq!(made(&fake)["spec"], spec);
    let named = bmctl(&fake, "snapshot create bm-01 -o name --dry-run").await.expect("checked");
    assert!(named.starts_with("machinesnapshot.metalplane.io/bm-01-20"), "{named}");
    assert_eq!(fake.lock().operations.len(), 1, "a dry run makes nothing");
    let table = bmctl(&fake, "snapshot list").await.expect("listed");
    assert!(table.starts_with("NAME   MACHINE   READY    REASON   AGE\ns1     bm-01 "), "{table}");
    assert_eq!(
        bmctl(&fake, "snapshot delete s1").await.expect("deleted"),
        "machinesnapshot.metalplane.io/s1 deleted\n"
    );
    let failure = bmctl(&fake, "snapshot delete s1").await.expect_err("it is gone").to_string();
    assert!(failure.contains("MachineSnapshot 's1'") && failure.contains("bmctl snapshot list"), "{failure}");
}

#[tokio::test]
async fn a_snapshot_of_no_machine_is_an_error_at_once() {
    let fake = Fake::with(machine());
    let failure = bmctl(&fake, "snapshot create other s1").await.expect_err("refused").to_string();
    assert!(failure.contains("machine 'other'") && failure.contains("bmctl get"), "{failure}");
    assert!(fake.lock().operations.is_empty());
}

#[tokio::test]
async fn a_restore_names_machine_and_snapshot() {
    let fake = Fake::with(machine());
    let said = bmctl(&fake, "restore bm-01 s1").await.expect("made");
    assert_eq!(said, "machinerestore.metalplane.io/bm-01-x7k2p submitted\n");
    assert_eq!(made(&fake)["spec"], json!({"machineName": "bm-01", "snapshotName": "s1"}));
}

#[tokio::test]
async fn a_migration_names_its_target_and_is_cancelled_by_the_machine() {
    let fake = Fake::with(machine());
    let said = bmctl(&fake, "migrate bm-01 --to rack1-u08").await.expect("made");
    assert_eq!(said, "machinemigration.metalplane.io/bm-01-x7k2p submitted\n");
    assert_eq!(made(&fake)["spec"], json!({"machineName": "bm-01", "target": {"name": "rack1-u08"}}));
    let said = bmctl(&fake, "migrate-cancel bm-01").await.expect("cancelled");
    assert_eq!(said, "machinemigration.metalplane.io/bm-01-x7k2p cancellation submitted\n");
    let failure = bmctl(&fake, "migrate-cancel bm-01").await.expect_err("there is none").to_string();
    assert!(failure.contains("no migration of it is under way"), "{failure}");
    bmctl(&fake, "migrate bm-01 -l rack=7,class=gpu").await.expect("made");
    let labels = json!({"selector": {"matchLabels": {"class": "gpu", "rack": "7"}}});
    assert_eq!(made(&fake)["spec"]["target"], labels);
}

/// A snapshot of bm-01 that can be restored.
fn snapshot() -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "MachineSnapshot", "metadata": {"name": "s1"},
        "spec": {"machineName": "bm-01"},
        "status": {"phase": "Succeeded",
            "disks": [{"name": "root", "claimName": "bm-01-root", "volumeSnapshotName": "s1-root",
                "storageClassName": "fast", "size": "4Gi"}],
            "conditions": [super::condition("Ready", "True", "Succeeded", "")]}})
}

#[tokio::test]
async fn a_clone_has_the_disks_of_the_snapshot_and_nothing_of_the_sources_identity() {
    let fake = Fake::with(machine());
    {
        let mut state = fake.lock();
        state.operations.push(snapshot());
        let source = &mut state.machine.as_mut().expect("there")["spec"];
        source["interfaces"][0]["macAddress"] = json!("02:00:00:00:00:01");
        source["hardware"] = json!({"name": "rack1-u07"});
    }
    let line = "clone bm-01 bm-02 --snapshot s1 --address eth0=10.20.0.8 --halted";
    let said = bmctl(&fake, line).await.expect("made");
    assert_eq!(said, "baremetalmachine.metalplane.io/bm-02 cloned from bm-01\n");
    let spec = made(&fake)["spec"].clone();
    let disk = &spec["disks"][0];
    assert_eq!((&disk["source"], &disk["size"]), (&json!({"snapshot": {"name": "s1-root"}}), &json!("4Gi")));
    assert_eq!((&disk["bootOrder"], &disk["storageClassName"]), (&json!(1), &json!("fast")));
    let interface = json!({"name": "eth0", "subnet": "blue", "addresses": ["10.20.0.8"]});
    assert_eq!(spec["interfaces"], json!([interface]));
    assert_eq!((&spec["runStrategy"], spec.get("hardware")), (&json!("Halted"), None));
    bmctl(&fake, "clone bm-01 bm-03 --snapshot s1 --halted").await.expect("made");
    assert_eq!(made(&fake)["spec"]["interfaces"], json!([{"name": "eth0", "subnet": "blue"}]), "one is chosen");
}

#[tokio::test]
async fn a_clone_says_what_it_needs_before_it_makes_anything() {
    let fake = Fake::with(machine());
    fake.lock().operations.push(snapshot());
    for (line, cause) in [
        ("clone bm-01 bm-02 --address eth9=10.20.0.8", "machine 'bm-01' has no interface 'eth9'"),
        ("clone bm-01 bm-02 --address eth0=10.20.0.8 --snapshot s9", "MachineSnapshot 's9'"),
        ("clone bm-09 bm-02 --address eth0=10.20.0.8", "machine 'bm-09'"),
    ] {
        let failure = bmctl(&fake, line).await.expect_err("refused").to_string();
        assert!(failure.contains(cause), "{line}: {failure}");
    }
    assert_eq!(fake.lock().operations.len(), 1);
}
