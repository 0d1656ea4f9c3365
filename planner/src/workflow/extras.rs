//! What a Template may say beyond upstream's keys, which upstream ignores: which tasks a task waits for, and what is served again.
//!
//! | key | where | what |
//! |---|---|---|
//! | `depends-on` | task | names of tasks that have to be SUCCESS first. One task that has the key makes the whole text a graph: a task without it waits for none. Without it anywhere a task waits for all before it, as upstream |
//! | `retries` | task, action | how often an action is served again after its agent reported FAILED or TIMEOUT; a task's is that of its actions that say none |
//! | `retry-seconds` | task | how long that waits, each time |
//! | `idempotent` | action | `false`: never served again, neither after a failure nor to an agent that was restarted |
//!
//! Upstream's status has no place for them. They stand in a condition, as they were rendered: so they come with the tasks in one write,
//! and an edit of the Template changes no run.

use super::{MOST_SERVED, order, yaml};
use api::tinkerbell::workflow::{Task, WorkflowStatus};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The condition that holds them.
pub(super) const EXTRAS: &str = "TemplateExtras";

const DEFAULT_RETRY_SECONDS: i64 = 10;
/// A machine's plan takes an installer for lost that begins nothing for 20 minutes.
const MOST_RETRY_SECONDS: u64 = 600;

/// Tasks by name; one that says nothing is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Extras {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tasks: BTreeMap<String, TaskExtras>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct TaskExtras {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    depends_on: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    actions: BTreeMap<String, ActionExtras>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ActionExtras {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retries: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotent: Option<bool>,
}

impl Extras {
    /// `None`: the condition is there, and cannot be read.
    pub(super) fn of(status: &WorkflowStatus) -> Option<Self> {
        let Some(condition) = status.conditions.iter().find(|condition| condition.type_ == EXTRAS) else {
            return Some(Self::default());
        };
        let extras: Self = serde_json::from_str(condition.message.as_deref()?).ok()?;
        let names: BTreeSet<&str> = status.tasks.iter().map(|task| task.name.as_str()).collect();
        let mut named = extras.tasks.values().flat_map(|task| &task.depends_on).flatten().chain(extras.tasks.keys());
        let is_known = named.all(|name| names.contains(name.as_str()));
        let is_sound = is_known && extras.graph(&status.tasks).is_none_or(|graph| order::circle(&graph).is_none());
        is_sound.then_some(extras)
    }

    /// For the condition's message; `None`: the text has none of the keys.
    pub(super) fn text(&self) -> Option<String> {
        (*self != Self::default()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// `None`: the tasks run one after the other.
    pub(super) fn graph(&self, tasks: &[Task]) -> Option<Vec<Vec<usize>>> {
        self.tasks.values().any(|task| task.depends_on.is_some()).then(|| {
            let places: BTreeMap<&str, usize> =
                tasks.iter().enumerate().map(|(at, task)| (task.name.as_str(), at)).collect();
            let names = |task: &Task| self.tasks.get(&task.name).and_then(|task| task.depends_on.as_deref());
            let waits =
                |task| names(task).unwrap_or_default().iter().filter_map(|name| places.get(name.as_str()).copied());
            tasks.iter().map(|task| waits(task).collect()).collect()
        })
    }

    fn action(&self, task: &Task, action: &str) -> ActionExtras {
        self.tasks.get(&task.name).and_then(|task| task.actions.get(action)).cloned().unwrap_or_default()
    }

    /// How often this action is served again after a failure.
    pub(super) fn retries(&self, task: &Task, action: &str) -> usize {
        self.action(task, action).retries.unwrap_or_default().min(MOST_SERVED - 1)
    }

    pub(super) fn is_idempotent(&self, task: &Task, action: &str) -> bool {
        self.action(task, action).idempotent != Some(false)
    }

    pub(super) fn retry_seconds(&self, task: &Task) -> i64 {
        self.tasks.get(&task.name).and_then(|task| task.retry_seconds).unwrap_or(DEFAULT_RETRY_SECONDS)
    }
}

#[derive(Deserialize)]
struct Document {
    tasks: Vec<TaskKeys>,
}

#[derive(Deserialize)]
struct TaskKeys {
    #[serde(default, rename = "depends-on", deserialize_with = "present")]
    depends_on: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    retries: Option<Value>,
    #[serde(default, rename = "retry-seconds", deserialize_with = "present")]
    retry_seconds: Option<Value>,
    actions: Vec<ActionKeys>,
    #[serde(default, deserialize_with = "there")]
    idempotent: bool,
    #[serde(default, rename = "depends_on", deserialize_with = "there")]
    misspelt_depends_on: bool,
    #[serde(default, rename = "retry_seconds", deserialize_with = "there")]
    misspelt_retry_seconds: bool,
}

#[derive(Deserialize)]
struct ActionKeys {
    #[serde(default, deserialize_with = "present")]
    retries: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    idempotent: Option<Value>,
    #[serde(default, rename = "depends-on", deserialize_with = "there")]
    depends_on: bool,
    #[serde(default, rename = "retry-seconds", deserialize_with = "there")]
    retry_seconds: bool,
}

/// A key without a value is there, and is not one that was left away.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|IgnoredAny| true)
}

/// `tasks`: those of the same text.
pub(super) fn read(text: &str, tasks: &[Task]) -> Result<Extras, String> {
    let document: Document = yaml::parse(text)?;
    let names: BTreeSet<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    let mut extras = Extras::default();
    for (at, (keys, task)) in document.tasks.iter().zip(tasks).enumerate() {
        let said = one(keys, task, &format!("tasks[{at}]"), &names)?;
        if said != TaskExtras::default() {
            extras.tasks.insert(task.name.clone(), said);
        }
    }
    match extras.graph(tasks).and_then(|graph| order::circle(&graph)) {
        Some(circle) => Err(in_a_circle(&circle, &extras, tasks)),
        None => Ok(extras),
    }
}

fn one(keys: &TaskKeys, task: &Task, place: &str, names: &BTreeSet<&str>) -> Result<TaskExtras, String> {
    let elsewhere = [
        (keys.misspelt_depends_on, "depends_on", "write it as depends-on"),
        (keys.misspelt_retry_seconds, "retry_seconds", "write it as retry-seconds"),
        (keys.idempotent, "idempotent", "write it at each action that it is meant for"),
    ];
    if let Some((_, key, what)) = elsewhere.iter().find(|(is_there, ..)| *is_there) {
        return Err(format!("{place}.{key}: {what}"));
    }
    let depends_on = keys.depends_on.as_ref().map(|value| dependencies(value, task, place, names)).transpose()?;
    let of_task = keys.retries.as_ref().map(|value| retries(value, place)).transpose()?;
    let mut actions = BTreeMap::new();
    for (n, (keys, action)) in keys.actions.iter().zip(&task.actions).enumerate() {
        let said = of_action(keys, of_task, &format!("{place}.actions[{n}]"))?;
        if said != ActionExtras::default() {
            actions.insert(action.name.clone().unwrap_or_default(), said);
        }
    }
    let retry_seconds = keys.retry_seconds.as_ref().map(|value| {
        let place = format!("{place}.retry-seconds");
        let seconds = value.as_u64().filter(|seconds| *seconds <= MOST_RETRY_SECONDS);
        let seconds = seconds.and_then(|seconds| i64::try_from(seconds).ok());
        let seconds = seconds.ok_or_else(|| {
            format!("{place}: {} is none; write whole seconds from 0 to {MOST_RETRY_SECONDS}", shown(value))
        })?;
        match actions.values().any(|action| action.retries.is_some()) {
            true => Ok(seconds),
            false => Err(format!("{place}: nothing of this task is retried; write retries too, or leave it away")),
        }
    });
    Ok(TaskExtras { depends_on, retry_seconds: retry_seconds.transpose()?, actions })
}

fn of_action(keys: &ActionKeys, of_task: Option<usize>, place: &str) -> Result<ActionExtras, String> {
    for (is_there, key) in [(keys.depends_on, "depends-on"), (keys.retry_seconds, "retry-seconds")] {
        if is_there {
            return Err(format!("{place}.{key}: write it at the task"));
        }
    }
    let idempotent = keys.idempotent.as_ref().map(|value| {
        value.as_bool().ok_or_else(|| format!("{place}.idempotent: {} is none; write true or false", shown(value)))
    });
    let idempotent = idempotent.transpose()?;
    let own = keys.retries.as_ref().map(|value| retries(value, place)).transpose()?;
    if idempotent == Some(false) && own.is_some_and(|own| own > 0) {
        return Err(format!(
            "{place}.retries: an action with idempotent: false is never served again; write 0, or leave idempotent away"
        ));
    }
    let retries = own.or(of_task).filter(|retries| *retries > 0 && idempotent != Some(false));
    Ok(ActionExtras { retries, idempotent })
}

fn dependencies(value: &Value, task: &Task, place: &str, names: &BTreeSet<&str>) -> Result<Vec<String>, String> {
    let place = format!("{place}.depends-on");
    let list = value.as_array().ok_or_else(|| {
        format!("{place}: {} is no list; write the names of tasks of this template as [a, b]", shown(value))
    })?;
    let mut depends_on: Vec<String> = Vec::new();
    for (n, value) in list.iter().enumerate() {
        let place = format!("{place}[{n}]");
        let name = value.as_str().ok_or_else(|| {
            format!(
                "{place}: {} is no text; write the name of a task, in quotes if YAML takes it for a number or a yes or no",
                shown(value)
            )
        })?;
        if name == task.name {
            return Err(format!("{place}: '{name}' cannot wait for itself; write another task, or leave it away"));
        }
        if !names.contains(name) {
            let others: Vec<_> =
                names.iter().filter(|other| **other != task.name).map(|name| format!("'{name}'")).collect();
            return Err(format!("{place}: there is no task '{name}'; {}", instead(&others)));
        }
        if depends_on.iter().any(|before| before == name) {
            return Err(format!("{place}: '{name}' is there twice; write it once"));
        }
        depends_on.push(name.to_owned());
    }
    Ok(depends_on)
}

fn retries(value: &Value, place: &str) -> Result<usize, String> {
    let most = MOST_SERVED - 1;
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok()).filter(|number| *number <= most);
    number.ok_or_else(|| {
        format!(
            "{place}.retries: {} is none; write a whole number from 0 to {most}: an action is served {MOST_SERVED} times at most",
            shown(value)
        )
    })
}

/// Told at the task of the circle that comes first.
fn in_a_circle(circle: &[usize], extras: &Extras, tasks: &[Task]) -> String {
    let name = |at: usize| tasks[at].name.as_str();
    let [first, second, ..] = *circle else { return String::new() };
    let listed = extras.tasks.get(name(first)).and_then(|task| task.depends_on.as_ref());
    let n = listed.and_then(|list| list.iter().position(|named| named == name(second))).unwrap_or_default();
    let way: Vec<_> = circle.iter().chain([&first]).map(|at| format!("'{}'", name(*at))).collect();
    format!(
        "tasks[{first}].depends-on[{n}]: these wait for each other and would never begin: {}; take one of them out",
        way.join(" waits for ")
    )
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        scalar => {
            let text = scalar.to_string();
            text.chars().take(40).collect()
        }
    }
}

/// As many names as a reader takes in.
fn instead(names: &[String]) -> String {
    match names.len() {
        0 => "leave it away: this is the only task".to_owned(),
        1..=8 => format!("write one of {}", names.join(", ")),
        more => format!("write one of {} or {} others", names[..8].join(", "), more - 8),
    }
}
