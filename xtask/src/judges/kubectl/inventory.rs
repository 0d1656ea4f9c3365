//! What stands at a server's Hardware is written by who decides it: the controller's records by the controller alone, an administrator's
//! wishes by an administrator, Tinkerbell's clients as ever; and what the account of `boot` may write.

use super::policies::{CONTROLLER, STATUS};
use super::session::Session;
use super::tables::condition;
use serde_json::json;

const INVENTORY: &str = "metalplane-inventory";
const SERVER: &str = "rack1-u07";
const BOOT: &str = "--as=system:serviceaccount:metalplane-system:metalplane-boot";

pub(super) fn run(session: &mut Session) {
    records(session);
    made(session);
    wishes(session);
    upstream(session);
    boot(session);
}

fn annotate(change: &str) -> [&str; 6] {
    ["annotate", "hardware", SERVER, "-n", INVENTORY, change]
}

fn by_controller<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &[CONTROLLER]].concat()
}

/// What the controller keeps at a server is not changed beside it.
fn records(session: &mut Session) {
    // Policies hold a moment after they are made.
    let claim = annotate("metalplane.io/claimed-by=me");
    let tried = [claim.as_slice(), &["--dry-run=server"]].concat();
    session.until(&tried, |said| said.code != 0);
    session.refused(
        "a user claims a server",
        &claim,
        None,
        &["claimed-by of a Hardware is the controller's: leave it out"],
    );
    let kept = [
        "claimed-by=0d7e1f52",
        "claimed-by-name=default/bm-01",
        "boot-strategy=Workflow",
        "local-disks=Erase",
        "install=1/Begun/w",
        "erase=1/Begun/w",
        "job=0d7e1f52",
    ];
    let kept = kept.map(|record| format!("metalplane.io/{record}"));
    for record in &kept {
        let words = annotate(record);
        session.refused(&format!("a user writes {record}"), &words, None, &["is the controller's: leave it out"]);
        session.works("the controller does", &by_controller(&words), None, &["annotated"]);
    }
    let other = annotate("metalplane.io/install=1/Done/w");
    let forced = [other.as_slice(), &["--overwrite"]].concat();
    session.refused("a user ends an installation", &forced, None, &["or as it is"]);
    for record in ["claimed-by", "boot-strategy", "install", "erase", "job"] {
        let key = format!("metalplane.io/{record}-");
        session.refused(
            &format!("a user takes {record} off"),
            &annotate(&key),
            None,
            &["deleting its BareMetalMachine"],
        );
    }
    session.works("beside them the rest is the user's", &annotate("team=a"), None, &["annotated"]);
    let manifest = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Hardware",
        "metadata": {"name": SERVER, "namespace": INVENTORY, "labels": {"metalplane.io/class": "general"}},
        "spec": {"bmcRef": {"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": SERVER}}});
    let manifest = manifest.to_string();
    let replace = ["replace", "-f", "-"];
    session.refused(
        "a manifest takes the place of a claimed server",
        &replace,
        Some(&manifest),
        &["leave it as it is"],
    );
    session.works("and is applied beside its records", &["apply", "-f", "-"], Some(&manifest), &[SERVER]);
    let keys = kept.iter().filter_map(|record| record.split_once('=')).map(|(key, _)| format!("{key}-"));
    let keys: Vec<String> = keys.collect();
    let words: Vec<&str> = annotate("team-").into_iter().chain(keys.iter().map(String::as_str)).collect();
    session.works("the controller releases it", &by_controller(&words), None, &["annotated"]);
    let report = annotate("metalplane.io/erase-report={}");
    session.refused(
        "a user says that disks are erased",
        &report,
        None,
        &["erase-report of a Hardware is the controller's"],
    );
    session.works("the controller does", &by_controller(&report), None, &["annotated"]);
    session.works("a user forgets it", &annotate("metalplane.io/erase-report-"), None, &["annotated"]);
}

fn made(session: &mut Session) {
    let hardware = |namespace: &str, key: &str| {
        let annotations = json!({format!("metalplane.io/{key}"): "x"});
        let meta = json!({"name": "moved", "namespace": namespace, "annotations": annotations});
        json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Hardware", "metadata": meta, "spec": {}}).to_string()
    };
    let create = ["create", "--dry-run=server", "-f", "-"];
    let claimed = hardware(INVENTORY, "claimed-by");
    session.refused("a Hardware is made with a claim", &create, Some(&claimed), &["leave it out"]);
    let elsewhere = hardware("default", "claimed-by");
    session.works("one outside of the inventory is nobody's", &create, Some(&elsewhere), &["created"]);
    let moved = hardware(INVENTORY, "boot-path");
    session.works("what was told of a server comes with it", &create, Some(&moved), &["created"]);
}

/// What bmctl and the operator's pages write.
fn wishes(session: &mut Session) {
    let wishes = [
        "erase-requested-at=now",
        "release-with-data=uid",
        "netboot-by=Continuous",
        "firmware-uuid=u",
        "boot-option=Hdd",
        "had-dpu=dpu-1",
    ];
    for wish in wishes {
        let wish = format!("metalplane.io/{wish}");
        session.works(&format!("an administrator writes {wish}"), &annotate(&wish), None, &["annotated"]);
        let key = wish.split_once('=').map(|(key, _)| format!("{key}-")).unwrap_or_default();
        session.works("and takes it off", &annotate(&key), None, &["annotated"]);
    }
    let unapproved = ["label", "hardware", SERVER, "-n", INVENTORY, "metalplane.io/unapproved=true"];
    session.works("a server waits for approval", &unapproved, None, &["labeled"]);
    let approved = [&unapproved[..5], &["metalplane.io/unapproved-"]].concat();
    session.works("an administrator approves it", &approved, None, &["labeled"]);
}

/// As Tinkerbell's Cluster API provider has a server and gives it back, with a claim beside it or none.
fn upstream(session: &mut Session) {
    let taken = json!({"metadata": {
        "labels": {"v1alpha1.tinkerbell.org/ownerName": "m", "v1alpha1.tinkerbell.org/ownerNamespace": "team"},
        "finalizers": ["tinkerbellmachine.infrastructure.cluster.x-k8s.io"],
        "annotations": {"v1alpha1.tinkerbell.org/provisioned": "true"}},
        "spec": {"userData": "#cloud-config", "interfaces": [{"dhcp": {"mac": "02:00:00:00:00:09"}, "netboot": {"allowPXE": true}}]}});
    let released = json!({"metadata": {
        "labels": {"v1alpha1.tinkerbell.org/ownerName": null, "v1alpha1.tinkerbell.org/ownerNamespace": null},
        "finalizers": [], "annotations": {"v1alpha1.tinkerbell.org/provisioned": null}},
        "spec": {"userData": null, "interfaces": null}});
    for (what, change) in [("takes", &taken), ("gives back", &released)] {
        let words = ["patch", "hardware", SERVER, "-n", INVENTORY, "--type=merge", "-p", &change.to_string()];
        session.works(&format!("Tinkerbell's Cluster API provider {what} a server"), &words, None, &["patched"]);
    }
}

/// It is told what agents say. What they cannot say: who has a server, what a BMC's password is, that an ended Workflow goes on.
fn boot(session: &mut Session) {
    for words in [
        vec!["get", "secret", "rack1-u07-bmc", "-n", INVENTORY],
        vec!["get", "secrets", "-n", INVENTORY],
        vec!["get", "secrets", "-n", "metalplane-system"],
        vec!["patch", "hardware", SERVER, "-n", INVENTORY, "--type=merge", "-p", r#"{"spec":{"agentID":"a"}}"#],
        vec!["get", "bmm", "-A"],
        vec!["get", "machines.bmc.tinkerbell.org", "-n", INVENTORY],
    ] {
        let as_boot = [&words[..], &[BOOT]].concat();
        session.refused(&format!("boot: {}", words.join(" ")), &as_boot, None, &["Forbidden"]);
    }
    let read = ["get", "hardware,templates.tinkerbell.org,workflows.tinkerbell.org", "-n", INVENTORY, BOOT];
    session.works("boot reads what it serves", &read, None, &[SERVER]);
    let uid = ["get", "hardware", SERVER, "-n", INVENTORY, "-o", "jsonpath={.metadata.uid}"];
    let uid = session.say(&uid, None).out;
    let report = |group: &str, owner: &str| {
        let owner = json!([{"apiVersion": group, "kind": owner, "name": SERVER, "uid": uid}]);
        let meta = json!({"name": "seen", "namespace": INVENTORY, "ownerReferences": owner});
        json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "HardwareReport", "metadata": meta, "spec": {}})
            .to_string()
    };
    let create = ["create", "-f", "-", BOOT];
    let of_other = report("v1", "ConfigMap");
    let of_hardware = report("tinkerbell.org/v1alpha1", "Hardware");
    session.refused("boot makes a report of something else", &create, Some(&of_other), &["of a Hardware or of nobody"]);
    session.works("boot makes the report of a Hardware", &create, Some(&of_hardware), &["created"]);
    let status = |status: serde_json::Value| {
        let meta = json!({"name": "seen", "namespace": INVENTORY});
        json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "HardwareReport", "metadata": meta, "status": status})
            .to_string()
    };
    let (by_boot, by_controller) = ([&STATUS[..], &[BOOT]].concat(), by_controller(&STATUS));
    let seen = status(json!({"agentID": "a"}));
    session.works("and says what it saw", &by_boot, Some(&seen), &["serverside-applied"]);
    let approved = |is_so: &str| status(json!({"agentID": "a", "conditions": [condition("Approved", is_so, "r")]}));
    let refused = ["the conditions of a HardwareReport are the controller's"];
    session.refused("boot approves a server", &by_boot, Some(&approved("True")), &refused);
    session.works("the controller does", &by_controller, Some(&approved("True")), &["serverside-applied"]);
    session.refused("boot takes that back", &by_boot, Some(&approved("False")), &refused);
    session.refused("boot deletes a report", &["delete", "hwr", "seen", "-n", INVENTORY, BOOT], None, &["Forbidden"]);
    session.works("an administrator does", &["delete", "hwr", "seen", "-n", INVENTORY], None, &["deleted"]);
    workflow(session);
}

fn workflow(session: &mut Session) {
    let workflow = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "once", "namespace": INVENTORY}, "spec": {"templateRef": "t", "hardwareRef": SERVER}});
    session.works("a Workflow", &["create", "-f", "-"], Some(&workflow.to_string()), &["created"]);
    for (now, works) in [("RUNNING", true), ("SUCCESS", true), ("RUNNING", false), ("FAILED", false), ("SUCCESS", true)]
    {
        let said = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Workflow",
            "metadata": {"name": "once", "namespace": INVENTORY}, "status": {"state": now}});
        let said = session.say(&[&STATUS[..], &[BOOT]].concat(), Some(&said.to_string()));
        let parts: &[&str] =
            if works { &["serverside-applied"] } else { &["a Workflow that has ended does not begin again"] };
        session.judged(&format!("boot says {now} of a Workflow"), &said, works, parts);
    }
    session.works("it goes", &["delete", "workflow.tinkerbell.org/once", "-n", INVENTORY], None, &["deleted"]);
}
