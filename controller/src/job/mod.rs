//! Tinkerbell's Jobs: gather → plan → status → act, a step a round. The status is written first: it is the record of what is about to
//! be sent.

pub(crate) mod contact;

use crate::bmc::{Owner, Which};
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::work::Work;
use crate::{Controller, clock, objects};
use api::labels;
use api::tinkerbell::{Hardware, Job, Machine, Task};
use planner::boot_option::discovery::is_under_way;
use planner::install::claimer;
use planner::job::{Action, Answer, Observed, Plan, Request, Sent, Server, is_over, plan, task_name};
use planner::meta::{annotation, name, uid};
use ports::{ErrorClass, PortError};
use runtime::queue::{Key, Next};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROUNDS: usize = 16;

pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let owner = Owner::Job(key.clone());
    for _ in 0..ROUNDS {
        let Some(job) = c.world.jobs.get(&key.0, &key.1) else {
            c.hosts.needs(&owner, &[]);
            c.sent.forget(key);
            release_the_ended(c).await?;
            return Ok(Next::Wait);
        };
        let o = gather(c, key, job);
        let plan = plan(&o, clock::now());
        c.hosts.needs(&owner, &[(Which::Machine(o.job.spec.machine_ref.name.clone()), plan.bmc)]);
        if is_over(&o.job) {
            c.sent.forget(key);
        }
        let wrote = write(c, &o, &plan).await?;
        if let Some(action) = &plan.action {
            act(c, key, &o, action).await?;
        } else if !wrote {
            return Ok(Next::at(plan.wake_at));
        }
    }
    c.world.look(Work::Job, key.clone());
    Ok(Next::Wait)
}

fn gather(c: &Controller, key: &Key, job: Arc<Job>) -> Observed {
    let (world, machine) = (&c.world, job.spec.machine_ref.name.as_str());
    let bmc = IndexKey::names::<Machine>("", machine);
    let own = IndexKey::owner(uid(&job.metadata));
    let names = (0..job.spec.tasks.len()).map(|at| task_name(&job, at));
    let tasks: Vec<Arc<Task>> = names.filter_map(|name| world.tasks.get(&key.0, &name)).collect();
    // One that no longer names this BMC is still to be released.
    let hardware = world.hardware.by(&bmc).into_iter().chain(world.hardware.by(&own));
    let servers: BTreeMap<String, Server> =
        hardware.map(|hardware| (name(&hardware.metadata).to_owned(), server(c, &job, &hardware))).collect();
    Observed {
        sent: c.sent.of(key),
        machine: c.hosts.machines().get(&c.inventory, machine),
        bmc: c.hosts.seen(&Which::Machine(machine.to_owned())),
        dpus: world.dpus.by(&bmc).iter().map(|dpu| name(&dpu.metadata).to_owned()).collect(),
        inventory: c.inventory.clone(),
        servers: servers.into_values().collect(),
        tasks,
        job,
    }
}

fn server(c: &Controller, job: &Job, hardware: &Hardware) -> Server {
    let meta = &hardware.metadata;
    let other = that_has(c, hardware).filter(|other| other.metadata.uid != job.metadata.uid);
    Server {
        hardware: name(meta).to_owned(),
        claimed_by: claimer(meta),
        is_discovery: is_under_way(meta),
        job: annotation(meta, labels::JOB).map(str::to_owned),
        other: other.map(|other| name(&other.metadata).to_owned()),
    }
}

/// The Job that commands the BMC of this server, and has not ended.
pub(crate) fn that_has(c: &Controller, hardware: &Hardware) -> Option<Arc<Job>> {
    let job = annotation(&hardware.metadata, labels::JOB)?;
    c.world.jobs.by(&IndexKey::uid(job)).into_iter().find(|job| !is_over(job))
}

/// True: something new was written. What is sent has its start on record afterwards.
async fn write(c: &Controller, o: &Observed, plan: &Plan) -> Result<bool, Error> {
    let mut wrote = false;
    if let Some((called, status)) = &plan.task
        && let Some(task) = o.tasks.iter().find(|task| name(&task.metadata) == called)
        && task.status.as_ref() != Some(status)
    {
        let updated = Task { status: Some(status.clone()), ..Task::clone(task) };
        let api = c.objects.namespaced(&c.inventory);
        objects::change_status(&api, &c.world.tasks, task.as_ref(), &updated).await?;
        wrote = true;
    }
    if let Some(status) = &plan.status {
        let updated = Job { status: Some(status.clone()), ..Job::clone(&o.job) };
        let api = c.objects.namespaced(&c.inventory);
        objects::change_status(&api, &c.world.jobs, o.job.as_ref(), &updated).await?;
        wrote = true;
    }
    if let Some(told) = &plan.tell {
        c.events.became(o.job.as_ref(), told);
    }
    Ok(wrote)
}

async fn act(c: &Controller, key: &Key, o: &Observed, action: &Action) -> Result<(), Error> {
    match action {
        Action::Hold { hardware } => hold(c, hardware, Some(uid(&o.job.metadata))).await,
        Action::Release { hardware } => hold(c, hardware, None).await,
        Action::CreateTask(task) => {
            let owner = |task: &Task| task.metadata.owner_references.iter().flatten().next().map(|o| o.uid.clone());
            let ours = |there: &Task| owner(there) == owner(task);
            objects::create(&c.objects.namespaced(&key.0), &c.world.tasks, task.as_ref(), ours).await.map(drop)
        }
        Action::DeleteTask(target) => {
            let there = o.tasks.iter().find(|task| uid(&task.metadata) == target.uid);
            let Some(there) = there else { return Ok(()) };
            let api = c.objects.namespaced::<Task>(&target.namespace);
            objects::delete(&api, &c.world.tasks, &there.metadata, false).await
        }
        Action::Send { task, request } => {
            let task = o.tasks.iter().find(|there| name(&there.metadata) == task);
            let Some(task) = task else { return Ok(()) };
            send(c, key, o, task, request).await;
            Ok(())
        }
    }
}

/// In the version in which the plan saw the Hardware: a claim that was faster wins.
async fn hold(c: &Controller, hardware: &str, job: Option<&str>) -> Result<(), Error> {
    let Some(there) = c.world.hardware.get(&c.inventory, hardware) else { return Ok(()) };
    let meta = &there.metadata;
    let change = json!({"metadata": {"annotations": {labels::JOB: job}}});
    let api = c.objects.namespaced::<Hardware>(&c.inventory);
    let version = meta.resource_version.as_deref();
    objects::patch(&api, &c.world.hardware, hardware, uid(meta), version, change).await.map(drop)
}

/// Jobs that were deleted have left their UIDs on servers.
async fn release_the_ended(c: &Controller) -> Result<(), Error> {
    for hardware in c.world.hardware.all() {
        let job = annotation(&hardware.metadata, labels::JOB);
        if job.is_some_and(|job| c.world.jobs.by(&IndexKey::uid(job)).is_empty()) {
            hold(c, name(&hardware.metadata), None).await?;
        }
    }
    Ok(())
}

/// The answer is remembered; what it did is seen in a reading that begins later.
async fn send(c: &Controller, key: &Key, o: &Observed, task: &Task, request: &Request) {
    let bmc = o.job.spec.machine_ref.name.as_str();
    let of = uid(&task.metadata);
    let same = o.sent.as_ref().filter(|sent| sent.task == of && sent.request == *request);
    let count = same.map_or(0, |sent| sent.count) + 1;
    let mut sent = Sent {
        task: of.to_owned(),
        request: request.clone(),
        at: clock::now(),
        count,
        answer: Answer::Unknown("the answer is awaited".to_owned()),
    };
    c.sent.put(key, sent.clone());
    let result = match confirm(c, o).await {
        Err(why) => Err(PortError::new(ErrorClass::Busy, why)),
        Ok(()) => match c.hosts.named(bmc) {
            Some(host) => host.command(request, o.bmc.read_at).await,
            None => Err(PortError::new(ErrorClass::Busy, format!("BMC '{bmc}' has not been read yet"))),
        },
    };
    tracing::info!(bmc, job = key.1, ?request, error = result.as_ref().err().map(tracing::field::display), "sent");
    sent.answer = match result {
        Ok(()) => Answer::Accepted,
        Err(error) => match error.class {
            ErrorClass::Unreachable => Answer::Unknown(error.message),
            ErrorClass::Busy => Answer::NotNow(error.message),
            ErrorClass::Unauthorized
            | ErrorClass::NotFound
            | ErrorClass::Conflict
            | ErrorClass::Unsupported
            | ErrorClass::Invalid => Answer::Refused(error.message),
        },
    };
    c.sent.put(key, sent);
}

/// From quorum: each server behind the BMC is this Job's, and no machine's.
async fn confirm(c: &Controller, o: &Observed) -> Result<(), String> {
    let api = c.objects.namespaced::<Hardware>(&c.inventory);
    for server in &o.servers {
        let what = format!("get Hardware '{}'", server.hardware);
        let there = call(&what, api.get(&server.hardware)).await.map_err(|error| error.to_string())?;
        let meta = &there.metadata;
        let ours = annotation(meta, labels::JOB) == Some(uid(&o.job.metadata));
        let free = annotation(meta, labels::CLAIMED_BY).is_none();
        c.world.hardware.put(there.clone());
        if !ours || !free {
            return Err(format!("Hardware '{}' is not this Job's any more", server.hardware));
        }
    }
    Ok(())
}
