//! Tinkerbell's Jobs: requests to one BMC, one after the other, each a Task.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what becomes of a Job, and which Task is next |
//! | `request.rs` | what an action of Tinkerbell's asks of a BMC, in the words of the port; what is not served, by name |
//! | `step.rs` | one Task: what is sent, when it is sent again, and when it is done |
//! | `contact.rs` | what a bmc.tinkerbell.org Machine says of its BMC |
//!
//! A Job has its server for as long as it runs (`metalplane.io/job` on the Hardware, by compare-and-swap, as a claim is), and a server
//! that a machine has claimed is touched by none. A Task's start is written before anything is sent. What is sent again is only what
//! does no harm twice, and only after a reading of this moment; a reset whose answer was lost is `Failed`, for nobody knows.

mod contact;
mod request;
mod step;
#[cfg(test)]
mod tests;

pub use contact::contact;
pub use request::Request;
pub use step::{Answer, Sent};

use crate::machine::BmcNeed;
use crate::machine::observed::{BmcSeen, name, uid};
use crate::machine::plan::Target;
use api::tinkerbell::Machine;
use api::tinkerbell::job::{Job, JobStatus, RunCondition};
use api::tinkerbell::task::{Task, TaskSpec, TaskStatus};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const RUNNING: &str = "Running";
pub const COMPLETED: &str = "Completed";
pub const FAILED: &str = "Failed";

/// How long anything is waited for: a Machine, a server that another Job has, an effect.
pub const LIMIT: SignedDuration = SignedDuration::from_mins(10);
/// On a Task: the Job that the Task was made for; upstream's.
const OWNER_NAME: &str = "owner-name";

/// What a plan for a Job rests on.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub job: Arc<Job>,
    /// The objects with the names of its Tasks, whosever they are.
    pub tasks: Vec<Arc<Task>>,
    /// The namespace whose Machines are served.
    pub inventory: String,
    pub machine: Option<Arc<Machine>>,
    pub bmc: BmcSeen,
    /// The servers behind the BMC: each Hardware that names it.
    pub servers: Vec<Server>,
    /// The Dpus whose own BMC it is.
    pub dpus: Vec<String>,
    /// What this process sent for the Task that runs.
    pub sent: Option<Sent>,
}

/// A Hardware, as a Job sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    pub hardware: String,
    /// The machine that has claimed the server.
    pub claimed_by: Option<String>,
    /// The UID on record of the Job that has the server.
    pub job: Option<String>,
    /// The name of that Job, if it is another one that exists and has not ended.
    pub other: Option<String>,
}

/// What becomes of a Job now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// To be written; `None`: the status stands.
    pub status: Option<JobStatus>,
    /// The status of one of the Tasks, by its name, to be written.
    pub task: Option<(String, TaskStatus)>,
    pub action: Option<Action>,
    pub bmc: BmcNeed,
    pub wake_at: Option<Timestamp>,
    /// An Event of the Job: reason and note.
    pub tell: Option<(&'static str, String)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The Job's UID on this Hardware, in the version in which it was unclaimed.
    Hold {
        hardware: String,
    },
    /// And off it.
    Release {
        hardware: String,
    },
    CreateTask(Box<Task>),
    /// Of an earlier Job of this name.
    DeleteTask(Target),
    /// Sent to the BMC once `task`'s start is on record.
    Send {
        task: String,
        request: Request,
    },
}

pub fn is(conditions: &[RunCondition], type_: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

pub fn message<'a>(conditions: &'a [RunCondition], type_: &str) -> &'a str {
    let found = conditions.iter().find(|condition| condition.type_ == type_);
    found.and_then(|condition| condition.message.as_deref()).unwrap_or_default()
}

/// Nothing is sent for the Job any more.
pub fn is_over(job: &Job) -> bool {
    let conditions = job.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    is(conditions, COMPLETED) || is(conditions, FAILED) || job.metadata.deletion_timestamp.is_some()
}

/// As upstream names it.
pub fn task_name(job: &Job, at: usize) -> String {
    format!("{}-task-{at}", name(&job.metadata))
}

fn set(conditions: &mut Vec<RunCondition>, type_: &str, message: Option<String>) {
    let new = RunCondition { type_: type_.to_owned(), status: "True".to_owned(), message };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// A later step than the status that it rests on is planned when that status is written: one write, or one action, a round.
pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let job = &o.job;
    if is_over(job) {
        let own = o.servers.iter().find(|server| server.job.as_deref() == Some(uid(&job.metadata)));
        let action = own.map(|server| Action::Release { hardware: server.hardware.clone() });
        return Plan { action, ..Plan::default() };
    }
    let before = job.status.clone().unwrap_or_default();
    let Some(began) = before.start_time.as_ref().map(|time| time.0) else {
        let mut status = before;
        status.start_time = Some(Time(now));
        set(&mut status.conditions, RUNNING, None);
        let tell = Some((RUNNING, format!("{} requests to BMC '{}'", job.spec.tasks.len(), job.spec.machine_ref.name)));
        return Plan { status: Some(status), tell, ..Plan::default() };
    };
    match next(o, began, now) {
        Ok(plan) => plan,
        Err(Stop::Failed(why)) => ended(o, FAILED, Some(why), now),
        Err(Stop::Waits(why, since)) if now >= since + LIMIT => {
            let why = format!("{why}: {} minutes have passed", LIMIT.as_mins());
            ended(o, FAILED, Some(why), now)
        }
        Err(Stop::Waits(why, since)) => {
            let mut status = before.clone();
            set(&mut status.conditions, RUNNING, Some(why));
            Plan {
                status: (status != before).then_some(status),
                bmc: BmcNeed::Slow,
                wake_at: Some(since + LIMIT),
                ..Plan::default()
            }
        }
    }
}

/// Why a Job does not go on.
enum Stop {
    Failed(String),
    /// And since when.
    Waits(String, Timestamp),
}

fn ended(o: &Observed, type_: &'static str, message: Option<String>, now: Timestamp) -> Plan {
    let mut status = o.job.status.clone().unwrap_or_default();
    set(&mut status.conditions, type_, message.clone());
    if type_ == COMPLETED {
        status.completion_time = Some(Time(now));
    }
    let note = message.unwrap_or_else(|| "every request was carried out".to_owned());
    Plan { status: Some(status), tell: Some((type_, note)), ..Plan::default() }
}

fn next(o: &Observed, began: Timestamp, now: Timestamp) -> Result<Plan, Stop> {
    let (job, reference) = (&o.job, &o.job.spec.machine_ref);
    if reference.namespace != o.inventory || job.metadata.namespace.as_deref() != Some(&o.inventory) {
        return Err(Stop::Failed(format!(
            "Job '{}': Jobs and Machines are served in namespace '{}' alone, spec.machineRef.namespace is '{}'. Next: write the Job and \
             its machineRef with that namespace",
            name(&job.metadata),
            o.inventory,
            reference.namespace
        )));
    }
    let machine = o.machine.as_deref().ok_or_else(|| {
        let why = format!("there is no bmc.tinkerbell.org Machine '{}' in '{}'", reference.name, o.inventory);
        Stop::Waits(why, began)
    })?;
    if let Some(dpu) = o.dpus.first() {
        return Err(Stop::Failed(format!(
            "BMC '{}' is the own BMC of Dpu '{dpu}' (spec.bmcRef), whose readings decide about volumes: no Job commands it",
            reference.name
        )));
    }
    if let Some(plan) = hold(o, began)? {
        return Ok(plan);
    }
    for at in 0..job.spec.tasks.len() {
        let called = task_name(job, at);
        let Some(task) = o.tasks.iter().find(|task| name(&task.metadata) == called) else {
            let action = Some(Action::CreateTask(Box::new(new_task(job, at, machine))));
            return Ok(Plan { action, ..Plan::default() });
        };
        if let Some(plan) = foreign(job, task, began)? {
            return Ok(plan);
        }
        let conditions = task.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        if is(conditions, FAILED) {
            return Err(Stop::Failed(format!("Task '{called}' failed: {}", message(conditions, FAILED))));
        }
        if !is(conditions, COMPLETED) {
            return Ok(step::step(task, &o.bmc, o.sent.as_ref(), now));
        }
    }
    Ok(ended(o, COMPLETED, None, now))
}

/// No server of this BMC is a machine's, or another Job's; and this Job is on record at each.
fn hold(o: &Observed, began: Timestamp) -> Result<Option<Plan>, Stop> {
    for server in &o.servers {
        let hardware = &server.hardware;
        if let Some(machine) = &server.claimed_by {
            return Err(Stop::Failed(format!(
                "Hardware '{hardware}' is claimed by BareMetalMachine '{machine}': no Job commands a claimed server. Next: bmctl stop, \
                 start or restart of that machine; or kubectl delete bmm"
            )));
        }
        if server.job.as_deref() == Some(uid(&o.job.metadata)) {
            continue;
        }
        if let Some(other) = &server.other {
            return Err(Stop::Waits(format!("Job '{other}' has the server of Hardware '{hardware}'"), began));
        }
        let action = Some(Action::Hold { hardware: hardware.clone() });
        return Ok(Some(Plan { action, bmc: BmcNeed::Slow, ..Plan::default() }));
    }
    Ok(None)
}

/// The name of a Task may be taken: by one of an earlier Job of this name, which is deleted; or by somebody's own.
fn foreign(job: &Job, task: &Task, began: Timestamp) -> Result<Option<Plan>, Stop> {
    let mut owners = task.metadata.owner_references.iter().flatten();
    let of_a_job = |owner: &&OwnerReference| owner.kind == "Job" && owner.name == name(&job.metadata);
    let owner = owners.find(of_a_job).map(|owner| owner.uid.as_str());
    if owner == Some(uid(&job.metadata)) && task.metadata.deletion_timestamp.is_none() {
        return Ok(None);
    }
    let called = name(&task.metadata);
    if owner.is_none() || task.metadata.deletion_timestamp.is_some() {
        return Err(Stop::Waits(format!("Task '{called}' is not this Job's, or is being deleted"), began));
    }
    let target = Target {
        namespace: task.metadata.namespace.clone().unwrap_or_default(),
        name: called.to_owned(),
        uid: uid(&task.metadata).to_owned(),
    };
    Ok(Some(Plan { action: Some(Action::DeleteTask(target)), ..Plan::default() }))
}

fn new_task(job: &Job, at: usize, machine: &Machine) -> Task {
    let owner = OwnerReference {
        api_version: "bmc.tinkerbell.org/v1alpha1".to_owned(),
        kind: "Job".to_owned(),
        name: name(&job.metadata).to_owned(),
        uid: uid(&job.metadata).to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    Task {
        metadata: ObjectMeta {
            name: Some(task_name(job, at)),
            namespace: job.metadata.namespace.clone(),
            labels: Some(BTreeMap::from([(OWNER_NAME.to_owned(), name(&job.metadata).to_owned())])),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: TaskSpec { task: job.spec.tasks[at].clone(), connection: Some(machine.spec.connection.clone()) },
        status: None,
    }
}
