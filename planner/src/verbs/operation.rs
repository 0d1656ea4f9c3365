//! What every operation on a machine does: it has a finalizer, takes the lock of its machine, goes through phases, says
//! what it waits for, and gives the lock back.
//!
//! The lock is an annotation of the machine, set by compare-and-swap. A power action is recorded in the machine's status,
//! by compare-and-swap too, before it is sent. So a lock that is taken of a machine that is off finds no power-on under
//! way, and from then on none is planned ([`forbids_start`]).

use crate::about::About;
use crate::meta::{Target, annotation, has_finalizer, name, uid};
use crate::reason::{Failed, Reason, Waiting};
use api::conditions::{self, ConditionStatus};
use api::machine::{BootStrategy, MachineState};
use api::tinkerbell::Hardware;
use api::verbs::{OperationPhase, OperationStatus};
use api::{BareMetalMachine, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    Snapshot,
    Restore,
    Migration,
}

impl Verb {
    pub const ALL: [Self; 3] = [Self::Snapshot, Self::Restore, Self::Migration];

    pub fn kind(self) -> &'static str {
        match self {
            Self::Snapshot => "MachineSnapshot",
            Self::Restore => "MachineRestore",
            Self::Migration => "MachineMigration",
        }
    }

    /// The condition that is true at the end.
    pub fn condition(self) -> &'static str {
        match self {
            Self::Snapshot => conditions::READY,
            Self::Restore | Self::Migration => conditions::COMPLETE,
        }
    }
}

/// Which operation has a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub verb: Verb,
    pub name: String,
    pub uid: String,
}

impl Lock {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (kind, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
        let verb = Verb::ALL.into_iter().find(|verb| verb.kind() == kind)?;
        parts.next().is_none().then(|| Self { verb, name: name.to_owned(), uid: uid.to_owned() })
    }

    /// As a person reads it: `MachineSnapshot 's1'`.
    pub fn title(&self) -> String {
        format!("{} '{}'", self.verb.kind(), self.name)
    }
}

/// As it stands in the annotation.
impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.verb.kind(), self.name, self.uid)
    }
}

/// The operation that has this machine.
pub fn lock(machine: &ObjectMeta) -> Option<Lock> {
    Lock::parse(annotation(machine, labels::OPERATION)?)
}

/// Why a machine that is off stays off, whatever its run strategy is: its disks are being looked at or exchanged.
pub fn forbids_start(machine: &ObjectMeta) -> Option<Reason> {
    let lock = lock(machine)?;
    match lock.verb {
        Verb::Snapshot | Verb::Restore => Some(Waiting::OperationFirst { operation: lock.title() }.into()),
        // It starts on the server that it moves to.
        Verb::Migration => None,
    }
}

/// It is off, as asked, and no power action is under way.
pub fn is_off(machine: &BareMetalMachine) -> bool {
    machine.status.as_ref().is_some_and(|status| {
        status.state == Some(MachineState::Stopped) && status.observed_generation == machine.metadata.generation
    })
}

/// A workflow installs it on its server's own disk.
fn has_no_cloud_disks(machine: &BareMetalMachine) -> bool {
    let claimed = machine.status.as_ref().and_then(|status| status.boot_strategy);
    claimed.unwrap_or(machine.spec.boot.strategy) == BootStrategy::Workflow
}

/// What an operation does. Each may be carried out again and ends in the same state.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    AddFinalizer,
    RemoveFinalizer,
    /// Compare-and-swap of the machine's annotation.
    Lock(MachineVersion),
    Unlock(MachineVersion),
    CreateSnapshot(NewSnapshot),
    DeleteSnapshot(Target),
    /// The label by which a VolumeGroupSnapshot finds the claims.
    LabelClaim(Target),
    UnlabelClaim(Target),
    CreateGroup(NewGroup),
    DeleteGroup(Target),
    CreateClaim(Box<PersistentVolumeClaim>),
    DeleteClaim(Target),
    /// All disks by one write: by the disk's name, its claim.
    SwitchClaims {
        machine: MachineVersion,
        claims: BTreeMap<String, String>,
    },
    /// The claim on a second Hardware, for the machine and marked for the migration, by compare-and-swap.
    ClaimTarget {
        machine: MachineVersion,
        hardware: HardwareVersion,
    },
    /// The machine does not move there.
    GiveTargetBack {
        name: String,
        machine_uid: String,
    },
    /// The mark goes: the machine's Hardware as any other.
    KeepTarget {
        name: String,
    },
}

/// A Hardware as it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HardwareVersion {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

impl HardwareVersion {
    pub fn of(hardware: &Hardware) -> Self {
        let meta = &hardware.metadata;
        Self {
            name: name(meta).to_owned(),
            uid: uid(meta).to_owned(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// A machine as it was seen: what a write to it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineVersion {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

impl MachineVersion {
    pub fn of(machine: &BareMetalMachine) -> Self {
        let meta = &machine.metadata;
        Self {
            name: name(meta).to_owned(),
            uid: uid(meta).to_owned(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSnapshot {
    pub name: String,
    pub claim: String,
    pub class: Option<String>,
    pub labels: BTreeMap<String, String>,
}

/// A VolumeGroupSnapshot of all claims that have the label of the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGroup {
    pub name: String,
    pub class: String,
    pub labels: BTreeMap<String, String>,
}

/// What one round decided.
#[derive(Debug, Clone)]
pub struct Plan<S> {
    pub actions: Vec<Action>,
    pub status: S,
    /// When to plan again if nothing happens before.
    pub wake_at: Option<Timestamp>,
    /// An Event: its reason and its note.
    pub tell: Option<Told>,
}

/// How far an operation is, before it is put into words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing was changed yet.
    Pending(Reason),
    Running(Reason),
    Done,
    /// The end: it did not work.
    Failed(Reason),
    /// As it was: it is over, or being deleted.
    Same,
}

/// The object of an operation and its machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub verb: Verb,
    pub meta: &'a ObjectMeta,
    pub phase: OperationPhase,
    /// The machine that is named, if it is there.
    pub machine: Option<&'a BareMetalMachine>,
}

/// How an operation ended: an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Succeeded { message: String },
    Failed { message: String },
}

impl<'a> Subject<'a> {
    fn own_lock(&self) -> Lock {
        Lock { verb: self.verb, name: name(self.meta).to_owned(), uid: uid(self.meta).to_owned() }
    }

    pub fn locked(&self) -> bool {
        self.machine.is_some_and(|machine| lock(&machine.metadata).as_ref() == Some(&self.own_lock()))
    }

    /// Takes the lock; `Ok`: this operation has it.
    pub fn take_lock(&self, machine: &BareMetalMachine, actions: &mut Vec<Action>) -> Result<(), Reason> {
        match lock(&machine.metadata) {
            Some(there) if there == self.own_lock() => Ok(()),
            Some(other) => {
                let machine = name(&machine.metadata).to_owned();
                Err(Waiting::MachineBusy { machine, operation: other.title() }.into())
            }
            None => {
                actions.push(Action::Lock(MachineVersion::of(machine)));
                Err(Waiting::Creating { what: About::MachineLock(name(&machine.metadata).to_owned()) }.into())
            }
        }
    }

    pub fn give_lock_back(&self, actions: &mut Vec<Action>) {
        if let Some(machine) = self.machine.filter(|_| self.locked()) {
            actions.push(Action::Unlock(MachineVersion::of(machine)));
        }
    }

    /// The machine, if something can be done to it.
    pub fn machine(&self, machine_name: &str) -> Result<&'a BareMetalMachine, Progress> {
        let machine = machine_name.to_owned();
        match self.machine {
            None => Err(Progress::Pending(crate::reason::Blocked::MachineMissing { machine }.into())),
            Some(there) if there.metadata.deletion_timestamp.is_some() => {
                Err(Progress::Failed(Failed::MachineDeleted { machine }.into()))
            }
            Some(there) if has_no_cloud_disks(there) => {
                Err(Progress::Pending(crate::reason::Blocked::NoCloudDisks { machine }.into()))
            }
            Some(there) => Ok(there),
        }
    }

    /// Labels of everything that is made for this operation.
    pub fn labels(&self, machine: &str) -> BTreeMap<String, String> {
        [
            (labels::MANAGED_BY, labels::MANAGED_BY_VALUE),
            (labels::MACHINE, machine),
            (labels::OPERATION_UID, uid(self.meta)),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// What every operation does around its own work. `undo`: `None`, once nothing is left of it that has to go.
    pub fn go(
        &self,
        actions: &mut Vec<Action>,
        work: impl FnOnce(&mut Vec<Action>) -> Progress,
        undo: impl FnOnce(&mut Vec<Action>) -> Option<Reason>,
    ) -> Progress {
        if !has_finalizer(self.meta, labels::FINALIZER_OPERATION) {
            if self.meta.deletion_timestamp.is_some() {
                return Progress::Same;
            }
            actions.push(Action::AddFinalizer);
            return Progress::Pending(Waiting::Creating { what: About::OperationFinalizer }.into());
        }
        if self.meta.deletion_timestamp.is_some() {
            let left = undo(actions);
            if left.is_none() && actions.is_empty() {
                self.give_lock_back(actions);
                if actions.is_empty() {
                    actions.push(Action::RemoveFinalizer);
                }
            }
            return left.map_or(Progress::Same, Progress::Running);
        }
        let progress = match self.phase {
            OperationPhase::Failed => Progress::Same,
            OperationPhase::Pending | OperationPhase::Running | OperationPhase::Succeeded => work(actions),
        };
        // What is over has no lock.
        if actions.is_empty() && matches!(progress, Progress::Done | Progress::Failed(_) | Progress::Same) {
            self.give_lock_back(actions);
        }
        progress
    }

    fn told(&self, why: &Reason) -> String {
        match self.machine {
            Some(machine) => why.told_of(name(&machine.metadata)),
            None => why.told(),
        }
    }

    /// Puts progress into words. What became so is an Event.
    pub fn tell(&self, told: &mut OperationStatus, progress: &Progress, done: &str, now: Timestamp) -> Option<Told> {
        let (phase, status, reason, message) = match progress {
            Progress::Same => return None,
            Progress::Pending(why) => (OperationPhase::Pending, ConditionStatus::False, why.name(), self.told(why)),
            Progress::Running(why) => (OperationPhase::Running, ConditionStatus::False, why.name(), self.told(why)),
            Progress::Failed(why) => (OperationPhase::Failed, ConditionStatus::False, why.name(), self.told(why)),
            Progress::Done => (OperationPhase::Succeeded, ConditionStatus::True, "Succeeded", done.to_owned()),
        };
        let before = std::mem::replace(&mut told.phase, phase);
        told.observed_generation = self.meta.generation;
        let generation = self.meta.generation;
        conditions::set(&mut told.conditions, self.verb.condition(), status, reason, &message, generation, now);
        match phase {
            _ if phase == before => None,
            OperationPhase::Succeeded => Some(Told::Succeeded { message }),
            OperationPhase::Failed => Some(Told::Failed { message: format!("{reason}: {message}") }),
            OperationPhase::Pending | OperationPhase::Running => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_read_as_it_is_written() {
        let lock = Lock { verb: Verb::Snapshot, name: "s1".into(), uid: "u-1".into() };
        assert_eq!(lock.to_string(), "MachineSnapshot/s1/u-1");
        assert_eq!(Lock::parse(&lock.to_string()), Some(lock));
        assert_eq!(Lock::parse("MachineSnapshot/s1"), None);
        assert_eq!(Lock::parse("Other/s1/u-1"), None);
    }
}
