//! What becomes of a Job, and which Task is next.

use super::plan::{Action, COMPLETED, FAILED, LIMIT, Observed, Plan, RUNNING, is, is_over, message, set, task_name};
use super::step;
use crate::event::Event;
use crate::host::BmcNeed;
use crate::meta::{Target, name, uid};
use api::tinkerbell::Machine;
use api::tinkerbell::job::Job;
use api::tinkerbell::task::{Task, TaskSpec};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use std::collections::BTreeMap;

/// On a Task: the Job that the Task was made for; upstream's.
const OWNER_NAME: &str = "owner-name";

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
        let note = format!("{} requests to BMC '{}'", job.spec.tasks.len(), job.spec.machine_ref.name);
        let tell = Some(Event::JobRunning.told(note));
        return Plan { status: Some(status), tell, ..Plan::default() };
    };
    match next(o, last_end(o).map_or(began, |end| end.max(began)), now) {
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

/// When the Task before ended: what a Job waits for is waited for from then on, however long its Tasks took.
fn last_end(o: &Observed) -> Option<Timestamp> {
    let ends = o.tasks.iter().filter_map(|task| task.status.as_ref()?.completion_time.as_ref());
    ends.map(|time| time.0).max()
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
    let tell = match message {
        Some(why) => Event::JobFailed.told(why),
        None => Event::JobCompleted.told("every request was carried out"),
    };
    Plan { status: Some(status), tell: Some(tell), ..Plan::default() }
}

fn next(o: &Observed, since: Timestamp, now: Timestamp) -> Result<Plan, Stop> {
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
        Stop::Waits(why, since)
    })?;
    if let Some(dpu) = o.dpus.first() {
        return Err(Stop::Failed(format!(
            "BMC '{}' is the own BMC of Dpu '{dpu}' (spec.bmcRef), whose readings decide about volumes: no Job commands it",
            reference.name
        )));
    }
    if let Some(plan) = hold(o, since)? {
        return Ok(plan);
    }
    for at in 0..job.spec.tasks.len() {
        let called = task_name(job, at);
        let Some(task) = o.tasks.iter().find(|task| name(&task.metadata) == called) else {
            let action = Some(Action::CreateTask(Box::new(new_task(job, at, machine))));
            return Ok(Plan { action, ..Plan::default() });
        };
        if let Some(plan) = foreign(job, task, since)? {
            return Ok(plan);
        }
        let conditions = task.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        if is(conditions, FAILED) {
            return Err(Stop::Failed(format!("Task '{called}' failed: {}", message(conditions, FAILED))));
        }
        if !is(conditions, COMPLETED) {
            let sent = o.sent.as_ref().filter(|sent| sent.task == uid(&task.metadata));
            return Ok(step::step(task, &o.bmc, sent, now));
        }
    }
    Ok(ended(o, COMPLETED, None, now))
}

/// No server of this BMC is a machine's, or another Job's; and this Job is on record at each.
fn hold(o: &Observed, since: Timestamp) -> Result<Option<Plan>, Stop> {
    for server in &o.servers {
        let hardware = &server.hardware;
        if let Some(by) = &server.claimed_by {
            let why = format!("Hardware '{hardware}' is claimed by {by}");
            if server.is_discovery {
                return Err(Stop::Waits(why, since));
            }
            return Err(Stop::Failed(format!(
                "{why}: no Job commands a claimed server. Next: bmctl stop, \
                 start or restart of that machine; or kubectl delete bmm"
            )));
        }
        if server.job.as_deref() == Some(uid(&o.job.metadata)) {
            continue;
        }
        if let Some(other) = &server.other {
            return Err(Stop::Waits(format!("Job '{other}' has the server of Hardware '{hardware}'"), since));
        }
        let action = Some(Action::Hold { hardware: hardware.clone() });
        return Ok(Some(Plan { action, bmc: BmcNeed::Slow, ..Plan::default() }));
    }
    Ok(None)
}

/// The name of a Task may be taken: by one of an earlier Job of this name, which is deleted; or by somebody's own.
fn foreign(job: &Job, task: &Task, since: Timestamp) -> Result<Option<Plan>, Stop> {
    let mut owners = task.metadata.owner_references.iter().flatten();
    let of_a_job = |owner: &&OwnerReference| owner.kind == "Job" && owner.name == name(&job.metadata);
    let owner = owners.find(of_a_job).map(|owner| owner.uid.as_str());
    if owner == Some(uid(&job.metadata)) && task.metadata.deletion_timestamp.is_none() {
        return Ok(None);
    }
    let called = name(&task.metadata);
    if owner.is_none() || task.metadata.deletion_timestamp.is_some() {
        return Err(Stop::Waits(format!("Task '{called}' is not this Job's, or is being deleted"), since));
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
