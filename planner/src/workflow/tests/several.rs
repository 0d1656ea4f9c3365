//! Two Workflows for the same agents, each of which may be deleted and made anew under its name at any moment, on a clock that is set back
//! now and then. What is held: an agent is at one action of both; nothing begins before what it waits for; an identifier is one Workflow's, so
//! that what is reported of one that no longer exists changes none that has its name; what has ended stays; both end.

use super::drawn::{AGENTS, Spec, place, spec};
use super::engine::{state, template};
use super::{at, hardware, workflow};
use crate::workflow::{Answer, Report, Reported, Served, advance, candidates, is_terminal, next, report};
use api::tinkerbell::Workflow;
use api::tinkerbell::workflow::Action;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use std::collections::BTreeMap;

const WORKFLOWS: usize = 2;
/// Until both have ended, once every agent works: each action once more, after the longest wait for a retry.
const ROUNDS: usize = 2000;

#[derive(Debug, Clone)]
enum Event {
    /// The agent asks; the answer may be lost.
    Ask(usize, bool),
    /// The agent goes one step on with what it has; the answer to its report may be lost.
    Step(usize, Reported, bool),
    Restart(usize),
    /// A report that came some time comes again.
    Again(usize),
    Time(i64),
    /// The Workflow is deleted, and made anew under its name.
    Anew(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let ended = prop_oneof![8 => Just(Reported::Success), 1 => Just(Reported::Failed), 1 => Just(Reported::Timeout)];
    prop_oneof![
        8 => (0..AGENTS, proptest::bool::weighted(0.1)).prop_map(|(agent, lost)| Event::Ask(agent, lost)),
        16 => (0..AGENTS, ended, proptest::bool::weighted(0.1)).prop_map(|(agent, ended, lost)| Event::Step(agent, ended, lost)),
        2 => (0..AGENTS).prop_map(Event::Restart),
        3 => any::<usize>().prop_map(Event::Again),
        6 => (1i64..300).prop_map(Event::Time),
        1 => (-1200i64..0).prop_map(Event::Time),
        1 => (0..WORKFLOWS).prop_map(Event::Anew),
    ]
}

/// Of the Workflow at that place, as it was with that UID.
#[derive(Debug, Clone)]
struct Of<T> {
    which: usize,
    uid: String,
    what: T,
}

#[derive(Debug, Default, Clone)]
struct Agent {
    held: Option<Of<Served>>,
    executes: bool,
}

struct Run {
    specs: [Spec; WORKFLOWS],
    workflows: Vec<Workflow>,
    made: usize,
    now: i64,
    agents: Vec<Agent>,
    came: Vec<Of<Report>>,
    /// Whose each identifier is that was ever served: the UID.
    ids: BTreeMap<String, String>,
}

fn uid(workflow: &Workflow) -> String {
    workflow.metadata.uid.clone().expect("an UID")
}

fn is_success(action: &Action) -> bool {
    action.state.as_deref() == Some("SUCCESS")
}

impl Run {
    fn new(specs: [Spec; WORKFLOWS]) -> Self {
        let agents = vec![Agent::default(); AGENTS];
        let mut run =
            Self { specs, workflows: Vec::new(), made: 0, now: 0, agents, came: Vec::new(), ids: BTreeMap::new() };
        for which in 0..WORKFLOWS {
            let made = run.make(which);
            run.workflows.push(made);
        }
        run
    }

    fn make(&mut self, which: usize) -> Workflow {
        self.made += 1;
        let mut made = workflow(&format!("w{which}"));
        made.metadata.uid = Some(format!("w{which}-{}", self.made));
        made.metadata.creation_timestamp = Some(Time(at(self.now)));
        let template = template(&self.specs[which].text());
        made.status = advance(&made, Some(&template), Some(&hardware()), at(self.now)).status;
        assert_eq!(state(&made), "PENDING");
        made
    }

    /// As the boot service does: each that may have something, until one has.
    fn ask(&mut self, agent: usize, is_lost: bool) -> Result<(), TestCaseError> {
        if self.agents[agent].held.is_some() {
            return Ok(());
        }
        let id = format!("agent{agent}");
        let names: Vec<_> = candidates(&id, &self.workflows).iter().map(|w| w.metadata.name.clone()).collect();
        for name in names {
            let which = self.workflows.iter().position(|w| w.metadata.name == name).expect("there");
            let served = match next(&id, &self.workflows[which], at(self.now), at(self.now)) {
                None => continue,
                Some(Answer::Wait(_)) => return Ok(()),
                Some(Answer::Fail(status)) => {
                    self.workflows[which].status = Some(*status);
                    continue;
                }
                Some(Answer::Serve(served)) => *served,
            };
            self.is_ready(which, &served.name)?;
            prop_assert_eq!(self.specs[which].tasks[place(&served.name).0].agent, agent);
            let uid = uid(&self.workflows[which]);
            let owner = self.ids.entry(served.action_id.clone()).or_insert_with(|| uid.clone());
            prop_assert_eq!(&*owner, &uid, "an identifier of another Workflow");
            if let Some(status) = served.status.clone() {
                self.workflows[which].status = Some(status);
            }
            self.agents[agent] = Agent::default();
            self.agents[agent].held = (!is_lost).then_some(Of { which, uid, what: served });
            return Ok(());
        }
        Ok(())
    }

    /// All that has to come before this action is done.
    fn is_ready(&self, which: usize, name: &str) -> Result<(), TestCaseError> {
        let (task, action) = place(name);
        prop_assert!(!is_terminal(&self.workflows[which]));
        let tasks = &self.workflows[which].status.as_ref().expect("a status").tasks;
        for before in self.specs[which].waits_for(task) {
            prop_assert!(tasks[before].actions.iter().all(is_success), "{name} before t{before}: {tasks:?}");
        }
        prop_assert!(tasks[task].actions[..action].iter().all(is_success), "{name}: {tasks:?}");
        Ok(())
    }

    fn step(&mut self, agent: usize, ended: Reported, answer_is_lost: bool) -> Result<(), TestCaseError> {
        let Agent { held: Some(Of { which, uid, what: served }), executes } = self.agents[agent].clone() else {
            return Ok(());
        };
        let what = Report {
            agent_id: format!("agent{agent}"),
            task_id: served.task_id.clone(),
            action_id: served.action_id.clone(),
            state: if executes { ended } else { Reported::Running },
            start: None,
            stop: None,
            duration: String::new(),
            message: "said".to_owned(),
        };
        let said = Of { which, uid, what };
        self.came.push(said.clone());
        self.comes(&said)?;
        let agent = &mut self.agents[agent];
        match (executes, answer_is_lost) {
            (false, false) => agent.executes = true,
            (false, true) | (true, false) => *agent = Agent::default(),
            (true, true) => {}
        }
        Ok(())
    }

    fn comes(&mut self, said: &Of<Report>) -> Result<(), TestCaseError> {
        let workflow = &mut self.workflows[said.which];
        let Some(status) = report(workflow, &said.what, at(self.now)) else { return Ok(()) };
        prop_assert_eq!(&uid(workflow), &said.uid, "it is of a Workflow that no longer exists");
        workflow.status = Some(status);
        Ok(())
    }

    fn time(&mut self, seconds: i64) {
        self.now = (self.now + seconds).max(0);
        for workflow in &mut self.workflows {
            let status = advance(workflow, None, None, at(self.now)).status;
            workflow.status = status.or(workflow.status.take());
        }
    }

    fn check(&self, before: &[Workflow]) -> Result<(), TestCaseError> {
        for (workflow, before) in self.workflows.iter().zip(before) {
            if is_terminal(before) && uid(before) == uid(workflow) {
                prop_assert_eq!(workflow, before, "a terminal state stays");
            }
        }
        let tasks = || {
            let under_way = self.workflows.iter().filter(|workflow| !is_terminal(workflow));
            under_way.filter_map(|workflow| workflow.status.as_ref()).flat_map(|status| &status.tasks)
        };
        for agent in 0..AGENTS {
            let own = tasks().filter(|task| task.agent_id == format!("agent{agent}"));
            let runs = own.flat_map(|task| &task.actions).filter(|action| action.state.as_deref() == Some("RUNNING"));
            prop_assert!(runs.count() <= 1, "agent{agent} is at one action: {:?}", tasks().collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Every agent works, after a restart.
    fn ends_by_work(&mut self) -> Result<(), TestCaseError> {
        self.agents = vec![Agent::default(); AGENTS];
        for _ in 0..ROUNDS {
            for agent in 0..AGENTS {
                self.ask(agent, false)?;
                self.step(agent, Reported::Success, false)?;
                self.step(agent, Reported::Success, false)?;
            }
            if self.workflows.iter().all(is_terminal) {
                return Ok(());
            }
            self.time(60);
        }
        let states: Vec<_> = self.workflows.iter().map(|workflow| &workflow.status).collect();
        Err(TestCaseError::fail(format!("they do not end: {states:?}")))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_for_the_same_agents_never_mix(one in spec(), other in spec(), events in proptest::collection::vec(event(), 1..200)) {
        let mut run = Run::new([one, other]);
        for event in events {
            let before = run.workflows.clone();
            match event {
                Event::Ask(agent, is_lost) => run.ask(agent, is_lost)?,
                Event::Step(agent, ended, answer_is_lost) => run.step(agent, ended, answer_is_lost)?,
                Event::Restart(agent) => run.agents[agent] = Agent::default(),
                Event::Again(which) if !run.came.is_empty() => {
                    let said = run.came[which % run.came.len()].clone();
                    run.comes(&said)?;
                }
                Event::Again(_) => {}
                Event::Time(seconds) => run.time(seconds),
                Event::Anew(which) => run.workflows[which] = run.make(which),
            }
            run.check(&before)?;
        }
        run.ends_by_work()?;
    }
}
