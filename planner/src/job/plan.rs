//! What a plan for a Job rests on, and what it is.

use super::request::Request;
use crate::event::Told;
use crate::host::BmcNeed;
use crate::meta::{Target, name};
use crate::observed::BmcSeen;
use api::tinkerbell::Machine;
use api::tinkerbell::job::{Job, JobStatus, RunCondition};
use api::tinkerbell::task::{Task, TaskStatus};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

pub const RUNNING: &str = "Running";
pub const COMPLETED: &str = "Completed";
pub const FAILED: &str = "Failed";

/// How long anything is waited for: a Machine, a server that another Job has, an effect.
pub const LIMIT: SignedDuration = SignedDuration::from_mins(10);
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
    /// What this process sent last for the Job, for whichever Task.
    pub sent: Option<Sent>,
}

/// A Hardware, as a Job sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    pub hardware: String,
    /// Who has claimed the server, in words.
    pub claimed_by: Option<String>,
    /// That is a Dpu which looks for its boot option: it gives the server back by itself.
    pub is_discovery: bool,
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
    /// Of the Job.
    pub tell: Option<Told>,
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

pub(super) fn set(conditions: &mut Vec<RunCondition>, type_: &str, message: Option<String>) {
    let new = RunCondition { type_: type_.to_owned(), status: "True".to_owned(), message };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// What this process sent last for a Task. A process that starts knows of none, and reads before it sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The UID of the Task.
    pub task: String,
    pub request: Request,
    /// When it was about to be sent: what a reading that began earlier shows says nothing of it.
    pub at: Timestamp,
    /// How often, so far.
    pub count: u32,
    pub answer: Answer,
}

/// What the BMC said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// Not now, or nothing was sent: it was not done.
    NotNow(String),
    /// The BMC will not do it.
    Refused(String),
    /// It may have been done.
    Unknown(String),
}
