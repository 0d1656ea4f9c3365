//! What `.references` of a template is: objects of any kind that the Hardware names (`spec.references`), as far as the administrator's
//! rules and the API server let `boot` read them.
//!
//! Rules are upstream's: Quamina's patterns over `{source: {name, namespace}, reference: {namespace, name, group, version, resource}}`,
//! where the source is the Hardware. What a rule to deny matches is withheld, unless one to allow matches too. Left out, the rules to deny
//! match everything. Three things are stricter here than upstream: a Secret is given only by a rule to allow that names `secrets`; what
//! Metalplane keeps for machines never is; and the template of a machine, which a tenant may have written, is given nothing.
//!
//! What is withheld is absent, as upstream. A template that reads it is not rendered, and the condition's reason says what it was; so it
//! is of one that would ask for it by `index`, for which upstream's engine has an error, and ours nothing.

use super::state_of;
use crate::meta::name;
use api::labels;
use api::tinkerbell::hardware::Reference;
use api::tinkerbell::workflow::Workflow;
use api::tinkerbell::{Hardware, Template};
use quamina::Quamina;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Matches every reference: what upstream denies by.
const ALL: &str = r#"{"reference": {"name": [{"wildcard": "*"}]}}"#;
const SECRETS: &str = "secrets";
/// What a text has to have in it to read any of them.
const WORD: &str = "references";

/// Which references templates may read.
#[derive(Debug, Clone)]
pub struct Rules {
    allow: Vec<String>,
    deny: Vec<String>,
    /// The namespace whose Secrets are of machines.
    seeds: String,
}

impl Rules {
    /// Each rule passes [`check`]. Without a rule to deny everything is denied.
    pub fn new(allow: Vec<String>, mut deny: Vec<String>, seeds: String) -> Self {
        if deny.is_empty() {
            deny.push(ALL.to_owned());
        }
        Self { allow, deny, seeds }
    }

    fn verdict(&self, hardware: &Hardware, place: &Place) -> Result<(), Withheld> {
        let denied = |why: String| Err(Withheld::new(Why::Denied, why));
        let reference = [
            ("namespace", &place.namespace),
            ("name", &place.name),
            ("group", &place.group),
            ("version", &place.version),
            ("resource", &place.resource),
        ];
        // As Go leaves out what is empty.
        let reference: BTreeMap<_, _> = reference.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let namespace = hardware.metadata.namespace.as_deref();
        let event =
            json!({"source": {"name": name(&hardware.metadata), "namespace": namespace}, "reference": reference});
        let event = event.to_string();
        let is_secret = place.group.is_empty() && place.resource == SECRETS;
        if is_secret && place.namespace == self.seeds {
            return denied(format!(
                "the Secrets of namespace '{}' are of machines, and no rule gives them",
                self.seeds
            ));
        }
        let unread = |error: String| Withheld::new(Why::Denied, error);
        let counts = |rule: &&String| !is_secret || names_secrets(rule);
        let allowed = matches(self.allow.iter().filter(counts), &event).map_err(unread)?;
        if allowed {
            return Ok(());
        }
        if is_secret {
            return denied(format!("a Secret needs a rule to allow it that has {SECRETS:?} in reference.resource"));
        }
        match matches(self.deny.iter(), &event).map_err(unread)? {
            true => denied("a rule denies it, and none allows it: boot.references.allow of the chart".to_owned()),
            false => Ok(()),
        }
    }
}

/// `Err`: what is wrong with a rule.
pub fn check(rule: &str) -> Result<(), String> {
    let added = Quamina::<()>::new().add_pattern((), rule);
    added.map_err(|error| {
        format!(r#"{rule} is no pattern of Quamina's ({error}): write for example {{"reference": {{"resource": ["lvms"]}}}}"#)
    })
}

fn names_secrets(rule: &str) -> bool {
    let rule: Value = serde_json::from_str(rule).unwrap_or_default();
    rule["reference"]["resource"].as_array().is_some_and(|all| all.iter().any(|one| one == SECRETS))
}

fn matches<'a>(rules: impl Iterator<Item = &'a String>, event: &str) -> Result<bool, String> {
    let mut patterns = Quamina::<()>::new();
    for rule in rules {
        patterns.add_pattern((), rule).map_err(|error| format!("{rule}: {error}"))?;
    }
    patterns.has_matches(event.as_bytes()).map_err(|error| format!("matching {event}: {error}"))
}

/// Where an object is. Each part may be a part of an URL's path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Empty: the core group.
    pub group: String,
    pub version: String,
    pub resource: String,
    /// Empty: of a kind without namespaces.
    pub namespace: String,
    pub name: String,
}

impl Place {
    fn of(reference: &Reference) -> Result<Self, Withheld> {
        let invalid = |key: &str, value: &str| {
            let cause = format!("its {key} is {value:?}: write a name of Kubernetes'");
            Withheld::new(Why::Invalid, cause)
        };
        let part = |key: &str, value: &Option<String>, needed: bool| {
            let value = value.clone().unwrap_or_default();
            let is_path = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
            let is_named = !value.is_empty() || !needed;
            match is_path && is_named && !value.starts_with('.') {
                true => Ok(value),
                false => Err(invalid(key, &value)),
            }
        };
        Ok(Self {
            group: part("group", &reference.group, false)?,
            version: part("version", &reference.version, true)?,
            resource: part("resource", &reference.resource, true)?,
            namespace: part("namespace", &reference.namespace, false)?,
            name: part("name", &reference.name, true)?,
        })
    }
}

/// `lvms.example.org 'lvm1' of namespace 'tink'`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{} '{}'", self.resource, self.group, self.name)?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " of namespace '{}'", self.namespace) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No rule gives it.
    Denied,
    /// It is no place of an object.
    Invalid,
    /// The API server has none.
    Missing,
    /// The API server does not let `boot` read it.
    Forbidden,
    /// The API server was not heard.
    Unread,
}

impl Why {
    /// Of the condition of a Workflow that is not rendered for it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Denied => "ReferenceDenied",
            Self::Invalid => "ReferenceInvalid",
            Self::Missing => "ReferenceMissing",
            Self::Forbidden => "ReferenceForbidden",
            Self::Unread => "ReferenceUnread",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    pub why: Why,
    cause: String,
}

impl Withheld {
    pub fn new(why: Why, cause: impl Into<String>) -> Self {
        Self { why, cause: cause.into() }
    }
}

/// What becomes of each reference of a Hardware, by the name that templates have for it.
#[derive(Debug, Clone, PartialEq)]
pub struct References<T>(BTreeMap<String, Result<T, Withheld>>);

impl<T> Default for References<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl References<Place> {
    /// Which of them are to be read; none of a Workflow that is rendered already, or whose template reads none.
    pub fn asked(workflow: &Workflow, template: Option<&Template>, hardware: Option<&Hardware>, rules: &Rules) -> Self {
        let text = template.and_then(|template| template.spec.data.as_deref()).unwrap_or_default();
        let begins = state_of(workflow).is_empty() && workflow.metadata.deletion_timestamp.is_none();
        let Some(hardware) = hardware.filter(|_| begins && workflow.spec.disabled != Some(true) && text.contains(WORD))
        else {
            return Self::default();
        };
        let of_machine = workflow.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::MACHINE_UID));
        let all = hardware.spec.references.iter().map(|(name, reference)| {
            let place = Place::of(reference).and_then(|place| match of_machine {
                true => Err(Withheld::new(Why::Denied, "the Template of a machine reads no references")),
                false => rules.verdict(hardware, &place).map(|()| place),
            });
            (name.clone(), place)
        });
        Self(all.collect())
    }

    /// The names and places that are to be read.
    pub fn places(&self) -> impl Iterator<Item = (&String, &Place)> {
        self.0.iter().filter_map(|(name, place)| Some((name, place.as_ref().ok()?)))
    }

    /// With what was read of them.
    pub fn read(self, mut objects: BTreeMap<String, Result<Value, Withheld>>) -> References<Value> {
        let all = self.0.into_iter().map(|(name, place)| {
            let object = place.and_then(|place| {
                let unread = || Err(Withheld::new(Why::Unread, "it was not read"));
                let read = objects.remove(&name).unwrap_or_else(unread);
                read.map_err(|withheld| Withheld { cause: format!("{place}: {}", withheld.cause), ..withheld })
            });
            (name, object)
        });
        References(all.collect())
    }
}

impl References<Value> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn given(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().filter_map(|(name, object)| Some((name, object.as_ref().ok()?)))
    }

    /// The one for whose sake a template is not rendered, by the error of rendering it. One that the text names in quotes is meant without
    /// one: what `index` does not find is nothing, and would be rendered as that.
    pub(super) fn missed(&self, text: &str, error: Option<&str>) -> Option<(Why, String)> {
        self.0.iter().find_map(|(name, object)| {
            let withheld = object.as_ref().err()?;
            let is_meant = match error {
                None => is_quoted(text, name),
                Some(error) => error.ends_with(&format!("key: {name}")),
            };
            is_meant.then(|| (withheld.why, format!("reference '{name}' is not given: {}", withheld.cause)))
        })
    }
}

/// In an action of the template, and not in what it is written into.
fn is_quoted(text: &str, name: &str) -> bool {
    let mut actions = text.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap_or_default());
    actions.any(|action| ['"', '`'].iter().any(|quote| action.contains(&format!("{quote}{name}{quote}"))))
}
