//! An older worker, as upstream's loop goes, through a Workflow of two agents.

use super::engine::{SECOND, begun, state};
use super::{AGENT, at};
use crate::workflow::{Report, Reported, older};
use api::tinkerbell::Workflow;

fn tell(w: &mut Workflow, agent: &str, (task, action): (&str, &str), state: Reported) -> bool {
    let report = Report {
        agent_id: agent.to_owned(),
        task_id: String::new(),
        action_id: String::new(),
        state,
        start: None,
        stop: None,
        duration: String::new(),
        message: "said".to_owned(),
    };
    let status = older::report_by_name(w, task, action, report, at(1));
    let changed = status.is_some();
    w.status = status.or(w.status.take());
    changed
}

/// Action, index, whether it runs.
fn told(w: &Workflow, agent: &str) -> Option<(String, usize, bool)> {
    older::context(agent, w, at(1)).map(|context| (context.action, context.index, context.runs))
}

#[test]
fn an_older_worker_goes_through_the_list() {
    let mut w = begun();
    let list: Vec<_> = older::actions(&w).into_iter().map(|a| (a.task, a.name, a.timeout, a.worker)).collect();
    let listed =
        |task: &str, name: &str, timeout, worker: &str| (task.to_owned(), name.to_owned(), timeout, worker.to_owned());
    let wanted =
        [listed("first", "a", 10, AGENT), listed("first", "b", 3600, AGENT), listed("second", "c", 3600, SECOND)];
    assert_eq!(list, wanted);
    assert_eq!(told(&w, AGENT), Some((String::new(), 0, false)), "none has begun");
    assert_eq!(told(&w, SECOND), None, "not its turn");
    assert!(!tell(&mut w, SECOND, ("first", "a"), Reported::Running), "somebody else's");
    assert!(!tell(&mut w, AGENT, ("first", "b"), Reported::Running), "not in its order");
    assert!(tell(&mut w, AGENT, ("first", "a"), Reported::Running));
    assert!(!tell(&mut w, AGENT, ("first", "a"), Reported::Running), "said before");
    assert_eq!(told(&w, AGENT), Some(("a".to_owned(), 0, true)));
    assert!(tell(&mut w, AGENT, ("first", "a"), Reported::Success));
    assert_eq!(told(&w, AGENT), Some(("a".to_owned(), 0, false)), "done: the next one is its turn");
    assert!(!tell(&mut w, AGENT, ("first", "a"), Reported::Failed), "late");
    assert!(tell(&mut w, AGENT, ("first", "b"), Reported::Running));
    assert!(tell(&mut w, AGENT, ("first", "b"), Reported::Success));
    assert_eq!((told(&w, AGENT), told(&w, SECOND)), (None, Some(("b".to_owned(), 1, false))));
    assert!(tell(&mut w, SECOND, ("second", "c"), Reported::Running));
    assert!(tell(&mut w, SECOND, ("second", "c"), Reported::Success));
    assert_eq!((state(&w), told(&w, SECOND)), ("SUCCESS", None));
}
