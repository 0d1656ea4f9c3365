//! Templates that are drawn: tasks of three agents, one after another or as a graph, with retries or without.

use proptest::prelude::*;
use std::fmt::Write;

pub(super) const AGENTS: usize = 3;

#[derive(Debug, Clone)]
pub(super) struct TaskSpec {
    pub agent: usize,
    /// Places of other tasks; `None`: without the key.
    pub depends_on: Option<Vec<usize>>,
    pub retries: Option<usize>,
    pub retry_seconds: Option<i64>,
    /// Of each its own `retries`, and `idempotent`.
    pub actions: Vec<(Option<usize>, Option<bool>)>,
}

#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub global_timeout: Option<i64>,
    pub tasks: Vec<TaskSpec>,
}

impl Spec {
    pub fn is_graph(&self) -> bool {
        self.tasks.iter().any(|task| task.depends_on.is_some())
    }

    pub fn waits_for(&self, at: usize) -> Vec<usize> {
        if self.is_graph() { self.tasks[at].depends_on.clone().unwrap_or_default() } else { (0..at).collect() }
    }

    pub fn retries(&self, task: usize, action: usize) -> usize {
        let (own, idempotent) = self.tasks[task].actions[action];
        if idempotent == Some(false) { 0 } else { own.or(self.tasks[task].retries).unwrap_or_default() }
    }

    pub fn has_keys(&self) -> bool {
        let of_action =
            |task: usize, action: usize| self.retries(task, action) > 0 || self.tasks[task].actions[action].1.is_some();
        self.is_graph() || (0..self.tasks.len()).any(|at| (0..self.tasks[at].actions.len()).any(|n| of_action(at, n)))
    }

    pub fn text(&self) -> String {
        let mut text = "name: random\n".to_owned();
        if let Some(seconds) = self.global_timeout {
            writeln!(text, "global_timeout: {seconds}").expect("written");
        }
        text.push_str("tasks:\n");
        for (at, task) in self.tasks.iter().enumerate() {
            writeln!(text, "- name: t{at}\n  worker: agent{}", task.agent).expect("written");
            if let Some(depends_on) = &task.depends_on {
                let names: Vec<_> = depends_on.iter().map(|at| format!("t{at}")).collect();
                writeln!(text, "  depends-on: [{}]", names.join(", ")).expect("written");
            }
            for (key, number) in [
                ("retries", task.retries.map(|n| n.to_string())),
                ("retry-seconds", task.retry_seconds.map(|n| n.to_string())),
            ] {
                if let Some(number) = number {
                    writeln!(text, "  {key}: {number}").expect("written");
                }
            }
            text.push_str("  actions:\n");
            for (n, (retries, idempotent)) in task.actions.iter().enumerate() {
                let retries = retries.map(|retries| format!(", retries: {retries}")).unwrap_or_default();
                let idempotent = idempotent.map(|is| format!(", idempotent: {is}")).unwrap_or_default();
                writeln!(text, "  - {{name: t{at}a{n}, image: a, timeout: 1000{retries}{idempotent}}}")
                    .expect("written");
            }
        }
        text
    }
}

pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let action = (proptest::option::of(0usize..5), proptest::option::weighted(0.4, any::<bool>()));
    let task = (
        0..AGENTS,
        proptest::option::of(any::<u8>()),
        proptest::option::of(0usize..5),
        proptest::option::of(0i64..=600),
        proptest::collection::vec(action, 1..4),
    );
    let tasks = proptest::collection::vec(task, 1..7);
    (tasks, any::<u64>(), 0u8..4, proptest::option::weighted(0.3, 3_000i64..90_000)).prop_map(
        |(tasks, seed, kind, global_timeout)| {
            let has_graph = kind > 1;
            let has_retries = kind != 0;
            // What waits and what is waited for stand in any order in the text.
            let mut order: Vec<usize> = (0..tasks.len()).collect();
            order.sort_by_key(|at| seed.rotate_left(u32::try_from(*at).expect("few") * 11) % 97);
            let rank = |at: usize| order.iter().position(|there| *there == at).expect("there");
            let tasks = tasks.iter().enumerate().map(|(at, (agent, before, retries, seconds, actions))| {
                let before = before.filter(|_| has_graph);
                let waits =
                    |bits: u8| (0..tasks.len()).filter(|b| rank(*b) < rank(at) && bits & (1 << b) != 0).collect();
                let actions: Vec<_> = actions
                    .iter()
                    .map(|(own, idempotent)| match has_retries {
                        true => (own.filter(|own| *own == 0 || *idempotent != Some(false)), *idempotent),
                        false => (None, None),
                    })
                    .collect();
                let mut task = TaskSpec {
                    agent: *agent,
                    depends_on: before.map(waits),
                    retries: retries.filter(|_| has_retries),
                    retry_seconds: None,
                    actions,
                };
                let alone = Spec { global_timeout: None, tasks: vec![TaskSpec { depends_on: None, ..task.clone() }] };
                task.retry_seconds = seconds.filter(|_| (0..task.actions.len()).any(|n| alone.retries(0, n) > 0));
                task
            });
            Spec { global_timeout, tasks: tasks.collect() }
        },
    )
}

/// The places of task and action that an action of such a Template has by its name.
pub(super) fn place(name: &str) -> (usize, usize) {
    let (task, action) = name.trim_start_matches('t').split_once('a').expect("a name");
    (task.parse().expect("a task"), action.parse().expect("an action"))
}
