//! The Events of a run, from one look to the next.

use super::engine::{SECOND, ask, begun, begun_with, said, state, tell};
use super::{AGENT, at};
use crate::event::Event;
use crate::workflow::{Ahead, Heard, Reported, advance, report, story, told};
use Reported::{Failed, Running, Success, Timeout};
use api::tinkerbell::Workflow;
use serde_json::json;

const RETRIES: &str = "
name: again
tasks:
- name: t
  worker: {{.device_1}}
  retries: 1
  retry-seconds: 1
  actions: [{name: a, image: a}]
- {name: later, worker: {{.device_1}}, actions: [{name: b, image: b}]}
";

/// Whoever looks after each step.
struct Reader {
    seen: Option<Workflow>,
}

impl Reader {
    fn look(&mut self, w: &Workflow) -> Vec<(Event, String)> {
        let told = story(self.seen.as_ref(), w);
        self.seen = Some(w.clone());
        assert_eq!(story(self.seen.as_ref(), w), Vec::new(), "nothing is told twice");
        told.into_iter().map(|told| (told.event, told.message)).collect()
    }

    /// What is told without its notes.
    fn events(&mut self, w: &Workflow) -> Vec<Event> {
        self.look(w).into_iter().map(|(event, _)| event).collect()
    }
}

#[test]
fn a_run_is_told_from_its_start_to_its_end_and_once() {
    let mut w = begun();
    let mut reader = Reader { seen: None };
    assert_eq!(reader.events(&w), [], "it waits for its agent");
    ask(&mut w, AGENT, 1);
    tell(&mut w, AGENT, "a", Running, 1);
    assert_eq!(
        reader.look(&w),
        [(Event::WorkflowStarted, format!("agent '{AGENT}' is at action 'a' of task 'first'"))]
    );
    tell(&mut w, AGENT, "a", Success, 2);
    for (agent, action) in [(AGENT, "b"), (SECOND, "c")] {
        assert_eq!(reader.events(&w), [], "each action that succeeds is in the status");
        ask(&mut w, agent, 3);
        tell(&mut w, agent, action, Running, 3);
        tell(&mut w, agent, action, Success, 4);
    }
    assert_eq!(reader.look(&w), [(Event::WorkflowSucceeded, "3 actions have succeeded".to_owned())]);
    let mut late = Reader { seen: None };
    assert_eq!(late.events(&w), [Event::WorkflowStarted, Event::WorkflowSucceeded], "between two looks");
}

#[test]
fn a_failure_is_told_by_the_last_line_of_what_the_agent_said_and_without_secrets() {
    let mut w = begun();
    ask(&mut w, AGENT, 1);
    tell(&mut w, AGENT, "a", Running, 1);
    let mut reader = Reader { seen: Some(w.clone()) };
    let disk = r#"disk {"name":"sda","serial":"S1","bytes":1,"result":"Seen"}"#;
    let message =
        format!("TOKEN=hunter2\na: STATE_FAILED: https://ann:pw@images.example/a.raw?sig=c2Vj: HTTP 403\n\n{disk}");
    let failed = crate::workflow::Report { message, ..said(&w, AGENT, "a", Failed) };
    w.status = report(&w, &failed, at(2));
    assert_eq!(state(&w), "FAILED");
    let told = reader.look(&w);
    assert_eq!(told.iter().map(|(event, _)| *event).collect::<Vec<_>>(), [Event::ActionFailed, Event::WorkflowFailed]);
    assert_eq!(
        told[0].1,
        "action 'a' of task 'first': a: STATE_FAILED: https://images.example/a.raw HTTP 403".to_owned()
    );
    assert!(told[1].1.contains("never began: 'second'"), "{told:?}");
    for (_, note) in told {
        assert!(!["hunter2", "ann", "pw@", "sig"].iter().any(|secret| note.contains(secret)), "{note}");
    }
}

#[test]
fn a_run_whose_time_is_over_is_told_as_such() {
    for by_agent in [false, true] {
        let mut w = begun();
        ask(&mut w, AGENT, 1);
        tell(&mut w, AGENT, "a", Running, 1);
        let mut reader = Reader { seen: Some(w.clone()) };
        if by_agent {
            tell(&mut w, AGENT, "a", Timeout, 20);
        } else {
            w.status = advance(&w, None, None, at(1000)).status;
        }
        let told = reader.look(&w);
        assert_eq!(
            told.iter().map(|(event, _)| (*event, event.is_warning())).collect::<Vec<_>>(),
            [(Event::ActionTimedOut, true), (Event::WorkflowTimedOut, true)]
        );
        assert!(told[1].1.contains("never began: 'second'"), "{told:?}");
    }
}

#[test]
fn each_try_that_fails_is_told_and_so_is_a_restart() {
    let mut w = begun_with(RETRIES);
    ask(&mut w, AGENT, 1);
    tell(&mut w, AGENT, "a", Running, 1);
    let mut reader = Reader { seen: Some(w.clone()) };
    tell(&mut w, AGENT, "a", Failed, 2);
    let told = reader.look(&w);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, Event::ActionRetried);
    assert!(
        told[0].1.contains("'a' of task 't'") && told[0].1.contains("is FAILED: said; it is served again"),
        "{told:?}"
    );
    ask(&mut w, AGENT, 10);
    tell(&mut w, AGENT, "a", Running, 10);
    assert_eq!(reader.events(&w), []);
    tell(&mut w, AGENT, "a", Failed, 11);
    assert_eq!(reader.events(&w), [Event::ActionFailed, Event::WorkflowFailed]);

    let mut w = begun();
    ask(&mut w, AGENT, 1);
    tell(&mut w, AGENT, "a", Running, 1);
    let mut reader = Reader { seen: Some(w.clone()) };
    ask(&mut w, AGENT, 50);
    let told = reader.look(&w);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].0 == Event::ActionRetried && told[0].1.contains("was restarted"), "{told:?}");
}

#[test]
fn an_agent_that_is_anothers_or_silent_is_told_and_that_it_is_back() {
    let mut w = begun();
    let mut reader = Reader { seen: None };
    let ahead = |_: &str| Some(Ahead::Workflow("other".to_owned()));
    w.status = told(&w, ahead, |_| Heard::Unknown, at(1));
    let queued = reader.look(&w);
    assert!(matches!(queued.as_slice(), [(Event::Queued, note)] if note.contains("Workflow 'other'")), "{queued:?}");
    let by = |hardware: &str| Ahead::Claim { hardware: hardware.to_owned(), by: "bm".to_owned() };
    w.status = told(&w, |_| Some(by("h")), |_| Heard::Unknown, at(2));
    assert_eq!(reader.events(&w), [Event::Queued], "for another reason");
    ask(&mut w, AGENT, 3);
    tell(&mut w, AGENT, "a", Running, 3);
    assert_eq!(reader.events(&w), [Event::WorkflowStarted]);
    w.status = told(&w, |_| None, |_| Heard::Silent { since: at(4) }, at(80));
    let lost = reader.look(&w);
    assert!(matches!(lost.as_slice(), [(Event::AgentLost, note)] if note.contains(AGENT)), "{lost:?}");
    w.status = told(&w, |_| None, |_| Heard::Now, at(90));
    assert_eq!(reader.events(&w), [Event::AgentHeardAgain]);
    w.status = told(&w, |_| None, |_| Heard::Silent { since: at(91) }, at(200));
    assert_eq!(reader.events(&w), [Event::AgentLost], "another time");
    w.status = advance(&w, None, None, at(7000)).status;
    assert_eq!(reader.events(&w), [Event::ActionTimedOut, Event::WorkflowTimedOut], "its end says enough");
}

#[test]
fn what_is_wrong_with_boot_options_is_told_at_the_end() {
    let mut w = begun();
    let reader = w.clone();
    w.status = serde_json::from_value(json!({"state": "FAILED", "conditions": [
        {"type": "BootJobSetupFailed", "status": "True", "reason": "Error", "message": "Workflow 'w': no Hardware"},
    ]}))
    .ok();
    let told = story(Some(&reader), &w);
    assert_eq!(told, [Event::WorkflowFailed.told("Workflow 'w': no Hardware")]);
}

#[test]
fn a_machine_tells_of_its_own_workflows_itself() {
    let mut w = begun();
    w.metadata.labels = Some([("metalplane.io/machine-uid".to_owned(), "m".to_owned())].into());
    ask(&mut w, AGENT, 1);
    tell(&mut w, AGENT, "a", Failed, 1);
    assert_eq!(state(&w), "FAILED");
    assert_eq!(story(None, &w), []);
}
