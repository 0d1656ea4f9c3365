//! Tasks that wait for others by name, and actions that are served again.

use super::engine::{ask, begun_with, said, state, tell};
use super::{AGENT, at};
use crate::workflow::{Answer, Report, Reported, advance, candidates, next, older, report};
use Reported::{Failed, Running, Success, Timeout};
use api::tinkerbell::Workflow;
use api::tinkerbell::workflow::WorkflowCondition;

const B: &str = "52:54:00:00:00:02";
const C: &str = "52:54:00:00:00:03";

/// `last` stands first in the text, and waits for the two.
const DIAMOND: &str = "
name: diamond
tasks:
- {name: last, worker: '52:54:00:00:00:01', depends-on: [left, right], actions: [{name: l, image: a}]}
- {name: root, worker: '52:54:00:00:00:01', actions: [{name: r, image: a}]}
- {name: left, worker: '52:54:00:00:00:02', depends-on: [root], actions: [{name: x, image: a}, {name: x2, image: a}]}
- {name: right, worker: '52:54:00:00:00:03', depends-on: [root], actions: [{name: y, image: a}]}
";

const RETRIES: &str = "
name: again
tasks:
- name: t
  worker: {{.device_1}}
  retries: 1
  retry-seconds: 30
  actions: [{name: a, image: a}, {name: b, image: b, idempotent: false}, {name: c, image: c, retries: 0}]
";

fn condition(w: &Workflow, type_: &str) -> Option<WorkflowCondition> {
    w.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_).cloned()
}

fn words(condition: Option<WorkflowCondition>) -> (String, String) {
    let condition = condition.expect("the condition");
    (condition.reason.unwrap_or_default(), condition.message.unwrap_or_default())
}

fn run(w: &mut Workflow, agent: &str, action: &str, now: i64) {
    assert_eq!(ask(w, agent, now).as_deref(), Some(action));
    assert!(tell(w, agent, action, Running, now));
}

#[test]
fn tasks_run_side_by_side_once_what_they_wait_for_is_done() {
    let mut w = begun_with(DIAMOND);
    let status = w.status.clone().expect("a status");
    assert_eq!((status.agent_id.as_deref(), status.global_timeout), (Some(AGENT), Some(86_400)));
    assert_eq!((ask(&mut w, B, 0), ask(&mut w, C, 0)), (None, None));
    run(&mut w, AGENT, "r", 1);
    assert_eq!((ask(&mut w, B, 2), ask(&mut w, C, 2)), (None, None));
    assert!(tell(&mut w, AGENT, "r", Success, 3));
    assert_eq!(w.status.as_ref().and_then(|status| status.agent_id.as_deref()), Some(B));
    assert_eq!(ask(&mut w, AGENT, 3), None, "'last' waits for both");
    assert!(!tell(&mut w, B, "x", Success, 3), "it was not served");
    assert_eq!(ask(&mut w, B, 4).as_deref(), Some("x"));
    run(&mut w, C, "y", 4);
    assert!(tell(&mut w, B, "x", Running, 5), "it was served before another agent was");
    assert!(tell(&mut w, C, "y", Success, 6));
    assert_eq!(ask(&mut w, AGENT, 6), None);
    assert!(tell(&mut w, B, "x", Success, 7));
    run(&mut w, B, "x2", 7);
    assert!(tell(&mut w, B, "x2", Success, 8));
    run(&mut w, AGENT, "l", 9);
    assert!(tell(&mut w, AGENT, "l", Success, 9));
    assert_eq!(state(&w), "SUCCESS");
}

#[test]
fn one_task_that_fails_ends_all_and_what_never_began_is_named() {
    let mut w = begun_with(DIAMOND);
    run(&mut w, AGENT, "r", 1);
    tell(&mut w, AGENT, "r", Success, 1);
    run(&mut w, B, "x", 2);
    run(&mut w, C, "y", 2);
    assert!(tell(&mut w, B, "x", Failed, 3));
    assert_eq!(state(&w), "FAILED");
    let wanted = "action 'x' of task 'left' is FAILED: said; done: 'root'; begun, and not followed any further: 'right'; never began: \
                  'last'";
    assert_eq!(words(condition(&w, "WorkflowFailed")), ("ActionFailed".to_owned(), wanted.to_owned()));
    let before = w.clone();
    assert!(!tell(&mut w, C, "y", Success, 4));
    assert_eq!((ask(&mut w, AGENT, 5), ask(&mut w, B, 5), ask(&mut w, C, 5)), (None, None, None));
    assert_eq!(advance(&w, None, None, at(1_000_000)).status, None);
    assert_eq!(w, before);
}

#[test]
fn of_several_that_run_the_first_whose_time_is_over_ends_all() {
    let text = DIAMOND.replace("{name: y, image: a}", "{name: y, image: a, timeout: 10}");
    let mut w = begun_with(&text);
    run(&mut w, AGENT, "r", 0);
    tell(&mut w, AGENT, "r", Success, 0);
    run(&mut w, B, "x", 1);
    run(&mut w, C, "y", 2);
    assert_eq!(advance(&w, None, None, at(71)).wake_at, Some(at(72)));
    w.status = advance(&w, None, None, at(72)).status;
    assert_eq!(state(&w), "TIMEOUT");
    let (reason, message) = words(condition(&w, "WorkflowFailed"));
    assert_eq!(reason, "NoReport");
    assert!(message.starts_with("action 'y' of task 'right' is TIMEOUT: the agent has not reported"), "{message}");
}

#[test]
fn a_failed_action_is_served_again_after_its_wait_and_within_its_budget() {
    let mut w = begun_with(RETRIES);
    run(&mut w, AGENT, "a", 0);
    let first = said(&w, AGENT, "a", Failed);
    assert!(tell(&mut w, AGENT, "a", Failed, 5));
    assert_eq!(state(&w), "RUNNING");
    let message =
        "action 'a' of task 't' is FAILED: said; it is served again at 2023-11-14T22:13:55Z, for the 2nd of 2 times";
    assert_eq!(words(condition(&w, "ActionRetried")), ("BackOff".to_owned(), message.to_owned()));
    assert_eq!(report(&w, &first, at(6)), None, "said twice, it counts once");
    assert_eq!(next(AGENT, &w, at(34), at(34)), Some(Answer::Wait(Some(at(35)))));
    run(&mut w, AGENT, "a", 35);
    assert_eq!(words(condition(&w, "ActionRetried")).0, "ServedTwice");
    assert_eq!(report(&w, &first, at(36)), None, "late");
    let status = w.status.as_ref().expect("a status");
    assert_eq!(
        status.current_state.as_ref().and_then(|c| c.action_id.clone()),
        Some(status.tasks[0].actions[0].id.clone())
    );
    let mut failed = w.clone();
    assert!(tell(&mut failed, AGENT, "a", Timeout, 40));
    assert_eq!(state(&failed), "TIMEOUT");
    assert_eq!(words(condition(&failed, "WorkflowFailed")).0, "ActionTimedOut");

    assert!(tell(&mut w, AGENT, "a", Success, 40));
    run(&mut w, AGENT, "b", 41);
    assert_eq!(condition(&w, "ActionRetried"), None);
    let mut restarted = w.clone();
    assert_eq!(ask(&mut restarted, AGENT, 42), None);
    assert_eq!(
        (state(&restarted), words(condition(&restarted, "WorkflowFailed")).0.as_str()),
        ("FAILED", "NotIdempotent")
    );
    let mut failed = w.clone();
    assert!(tell(&mut failed, AGENT, "b", Failed, 42));
    assert_eq!(state(&failed), "FAILED", "idempotent: false takes no retries of the task");

    assert!(tell(&mut w, AGENT, "b", Success, 42));
    run(&mut w, AGENT, "c", 43);
    assert!(tell(&mut w, AGENT, "c", Failed, 44));
    assert_eq!(state(&w), "FAILED", "its own retries: 0 holds");
}

#[test]
fn a_restart_takes_from_the_budget_of_retries() {
    let mut w = begun_with(RETRIES);
    run(&mut w, AGENT, "a", 0);
    assert_eq!(ask(&mut w, AGENT, 1).as_deref(), Some("a"));
    assert!(tell(&mut w, AGENT, "a", Failed, 2));
    assert_eq!(state(&w), "FAILED");
}

#[test]
fn an_agent_whose_action_waits_gets_nothing_of_another_workflow() {
    let named = |w: &Workflow, name: &str| {
        let mut w = w.clone();
        w.metadata.name = Some(name.to_owned());
        w
    };
    let names = |agent: &str, all: &[Workflow]| {
        candidates(agent, all).iter().map(|w| w.metadata.name.clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    let mut w = begun_with(RETRIES);
    run(&mut w, AGENT, "a", 0);
    tell(&mut w, AGENT, "a", Failed, 5);
    let other = begun_with("name: o\ntasks: [{name: o, worker: '52:54:00:00:00:01', actions: [{name: o, image: o}]}]");
    assert_eq!(names(AGENT, &[named(&other, "a"), named(&w, "b")]), ["b"]);
    let mut graph = begun_with(DIAMOND);
    assert_eq!(names(AGENT, &[named(&other, "a"), named(&graph, "b")]), ["a", "b"], "neither has begun");
    run(&mut graph, AGENT, "r", 0);
    tell(&mut graph, AGENT, "r", Success, 0);
    assert_eq!(names(AGENT, &[named(&other, "a"), named(&graph, "b")]), Vec::<String>::new(), "'last' is yet to come");
}

#[test]
fn a_condition_that_was_changed_ends_the_run() {
    let mut w = begun_with(DIAMOND);
    for text in [
        "{",
        "{\"tasks\":{\"gone\":{}}}",
        "{\"tasks\":{\"root\":{\"depends-on\":[\"last\"]},\"last\":{\"depends-on\":[\"root\"]}}}",
    ] {
        let status = w.status.as_mut().expect("a status");
        let extras = status.conditions.iter_mut().find(|condition| condition.type_ == "TemplateExtras");
        extras.expect("there").message = Some(text.to_owned());
        assert_eq!(ask(&mut w, AGENT, 0), None);
        let ended = Workflow { status: advance(&w, None, None, at(1)).status, ..w.clone() };
        assert_eq!(
            (state(&ended), words(condition(&ended, "WorkflowFailed")).0.as_str()),
            ("FAILED", "ExtrasUnreadable")
        );
    }
}

fn older_says(w: &mut Workflow, agent: &str, (task, action): (&str, &str), state: Reported, now: i64) -> bool {
    let of = Report { action_id: String::new(), ..said(w, agent, action, state) };
    let status = older::report_by_name(w, task, action, of, at(now));
    let changed = status.is_some();
    w.status = status.or(w.status.take());
    changed
}

/// A worker goes on by itself along its list, so the list is one that holds for that.
#[test]
fn an_older_worker_is_told_when_all_before_it_in_the_list_is_done() {
    let mut w = begun_with(DIAMOND);
    let listed: Vec<_> = older::actions(&w).into_iter().map(|action| action.name).collect();
    assert_eq!(listed, ["r", "x", "x2", "y", "l"]);
    let told = |w: &Workflow, agent: &str| older::context(agent, w, at(10)).map(|c| (c.action, c.index, c.runs));
    assert_eq!((told(&w, AGENT), told(&w, B)), (Some((String::new(), 0, false)), None));
    assert!(older_says(&mut w, AGENT, ("root", "r"), Running, 1));
    assert!(older_says(&mut w, AGENT, ("root", "r"), Success, 2));
    assert_eq!((told(&w, AGENT), told(&w, B), told(&w, C)), (None, Some(("r".to_owned(), 0, false)), None));
    // An agent of the newer generation waits for none but 'root'.
    run(&mut w, C, "y", 3);
    assert!(tell(&mut w, C, "y", Success, 4));
    for action in ["x", "x2"] {
        assert!(older_says(&mut w, B, ("left", action), Running, 5));
        assert!(older_says(&mut w, B, ("left", action), Success, 5));
    }
    assert_eq!(told(&w, AGENT), Some(("y".to_owned(), 3, false)));
    assert!(older_says(&mut w, AGENT, ("last", "l"), Running, 6));
    assert!(older_says(&mut w, AGENT, ("last", "l"), Success, 6));
    assert_eq!(state(&w), "SUCCESS");
}

#[test]
fn an_older_worker_is_served_again_as_any_other() {
    let mut w = begun_with(RETRIES);
    let told = |w: &Workflow, now: i64| older::context(AGENT, w, at(now)).map(|c| (c.action, c.index, c.runs));
    assert!(older_says(&mut w, AGENT, ("t", "a"), Running, 0));
    assert!(older_says(&mut w, AGENT, ("t", "a"), Failed, 5));
    assert_eq!((told(&w, 34), told(&w, 35)), (None, Some((String::new(), 0, false))));
    assert!(!older_says(&mut w, AGENT, ("t", "a"), Failed, 6), "said twice");
    assert!(!older_says(&mut w, AGENT, ("t", "a"), Success, 36), "it has not said that it runs");
    assert!(older_says(&mut w, AGENT, ("t", "a"), Running, 36));
    assert_eq!(words(condition(&w, "ActionRetried")).0, "ServedTwice");
    assert!(older_says(&mut w, AGENT, ("t", "a"), Success, 37));
    assert!(older_says(&mut w, AGENT, ("t", "b"), Running, 38));
    assert_eq!(told(&w, 39), None, "a worker that asks runs nothing, and 'b' is not begun a second time");
    w.status = advance(&w, None, None, at(38 + 3600 + 60)).status;
    assert_eq!(state(&w), "TIMEOUT");
}
