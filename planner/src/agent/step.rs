//! Steps, and the closed set of reasons for taking none.

use super::{Import, Key, Kind, Nic, Presentation, Volume};
use crate::exposure::{ExposureId, FunctionKind, Limits};

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Read the attachment from quorum; only with a grant and without a deletionTimestamp write `status.fence`, then
    /// the record. `shown`: the host sees it already, kept from before a boot.
    Claim {
        key: Key,
        id: ExposureId,
        shown: bool,
    },
    Connect {
        id: ExposureId,
        volume: Volume,
    },
    WriteSeed {
        id: ExposureId,
        secret: String,
    },
    WriteEraser {
        id: ExposureId,
        machine: String,
    },
    WriteHoldDisk {
        id: ExposureId,
        machine: String,
    },
    /// `driver`: whose connection holds the blocks; `None`: the seed's image does.
    ExposeDisk {
        id: ExposureId,
        presentation: Presentation,
        driver: Option<String>,
        limits: Limits,
    },
    ExposeNic {
        id: ExposureId,
        nic: Nic,
    },
    /// `device`: the network device of the DPU that stands for the function, as the emulation tells.
    Plug {
        id: ExposureId,
        nic: Nic,
        device: String,
    },
    LinkUp {
        id: ExposureId,
    },
    LinkDown {
        id: ExposureId,
    },
    Resize {
        id: ExposureId,
        size_bytes: u64,
    },
    /// Writes into the record what is asked for, then has the emulation hold the disk to `limits`.
    Limit {
        id: ExposureId,
        asked: Limits,
        limits: Limits,
    },
    StartImport {
        id: ExposureId,
        import: Box<Import>,
    },
    StopImport {
        id: ExposureId,
    },
    /// Remember, beside the record, that it may be taken from the host: what is left of it is no orphan.
    NoteRelease {
        id: ExposureId,
    },
    Hide {
        id: ExposureId,
        kind: FunctionKind,
    },
    Unplug {
        id: ExposureId,
    },
    Disconnect {
        id: ExposureId,
        driver: String,
    },
    RemoveSeed {
        uid: String,
    },
    /// Drop it from the record.
    Forget {
        uid: String,
    },
    /// Nothing is left: report, drop it from the record, remove the finalizer.
    Finish {
        key: Key,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    Claim,
    Connect,
    WriteSeed,
    WriteEraser,
    WriteHoldDisk,
    Expose,
    Plug,
    LinkUp,
    LinkDown,
    Resize,
    Limit,
    Import,
    NoteRelease,
    Hide,
    Unplug,
    Disconnect,
    RemoveSeed,
    Forget,
    Finish,
}

impl Step {
    pub fn uid(&self) -> &str {
        match self {
            Self::Connect { id, .. }
            | Self::Claim { id, .. }
            | Self::WriteSeed { id, .. }
            | Self::WriteEraser { id, .. }
            | Self::WriteHoldDisk { id, .. }
            | Self::ExposeDisk { id, .. }
            | Self::ExposeNic { id, .. }
            | Self::Plug { id, .. }
            | Self::Resize { id, .. }
            | Self::Limit { id, .. }
            | Self::StartImport { id, .. }
            | Self::StopImport { id }
            | Self::Hide { id, .. }
            | Self::LinkUp { id }
            | Self::LinkDown { id }
            | Self::Unplug { id }
            | Self::NoteRelease { id }
            | Self::Disconnect { id, .. } => &id.uid,
            Self::RemoveSeed { uid } | Self::Forget { uid } => uid,
            Self::Finish { key } => &key.uid,
        }
    }

    pub fn kind(&self) -> StepKind {
        match self {
            Self::Claim { .. } => StepKind::Claim,
            Self::Connect { .. } => StepKind::Connect,
            Self::WriteSeed { .. } => StepKind::WriteSeed,
            Self::WriteEraser { .. } => StepKind::WriteEraser,
            Self::WriteHoldDisk { .. } => StepKind::WriteHoldDisk,
            Self::ExposeDisk { .. } | Self::ExposeNic { .. } => StepKind::Expose,
            Self::Plug { .. } => StepKind::Plug,
            Self::LinkUp { .. } => StepKind::LinkUp,
            Self::LinkDown { .. } => StepKind::LinkDown,
            Self::Resize { .. } => StepKind::Resize,
            Self::Limit { .. } => StepKind::Limit,
            Self::StartImport { .. } | Self::StopImport { .. } => StepKind::Import,
            Self::NoteRelease { .. } => StepKind::NoteRelease,
            Self::Hide { .. } => StepKind::Hide,
            Self::Unplug { .. } => StepKind::Unplug,
            Self::Disconnect { .. } => StepKind::Disconnect,
            Self::RemoveSeed { .. } => StepKind::RemoveSeed,
            Self::Forget { .. } => StepKind::Forget,
            Self::Finish { .. } => StepKind::Finish,
        }
    }
}

impl StepKind {
    /// The condition reason, and metric label, of a step of this kind that failed.
    pub fn failed(self) -> &'static str {
        match self {
            Self::Claim => "ClaimFailed",
            Self::Connect => "ConnectFailed",
            Self::WriteSeed => "SeedFailed",
            Self::WriteEraser => "EraserFailed",
            Self::WriteHoldDisk => "HoldDiskFailed",
            Self::Expose => "ExposeFailed",
            Self::Plug => "PlugFailed",
            Self::LinkUp => "LinkUpFailed",
            Self::LinkDown => "LinkDownFailed",
            Self::Resize => "ResizeFailed",
            Self::Limit => "LimitFailed",
            Self::Import => "ImportFailed",
            Self::NoteRelease => "NoteReleaseFailed",
            Self::Hide => "HideFailed",
            Self::Unplug => "UnplugFailed",
            Self::Disconnect => "DisconnectFailed",
            Self::RemoveSeed => "RemoveSeedFailed",
            Self::Forget => "ForgetFailed",
            Self::Finish => "FinishFailed",
        }
    }
}

/// It goes on by itself when somebody else has done something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Waiting {
    NotGranted,
    NotReleased,
    OtherEpochPresent,
    HostConnecting,
    HostLettingGo,
    PortNotForwarding,
    NotBound,
    NotInForce,
    StorageSmaller,
    Importing,
    EmulationUnknown,
    Recovering,
    ConnectorUnknown,
    SwitchUnknown,
}

/// Somebody has to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blocked {
    OtherDpu,
    ReleasedBefore,
    InvalidSpec,
    NoConnector,
    ResizeNeedsPowerCycle,
    LimitsUnsupported,
    HostPowerCycleNeeded,
    Fenced,
}

impl Blocked {
    /// The reason of the agent's condition: the controller knows it by this type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OtherDpu => "OtherDpu",
            Self::ReleasedBefore => "ReleasedBefore",
            Self::InvalidSpec => "InvalidSpec",
            Self::NoConnector => "NoConnector",
            Self::ResizeNeedsPowerCycle => "ResizeNeedsPowerCycle",
            Self::LimitsUnsupported => "LimitsUnsupported",
            Self::HostPowerCycleNeeded => "HostPowerCycleNeeded",
            Self::Fenced => "Fenced",
        }
    }
}

/// Why there is no step, or why the step is a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    Waiting(Waiting),
    Blocked(Blocked),
    Failed(StepKind),
}

impl Why {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting(waiting) => match waiting {
                Waiting::NotGranted => "NotGranted",
                Waiting::NotReleased => "NotReleased",
                Waiting::OtherEpochPresent => "OtherEpochPresent",
                Waiting::HostConnecting => "HostConnecting",
                Waiting::HostLettingGo => "HostLettingGo",
                Waiting::PortNotForwarding => "PortNotForwarding",
                Waiting::NotBound => "NotBound",
                Waiting::NotInForce => "NotInForce",
                Waiting::StorageSmaller => "StorageSmaller",
                Waiting::Importing => "Importing",
                Waiting::EmulationUnknown => "EmulationUnknown",
                Waiting::Recovering => "Recovering",
                Waiting::ConnectorUnknown => "ConnectorUnknown",
                Waiting::SwitchUnknown => "SwitchUnknown",
            },
            Self::Blocked(blocked) => blocked.as_str(),
            Self::Failed(kind) => kind.failed(),
        }
    }
}

/// Why, in a sentence too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    pub why: Why,
    pub message: String,
}

impl Stuck {
    pub fn waiting(waiting: Waiting, message: impl Into<String>) -> Self {
        Self { why: Why::Waiting(waiting), message: message.into() }
    }

    pub fn blocked(blocked: Blocked, message: impl Into<String>) -> Self {
        Self { why: Why::Blocked(blocked), message: message.into() }
    }
}

impl From<Kind> for FunctionKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Disk => Self::Disk,
            Kind::Nic => Self::Nic,
        }
    }
}
