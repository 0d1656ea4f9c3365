//! Each error of the pools and of the node as a gRPC code, here and nowhere else.

use crate::{
    node::{ExpandError as NodeExpandError, MountError, PublishError, StageError, StatsError, TakeDownError},
    pool::{
        CreateError, DeleteError, DeleteSnapshotError, ExpandError, Fault, GroupError, ModifyError, SizeError,
        SnapshotError, UseError,
    },
    pools::ChooseError,
};
use std::io::ErrorKind;
use tonic::Status;

impl From<Fault> for Status {
    fn from(fault: Fault) -> Status {
        let message = fault.to_string();
        match fault.cause.kind() {
            _ if fault.is_full() => Status::resource_exhausted(message),
            // Of a storage node: it is called again.
            ErrorKind::TimedOut => Status::unavailable(message),
            ErrorKind::ResourceBusy => Status::aborted(message),
            _ => Status::internal(message),
        }
    }
}

impl From<SizeError> for Status {
    fn from(error: SizeError) -> Status {
        let message = error.to_string();
        match error {
            SizeError::AbovePool { .. } => Status::resource_exhausted(message),
            _ => Status::out_of_range(message),
        }
    }
}

impl From<ChooseError> for Status {
    fn from(error: ChooseError) -> Status {
        let message = error.to_string();
        match error {
            ChooseError::NoSource(_) => Status::not_found(message),
            ChooseError::NotThere { .. } => Status::resource_exhausted(message),
            ChooseError::Io(fault) => fault.into(),
            _ => Status::invalid_argument(message),
        }
    }
}

impl From<CreateError> for Status {
    fn from(error: CreateError) -> Status {
        let message = error.to_string();
        match error {
            CreateError::Incompatible { .. } => Status::already_exists(message),
            CreateError::NoSource(..) => Status::not_found(message),
            CreateError::Size(error) => error.into(),
            CreateError::NoReflink(_) => Status::failed_precondition(message),
            CreateError::Io(fault) => fault.into(),
        }
    }
}

impl From<DeleteError> for Status {
    fn from(error: DeleteError) -> Status {
        let message = error.to_string();
        match error {
            DeleteError::InUse { .. } | DeleteError::Connected { .. } | DeleteError::Machine(_) => {
                Status::failed_precondition(message)
            }
            DeleteError::Io(fault) => fault.into(),
        }
    }
}

impl From<UseError> for Status {
    fn from(error: UseError) -> Status {
        let message = error.to_string();
        match error {
            UseError::NoSuchVolume(_) | UseError::NoSuchNode { .. } => Status::not_found(message),
            UseError::Incompatible { .. } => Status::already_exists(message),
            UseError::Elsewhere { .. } | UseError::Machine(_) | UseError::NoNodes { .. } => {
                Status::failed_precondition(message)
            }
            UseError::Io(fault) => fault.into(),
        }
    }
}

impl From<ExpandError> for Status {
    fn from(error: ExpandError) -> Status {
        let message = error.to_string();
        match error {
            ExpandError::NoSuchVolume(_) => Status::not_found(message),
            ExpandError::Size(error) => error.into(),
            ExpandError::Io(fault) => fault.into(),
        }
    }
}

impl From<SnapshotError> for Status {
    fn from(error: SnapshotError) -> Status {
        let message = error.to_string();
        match error {
            SnapshotError::NoSuchVolume(_) => Status::not_found(message),
            SnapshotError::Incompatible { .. } => Status::already_exists(message),
            SnapshotError::Io(fault) => fault.into(),
        }
    }
}

impl From<DeleteSnapshotError> for Status {
    fn from(error: DeleteSnapshotError) -> Status {
        let message = error.to_string();
        match error {
            DeleteSnapshotError::InGroup { .. } => Status::invalid_argument(message),
            DeleteSnapshotError::Io(fault) => fault.into(),
        }
    }
}

impl From<GroupError> for Status {
    fn from(error: GroupError) -> Status {
        let message = error.to_string();
        match error {
            GroupError::NoSuchVolume(_) | GroupError::NoSuchGroup(_) => Status::not_found(message),
            GroupError::Incompatible { .. } => Status::already_exists(message),
            GroupError::Members { .. } => Status::invalid_argument(message),
            GroupError::OneByOne { .. } => Status::failed_precondition(message),
            GroupError::Busy { .. } => Status::aborted(message),
            GroupError::Io(fault) => fault.into(),
        }
    }
}

impl From<ModifyError> for Status {
    fn from(error: ModifyError) -> Status {
        let message = error.to_string();
        match error {
            ModifyError::NoSuchVolume(_) => Status::not_found(message),
            ModifyError::Io(fault) => fault.into(),
        }
    }
}

impl From<StageError> for Status {
    fn from(error: StageError) -> Status {
        let message = error.to_string();
        match error {
            StageError::Taken { .. } | StageError::Attached(_) => Status::already_exists(message),
            StageError::Content { .. } | StageError::BlankReadOnly => Status::failed_precondition(message),
            StageError::Command(_) | StageError::Mount(_) => Status::internal(message),
        }
    }
}

impl From<PublishError> for Status {
    fn from(error: PublishError) -> Status {
        let message = error.to_string();
        match error {
            PublishError::Incompatible { .. } => Status::already_exists(message),
            PublishError::NotStaged(_) | PublishError::SecondTarget(_) | PublishError::WritableDevice => {
                Status::failed_precondition(message)
            }
            PublishError::Command(_) | PublishError::Mount(_) => Status::internal(message),
        }
    }
}

impl From<TakeDownError> for Status {
    fn from(error: TakeDownError) -> Status {
        let message = error.to_string();
        match error {
            TakeDownError::InUse(_) => Status::failed_precondition(message),
            TakeDownError::Command(_) | TakeDownError::Mount(_) => Status::internal(message),
        }
    }
}

impl From<NodeExpandError> for Status {
    fn from(error: NodeExpandError) -> Status {
        let message = error.to_string();
        match error {
            NodeExpandError::NotAttached => Status::failed_precondition(message),
            NodeExpandError::Command(_) | NodeExpandError::Mount(_) => Status::internal(message),
        }
    }
}

impl From<StatsError> for Status {
    fn from(error: StatsError) -> Status {
        let message = error.to_string();
        match error {
            StatsError::NotThere(_) => Status::not_found(message),
            StatsError::Io { .. } | StatsError::Command(_) | StatsError::Mount(_) => Status::internal(message),
        }
    }
}

impl From<MountError> for Status {
    fn from(error: MountError) -> Status {
        Status::internal(error.to_string())
    }
}
