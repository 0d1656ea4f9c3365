//! Random templates, agents and reports. What is held: no action begins before what its task waits for is SUCCESS, none once the run has
//! ended, none more often than it may; a report counts for the serving that it is of; every run ends, and says why.
//!
//! An agent is as upstream's: it says RUNNING, and begins when that is acknowledged; it says how the action ended until that is
//! acknowledged, and only then asks again. A restart makes it forget. The network loses reports and answers, and brings reports again, late
//! and out of order. The clock is set back now and then, by up to 20 minutes.

use super::at;
use super::drawn::{AGENTS, Spec, place, spec};
use super::engine::{begun_with, state};
use crate::workflow::{Ahead, Answer, Heard, Report, Reported, Served, advance, is_terminal, next, report, told};
use api::tinkerbell::Workflow;
use api::tinkerbell::workflow::{Action, WorkflowStatus};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Event {
    /// The agent asks; the answer may be lost.
    Ask(usize, bool),
    /// The agent goes one step on with what it has: its report comes, is lost, or comes and its answer is lost.
    Step(usize, Reported, Net),
    Restart(usize),
    /// A report that was made some time comes again.
    Again(usize),
    /// So many seconds go by, or the clock is set back.
    Time(i64),
    /// What is told of the agents, whatever it is: that each is heard, silent or neither, and waits for another Workflow or not.
    Told(Option<bool>, bool),
}

#[derive(Debug, Clone, Copy)]
enum Net {
    Comes,
    IsLost,
    AnswerIsLost,
}

fn event((success, restart): (u32, u32)) -> impl Strategy<Value = Event> {
    let ended =
        prop_oneof![success => Just(Reported::Success), 3 => Just(Reported::Failed), 1 => Just(Reported::Timeout)];
    let net = prop_oneof![6 => Just(Net::Comes), 1 => Just(Net::IsLost), 1 => Just(Net::AnswerIsLost)];
    prop_oneof![
        8 => (0..AGENTS, proptest::bool::weighted(0.1)).prop_map(|(agent, lost)| Event::Ask(agent, lost)),
        16 => (0..AGENTS, ended, net).prop_map(|(agent, ended, net)| Event::Step(agent, ended, net)),
        restart => (0..AGENTS).prop_map(Event::Restart),
        3 => any::<usize>().prop_map(Event::Again),
        6 => (1i64..300).prop_map(Event::Time),
        1 => (-1200i64..0).prop_map(Event::Time),
        3 => any::<(Option<bool>, bool)>().prop_map(|(heard, waits)| Event::Told(heard, waits)),
    ]
}

/// More failures and restarts in some runs, so that budgets are used up, and fewer in others, which come to their end.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let weights = prop_oneof![Just((2, 1)), Just((8, 4)), Just((30, 1))];
    weights.prop_flat_map(|weights| proptest::collection::vec(event(weights), 1..200))
}

#[derive(Debug, Default, Clone)]
struct Agent {
    boot: usize,
    held: Option<Served>,
    executes: bool,
}

struct Run {
    spec: Spec,
    w: Workflow,
    now: i64,
    agents: Vec<Agent>,
    /// Each report that was ever made, and the boot of its agent.
    made: Vec<(Report, usize)>,
    /// By name of action: the identifiers that it was served by, and the boot that it was served to last.
    servings: BTreeMap<String, (Vec<String>, usize)>,
    /// By name of action: how often it was given up, by a restart or a failure.
    given_up: BTreeMap<String, usize>,
    /// By name of action: when it failed last and is to be served again, and how often it failed.
    failures: BTreeMap<String, (i64, usize)>,
    /// Names of actions that an agent began.
    began: Vec<String>,
}

fn is_success(action: &Action) -> bool {
    action.state.as_deref() == Some("SUCCESS")
}

impl Run {
    fn new(spec: Spec) -> Self {
        let w = begun_with(&spec.text());
        let agents = vec![Agent::default(); AGENTS];
        let (made, servings, given_up, failures, began) = Default::default();
        Self { spec, w, now: 0, agents, made, servings, given_up, failures, began }
    }

    fn status(&self) -> &WorkflowStatus {
        self.w.status.as_ref().expect("a status")
    }

    /// All that has to come before this action is done.
    fn is_ready(&self, (task, action): (usize, usize)) -> Result<(), TestCaseError> {
        let tasks = &self.status().tasks;
        for before in self.spec.waits_for(task) {
            prop_assert!(tasks[before].actions.iter().all(is_success), "t{task} before t{before}: {:?}", tasks);
        }
        prop_assert!(tasks[task].actions[..action].iter().all(is_success));
        Ok(())
    }

    fn ask(&mut self, agent: usize, is_lost: bool) -> Result<(), TestCaseError> {
        if self.agents[agent].held.is_some() {
            return Ok(());
        }
        let open = self.first_open();
        let answer = next(&format!("agent{agent}"), &self.w, at(self.now), at(self.now));
        let served = match answer {
            Some(Answer::Serve(served)) => *served,
            Some(Answer::Fail(status)) => {
                self.w.status = Some(*status);
                return Ok(());
            }
            Some(Answer::Wait(until)) => {
                // An action of the agent's that runs has begun later than the clock says now: a call seems older than that.
                let begins_later = self.status().tasks.iter().flat_map(|task| &task.actions).any(|action| {
                    action.state.as_deref() == Some("RUNNING")
                        && action.execution_start.as_ref().is_some_and(|start| start.0 > at(self.now))
                });
                prop_assert!(
                    until.map_or(begins_later, |until| until > at(self.now)),
                    "it waits for a time to come: {until:?} at {}",
                    self.now
                );
                return Ok(());
            }
            None => {
                let is_its_turn = open.is_some_and(|(task, _)| self.spec.tasks[task].agent == agent);
                prop_assert!(
                    self.spec.is_graph() || is_terminal(&self.w) || !is_its_turn,
                    "nothing for whose turn it is"
                );
                return Ok(());
            }
        };
        let (task, action) = place(&served.name);
        prop_assert!(!is_terminal(&self.w), "the run has ended: {:?}", state(&self.w));
        self.is_ready((task, action))?;
        prop_assert_eq!(self.spec.tasks[task].agent, agent);
        prop_assert!(self.spec.is_graph() || open == Some((task, action)), "upstream's order");
        *self.given_up.entry(served.name.clone()).or_default() +=
            usize::from(self.status_of(&served.name) == "RUNNING");
        let (ids, boot) = self.servings.entry(served.name.clone()).or_default();
        if !ids.contains(&served.action_id) {
            ids.push(served.action_id.clone());
        }
        *boot = self.agents[agent].boot;
        prop_assert_eq!(ids.last(), Some(&served.action_id), "an identifier of before");
        prop_assert_eq!(ids.len(), 1 + self.given_up[&served.name], "each serving has its own");
        prop_assert!(ids.len() <= 5, "{:?}", ids);
        prop_assert!(ids.len() == 1 || self.spec.tasks[task].actions[action].1 != Some(false), "not idempotent");
        if let Some((failed, _)) = self.failures.get(&served.name).filter(|_| self.status_of(&served.name) == "PENDING")
        {
            let wait = self.spec.tasks[task].retry_seconds.unwrap_or(10);
            prop_assert!(self.now >= failed + wait, "served at {} after it failed at {failed}", self.now);
        }
        self.w.status = served.status.clone().or(self.w.status.take());
        let agent = &mut self.agents[agent];
        agent.executes = false;
        agent.held = (!is_lost).then_some(served);
        Ok(())
    }

    fn status_of(&self, name: &str) -> String {
        let (task, action) = place(name);
        self.status().tasks[task].actions[action].state.clone().unwrap_or_default()
    }

    fn first_open(&self) -> Option<(usize, usize)> {
        self.status()
            .tasks
            .iter()
            .enumerate()
            .find_map(|(at, task)| Some((at, task.actions.iter().position(|a| !is_success(a))?)))
    }

    fn step(&mut self, at: usize, ended: Reported, net: Net) -> Result<(), TestCaseError> {
        let agent = self.agents[at].clone();
        let Some(held) = agent.held else { return Ok(()) };
        let said = Report {
            agent_id: format!("agent{at}"),
            task_id: held.task_id.clone(),
            action_id: held.action_id.clone(),
            state: if agent.executes { ended } else { Reported::Running },
            start: None,
            stop: None,
            duration: String::new(),
            message: "said".to_owned(),
        };
        self.made.push((said.clone(), agent.boot));
        if !matches!(net, Net::IsLost) {
            self.comes(&said, agent.boot)?;
        }
        let agent = &mut self.agents[at];
        match (agent.executes, net) {
            (false, Net::Comes) => {
                agent.executes = true;
                self.began.push(held.name.clone());
                self.is_ready(place(&held.name))?;
            }
            (false, Net::IsLost | Net::AnswerIsLost) => agent.held = None,
            (true, Net::Comes) => agent.held = None,
            (true, Net::IsLost | Net::AnswerIsLost) => {}
        }
        Ok(())
    }

    /// Always acknowledged.
    fn comes(&mut self, said: &Report, boot: usize) -> Result<(), TestCaseError> {
        let before = self.w.clone();
        let Some(status) = report(&self.w, said, at(self.now)) else { return Ok(()) };
        prop_assert!(!is_terminal(&before));
        let mut all = before.status.iter().flat_map(|status| &status.tasks).flat_map(|task| &task.actions);
        let name =
            all.find(|action| action.id == said.action_id).and_then(|action| action.name.clone()).expect("it is there");
        self.w.status = Some(status);
        let (ids, last) = &self.servings[&name];
        prop_assert_eq!(ids.last(), Some(&said.action_id));
        if matches!(said.state, Reported::Running) {
            return Ok(());
        }
        prop_assert_eq!(*last, boot, "an earlier boot's");
        if matches!(said.state, Reported::Failed | Reported::Timeout) {
            let (task, action) = place(&name);
            *self.given_up.entry(name.clone()).or_default() += 1;
            let (failed, number) = self.failures.entry(name).or_default();
            (*failed, *number) = (self.now, *number + 1);
            let retries = self.spec.retries(task, action);
            prop_assert!(*number <= retries + 1);
            prop_assert_eq!(
                is_terminal(&self.w),
                ids.len() > retries,
                "served {} times, {} retries",
                ids.len(),
                retries
            );
        }
        Ok(())
    }

    fn time(&mut self, seconds: i64) {
        self.now = (self.now + seconds).max(0);
        let status = advance(&self.w, None, None, at(self.now)).status;
        self.w.status = status.or(self.w.status.take());
    }

    fn told(&mut self, heard: Option<bool>, waits: bool) -> Result<(), TestCaseError> {
        let heard = match heard {
            None => Heard::Unknown,
            Some(true) => Heard::Now,
            Some(false) => Heard::Silent { since: at(0) },
        };
        let ahead = |_: &str| waits.then(|| Ahead::Workflow("another".to_owned()));
        if let Some(status) = told(&self.w, ahead, |_| heard, at(self.now)) {
            let course = |status: &WorkflowStatus| WorkflowStatus { conditions: Vec::new(), ..status.clone() };
            prop_assert_eq!(course(&status), course(self.status()), "nothing comes of it");
            self.w.status = Some(status);
            prop_assert_eq!(told(&self.w, ahead, |_| heard, at(self.now + 1)), None, "it is written once");
        }
        Ok(())
    }

    fn check(&self, before: &Workflow) -> Result<(), TestCaseError> {
        if is_terminal(before) {
            prop_assert_eq!(&self.w, before, "a terminal state stays");
        }
        let status = self.status();
        for agent in 0..AGENTS {
            let own = status.tasks.iter().filter(|task| task.agent_id == format!("agent{agent}"));
            let runs = own.flat_map(|task| &task.actions).filter(|action| action.state.as_deref() == Some("RUNNING"));
            prop_assert!(runs.count() <= 1, "one thing at a time");
        }
        let all_done = status.tasks.iter().all(|task| task.actions.iter().all(is_success));
        prop_assert_eq!(all_done, state(&self.w) == "SUCCESS");
        let has_condition = |type_: &str| status.conditions.iter().any(|condition| condition.type_ == type_);
        prop_assert_eq!(has_condition("TemplateExtras"), self.spec.has_keys());
        prop_assert_eq!(has_condition("WorkflowFailed"), is_terminal(&self.w) && !all_done);
        Ok(())
    }

    fn says_what_never_began(&self) -> Result<(), TestCaseError> {
        let Some(condition) = self.status().conditions.iter().find(|condition| condition.type_ == "WorkflowFailed")
        else {
            return Ok(());
        };
        let message = condition.message.as_deref().unwrap_or_default();
        let never = message.split_once("never began: ").map(|(_, names)| names).unwrap_or_default();
        for task in 0..self.spec.tasks.len() {
            let is_of = |name: &String| place(name).0 == task;
            let is_named = never.split(", ").any(|name| name == format!("'t{task}'"));
            prop_assert!(!is_named || !self.began.iter().any(is_of), "t{task} began: {message}");
            prop_assert!(is_named || self.servings.keys().any(is_of), "t{task} was never served: {message}");
        }
        Ok(())
    }

    /// Every agent is gone.
    fn ends_by_itself(&mut self) -> Result<(), TestCaseError> {
        while let Some(at) = advance(&self.w, None, None, at(self.now)).wake_at {
            let seconds = at.duration_since(super::at(self.now)).as_secs();
            prop_assert!(seconds > 0);
            self.time(seconds);
        }
        prop_assert!(state(&self.w) != "RUNNING", "it waits for nothing");
        Ok(())
    }

    /// Every agent works, after a restart.
    fn ends_by_work(&mut self) -> Result<(), TestCaseError> {
        for agent in &mut self.agents {
            *agent = Agent { boot: agent.boot + 1, ..Agent::default() };
        }
        for _ in 0..500 {
            for agent in 0..AGENTS {
                self.ask(agent, false)?;
                self.step(agent, Reported::Success, Net::Comes)?;
                self.step(agent, Reported::Success, Net::Comes)?;
            }
            if is_terminal(&self.w) {
                return Ok(());
            }
            self.time(60);
        }
        Err(TestCaseError::fail(format!("it does not end: {:?}", self.status())))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_or_nothing_in_order_within_its_budgets(spec in spec(), events in events()) {
        let mut run = Run::new(spec);
        for event in events {
            let before = run.w.clone();
            match event {
                Event::Ask(agent, is_lost) => run.ask(agent, is_lost)?,
                Event::Step(agent, ended, net) => run.step(agent, ended, net)?,
                Event::Restart(agent) => run.agents[agent] = Agent { boot: run.agents[agent].boot + 1, ..Agent::default() },
                Event::Again(which) if !run.made.is_empty() => {
                    let (said, boot) = run.made[which % run.made.len()].clone();
                    run.comes(&said, boot)?;
                }
                Event::Again(_) => {}
                Event::Time(seconds) => run.time(seconds),
                Event::Told(heard, waits) => run.told(heard, waits)?,
            }
            run.check(&before)?;
        }
        run.says_what_never_began()?;
        let (w, now) = (run.w.clone(), run.now);
        run.ends_by_itself()?;
        (run.w, run.now) = (w, now);
        run.ends_by_work()?;
        run.says_what_never_began()?;
    }
}
