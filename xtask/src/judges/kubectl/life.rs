//! What a user does with a machine: the examples applied, followed, changed, selected, deleted.

use super::session::Session;
use super::tables::condition;
use anyhow::{Context, Result};
use serde_json::json;
use std::fs;
use std::path::Path;

/// The examples as they are, and what a controller would say of them.
pub(super) fn begin(root: &Path, session: &mut Session) -> Result<()> {
    for name in ["inventory", "image", "bm-01"] {
        let text = fs::read_to_string(root.join("examples").join(name).with_extension("yaml"))
            .with_context(|| format!("read examples/{name}.yaml"))?;
        let what = format!("apply examples/{name}.yaml");
        session.works(&what, &["apply", "-f", "-"], Some(&text), &["created"]);
        session.works(&format!("{what} again"), &["apply", "-f", "-"], Some(&text), &["unchanged"]);
    }
    session.works("diff finds nothing to change", &["diff", "-f", &path(root, "bm-01")], None, &[]);
    let uid = "0d7e1f52-6b1c-4f0e-9d5c-3f2b8a7c1e55";
    let steps = ["HardwareClaimed", "VolumesReady", "DisksAttached", "NicsAttached", "BootConfigured", "PoweredOn"];
    let mut conditions: Vec<_> = steps.iter().map(|step| condition(step, "True", "Done")).collect();
    conditions.push(condition("Ready", "True", "Running"));
    let status = json!({"status": {
        "observedGeneration": 1, "conditions": conditions, "state": "Running", "hardwareName": "rack1-u07",
        "bootStrategy": "CloudDisk", "power": {"state": "On", "observedAt": "2026-01-01T00:00:00.000000Z"},
        "addresses": [{"interface": "eth0", "address": "10.20.0.7"}],
        "disks": [{"name": "root", "claimName": "bm-01-root", "dpuName": "dpu-1", "serial": "MP1",
            "wwid": format!("uuid.{uid}"), "capacity": "4Gi", "phase": "Attached"}],
        "interfaces": [{"name": "eth0", "vnicName": "bm-01-eth0", "dpuName": "dpu-1", "phase": "Attached"}],
        "timeline": [{"step": "HardwareClaimed", "startedAt": "2026-01-01T00:00:00.000000Z"}],
    }});
    patch_status(session, "the machine's status is taken", "bmm", &status);
    let status = json!({"status": {"observedGeneration": 1, "conditions": [condition("Ready", "True", "Ready")],
        "snapshotName": "debian-12-golden", "virtualSize": "4Gi"}});
    let words = ["patch", "mi", "debian-12", "--subresource=status", "--type=merge", "-p", &status.to_string()];
    session.works("the image's status is taken", &words, None, &["patched"]);
    followed(session);
    selected(session);
    changed(root, session);
    applied_by_two(session);
    Ok(())
}

fn path(root: &Path, example: &str) -> String {
    root.join("examples").join(example).with_extension("yaml").display().to_string()
}

fn patch_status(session: &mut Session, what: &str, kind: &str, status: &serde_json::Value) {
    let words = ["patch", kind, "bm-01", "--subresource=status", "--type=merge", "-p", &status.to_string()];
    session.works(what, &words, None, &["patched"]);
}

fn followed(session: &mut Session) {
    let wait = |what: &'static str| ["wait", what, "bmm/bm-01", "--timeout=60s"];
    session.works("wait for Ready", &wait("--for=condition=Ready"), None, &["condition met"]);
    session.works("wait for the state", &wait("--for=jsonpath={.status.state}=Running"), None, &["condition met"]);
    let never = ["wait", "--for=condition=GuestReachable", "bmm/bm-01", "--timeout=1s"];
    session.refused("wait for what is not so times out", &never, None, &["timed out"]);
    let parts = ["Name: bm-01", "Conditions:", "HardwareClaimed", "Running", "Hardware Name: rack1-u07"];
    session.works("describe", &["describe", "bmm", "bm-01"], None, &parts);
    let wrong = json!({"status": {"state": "Napping"}});
    let words = ["patch", "bmm", "bm-01", "--subresource=status", "--type=merge", "-p", &wrong.to_string()];
    session.refused("a state that is none", &words, None, &["status.state", "Running"]);
}

fn selected(session: &mut Session) {
    let by = |field: &str| {
        vec!["get".to_owned(), "bmm".into(), "-o".into(), "name".into(), format!("--field-selector={field}")]
    };
    for (field, found) in [
        ("status.state=Running", true),
        ("status.state=Stopped", false),
        ("status.hardwareName=rack1-u07", true),
        ("status.hardwareName!=rack1-u07", false),
        ("metadata.name=bm-01", true),
    ] {
        let words = by(field);
        let said = session.say(&words.iter().map(String::as_str).collect::<Vec<_>>(), None);
        let result = match (said.code, said.out.contains("bm-01") == found) {
            (0, true) => Ok(()),
            (0, false) => Err("it selects the wrong objects".to_owned()),
            _ => Err(said.err.trim().to_owned()),
        };
        session.step(&format!("field selector {field}"), result);
    }
    let words = by("spec.runStrategy=Always");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    session.refused("a field that cannot be selected by", &words, None, &["field label not supported"]);
    session.works("label", &["label", "bmm", "bm-01", "tier=web"], None, &["labeled"]);
    session.works("label selector", &["get", "bmm", "-l", "tier=web", "-o", "name"], None, &["bm-01"]);
}

fn changed(root: &Path, session: &mut Session) {
    let halted = r#"{"spec":{"runStrategy":"Halted"}}"#;
    session.works("patch (merge)", &["patch", "bmm", "bm-01", "--type=merge", "-p", halted], None, &["patched"]);
    let now = ["get", "bmm", "bm-01", "-o", "jsonpath={.spec.runStrategy} {.metadata.generation}"];
    session.works("a change of the spec is a generation", &now, None, &["Halted 2"]);
    let always = r#"[{"op":"replace","path":"/spec/runStrategy","value":"Always"}]"#;
    session.works("patch (json)", &["patch", "bmm", "bm-01", "--type=json", "-p", always], None, &["patched"]);
    let pause = ["annotate", "bmm", "bm-01", "metalplane.io/paused=true"];
    session.works("annotate: pause", &pause, None, &["annotated"]);
    session.works("annotate: go on", &["annotate", "bmm", "bm-01", "metalplane.io/paused-"], None, &["annotated"]);
    let diff = session.say(&["diff", "-f", &path(root, "hot-plug")], None);
    let result = if diff.code == 1 && diff.out.contains("eth1") { Ok(()) } else { Err("no difference".to_owned()) };
    session.step("diff shows what a hot-plug changes", result);
    let plug = ["apply", "-f", &path(root, "hot-plug")];
    session.works("apply examples/hot-plug.yaml", &plug, None, &["configured"]);
    let names = ["get", "bmm", "bm-01", "-o", "jsonpath={.spec.disks[*].name} {.spec.interfaces[*].name}"];
    session.works("two disks, two interfaces", &names, None, &["root data eth0 eth1"]);
    let grow = r#"[{"op":"replace","path":"/spec/disks/1/size","value":"2Gi"}]"#;
    session.works("a disk grows", &["patch", "bmm", "bm-01", "--type=json", "-p", grow], None, &["patched"]);
    let unplug = ["apply", "-f", &path(root, "bm-01")];
    session.works("apply examples/bm-01.yaml unplugs both", &unplug, None, &["configured"]);
    session.works("one disk, one interface", &names, None, &["root eth0"]);
    let dry = ["patch", "bmm", "bm-01", "--type=merge", "-p", halted, "--dry-run=server"];
    session.works("a dry run of the server", &dry, None, &["patched"]);
    session.works("it changed nothing", &now, None, &["Always"]);
    let scale = ["get", "--raw", "/apis/metalplane.io/v1alpha1"];
    session.works("discovery names short name and category", &scale, None, &["\"bmm\"", "\"metal\""]);
}

const ONE: &str = "apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {name: bm-02}
spec:
  runStrategy: Halted
  disks:
  - {name: root, bootOrder: 1, source: {image: {name: debian-12}}}
";
const OTHER: &str = "apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {name: bm-02}
spec:
  disks:
  - {name: data, size: 1Gi, source: {blank: {}}}
";

/// Server-side apply: the lists are maps by name, so two can own a disk each.
fn applied_by_two(session: &mut Session) {
    let by = |manager: &'static str| ["apply", "--server-side", "-f", "-", "--field-manager", manager];
    session.works("server-side apply", &by("one"), Some(ONE), &["serverside-applied"]);
    session.works("another adds a disk", &by("other"), Some(OTHER), &["serverside-applied"]);
    let names = ["get", "bmm", "bm-02", "-o", "jsonpath={.spec.disks[*].name}"];
    session.works("both disks are there", &names, None, &["root data"]);
    let theirs = OTHER.replace("spec:\n", "spec:\n  runStrategy: Always\n");
    let parts = ["conflict with \"one\"", ".spec.runStrategy"];
    session.refused("another's field is a conflict", &by("other"), Some(&theirs), &parts);
    let forced = ["apply", "--server-side", "-f", "-", "--field-manager", "other", "--force-conflicts"];
    session.works("taken over by force", &forced, Some(&theirs), &["serverside-applied"]);
    let without = OTHER.replace("disks:\n  - {name: data, size: 1Gi, source: {blank: {}}}", "runStrategy: Always");
    session.works("what its owner leaves out goes", &by("other"), Some(&without), &["serverside-applied"]);
    let said = session.say(&names, None);
    let result = if said.out.trim() == "root" { Ok(()) } else { Err(format!("disks: {}", said.out)) };
    session.step("and only that", result);
    let managers =
        ["get", "bmm", "bm-02", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"];
    session.works("managers are named", &managers, None, &["one"]);
}

pub(super) fn end(session: &mut Session) {
    let gone = ["delete", "bmm", "bm-02", "--cascade=foreground", "--timeout=120s"];
    session.works("delete --cascade=foreground", &gone, None, &["deleted"]);
    session.works("delete", &["delete", "bmm", "bm-01", "--timeout=120s"], None, &["deleted"]);
    session.works("wait for a deletion", &["wait", "--for=delete", "bmm/bm-01", "--timeout=60s"], None, &[]);
    session.refused("get what is gone", &["get", "bmm", "bm-01"], None, &["NotFound", "bm-01"]);
    session.works("delete an image", &["delete", "mi", "debian-12", "--timeout=120s"], None, &["deleted"]);
    session.works("delete a subnet", &["delete", "subnet", "blue", "--timeout=120s"], None, &["deleted"]);
}
