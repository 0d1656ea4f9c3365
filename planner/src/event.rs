//! Events of Tinkerbell's objects: a closed set, as reasons are. An Event is told when an object becomes what the Event says, from what
//! the object was before; so who looks twice tells it once. A Workflow that a machine has made tells none: its machine does.

/// What is told, of which object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    WorkflowStarted,
    WorkflowSucceeded,
    WorkflowFailed,
    WorkflowTimedOut,
    ActionFailed,
    ActionTimedOut,
    ActionRetried,
    Queued,
    AgentLost,
    AgentHeardAgain,
    Enrolled,
    JobRunning,
    JobCompleted,
    JobFailed,
    Discovered,
    Approved,
}

/// How an Event stands in the API, and in the reference.
struct Row {
    kind: &'static str,
    reason: &'static str,
    /// Somebody may have to do something.
    is_warning: bool,
    about: &'static str,
}

const fn row(kind: &'static str, reason: &'static str, is_warning: bool, about: &'static str) -> Row {
    Row { kind, reason, is_warning, about }
}

const WORKFLOW: &str = "Workflow";
const JOB: &str = "Job";
const HARDWARE: &str = "Hardware";

impl Event {
    pub const ALL: [Self; 16] = [
        Self::Enrolled,
        Self::Queued,
        Self::WorkflowStarted,
        Self::ActionRetried,
        Self::ActionFailed,
        Self::ActionTimedOut,
        Self::AgentLost,
        Self::AgentHeardAgain,
        Self::WorkflowSucceeded,
        Self::WorkflowFailed,
        Self::WorkflowTimedOut,
        Self::JobRunning,
        Self::JobCompleted,
        Self::JobFailed,
        Self::Discovered,
        Self::Approved,
    ];

    fn row(self) -> Row {
        match self {
            Self::WorkflowStarted => row(WORKFLOW, "WorkflowStarted", false, "its first action runs"),
            Self::WorkflowSucceeded => row(WORKFLOW, "WorkflowSucceeded", false, "every action has succeeded"),
            Self::WorkflowFailed => {
                row(WORKFLOW, "WorkflowFailed", true, "the Workflow is FAILED: why, and which tasks never began")
            }
            Self::WorkflowTimedOut => row(WORKFLOW, "WorkflowTimedOut", true, "the Workflow is TIMEOUT, likewise"),
            Self::ActionFailed => {
                row(WORKFLOW, "ActionFailed", true, "an action is FAILED: the last line of its message")
            }
            Self::ActionTimedOut => row(WORKFLOW, "ActionTimedOut", true, "an action is TIMEOUT, likewise"),
            Self::ActionRetried => row(
                WORKFLOW,
                "ActionRetried",
                true,
                "an action is served again, after a failure or a restart of its server",
            ),
            Self::Queued => row(WORKFLOW, "Queued", false, "another Workflow, or a machine, has the agent: which"),
            Self::AgentLost => {
                row(WORKFLOW, "AgentLost", true, "no heartbeat of an agent that is at work comes any more")
            }
            Self::AgentHeardAgain => row(WORKFLOW, "AgentHeardAgain", false, "the agent that was lost is heard"),
            Self::Enrolled => row(WORKFLOW, "Enrolled", false, "a WorkflowRuleSet has made the Workflow: which"),
            Self::JobRunning => row(JOB, "Running", false, "the Job begins: how many requests, to which BMC"),
            Self::JobCompleted => row(JOB, "Completed", false, "every request was carried out"),
            Self::JobFailed => row(JOB, "Failed", true, "the Task that failed, and what its BMC said"),
            Self::Discovered => row(HARDWARE, "Discovered", false, "made of what an agent has reported"),
            Self::Approved => row(HARDWARE, "Approved", false, "a discovered server may be claimed from now on"),
        }
    }

    /// Of whose object the Event is.
    pub fn kind(self) -> &'static str {
        self.row().kind
    }

    pub fn reason(self) -> &'static str {
        self.row().reason
    }

    pub fn is_warning(self) -> bool {
        self.row().is_warning
    }

    /// For the reference.
    pub fn about(self) -> &'static str {
        self.row().about
    }

    pub fn told(self, message: impl Into<String>) -> Told {
        Told { event: self, message: message.into() }
    }
}

/// An Event that is to be sent, with its note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub event: Event,
    pub message: String,
}
