//! What an object of the network lacks is said at that object at once, and once it is there, the object is ready at once: no reason waits
//! for the next look of somebody who happens to come by.
//!
//! | file | cases |
//! |---|---|
//! | `inside.rs` | Vpcs, Subnets, SecurityGroups, VNics |
//! | `outside.rs` | ProviderNetworks, and what is on them |
//! | `deleted.rs` | what is deleted while it is used |
//! | `leaving.rs` | what is in the way because it is being deleted |
//! | `members.rs` | a SecurityGroup whose peers have too many members |
//! | `unreachable.rs` | what is made, changed and deleted while the north-bound database is away |
//! | `installed.rs` | what chassis have not installed, or nobody knows that they have |
//! | `pods.rs` | NICs of pods |
//! | `made.rs` | the objects of all those |
//! | `reasons.rs` | which reasons there are |

mod deleted;
mod inside;
mod installed;
mod leaving;
mod made;
mod members;
mod outside;
mod pods;
mod reasons;
mod unreachable;

pub use reasons::{WITHOUT_CASE, of_network};

use super::host::Host;
use super::life::condition;
use super::simulation::{INVENTORY, Simulation, USER};
use api::conditions::DELETABLE;
use planner::reason::{Blocked, Failed, Waiting};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const SAID_WITHIN: Duration = Duration::from_secs(2);
const CURED_WITHIN: Duration = Duration::from_secs(5);
/// Before something is missing, and before it is cured: a look that was put off, or that is tried again, is not to find either by chance.
const QUIET: Duration = Duration::from_secs(30);
/// In place of a condition, of what has none: its newest Event.
const EVENT: &str = "Event";

/// One thing that is missing, or in the way.
#[derive(Debug)]
pub struct Case {
    /// Kind and name.
    of: (&'static str, &'static str),
    /// All that is there before it, and then the object itself, or what one that is there is changed into. Of what is deleted: all that is
    /// there. What has a `deletionTimestamp` is being deleted before that ([`made::leaving`]).
    made: fn() -> Vec<Value>,
    /// The condition that says so, or [`EVENT`], and its reason. Of Deletable: the object is deleted, and what it waits for is the reason.
    says: (&'static str, &'static str),
    cure: Cure,
}

#[derive(Clone, Copy, Debug)]
enum Cure {
    Create(fn() -> Value),
    Delete(&'static str, &'static str),
    Change(&'static str, &'static str, fn(&mut Value)),
    Report(fn() -> Value),
    /// The chassis of this Dpu maps this physical network to a bridge.
    Map(&'static str, &'static str),
    /// The namespace gets this label.
    Label(&'static str, &'static str),
    /// What cannot be changed is deleted, and created with something else.
    Anew(fn() -> Value),
    /// The north-bound database, which was away, answers again.
    Reach,
    /// The same, after which something else is wrong.
    ReachTo(&'static str),
    /// The south-bound database, which was away, answers again.
    ReachChassis,
    /// The chassis of this Dpu, which had stopped, goes on.
    Go(&'static str),
    /// The agent of this Dpu, which had ended, runs again.
    Start(&'static str),
}

/// One of each.
pub fn cases() -> impl Iterator<Item = Case> {
    let there = inside::CASES.into_iter().chain(outside::CASES).chain(members::CASES).chain(leaving::CASES);
    there.chain(deleted::CASES).chain(unreachable::CASES).chain(installed::CASES).chain(pods::CASES)
}

/// The reasons that they say.
pub fn told() -> BTreeSet<&'static str> {
    cases().flat_map(|case| [case.says.1, later(case.says.1)]).collect()
}

/// What is said after a while, where nothing has changed. Chassis that are installing are named once they take too long.
fn later(reason: &'static str) -> &'static str {
    if reason == "NotInForce" { "ChassisUnresponsive" } else { reason }
}

fn resource(kind: &str) -> String {
    match kind {
        "Node" | "Pod" => format!("{}s", kind.to_lowercase()),
        "Hardware" => "tinkerbell.org/hardware".to_owned(),
        "NetworkAttachmentDefinition" => "k8s.cni.cncf.io/network-attachment-definitions".to_owned(),
        _ => format!("metalplane.io/{}s", kind.to_lowercase()),
    }
}

fn namespace(kind: &str) -> &'static str {
    match kind {
        "ProviderNetwork" | "Dpu" | "Node" => "",
        "Hardware" => INVENTORY,
        _ => USER,
    }
}

fn get(s: &Simulation, (kind, name): (&str, &str)) -> Value {
    s.scene.server.get(&resource(kind), namespace(kind), name).map(|found| Value::clone(&found)).unwrap_or_default()
}

fn said(s: &Simulation, case: &Case) -> Value {
    let object = get(s, case.of);
    if case.says.0 == EVENT {
        return newest_event(s, case.of, &object["metadata"]["generation"]);
    }
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|said| said["type"] == case.says.0).unwrap_or_default()
}

/// As a condition would say it.
fn newest_event(s: &Simulation, (kind, name): (&str, &str), generation: &Value) -> Value {
    let version =
        |event: &Value| event["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    let all = s.scene.server.list("events.k8s.io/events");
    let of_it = all.iter().filter(|event| event["regarding"]["kind"] == kind && event["regarding"]["name"] == name);
    let Some(newest) = of_it.max_by_key(|event| version(event).unwrap_or(0u64)) else { return Value::Null };
    let status = if newest["reason"] == pods::WORKS { "True" } else { "False" };
    json!({"status": status, "reason": newest["reason"], "message": newest["note"], "observedGeneration": generation})
}

/// Of the newest generation: names an object, and what to type where a person can do something.
fn says(s: &Simulation, case: &Case, reason: &str) -> bool {
    let (said, there) = (said(s, case), get(s, case.of));
    let message = said["message"].as_str().unwrap_or_default();
    let is_it = said["status"] == "False" && said["reason"] == reason;
    is_it && said["observedGeneration"] == there["metadata"]["generation"] && is_told(reason, message)
}

fn is_told(reason: &str, message: &str) -> bool {
    let mut all = Waiting::TABLE.iter().chain(Blocked::TABLE).chain(Failed::TABLE);
    let Some((_, template, next)) = all.find(|(name, ..)| *name == reason) else { return false };
    let names = !template.contains("'{") || message.contains('\'');
    names && !message.is_empty() && (next.is_empty() || message.contains(". Next: "))
}

/// The newest generation of it.
fn is_cured(s: &Simulation, case: &Case) -> bool {
    let there = get(s, case.of);
    if case.says.0 == DELETABLE {
        return there.is_null();
    }
    let said = said(s, case);
    let is_it = match case.cure {
        Cure::ReachTo(reason) => said["status"] == "False" && said["reason"] == reason,
        _ => said["status"] == "True",
    };
    is_it && said["observedGeneration"] == there["metadata"]["generation"]
}

/// What the cure will put right.
async fn begin(s: &mut Simulation, cure: Cure) {
    match cure {
        Cure::Reach | Cure::ReachTo(_) => s.scene.north_bound.set_down(true),
        Cure::ReachChassis => s.scene.north_bound.set_south_bound_down(true),
        Cure::Go(dpu) => s.scene.north_bound.stop_chassis(&chassis(s, dpu), true),
        Cure::Start(dpu) => {
            s.stop_agent(&host(s, dpu));
            tokio::time::sleep(QUIET).await;
        }
        _ => {}
    }
}

fn chassis(s: &Simulation, dpu: &str) -> String {
    get(s, ("Dpu", dpu))["status"]["network"]["chassis"].as_str().unwrap_or_default().to_owned()
}

fn host(s: &Simulation, dpu: &str) -> Arc<Host> {
    s.scene.hosts.iter().find(|host| host.dpu_name == dpu).expect("it has a host").clone()
}

async fn settle(s: &mut Simulation, case: &Case) -> Result<(), String> {
    match case.cure {
        Cure::Create(made) => create(s, made()),
        Cure::Delete(kind, name) => s.delete(&resource(kind), namespace(kind), name),
        Cure::Change(kind, name, change) => s.change(&resource(kind), namespace(kind), name, change),
        Cure::Report(said) => report(s, said()),
        Cure::Map(dpu, physical_network) => s.scene.north_bound.map(&chassis(s, dpu), physical_network),
        Cure::Label(key, value) => {
            s.change("namespaces", "", USER, |namespace| namespace["metadata"]["labels"][key] = json!(value));
        }
        Cure::Anew(made) => {
            let (kind, name) = case.of;
            s.delete(&resource(kind), namespace(kind), name);
            s.until("the name is free", |s| get(s, case.of).is_null()).await?;
            create(s, made());
        }
        Cure::Reach | Cure::ReachTo(_) => s.scene.north_bound.set_down(false),
        Cure::ReachChassis => s.scene.north_bound.set_south_bound_down(false),
        Cure::Go(dpu) => s.scene.north_bound.stop_chassis(&chassis(s, dpu), false),
        Cure::Start(dpu) => s.start_agent(&host(s, dpu)),
    }
    Ok(())
}

/// Or changes the one that is there into it.
fn create(s: &Simulation, mut object: Value) {
    let meta = object["metadata"].as_object_mut().expect("an object");
    meta.remove("deletionTimestamp");
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match get(s, (kind.as_str(), name.as_str())).is_null() {
        true => s.create(&resource(&kind), namespace(&kind), object.clone()),
        false => s.change(&resource(&kind), namespace(&kind), &name, |there| there["spec"] = object["spec"].clone()),
    }
    if object.get("status").is_some() {
        report(s, object);
    }
}

fn report(s: &Simulation, object: Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    s.report(&resource(&kind), namespace(&kind), object);
}

/// How long it took.
async fn until(s: &Simulation, what: &str, limit: Duration, is_so: impl Fn(&Simulation) -> bool) -> Result<(), String> {
    let began = Instant::now();
    s.until(what, is_so).await?;
    let took = began.elapsed();
    if took > limit { Err(format!("{what}: after {took:?}, later than {limit:?}\n{}", s.story())) } else { Ok(()) }
}

pub async fn one(s: &mut Simulation, case: &Case) -> Result<(), String> {
    let (kind, name) = case.of;
    s.until("the site is there", |s| condition(&get(s, ("Subnet", "blue")), "Ready") == "True").await?;
    let mut made = (case.made)();
    let last = if case.says.0 == DELETABLE { None } else { made.pop() };
    let is_leaving = |object: &&Value| object["metadata"].get("deletionTimestamp").is_some();
    let leaving: Vec<Value> = made.iter().filter(is_leaving).cloned().collect();
    made.into_iter().for_each(|object| create(s, object));
    tokio::time::sleep(QUIET).await;
    for object in &leaving {
        let (kind, name) = (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str());
        s.delete(&resource(kind), namespace(kind), name.unwrap_or_default());
        tokio::time::sleep(QUIET).await;
    }
    begin(s, case.cure).await;
    match last {
        Some(object) => create(s, object),
        None => s.delete(&resource(kind), namespace(kind), name),
    }
    until(s, &format!("{kind} {name} says {}", case.says.1), SAID_WITHIN, |s| says(s, case, case.says.1)).await?;
    tokio::time::sleep(QUIET).await;
    let later = later(case.says.1);
    if !says(s, case, later) {
        return Err(format!("{kind} {name} does not say {later} in the end: {}\n{}", said(s, case), s.story()));
    }
    let cured = format!("{kind} {name} is cured of {}", case.says.1);
    let began = Instant::now();
    settle(s, case).await?;
    until(s, &cured, CURED_WITHIN.saturating_sub(began.elapsed()), |s| is_cured(s, case)).await
}
