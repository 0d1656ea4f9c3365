//! What nobody is told: passwords of BMCs, tokens of agents, what a guest is told, queries of URLs. Whatever goes wrong, none of it stands in a log, an
//! Event, a status, an annotation or a metric. It stands in Secrets; in specs, as whoever asks for something has written it there; and in
//! `Workflow.status.tasks`, which is what an agent is served.

use super::simulation::Simulation;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::cell::RefCell;

/// Of every BMC.
pub const PASSWORD: &str = "password-5d1c0a7e";
/// Of an image's URL.
pub const QUERY: &str = "signature=2b9e44f1";
/// Of a guest.
pub const USER_DATA: &str = "#cloud-config\npassword: user-data-8c3f6d20\n";
const OF_USER_DATA: &str = "user-data-8c3f6d20";

thread_local! {
    /// A run has a thread of its own, and so has what is logged in it; `None`: nobody listens.
    static LOG: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What is logged in this run from now on counts, and nothing that was logged before.
pub(super) fn listen() {
    LOG.set(Some(String::new()));
}

pub(super) fn ignore() {
    LOG.set(None);
}

/// A line is logged, as `tell` writes it.
pub fn logged(tell: impl FnOnce(&mut String)) {
    LOG.with_borrow_mut(|log| {
        if let Some(log) = log {
            tell(log);
            log.push('\n');
        }
    });
}

/// As it may be told.
fn told(resource: &str, object: &Value) -> String {
    let mut object = object.clone();
    if let Some(object) = object.as_object_mut() {
        object.remove("spec");
        if resource == "tinkerbell.org/workflows" {
            object.get_mut("status").and_then(Value::as_object_mut).and_then(|status| status.remove("tasks"));
        }
    }
    object.to_string()
}

/// At the end of a run. An error says what stands where.
pub fn stay(s: &Simulation) -> Result<(), String> {
    let tokens = s.scene.tokens();
    let encoded = [PASSWORD, USER_DATA].map(|secret| STANDARD.encode(secret));
    let known = [PASSWORD, QUERY, OF_USER_DATA].into_iter().chain(encoded.iter().map(String::as_str));
    let all: Vec<&str> = known.chain(tokens.iter().map(String::as_str)).collect();
    let found = |text: &str| all.iter().find(|secret| text.contains(**secret)).copied();
    for event in s.scene.server.store().log.iter().filter(|event| event.id.resource != "secrets") {
        let text = told(&event.id.resource, &event.object);
        if let Some(secret) = found(&text) {
            return Err(format!("{} tells '{secret}': {text}", event.id));
        }
    }
    for (controller, text) in s.metrics() {
        if let Some(secret) = found(&text) {
            return Err(format!("the metrics of {controller} tell '{secret}'"));
        }
    }
    let line = LOG.with_borrow(|log| {
        let lines = log.iter().flat_map(|log| log.lines());
        lines.filter(|line| found(line).is_some()).map(str::to_owned).next()
    });
    line.map_or(Ok(()), |line| Err(format!("a secret is logged: {line}")))
}
