use super::{AGENT, at, hardware, workflow};
use crate::workflow::{
    Advance, Answer, Heard, Report, Reported, advance, candidates, is_terminal, next, refused, report, serve, told,
};
use api::tinkerbell::{Template, Workflow};
use proptest::prelude::*;
use serde_json::json;

pub(super) const SECOND: &str = "52:54:00:00:00:02";
const TASKS: &str = "
name: two
global_timeout: 6000
tasks:
- name: first
  worker: {{.device_1}}
  environment: {B: task, A: task}
  actions: [{name: a, image: a, timeout: 10, environment: {B: action}}, {name: b, image: b}]
- name: second
  worker: 52:54:00:00:00:02
  actions: [{name: c, image: c}]
";

pub(super) fn template(text: &str) -> Template {
    serde_json::from_value(json!({"metadata": {"name": "t"}, "spec": {"data": text}})).expect("a Template")
}

pub(super) fn begun() -> Workflow {
    begun_with(TASKS)
}

pub(super) fn begun_with(text: &str) -> Workflow {
    let mut workflow = workflow("w");
    workflow.status = advance(&workflow, Some(&template(text)), Some(&hardware()), at(0)).status;
    assert_eq!(state(&workflow), "PENDING");
    workflow
}

pub(super) fn state(workflow: &Workflow) -> &str {
    workflow.status.as_ref().and_then(|status| status.state.as_deref()).unwrap_or_default()
}

#[test]
fn what_tinkerbell_before_v0_18_left_is_read_and_has_ended() {
    for (word, ended) in
        [("STATE_SUCCESS", true), ("STATE_FAILED", true), ("STATE_TIMEOUT", true), ("STATE_RUNNING", false)]
    {
        let tasks = json!([{"name": "t", "worker": AGENT, "actions": [{"name": "a", "image": "a", "status": "STATE_SUCCESS"}]}]);
        let workflow: Workflow = serde_json::from_value(json!({
            "metadata": {"name": "w"},
            "spec": {"templateRef": "t", "hardwareRef": "h"},
            "status": {"state": word, "tasks": tasks},
        }))
        .expect("one that cannot be read keeps all others from being read");
        assert_eq!(is_terminal(&workflow), ended, "{word}");
        assert!(next(AGENT, &workflow, at(0), at(0)).is_none(), "no agent is named as its tasks name agents now");
    }
}

/// The action that the agent gets, once its status is written.
pub(super) fn get(workflow: &mut Workflow, agent: &str) -> Option<String> {
    ask(workflow, agent, 100)
}

pub(super) fn ask(workflow: &mut Workflow, agent: &str, now: i64) -> Option<String> {
    let served = match next(agent, workflow, at(now), at(now))? {
        Answer::Serve(served) => *served,
        Answer::Fail(status) => {
            workflow.status = Some(*status);
            return None;
        }
        Answer::Wait(_) => return None,
    };
    assert_ne!(served.timeout, 0);
    if served.status.is_some() {
        workflow.status = served.status;
    }
    Some(served.name)
}

pub(super) fn said(workflow: &Workflow, agent: &str, name: &str, state: Reported) -> Report {
    let status = workflow.status.as_ref().expect("a status");
    let of =
        |task: &api::tinkerbell::workflow::Task| task.actions.iter().find(|a| a.name.as_deref() == Some(name)).cloned();
    let action_id = status.tasks.iter().find_map(of).map(|action| action.id).unwrap_or_default();
    Report {
        agent_id: agent.to_owned(),
        task_id: String::new(),
        action_id,
        state,
        start: None,
        stop: None,
        duration: String::new(),
        message: "said".to_owned(),
    }
}

pub(super) fn tell(workflow: &mut Workflow, agent: &str, name: &str, state: Reported, now: i64) -> bool {
    let status = report(workflow, &said(workflow, agent, name, state), at(now));
    let changed = status.is_some();
    workflow.status = status.or(workflow.status.take());
    changed
}

#[test]
fn from_pending_to_success_over_two_agents() {
    let mut w = begun();
    assert_eq!(get(&mut w, SECOND), None, "not its turn");
    assert_eq!(get(&mut w, AGENT).as_deref(), Some("a"));
    let served = serve(AGENT, &w).expect("again");
    assert_eq!((served.status, served.environment), (None, vec!["A=task".to_owned(), "B=action".to_owned()]));
    assert_eq!(served.timeout, 10);
    assert!(tell(&mut w, AGENT, "a", Reported::Running, 1));
    assert!(!tell(&mut w, AGENT, "a", Reported::Running, 2), "a repeated report writes nothing");
    assert_eq!(state(&w), "RUNNING");
    assert_eq!(w.status.as_ref().and_then(|s| s.global_execution_stop.clone()).map(|t| t.0), Some(at(6001)));
    assert_eq!(get(&mut w, AGENT).as_deref(), Some("a"), "an agent that was restarted gets it again");
    assert!(tell(&mut w, AGENT, "a", Reported::Success, 3));
    assert!(!tell(&mut w, AGENT, "b", Reported::Success, 3), "it was not served");
    assert_eq!(get(&mut w, AGENT).as_deref(), Some("b"));
    assert_eq!(serve(AGENT, &w).expect("served").timeout, 3600, "0 is an hour");
    assert!(!tell(&mut w, AGENT, "a", Reported::Failed, 4), "late");
    assert!(!tell(&mut w, SECOND, "b", Reported::Failed, 4), "somebody else's");
    assert!(tell(&mut w, AGENT, "b", Reported::Success, 5));
    assert_eq!(get(&mut w, AGENT), None);
    assert_eq!(state(&w), "RUNNING");
    assert_eq!(get(&mut w, SECOND).as_deref(), Some("c"));
    assert!(tell(&mut w, SECOND, "c", Reported::Success, 6));
    assert_eq!(state(&w), "SUCCESS");
    assert!(!tell(&mut w, SECOND, "c", Reported::Failed, 7));
    assert_eq!(advance(&w, None, None, at(1_000_000)).status, None);
}

#[test]
fn an_agent_that_restarts_is_served_five_times() {
    let mut w = begun();
    assert_eq!(get(&mut w, AGENT).as_deref(), Some("a"));
    assert_eq!(
        get(&mut w, AGENT).as_deref(),
        Some("a"),
        "an answer that was lost before the action ran is not counted"
    );
    tell(&mut w, AGENT, "a", Reported::Running, 0);
    for reason in ["ServedTwice", "ServedThreeTimes", "ServedFourTimes", "ServedFiveTimes"] {
        assert_eq!(get(&mut w, AGENT).as_deref(), Some("a"), "{reason}");
        let conditions = &w.status.as_ref().expect("a status").conditions;
        let retried: Vec<_> = conditions.iter().filter(|condition| condition.type_ == "ActionRetried").collect();
        assert_eq!(retried.iter().map(|c| c.reason.as_deref()).collect::<Vec<_>>(), [Some(reason)]);
    }
    let mut done = w.clone();
    tell(&mut done, AGENT, "a", Reported::Success, 1);
    assert_eq!(get(&mut done, AGENT).as_deref(), Some("b"), "the next action counts anew");
    tell(&mut done, AGENT, "b", Reported::Running, 2);
    assert_eq!(get(&mut done, AGENT).as_deref(), Some("b"));
    assert_eq!(get(&mut w, AGENT), None);
    assert_eq!(state(&w), "FAILED");
    let action = w.status.as_ref().expect("a status").tasks[0].actions[0].clone();
    assert!(action.message.expect("why").contains("five times"));
    let failed = w.status.as_ref().expect("a status").conditions.iter().find(|c| c.type_ == "WorkflowFailed").cloned();
    let failed = failed.expect("why");
    assert_eq!(failed.reason.as_deref(), Some("ServedTooOften"));
    assert!(failed.message.expect("why").ends_with("; never began: 'second'"));
}

#[test]
fn a_call_that_came_before_the_action_ran_is_no_restart() {
    let mut w = begun();
    get(&mut w, AGENT);
    tell(&mut w, AGENT, "a", Reported::Running, 5);
    assert_eq!(next(AGENT, &w, at(4), at(6)), Some(Answer::Wait(None)));
    assert!(matches!(next(AGENT, &w, at(5), at(6)), Some(Answer::Serve(_))));
}

#[test]
fn what_an_earlier_boot_says_counts_for_nothing() {
    let mut w = begun();
    get(&mut w, AGENT);
    let earlier = said(&w, AGENT, "a", Reported::Success);
    tell(&mut w, AGENT, "a", Reported::Running, 0);
    get(&mut w, AGENT);
    assert_eq!(report(&w, &earlier, at(1)), None);
    assert!(tell(&mut w, AGENT, "a", Reported::Success, 1));
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let mut w = begun();
    get(&mut w, AGENT);
    tell(&mut w, AGENT, "a", Reported::Running, 0);
    let waits = advance(&w, None, None, at(69));
    assert_eq!((waits.status, waits.wake_at), (None, Some(at(70))));
    w.status = advance(&w, None, None, at(70)).status;
    assert_eq!(state(&w), "TIMEOUT");
    assert!(!tell(&mut w, AGENT, "a", Reported::Success, 71));

    let mut w = begun();
    get(&mut w, AGENT);
    tell(&mut w, AGENT, "a", Reported::Running, 0);
    tell(&mut w, AGENT, "a", Reported::Success, 1);
    assert_eq!(advance(&w, None, None, at(602)).wake_at, Some(at(6000)));
    let why = |w: &Workflow| {
        let status = advance(w, None, None, at(6000)).status.expect("its time is over");
        assert_eq!(status.state.as_deref(), Some("TIMEOUT"));
        let failed = status.conditions.into_iter().find(|condition| condition.type_ == "WorkflowFailed").expect("why");
        assert_eq!(failed.reason.as_deref(), Some("GlobalTimeout"));
        failed.message.expect("why").replace("the global_timeout of the template has passed; ", "")
    };
    assert_eq!(why(&w), "begun, and not followed any further: 'first'; never began: 'second'");
    get(&mut w, AGENT);
    tell(&mut w, AGENT, "b", Reported::Success, 3);
    assert_eq!(why(&w), "done: 'first'; never began: 'second'");
    get(&mut w, SECOND);
    assert_eq!(why(&w), "done: 'first'; begun, and not followed any further: 'second'");
}

/// Whoever worked on it never asks again, and the template has no global_timeout.
#[test]
fn a_run_that_nobody_goes_on_with_says_so_and_ends() {
    let mut w = begun();
    let awaited = |w: &Workflow| {
        let said = w.status.iter().flat_map(|status| &status.conditions).find(|c| c.type_ == "AgentAwaited");
        said.and_then(|said| said.message.clone())
    };
    let quiet = |w: &mut Workflow, now: i64| {
        let Advance { status, wake_at } = advance(w, None, None, at(now));
        w.status = status.or(w.status.take());
        wake_at
    };
    assert_eq!(quiet(&mut w, 599), Some(at(600)));
    quiet(&mut w, 600);
    let mut queued = w.clone();
    let queue = json!({"type": "Queued", "status": "True", "reason": "AgentBusy", "message": "", "time": at(0)});
    queued.status.as_mut().expect("a status").conditions.push(serde_json::from_value(queue).expect("a condition"));
    quiet(&mut queued, 700);
    assert_eq!(awaited(&queued), None, "its agent runs another Workflow");
    assert!(awaited(&w).is_some_and(|why| why.contains(AGENT) && why.contains("kubectl get hwr")), "{:?}", w.status);
    // Whoever else tells of agents leaves that alone: two that undo each other's work would never rest.
    assert_eq!(told(&w, |_| None, |_| Heard::Unknown, at(601)), None);
    assert_eq!(advance(&w, None, None, at(601)).status, None);
    // Whoever else tells of agents leaves that alone: two that undo each other's work would never rest.
    assert_eq!(told(&w, |_| None, |_| Heard::Unknown, at(601)), None);
    assert_eq!(advance(&w, None, None, at(601)).status, None);
    assert_eq!(quiet(&mut w, 1_000_000), None, "a server may be switched on whenever somebody likes");
    get(&mut w, AGENT);
    tell(&mut w, AGENT, "a", Reported::Running, 1_000_000);
    quiet(&mut w, 1_000_001);
    assert_eq!(awaited(&w), None);
    tell(&mut w, AGENT, "a", Reported::Success, 1_000_002);
    w.status.as_mut().expect("a status").global_execution_stop = None;
    let day = 1_000_002 + 24 * 3600;
    assert_eq!(quiet(&mut w, 1_000_602), Some(at(day)));
    assert!(awaited(&w).is_some() && quiet(&mut w, day - 1) == Some(at(day)));
    quiet(&mut w, day);
    assert_eq!((state(&w), awaited(&w)), ("TIMEOUT", None));
    let said = &w.status.as_ref().expect("a status").conditions;
    assert!(said.iter().any(|c| c.type_ == "WorkflowFailed" && c.reason.as_deref() == Some("NotPickedUp")), "{said:?}");
}

#[test]
fn what_cannot_begin_says_why_and_heals() {
    let told = |w: &Workflow, template: Option<&Template>| {
        let status = advance(w, template, Some(&hardware()), at(0)).status.expect("a status");
        assert_eq!(status.state, None);
        (status.conditions[0].message.clone().unwrap_or_default(), status)
    };
    let mut w = workflow("w");
    let (message, status) = told(&w, None);
    assert_eq!(message, "Template 't' does not exist");
    w.status = Some(status);
    assert_eq!(advance(&w, None, Some(&hardware()), at(9)).status, None, "the same is not written again");
    let (message, _) = told(&w, Some(&template("{{ .device_7 }}")));
    assert!(message.contains("device_7"), "{message}");
    w.status = advance(&w, Some(&template(TASKS)), Some(&hardware()), at(9)).status;
    assert_eq!(state(&w), "PENDING");

    let mut w = workflow("w");
    let missing = advance(&w, Some(&template(TASKS)), None, at(0)).status.expect("a status");
    assert_eq!(missing.conditions[0].message.as_deref(), Some("Hardware 'h' does not exist"));
    w.spec.disabled = Some(true);
    assert_eq!(advance(&w, Some(&template(TASKS)), Some(&hardware()), at(0)).status, None);
}

#[test]
fn one_that_has_ended_hides_none_and_one_that_runs_comes_first() {
    let mut ended = begun();
    ended.metadata.name = Some("a".to_owned());
    ended.status.as_mut().expect("a status").state = Some("FAILED".to_owned());
    let mut old = begun();
    old.metadata.name = Some("b".to_owned());
    let mut runs = begun();
    runs.metadata.name = Some("c".to_owned());
    runs.status.as_mut().expect("a status").state = Some("RUNNING".to_owned());
    let all = [ended, old, runs];
    let names: Vec<_> = candidates(AGENT, &all).iter().map(|w| w.metadata.name.clone()).collect();
    assert_eq!(names, [Some("c".to_owned()), Some("b".to_owned())]);
}

#[derive(Debug, Clone)]
enum Event {
    Ask(bool),
    Report(bool, usize, usize),
    Time(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<bool>().prop_map(Event::Ask),
        (any::<bool>(), 0usize..3, 0usize..8).prop_map(|(agent, action, state)| Event::Report(agent, action, state)),
        // Or the clock is set back.
        prop_oneof![4 => 1i64..4000, 1 => -4000i64..0].prop_map(Event::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Under every order of asking, reporting (late, twice, for another's action) and time.
    #[test]
    fn a_terminal_state_stays_and_actions_run_in_their_order(events in proptest::collection::vec(event(), 1..60)) {
        let mut w = begun();
        let mut now = 0;
        for event in events {
            let before = w.clone();
            let agent = |first: bool| if first { AGENT } else { SECOND };
            match event {
                Event::Ask(first) => {
                    ask(&mut w, agent(first), now);
                }
                Event::Report(first, action, state) => {
                    use Reported::{Failed, Running, Success, Timeout};
                    let state = [Running, Running, Running, Success, Success, Success, Failed, Timeout][state];
                    tell(&mut w, agent(first), ["a", "b", "c"][action], state, now);
                }
                Event::Time(seconds) => {
                    now += seconds;
                    let status = advance(&w, None, None, at(now)).status;
                    w.status = status.or(w.status.take());
                }
            }
            if is_terminal(&before) {
                prop_assert_eq!(&w, &before);
            }
            let status = w.status.as_ref().expect("a status");
            let actions: Vec<_> = status.tasks.iter().flat_map(|task| &task.actions).collect();
            let states: Vec<_> = actions.iter().map(|a| a.state.as_deref().unwrap_or_default()).collect();
            let open = states.iter().position(|state| *state != "SUCCESS");
            // Nothing begins before what comes before it has succeeded.
            prop_assert!(open.is_none_or(|open| states[open + 1..].iter().all(|state| *state == "PENDING")), "{:?}", states);
            prop_assert_eq!(open.is_none(), state(&w) == "SUCCESS");
            // A run that is under way ends some day.
            if state(&w) == "RUNNING" {
                prop_assert!(advance(&w, None, None, at(now)).wake_at.is_some() || advance(&w, None, None, at(now)).status.is_some());
            }
        }
    }
}

/// An installer that lacks an action of its own ends the run before it has done any; another agent's actions are none of its business.
#[test]
fn what_the_installer_lacks_ends_the_run_before_its_first_action() {
    let text = "version: '0.1'\nname: x\nglobal_timeout: 60\ntasks:\n- name: os\n  worker: '{{.device_1}}'\n  actions:\n  \
                - {name: image, image: image2disk, timeout: 60}\n  - {name: files, image: quay.io/x/slurp:v1, timeout: 60}\n";
    let run = |text: &str| {
        let template = serde_json::from_value(json!({"metadata": {"name": "t"}, "spec": {"data": text}}));
        let template: Template = template.expect("a Template");
        let mut run = workflow("w");
        run.status = advance(&run, Some(&template), Some(&hardware()), at(0)).status;
        assert_eq!(run.status.as_ref().and_then(|status| status.state.as_deref()), Some("PENDING"));
        run
    };
    let status = refused(AGENT, &run(text), at(1)).expect("it ends");
    assert_eq!(status.state.as_deref(), Some("FAILED"));
    let said = status.tasks[0].actions[1].message.clone().unwrap_or_default();
    assert!(said.contains("slurp") && said.contains("cexec") && said.contains("osie"), "{said}");
    assert_eq!(status.tasks[0].actions[0].state.as_deref(), Some("PENDING"), "nothing of it has run");
    let waits =
        |image: &str| text.replace("quay.io/x/slurp:v1", &format!("waitdaemon, environment: {{IMAGE: {image}}}"));
    assert!(refused(AGENT, &run(&waits("x/slurp")), at(1)).is_some());
    let rootio = |storage: &str| {
        let document = format!("'{{\"metadata\": {{\"instance\": {{\"storage\": {storage}}}}}}}'");
        text.replace("slurp:v1", &format!("rootio, command: [partition], environment: {{METADATA: {document}}}"))
    };
    for (storage, what) in [("{\"volume_groups\": [{\"name\": \"vg\"}]}", "LVM"), ("{\"raid\": [{}]}", "software RAID")]
    {
        let status = refused(AGENT, &run(&rootio(storage)), at(1)).expect("it ends");
        let said = status.tasks[0].actions[1].message.clone().unwrap_or_default();
        assert!(said.contains(&format!("makes no {what}")) && said.contains("osie"), "{said}");
    }
    for fine in [
        waits("x/reboot:v1"),
        text.replace("slurp", "cexec"),
        rootio("{\"disks\": [], \"raid\": []}"),
        text.replace("slurp:v1", "rootio, command: [partition]"),
    ] {
        assert_eq!(refused(AGENT, &run(&fine), at(1)), None);
    }
    let mut begun = run(text);
    begun.status = next(AGENT, &begun, at(1), at(1)).and_then(|answer| match answer {
        Answer::Serve(served) => served.status,
        _ => None,
    });
    let mut of_another = run(text);
    of_another.status.as_mut().expect("rendered").tasks[0].agent_id = "another".to_owned();
    assert_eq!(refused(AGENT, &of_another, at(1)), None);
    begun.status.as_mut().expect("served").tasks[0].actions[0].state = Some("RUNNING".to_owned());
    assert_eq!(refused(AGENT, &begun, at(2)), None, "what has begun is not taken back");
}
