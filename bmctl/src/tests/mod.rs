//! The verbs against an API server of a few lines ([`fake`]), and the help texts against a file. The real API server and
//! the real kubectl are the judge `kubectl`'s.

mod fake;
mod hardware;
mod help;
mod net;
mod verbs;

use crate::args::{Cli, Form};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::{carry_out, explain};
use clap::FromArgMatches;
use fake::{Fake, machine};
use serde_json::{Value, json};

/// One command line, as a user types it.
async fn bmctl(fake: &Fake, line: &str) -> Result<String, Failure> {
    let words = std::iter::once("bmctl").chain(line.split_whitespace());
    let matches = crate::help::command("bmctl").try_get_matches_from(words).expect("a command line");
    let cli = Cli::from_arg_matches(&matches).expect("a command line");
    carry_out(&cluster(fake), cli.command).await
}

fn cluster(fake: &Fake) -> Cluster {
    Cluster { client: fake.client(), namespace: "team-a".to_owned(), is_namespace_given: false, program: "bmctl" }
}

#[tokio::test]
async fn a_conflict_is_tried_again_with_what_the_other_wrote() {
    let fake = Fake::with(machine());
    fake.lock().conflicts = 3;
    let said = bmctl(&fake, "adddisk bm-01 data --size 1Gi").await.expect("done");
    assert_eq!(said, "baremetalmachine.metalplane.io/bm-01 disk data submitted\n");
    let state = fake.lock();
    assert_eq!(state.writes, 4);
    let machine = state.machine.as_ref().expect("still there");
    assert_eq!(machine["metadata"]["annotations"]["other"], "3", "what others wrote meanwhile is kept");
    assert_eq!(machine["spec"]["disks"][1]["name"], "data");
}

/// What the user is told at the end of the time is what the machine waits for, not how a watch of it ended.
#[tokio::test]
async fn a_watch_that_breaks_is_not_what_is_waited_for() {
    let fake = Fake::with(machine());
    let failure = bmctl(&fake, "stop bm-01 --wait --timeout 2s").await.expect_err("it stays on").to_string();
    assert!(fake.lock().watches > 0 && failure.contains("Running"), "{failure}");
    assert!(!failure.contains("API server"), "{failure}");
}

#[tokio::test]
async fn conflicts_without_end_are_given_up() {
    let fake = Fake::with(machine());
    fake.lock().conflicts = 1000;
    let failure = bmctl(&fake, "stop bm-01").await.expect_err("refused");
    assert_eq!(failure.exit_code(), 1);
    assert_eq!(fake.lock().writes, 15);
}

#[tokio::test]
async fn a_dry_run_is_the_servers_and_changes_nothing() {
    let fake = Fake::with(machine());
    let said = bmctl(&fake, "stop bm-01 --dry-run --wait").await.expect("done");
    assert_eq!(said, "baremetalmachine.metalplane.io/bm-01 stop submitted (server dry run)\n");
    let yaml = bmctl(&fake, "stop bm-01 --dry-run -o yaml").await.expect("done");
    assert!(yaml.contains("runStrategy: Halted"), "{yaml}");
    assert_eq!(fake.lock().machine.as_ref().expect("there")["spec"]["runStrategy"], "Always");
}

#[tokio::test]
async fn stop_and_start_write_the_run_strategy_and_manual_its_annotation() {
    let fake = Fake::with(machine());
    let now = |fake: &Fake| fake.lock().machine.clone().expect("there");
    bmctl(&fake, "stop bm-01").await.expect("done");
    assert_eq!(now(&fake)["spec"]["runStrategy"], "Halted");
    bmctl(&fake, "start bm-01").await.expect("done");
    assert_eq!(now(&fake)["spec"]["runStrategy"], "Always");
    fake.lock().machine.as_mut().expect("there")["spec"]["runStrategy"] = json!("Manual");
    bmctl(&fake, "stop bm-01").await.expect("done");
    let machine = now(&fake);
    assert_eq!(machine["spec"]["runStrategy"], "Manual");
    assert_eq!(machine["metadata"]["annotations"]["metalplane.io/power-requested"], "Off");
}

#[tokio::test]
async fn a_refusal_names_object_field_and_cause() {
    let fake = Fake::with(machine());
    fake.lock().refusal = Some(json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid",
        "message": "it is invalid: everything in one long line",
        "details": {"name": "bm-01", "causes": [{"field": "spec.disks[1].size", "message": "size must be a positive quantity"}]},
    }));
    let said = bmctl(&fake, "adddisk bm-01 data --size no").await.expect_err("refused").to_string();
    let expected =
        "machine 'bm-01' in namespace 'team-a': refused:\n  spec.disks[1].size: size must be a positive quantity";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn what_cannot_be_done_says_what_can() {
    let fake = Fake::with(machine());
    for (line, object, next) in [
        ("explain other", "machine 'other' in namespace 'team-a'", "bmctl get"),
        ("adddisk bm-01 root --size 1Gi", "it has a disk 'root' already", "bmctl removedisk bm-01 root"),
        ("removedisk bm-01 data", "it has no disk 'data'; it has: root", "bmctl explain bm-01"),
        ("removeinterface bm-01 eth7", "it has no interface 'eth7'; it has: eth0", "bmctl explain bm-01"),
        ("addinterface bm-01 eth1", "interface 'eth1'", "--subnet"),
    ] {
        let failure = bmctl(&fake, line).await.expect_err("refused");
        let said = failure.to_string();
        assert!(said.contains(object) && said.contains(next), "{line}: {said}");
        assert_eq!(failure.exit_code(), 1, "{line}");
    }
    let is = |state: &str| {
        let mut api = fake.lock();
        let status = &mut api.machine.as_mut().expect("there")["status"];
        (status["power"]["state"], status["state"]) = (json!("Off"), json!(state));
    };
    is("Stopped");
    let said = bmctl(&fake, "restart bm-01").await.expect_err("refused").to_string();
    assert!(said.contains("is stopped") && said.contains("bmctl start bm-01"), "{said}");
    // Its host was powered off because it booted something else: it is started again when its user asks.
    is("Failed");
    bmctl(&fake, "restart bm-01").await.expect("submitted");
}

#[tokio::test]
async fn a_machine_is_printed_in_every_form() {
    let fake = Fake::with(machine());
    assert_eq!(bmctl(&fake, "get -o name").await.expect("done"), "baremetalmachine.metalplane.io/bm-01\n");
    let table = bmctl(&fake, "get").await.expect("done");
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAME    STATE     READY   ADDRESS     HARDWARE    AGE"), "{table}");
    assert!(lines[1].starts_with("bm-01   Running   True    10.20.0.7   rack1-u07"), "{table}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{table}");
    let wide = bmctl(&fake, "get -o wide").await.expect("done");
    assert!(wide.contains("REASON") && wide.contains("debian-12"), "{wide}");
    let one: Value = serde_json::from_str(&bmctl(&fake, "get bm-01 -o json").await.expect("done")).expect("JSON");
    assert_eq!(one["metadata"]["name"], "bm-01");
    let list: Value = serde_json::from_str(&bmctl(&fake, "get -o json").await.expect("done")).expect("JSON");
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("List"), &json!("bm-01")));
    assert!(bmctl(&fake, "get -o yaml").await.expect("done").contains("kind: List"));
}

const NOT_APPROVED: &str = "Dpu 'dpu-1' is not approved. Next: kubectl patch dpu dpu-1 --type merge";

#[tokio::test]
async fn explain_stands_on_the_machine_alone_where_a_tenant_may_not_look() {
    let fake = Fake::with(machine());
    let status = &mut fake.lock().machine.as_mut().expect("there")["status"].clone();
    status["conditions"] = json!([
        condition("Ready", "False", "DpuNotApproved", NOT_APPROVED),
        condition("HardwareClaimed", "False", "DpuNotApproved", NOT_APPROVED),
        condition("DisksAttached", "Unknown", "EarlierStepFirst", "an earlier step comes first"),
    ]);
    fake.lock().machine.as_mut().expect("there")["status"] = status.clone();
    fake.lock().tenant = true;
    let said = explain::run(&cluster(&fake), "bm-01", None).await.expect("explained");
    for part in ["Ready: False, DpuNotApproved (blocked)", "Next: kubectl patch dpu dpu-1", "may not read", "disk root"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let tree = explain::run(&cluster(&fake), "bm-01", Some(Form::Json)).await.expect("explained");
    let tree: Value = serde_json::from_str(&tree).expect("JSON");
    assert_eq!((&tree["kind"], &tree["children"][0]["subject"]), (&json!("Blocked"), &json!("HardwareClaimed")));
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[tokio::test]
async fn waiting_ends_with_124_and_says_why() {
    let fake = Fake::with(machine());
    let failure = bmctl(&fake, "removedisk bm-01 root --wait --timeout 1s").await.expect_err("timed out");
    assert_eq!(failure.exit_code(), 124);
    let said = failure.to_string();
    assert!(said.contains("after 1 s") && said.contains("bmctl explain bm-01"), "{said}");
}

#[tokio::test]
async fn a_dpu_that_answers_is_not_confirmed_down() {
    let fake = Fake::with(machine());
    let dpu = |ready: &str| {
        json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "Dpu",
            "metadata": {"name": "dpu-1", "uid": "u-1", "resourceVersion": "1"}, "spec": {},
            "status": {"bootID": "b-1", "conditions": [condition("Ready", ready, "AgentSilent", "")]}})
    };
    fake.lock().dpu = Some(dpu("False"));
    let said = bmctl(&fake, "dpu confirm-down u-1 --yes").await.expect_err("refused").to_string();
    assert!(said.contains("its agent answers"), "{said}");
    fake.lock().dpu = Some(dpu("Unknown"));
    let said = bmctl(&fake, "dpu confirm-down u-1 --yes").await.expect("confirmed");
    assert!(said.contains("confirmed down for boot b-1") && said.contains("kubectl taint node dpu-1"), "{said}");
    assert_eq!(fake.lock().dpu.as_ref().expect("there")["spec"]["confirmedDown"]["bootID"], "b-1");
    // What was said before a restore of etcd is said anew.
    bmctl(&fake, "dpu confirm-down u-1 --yes").await.expect("confirmed again");
    assert_eq!(fake.lock().confirmed_down, [json!("b-1"), Value::Null, json!("b-1")]);
    let failure = bmctl(&fake, "dpu confirm-down u-2 --yes").await.expect_err("refused");
    assert!(failure.to_string().contains("bmctl dpu get"), "{failure}");
}

#[tokio::test]
async fn only_what_a_dpu_reports_as_an_orphan_is_forgotten() {
    let fake = Fake::with(machine());
    let orphan = |uid: &str| json!({"kind": "Disk", "uid": uid, "epoch": 3});
    fake.lock().dpu = Some(json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "Dpu",
        "metadata": {"name": "dpu-1", "uid": "u-1", "resourceVersion": "1"}, "spec": {"forget": ["long-gone", "a"]},
        "status": {"orphans": [orphan("a"), orphan("b"), orphan("c")]}}));
    let said = bmctl(&fake, "dpu forget dpu-1 x --yes").await.expect_err("refused").to_string();
    assert!(said.contains("'x' is not the UID of one of its orphans: it reports a, b, c"), "{said}");
    let said = bmctl(&fake, "dpu forget dpu-1 b").await.expect_err("refused").to_string();
    assert!(said.contains("--yes"), "{said}");
    let said = bmctl(&fake, "dpu forget dpu-1 b --yes").await.expect("forgotten");
    assert!(said.contains("forgets b"), "{said}");
    assert_eq!(fake.lock().dpu.as_ref().expect("there")["spec"]["forget"], json!(["a", "b"]));
    let failure = bmctl(&fake, "dpu forget dpu-2 b --yes").await.expect_err("refused");
    assert!(failure.to_string().contains("bmctl dpu get"), "{failure}");
}
