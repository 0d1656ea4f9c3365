//! A run as an operator would tell it: what was asked, what controller and agents did about it, and why they waited. One line an
//! event, by what became new in the objects and was sent to the BMCs and the storage.

use super::api::path::Id;
use super::api::store::Change;
use super::simulation::Simulation;
use super::{life, web};
use jiff::Timestamp;
use planner::dpu::ready::Word;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// A story begins here: what was before is not told.
pub struct Story {
    since: Timestamp,
    /// So many events, and effects, had been.
    told: (usize, usize),
    /// What befell somebody, by the scenario's own words.
    notes: Mutex<Vec<(Timestamp, String)>>,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> Option<u64> {
    object.pointer(pointer).and_then(Value::as_u64)
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn called(object: &Value) -> String {
    let part = |field: &str| text(object, field);
    match (part("/kind"), part("/spec/owner/name")) {
        ("DiskAttachment", owner) => format!("DiskAttachment of disk '{}' of '{owner}'", part("/spec/diskName")),
        ("NicAttachment", owner) => {
            format!("NicAttachment of interface '{}' of '{owner}'", part("/spec/interfaceName"))
        }
        (kind, _) => format!("{kind} '{}'", part("/metadata/name")),
    }
}

fn is_ours(object: &Value) -> bool {
    !object["metadata"]["labels"][api::labels::MANAGED_BY].is_null()
}

/// Fields of the spec that differ.
fn changed(before: &Value, after: &Value) -> Vec<String> {
    let (Some(before), Some(after)) = (before["spec"].as_object(), after["spec"].as_object()) else {
        return Vec::new();
    };
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).map(|key| format!("spec.{key}")).collect()
}

impl Story {
    pub fn begin(s: &Simulation) -> Self {
        let told = (s.scene.server.store().log.len(), s.scene.journal().len());
        Self { since: runtime::clock::now(), told, notes: Mutex::default() }
    }

    /// Something happens that no object shows.
    pub fn note(&self, what: &str) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push((runtime::clock::now(), what.to_owned()));
    }

    /// All lines up to now, in the order of time.
    pub fn lines(&self, s: &Simulation) -> Vec<String> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut lines: Vec<(Timestamp, String)> =
            notes.into_iter().map(|(at, what)| (at, format!("* {what}"))).collect();
        let store = s.scene.server.store();
        let mut teller = Teller::default();
        let (before, after) = store.log.split_at(self.told.0);
        for event in before {
            teller.event(&event.id, &event.object, event.change == Change::Deleted);
        }
        for effect in s.scene.journal().into_iter().skip(self.told.1) {
            let who = if effect.process.starts_with("controller") { "controller" } else { effect.process.as_str() };
            lines.extend(effect_of(&effect.what, &store.log).map(|what| (effect.at, format!("{who}: {what}"))));
        }
        for event in after {
            let told = teller.event(&event.id, &event.object, event.change == Change::Deleted);
            lines.extend(told.into_iter().map(|line| (event.at, line)));
        }
        drop(store);
        lines.sort_by_key(|(at, _)| *at);
        let seconds = |at: Timestamp| at.duration_since(self.since).as_secs();
        let lines = lines.into_iter().map(|(at, line)| web::without_port(&format!("{:>5} s  {line}", seconds(at))));
        // What is said again within a second is told once.
        let mut told = BTreeSet::new();
        lines.filter(|line| told.insert(line.clone())).collect()
    }
}

/// What was sent to a BMC or to the storage.
fn effect_of(what: &str, log: &[super::api::store::Event]) -> Option<String> {
    let (first, rest) = what.split_once(' ')?;
    if first.starts_with("server-") {
        return Some(match rest.split([' ', '(', '{']).next().unwrap_or_default() {
            action @ ("On" | "ForceOff" | "SoftOff" | "WarmReset" | "ForceRestart") => {
                format!("sends {action} to the BMC of '{first}'")
            }
            change => format!("sends the boot order to the BMC of '{first}' ({change})"),
        });
    }
    let of = |object: &Value| rest.contains(text(object, "/metadata/uid")) && text(object, "/kind") == "DiskAttachment";
    let whom = || log.iter().rev().find(|event| of(&event.object)).map(|event| called(&event.object));
    match first {
        "admit" => Some(format!("tells the storage to let in {}", whom()?)),
        "fence" => Some(format!("tells the storage to refuse {}", whom()?)),
        _ => None,
    }
}

/// What was there before each event.
#[derive(Default)]
struct Teller {
    objects: BTreeMap<Id, Arc<Value>>,
    /// By the name of a PersistentVolume: the claim that it is bound to.
    claims: BTreeMap<String, String>,
}

impl Teller {
    fn event(&mut self, id: &Id, object: &Arc<Value>, is_gone: bool) -> Vec<String> {
        let before = match is_gone {
            true => self.objects.remove(id),
            false => self.objects.insert(id.clone(), object.clone()),
        };
        let none = Arc::new(Value::Null);
        let before = before.unwrap_or(none);
        let mut lines = Vec::new();
        if text(object, "/kind") == "PersistentVolumeClaim" {
            let volume = text(object, "/spec/volumeName").to_owned();
            self.claims.insert(volume, text(object, "/metadata/name").to_owned());
        }
        let is_new = before.is_null();
        match text(object, "/kind") {
            "BareMetalMachine" | "MachineMigration" | "MachineImage" => {
                self.asked(&before, object, is_gone, &mut lines);
                said("controller", &before, object, &mut lines);
            }
            "Dpu" => {
                let is_silent =
                    list(object, "/status/conditions").iter().any(|said| said["reason"] == Word::AgentSilent.as_str());
                let agent = format!("agent of '{}'", text(object, "/metadata/name"));
                said(if is_silent { "controller" } else { &agent }, &before, object, &mut lines);
            }
            "Hardware" => claimed(&before, object, &mut lines),
            "PersistentVolumeClaim" => self.claim(&before, object, is_gone, &mut lines),
            "VolumeHold" => self.hold(&before, object, &mut lines),
            "DiskAttachment" | "NicAttachment" => attachment(&before, object, is_gone, &mut lines),
            "VolumeSnapshot" if is_new => lines.push(format!("controller: takes {}", called(object))),
            _ => {}
        }
        lines
    }

    /// By a user, or by the controller for one.
    fn asked(&self, before: &Value, now: &Value, is_gone: bool, lines: &mut Vec<String>) {
        let who = if is_ours(now) { "controller" } else { "user" };
        let ends = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        if before.is_null() {
            lines.push(format!("{who}: creates {}", called(now)));
        } else if changed(before, now).is_empty() {
            if ends(now) && !ends(before) {
                lines.push(format!("{who}: deletes {}", called(now)));
            }
        } else {
            lines.push(format!("{who}: changes {} of {}", changed(before, now).join(", "), called(now)));
        }
        if is_gone {
            lines.push(format!("controller: {} is gone", called(now)));
        }
    }

    fn claim(&self, before: &Value, now: &Value, is_gone: bool, lines: &mut Vec<String>) {
        let who = if is_ours(now) { "controller" } else { "user" };
        let size = text(now, "/spec/resources/requests/storage");
        if before.is_null() {
            lines.push(format!("{who}: creates {} of {size}", called(now)));
        } else if text(before, "/spec/resources/requests/storage") != size {
            lines.push(format!("controller: asks for {size} in {}", called(now)));
        }
        let (was, is) = (text(before, "/status/capacity/storage"), text(now, "/status/capacity/storage"));
        match (was.is_empty(), was == is) {
            (_, true) => {}
            (true, false) => lines.push(format!("storage: {} is bound to a volume of {is}", called(now))),
            (false, false) => lines.push(format!("storage: the volume of {} has {is}", called(now))),
        }
        if is_gone {
            lines.push(format!("storage: {} is gone, with its volume", called(now)));
        }
    }

    fn hold(&self, before: &Value, now: &Value, lines: &mut Vec<String>) {
        let volume = text(now, "/spec/persistentVolumeName");
        let claim = self.claims.get(volume).map_or(volume, String::as_str);
        for proof in list(now, "/spec/fences").iter().skip(list(before, "/spec/fences").len()) {
            lines.push(format!("controller: records a proof, {}, for the volume of '{claim}'", text(proof, "/proof")));
        }
        let holder = |object: &Value| {
            let dpu = text(object, "/spec/holder/dpuName");
            (!dpu.is_empty()).then(|| format!("Dpu '{dpu}'"))
        };
        match (holder(before), holder(now)) {
            (was, is) if was == is => {}
            (_, Some(is)) => {
                let epoch = number(now, "/spec/epoch").unwrap_or_default();
                lines.push(format!("controller: {is} holds the volume of '{claim}', epoch {epoch}"));
            }
            (Some(_), None) => lines.push(format!("controller: nobody holds the volume of '{claim}'")),
            (None, None) => {}
        }
    }
}

/// State, phase and conditions.
fn said(who: &str, before: &Value, now: &Value, lines: &mut Vec<String>) {
    for (field, word) in [("/status/state", "state"), ("/status/phase", "phase")] {
        if text(before, field) != text(now, field) {
            lines.push(format!("{who}: {}: {word} {}", called(now), text(now, field)));
        }
    }
    let all = list(before, "/status/conditions");
    let conditions = list(now, "/status/conditions");
    // In the order of the conditions; those that say the same stand together.
    let mut told: Vec<(Vec<&str>, String)> = Vec::new();
    for condition in conditions {
        let type_ = text(condition, "/type");
        let was = all.iter().find(|was| was["type"] == condition["type"]);
        let (status, reason, message) =
            (text(condition, "/status"), text(condition, "/reason"), text(condition, "/message"));
        // What is not so yet, and has not been.
        let is_quiet = matches!(reason, "EarlierStepFirst" | "NotPaused" | "NotRequired" | "AttachmentsFirst");
        let same = was.is_some_and(|was| text(was, "/status") == status && text(was, "/reason") == reason);
        // Another condition says that.
        let says_it = |other: &Value| text(other, "/type") != type_ && other["reason"] == condition["reason"];
        let is_echo = type_ == "Ready" && conditions.iter().any(says_it);
        if same || is_quiet || is_echo {
            continue;
        }
        let colon = if message.is_empty() { "" } else { ": " };
        let said = format!("{status}, {reason}{colon}{message}");
        match told.iter_mut().find(|(_, other)| *other == said) {
            Some((types, _)) => types.push(type_),
            None => told.push((vec![type_], said)),
        }
    }
    let line = |(types, said): (Vec<&str>, String)| format!("{who}: {}: {} {said}", called(now), types.join(", "));
    lines.extend(told.into_iter().map(line));
}

fn claimed(before: &Value, now: &Value, lines: &mut Vec<String>) {
    let of =
        |object: &Value| object["metadata"]["annotations"][api::labels::CLAIMED_BY_NAME].as_str().map(str::to_owned);
    match (of(before), of(now)) {
        (was, is) if was == is => {}
        (_, Some(machine)) => lines.push(format!("controller: claims {} for '{machine}'", called(now))),
        (Some(machine), None) if life::is_unclaimed(now) => {
            lines.push(format!("controller: gives {} back, which '{machine}' had", called(now)));
        }
        (Some(machine), None) => lines.push(format!("controller: unclaims {}, which '{machine}' had", called(now))),
        (None, None) => {}
    }
}

fn attachment(before: &Value, now: &Value, is_gone: bool, lines: &mut Vec<String>) {
    let agent = format!("agent of '{}'", text(now, "/spec/dpuName"));
    let name = called(now);
    if before.is_null() {
        lines.push(format!("controller: creates {name} for '{}'", text(now, "/spec/dpuName")));
    }
    if number(before, "/spec/grant/epoch") != number(now, "/spec/grant/epoch") {
        lines.push(format!("controller: grants {name}"));
    }
    if before["spec"]["release"] != now["spec"]["release"] && now["spec"]["release"] == true {
        lines.push(format!("controller: asks the agent to release {name}"));
    }
    let (was, is) = (text(before, "/status/phase"), text(now, "/status/phase"));
    if was != is && !is.is_empty() {
        lines.push(format!("{agent}: {name} is {is}"));
    }
    let size = |object: &Value| text(object, "/status/size").to_owned();
    if size(before) != size(now) && !size(before).is_empty() {
        lines.push(format!("{agent}: {name} has {}", size(now)));
    }
    if is_gone {
        lines.push(format!("API server: {name} is gone"));
    }
}
