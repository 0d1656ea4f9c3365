//! In which order a description is made, and taken down.

use super::super::api::path::Id;
use super::super::random::Random;
use super::super::simulation::{Simulation, USER};
use super::draw::{Description, one_in};
use serde_json::{Value, json};
use std::time::Duration;

/// How fast one step comes after the other.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// As `kubectl apply` does with one file.
    AtOnce,
    /// With some seconds between them, in which the controller does what it can.
    OneByOne,
}

#[derive(Debug, Clone)]
enum Step {
    Create(Value),
    /// To what is described.
    Change(Value),
}

#[derive(Debug, Clone)]
pub struct Order {
    steps: Vec<Step>,
    /// How long after each; empty: at once.
    pauses: Vec<Duration>,
}

impl Order {
    /// As it is described.
    pub fn plain(description: &Description) -> Self {
        Self { steps: description.objects.iter().cloned().map(Step::Create).collect(), pauses: Vec::new() }
    }

    /// Some are something else first, and are changed later.
    pub fn shuffled(description: &Description, dice: &Random, pace: Pace) -> Self {
        let mut steps = Vec::new();
        for object in shuffled(&description.objects, dice) {
            match before(&object).filter(|_| one_in(dice, 3)) {
                None => steps.push(Step::Create(object)),
                Some(before) => {
                    steps.push(Step::Create(before));
                    steps.push(Step::Change(object));
                }
            }
        }
        // A change goes somewhere behind its creation.
        for at in (0..steps.len()).rev() {
            if matches!(steps[at], Step::Change(_)) {
                let to = at + place(dice, steps.len() - at);
                let step = steps.remove(at);
                steps.insert(to, step);
            }
        }
        let pause = |_: &Step| match pace {
            Pace::AtOnce => Duration::ZERO,
            Pace::OneByOne => Duration::from_millis(dice.below(4_000)),
        };
        let pauses = steps.iter().map(pause).collect();
        Self { steps, pauses }
    }
}

fn place(dice: &Random, many: usize) -> usize {
    usize::try_from(dice.below(many as u64)).unwrap_or_default()
}

fn shuffled(all: &[Value], dice: &Random) -> Vec<Value> {
    let mut left = all.to_vec();
    let mut shuffled = Vec::new();
    while !left.is_empty() {
        shuffled.push(left.swap_remove(place(dice, left.len())));
    }
    shuffled
}

/// What an object may have been before, of that which may change. Not a Subnet's second network: who got its addresses before that has
/// none of it.
fn before(object: &Value) -> Option<Value> {
    let mut before = object.clone();
    let spec = before["spec"].as_object_mut()?;
    match object["kind"].as_str()? {
        "Vpc" => ["defaultSecurityGroups", "dns", "routes"].iter().for_each(|field| drop(spec.remove(*field))),
        "Subnet" => drop(spec.remove("dhcp")),
        "SecurityGroup" => {
            spec.remove("ingress");
            spec.insert("egress".to_owned(), json!([{"ports": [{"protocol": "TCP", "port": 9}]}]));
        }
        "VNic" => {
            ["allowedAddresses", "qos"].iter().for_each(|field| drop(spec.remove(*field)));
            spec.insert("securityGroups".to_owned(), json!([]));
        }
        "FloatingIP" => drop(spec.remove("vnic")),
        _ => return None,
    }
    Some(before)
}

/// Resource, namespace and name.
pub(super) fn place_of(object: &Value) -> (String, &'static str, &str) {
    let (kind, name) = (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str());
    let namespace = if ["ProviderNetwork", "Node"].contains(&kind) { "" } else { USER };
    let plural = format!("{}s", kind.to_lowercase());
    let resource = if ["Node", "Pod"].contains(&kind) { plural } else { format!("metalplane.io/{plural}") };
    (resource, namespace, name.unwrap_or_default())
}

pub(super) async fn carry_out(s: &Simulation, order: &Order) {
    for (at, step) in order.steps.iter().enumerate() {
        match step {
            Step::Create(object) => {
                let (resource, namespace, _) = place_of(object);
                s.create(&resource, namespace, object.clone());
            }
            Step::Change(object) => {
                let (resource, namespace, name) = place_of(object);
                s.change(&resource, namespace, name, |there| there["spec"] = object["spec"].clone());
            }
        }
        if let Some(pause) = order.pauses.get(at).filter(|pause| !pause.is_zero()) {
            tokio::time::sleep(*pause).await;
        }
    }
}

/// What there is of it, in an order of the dice, with the pauses of the dice.
pub(super) async fn take_down(s: &Simulation, description: &Description, dice: &Random) {
    let slowly = one_in(dice, 2);
    for object in shuffled(&description.objects, dice) {
        let (resource, namespace, name) = place_of(&object);
        if s.scene.server.get(&resource, namespace, name).is_none() {
            continue;
        }
        match resource.as_str() {
            // The kubelet of its node, which is no part of the simulation, ends it at once.
            "pods" => {
                let now = json!({"gracePeriodSeconds": 0});
                let ended = s.scene.server.write(|store| store.delete(&Id::new("pods", namespace, name), &now));
                ended.unwrap_or_else(|refusal| panic!("pod {name}: {}", refusal.message));
            }
            _ => s.delete(&resource, namespace, name),
        }
        if slowly {
            tokio::time::sleep(Duration::from_millis(dice.below(4_000))).await;
        }
    }
}
