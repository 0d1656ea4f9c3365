//! The YAML that a Template renders to. Go reads a scalar into a string as it was written: `0600` stays `0600`, `true`
//! stays `true`, and a null is empty. Unknown keys are ignored, as upstream ignores them; those of ours are read in `extras.rs`.

use super::extras::{self, Extras};
use super::order::one_by_one;
use super::yaml;
use api::tinkerbell::workflow::{Action, ActionNamespaces, Task};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// What a Template is for one Workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    pub global_timeout: i64,
    pub tasks: Vec<Task>,
    pub extras: Extras,
}

impl Rendered {
    /// What runs last, if one agent runs all of it.
    pub fn last_action(&self) -> Option<&Action> {
        let last = match self.extras.graph(&self.tasks) {
            Some(graph) => one_by_one(&graph).last().map(|at| &self.tasks[*at]),
            None => self.tasks.last(),
        };
        last?.actions.last()
    }
}

/// A scalar as it was written.
type Scalar = Option<String>;
type Scalars = Option<BTreeMap<String, Scalar>>;

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    name: Scalar,
    #[serde(default)]
    global_timeout: Option<i64>,
    #[serde(default)]
    tasks: Option<Vec<TaskText>>,
}

#[derive(Deserialize)]
struct TaskText {
    #[serde(default)]
    name: Scalar,
    #[serde(default)]
    worker: Scalar,
    #[serde(default)]
    actions: Option<Vec<ActionText>>,
    #[serde(default)]
    volumes: Option<Vec<Scalar>>,
    #[serde(default)]
    environment: Scalars,
}

#[derive(Deserialize)]
struct ActionText {
    #[serde(default)]
    name: Scalar,
    #[serde(default)]
    image: Scalar,
    #[serde(default)]
    timeout: Option<i64>,
    #[serde(default)]
    command: Option<Vec<Scalar>>,
    #[serde(default)]
    volumes: Option<Vec<Scalar>>,
    #[serde(default)]
    environment: Scalars,
    #[serde(default)]
    pid: Scalar,
    #[serde(default)]
    namespaces: Option<NamespacesText>,
}

#[derive(Deserialize)]
struct NamespacesText {
    #[serde(default)]
    network: Scalar,
    #[serde(default)]
    pid: Scalar,
}

/// `uid`: the Workflow's; identifiers follow from it, so that a text that is rendered twice has the same ones.
pub(super) fn read(text: &str, uid: &str) -> Result<Rendered, String> {
    let document: Document = yaml::parse(text)?;
    let name = document.name.unwrap_or_default();
    if name.is_empty() || name.len() > 199 {
        return Err("name: write a name of 1 to 199 characters".to_owned());
    }
    let mut seen = BTreeSet::new();
    let tasks = document.tasks.unwrap_or_default();
    if tasks.is_empty() {
        return Err("tasks: there are none; write at least one".to_owned());
    }
    let tasks = tasks
        .into_iter()
        .enumerate()
        .map(|(at, text)| {
            let task = task(text, at, uid)?;
            if seen.insert(task.name.clone()) {
                Ok(task)
            } else {
                Err(format!("tasks[{at}].name: '{}' is used twice", task.name))
            }
        })
        .collect::<Result<Vec<_>, String>>()?;
    let extras = extras::read(text, &tasks)?;
    Ok(Rendered { global_timeout: document.global_timeout.unwrap_or_default(), tasks, extras })
}

fn task(text: TaskText, at: usize, uid: &str) -> Result<Task, String> {
    let place = format!("tasks[{at}]");
    let name = text.name.unwrap_or_default();
    if name.is_empty() || name.len() > 199 {
        return Err(format!("{place}.name: write a name of 1 to 199 characters"));
    }
    let agent_id = text.worker.unwrap_or_default();
    if agent_id.is_empty() {
        return Err(format!("{place}.worker: write the agent's identifier, as {{{{.device_1}}}}"));
    }
    let actions = text.actions.unwrap_or_default();
    if actions.is_empty() {
        return Err(format!("{place}.actions: there are none; write at least one"));
    }
    let mut seen = BTreeSet::new();
    let actions = actions
        .into_iter()
        .enumerate()
        .map(|(n, text)| {
            let place = format!("{place}.actions[{n}]");
            let action = action(text, &place, identifier(uid, &format!("{at}/{n}")))?;
            let name = action.name.clone().unwrap_or_default();
            if seen.insert(name.clone()) { Ok(action) } else { Err(format!("{place}.name: '{name}' is used twice")) }
        })
        .collect::<Result<_, String>>()?;
    Ok(Task {
        id: identifier(uid, &at.to_string()),
        name,
        agent_id,
        actions,
        volumes: scalars(text.volumes),
        environment: map(text.environment),
    })
}

fn action(text: ActionText, place: &str, id: String) -> Result<Action, String> {
    let name = text.name.unwrap_or_default();
    if name.is_empty() || name.len() > 199 {
        return Err(format!("{place}.name: write a name of 1 to 199 characters"));
    }
    let image = text.image.unwrap_or_default();
    if !is_image(&image) {
        return Err(format!(
            "{place}.image: '{image}' is no image name; write it as quay.io/tinkerbell/actions/image2disk:latest"
        ));
    }
    if text.timeout.is_some_and(|seconds| seconds < 0) {
        return Err(format!("{place}.timeout: write seconds; 0 is an hour"));
    }
    let set = |text: Scalar| text.filter(|text| !text.is_empty());
    let namespaces = text.namespaces.map(|n| ActionNamespaces { network: set(n.network), pid: set(n.pid) });
    Ok(Action {
        id,
        name: Some(name),
        image: Some(image),
        timeout: text.timeout.filter(|seconds| *seconds > 0),
        command: scalars(text.command),
        volumes: scalars(text.volumes),
        pid: set(text.pid),
        namespaces,
        environment: map(text.environment),
        state: Some(super::state::PENDING.to_owned()),
        ..Action::default()
    })
}

fn scalars(list: Option<Vec<Scalar>>) -> Vec<String> {
    list.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect()
}

fn map(map: Scalars) -> BTreeMap<String, String> {
    map.unwrap_or_default().into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect()
}

/// 26 characters, as the identifiers of upstream have.
fn identifier(uid: &str, place: &str) -> String {
    let digest = Sha256::digest(format!("{uid}/{place}"));
    digest.iter().map(|byte| format!("{byte:02X}")).collect::<String>()[..26].to_owned()
}

/// A container engine's grammar of a reference, without its lengths: [registry[:port]/]path[:tag][@digest].
fn is_image(text: &str) -> bool {
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    if digest.is_some_and(|digest| {
        !digest
            .split_once(':')
            .is_some_and(|(kind, hex)| word(kind) && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
    }) {
        return false;
    }
    let last = name.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match name[last..].split_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
        None => (name, None),
    };
    let tag_fits = tag.is_none_or(|tag| {
        !tag.is_empty()
            && tag.len() <= 128
            && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
            && !tag.starts_with(['.', '-'])
    });
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<_> = parts.collect();
    let host = |text: &str| {
        let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        !host.is_empty()
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b))
            && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
    };
    let first_fits = word(first) || (!rest.is_empty() && host(first));
    first_fits && tag_fits && rest.iter().all(|part| word(part))
}

/// Lower case, with single separators inside.
fn word(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
}
