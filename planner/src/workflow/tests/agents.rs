//! What a Workflow tells of its agents, and that nothing comes of it.

use super::engine::{SECOND, ask, begun, begun_with, state, tell};
use super::{AGENT, at, hardware};
use crate::netboot::Directory;
use crate::workflow::{Ahead, Heard, Reported, advance, agents, at_work, is_lost, may_restart, told};
use Reported::{Failed, Running, Success};
use api::tinkerbell::workflow::{WorkflowCondition, WorkflowSpec, WorkflowStatus};
use api::tinkerbell::{Hardware, Workflow};
use serde_json::json;
use std::sync::Arc;

fn condition(w: &Workflow, type_: &str) -> Option<WorkflowCondition> {
    w.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_).cloned()
}

fn words(w: &Workflow, type_: &str) -> Option<(String, String, String)> {
    let condition = condition(w, type_)?;
    Some((condition.status, condition.reason.unwrap_or_default(), condition.message.unwrap_or_default()))
}

/// One of that name, so many seconds younger than others.
fn named(name: &str, age: i64) -> Workflow {
    let mut w = begun();
    w.metadata.name = Some(name.to_owned());
    w.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(age)));
    w
}

/// As the loop of `boot` tells it, of all of them; how many are written.
fn tell_all(all: &mut [Workflow], hardware: &Hardware, heard: Heard, now: i64) -> usize {
    let directory = Directory::new(vec![Arc::new(hardware.clone())]);
    let seen: Vec<_> = all.iter().cloned().map(Arc::new).collect();
    let queues = directory.queues(&seen);
    let mut writes = 0;
    for w in all {
        let name = w.metadata.name.clone().unwrap_or_default();
        let ahead = |agent: &str| queues.get(&(agent.to_owned(), name.clone())).cloned();
        if let Some(status) = told(w, ahead, |_| heard, at(now)) {
            let without = |status: &WorkflowStatus| WorkflowStatus { conditions: Vec::new(), ..status.clone() };
            assert_eq!(without(&status), without(w.status.as_ref().expect("a status")), "nothing comes of it");
            w.status = Some(status);
            writes += 1;
        }
    }
    writes
}

#[test]
fn a_workflow_that_waits_behind_another_one_names_it() {
    let mut all = [named("third", 30), named("first", 10), named("second", 20)];
    let queued = |all: &[Workflow]| all.iter().map(|w| words(w, "Queued")).collect::<Vec<_>>();
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Unknown, 100), 2);
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Unknown, 200), 0, "one write each, whatever the time");
    let said = queued(&all);
    assert_eq!(said[1], None, "it is the next one");
    for (at, before) in [(0, "'second'"), (2, "'first'")] {
        let (status, reason, message) = said[at].clone().expect("it waits");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "AgentBusy"));
        assert!(message.contains(AGENT) && message.contains(before), "{message}");
    }
    // The first one runs, and fails.
    assert_eq!(ask(&mut all[1], AGENT, 201).as_deref(), Some("a"));
    assert!(tell(&mut all[1], AGENT, "a", Running, 202));
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Unknown, 203), 0);
    assert!(tell(&mut all[1], AGENT, "a", Failed, 204));
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Unknown, 205), 1);
    assert_eq!(queued(&all)[1..], [None, None]);
    // What is served waits no longer, in the same write.
    all[1].status = begun().status;
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Unknown, 206), 1);
    assert!(words(&all[2], "Queued").is_some());
    assert_eq!(ask(&mut all[2], AGENT, 207).as_deref(), Some("a"));
    assert_eq!(words(&all[2], "Queued"), None);
}

#[test]
fn nobody_waits_for_another_agents_workflow_or_for_one_that_is_switched_off() {
    let mut other =
        begun_with("name: o\ntasks: [{name: t, worker: '52:54:00:00:00:09', actions: [{name: a, image: a}]}]");
    other.metadata.name = Some("other".to_owned());
    let off = Workflow { spec: WorkflowSpec { disabled: Some(true), ..WorkflowSpec::default() }, ..named("off", 5) };
    let mut all = [named("own", 10), other, off];
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Unknown, 100), 0);
}

#[test]
fn a_workflow_of_a_server_that_a_machine_has_names_the_machine() {
    let mut claimed = hardware();
    let keys = json!({"metalplane.io/claimed-by": "uid", "metalplane.io/claimed-by-name": "team/bm-1", "metalplane.io/boot-strategy": "Workflow"});
    claimed.metadata.annotations = serde_json::from_value(keys).expect("annotations");
    let mut machines = named("install", 1);
    machines.metadata.labels = Some([("metalplane.io/machine-uid".to_owned(), "uid".to_owned())].into());
    let mut all = [named("own", 10), machines];
    assert_eq!(tell_all(&mut all, &claimed, Heard::Unknown, 100), 1);
    let (status, reason, message) = words(&all[0], "Queued").expect("it waits");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "HardwareClaimed"));
    assert!(message.contains("'team/bm-1'") && message.contains("Hardware 'h'"), "{message}");
    assert_eq!(words(&all[1], "Queued"), None, "what a machine waits for its own conditions say");
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Unknown, 101), 1, "it is released");
    assert_eq!(words(&all[0], "Queued"), None);
}

fn running() -> Workflow {
    let mut w = begun();
    assert_eq!(ask(&mut w, AGENT, 0).as_deref(), Some("a"));
    assert!(tell(&mut w, AGENT, "a", Running, 1));
    w
}

const SILENT: Heard = Heard::Silent { since: jiff::Timestamp::UNIX_EPOCH };

#[test]
fn an_agent_that_is_no_longer_heard_is_told_of_until_it_is_back() {
    let mut all = [running()];
    assert_eq!(at_work(&all[0]), [(AGENT, Some(at(1)))]);
    assert_eq!(agents(&all[0]), [AGENT, SECOND]);
    for heard in [Heard::Unknown, Heard::Now] {
        assert_eq!(tell_all(&mut all, &hardware(), heard, 2), 0);
    }
    assert_eq!(tell_all(&mut all, &hardware(), SILENT, 5), 1);
    assert_eq!(tell_all(&mut all, &hardware(), SILENT, 6), 0);
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Unknown, 7), 0, "a replica that has just started");
    let (status, reason, message) = words(&all[0], "AgentLost").expect("told");
    assert_eq!((status.as_str(), reason.as_str(), state(&all[0])), ("True", "NotHeard", "RUNNING"));
    for part in [AGENT, "action 'a' of task 'first' (1 of 2)", "1970-01-01T00:00:00Z", "whose time ends at"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(is_lost(&all[0]).map(|(told, _)| told), Some(at(5)));
    assert_eq!(tell_all(&mut all, &hardware(), Heard::Now, 8), 1);
    assert_eq!(
        words(&all[0], "AgentLost").map(|(status, reason, _)| (status, reason)),
        Some(("False".into(), "HeardAgain".into()))
    );
    assert_eq!(is_lost(&all[0]), None);
}

/// Of one with a single agent whatever that says is a sign of it; of several the lost one may be another.
#[test]
fn who_asks_or_reports_is_not_lost() {
    let alone =
        "name: o\ntasks: [{name: t, worker: '52:54:00:00:00:01', actions: [{name: a, image: a}, {name: b, image: b}]}]";
    let lost = |text: &str| {
        let mut w = begun_with(text);
        assert_eq!(ask(&mut w, AGENT, 0).as_deref(), Some("a"));
        assert!(tell(&mut w, AGENT, "a", Running, 1));
        let mut all = [w];
        assert_eq!(tell_all(&mut all, &hardware(), SILENT, 5), 1);
        let [w] = all;
        w
    };
    let mut w = lost(alone);
    assert!(tell(&mut w, AGENT, "a", Success, 6) && is_lost(&w).is_none());
    let mut w = lost(alone);
    assert_eq!(ask(&mut w, AGENT, 6).as_deref(), Some("a"));
    assert!(is_lost(&w).is_none(), "its server was restarted");
}

#[test]
fn a_lost_agent_ends_no_run_and_the_time_does() {
    let mut all = [running()];
    tell_all(&mut all, &hardware(), SILENT, 2);
    assert_eq!(advance(&all[0], None, None, at(70)).status, None, "10 s, and 60 of grace");
    let status = advance(&all[0], None, None, at(71)).status.expect("its time is over");
    let w = Workflow { status: Some(status), ..all[0].clone() };
    assert_eq!(state(&w), "TIMEOUT");
    assert!(words(&w, "AgentLost").is_some_and(|(status, ..)| status == "True"), "it says why");
    assert_eq!(told(&w, |_| Some(Ahead::Workflow("x".into())), |_| Heard::Now, at(80)), None, "a terminal state stays");
}

#[test]
fn what_may_not_run_twice_is_not_restarted() {
    assert!(may_restart(&running()));
    let once =
        "name: o\ntasks: [{name: t, worker: '52:54:00:00:00:01', actions: [{name: a, image: a, idempotent: false}]}]";
    let mut w = begun_with(once);
    assert_eq!(ask(&mut w, AGENT, 0).as_deref(), Some("a"));
    assert!(tell(&mut w, AGENT, "a", Running, 1));
    assert!(!may_restart(&w));
    let mut w = running();
    for asked in 2..6 {
        assert!(may_restart(&w), "served {asked} times");
        assert_eq!(ask(&mut w, AGENT, asked).as_deref(), Some("a"));
    }
    assert!(!may_restart(&w), "it was served as often as it may be");
}
