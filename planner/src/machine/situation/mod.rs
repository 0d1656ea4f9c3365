//! What a round rests on, worked out once from what was observed: which server the machine has, how well its power is known, what
//! it shall be.
//!
//! The stages read it and never work it out again; none of it is stored (docs/design/architecture.md, *the stage is derived*).

mod guest;
mod hardware;
mod power;
mod record;
mod vetted;

pub(super) use guest::{UNDISTURBED, answered, heard_of};
pub(super) use hardware::{Host, Place, Power, dpu_of, granted_on, held, in_use, is_bare, is_granted, was_installed};
pub use hardware::{current, target};
pub(super) use power::{Reading, SETTLE, Want, unread};
pub(super) use record::{Record, accepted_at};
pub use record::{action_name, state_name};
pub(super) use vetted::{vetted, wrong_server};

use hardware::place;

use super::maintenance;
use super::observed::Observed;
use crate::erase;
use crate::host::PowerState;
use crate::install;
use crate::meta::name;
use crate::netboot::report::is_of;
use crate::reason::Reason;
use crate::writer::down::HostPower;
use crate::writer::{self, Owner, Site};
use api::machine::BootStrategy;
use api::report::HardwareReportStatus;
use api::tinkerbell::Hardware;
use jiff::Timestamp;
use std::ops::Deref;

/// What was observed, and what follows from it for every stage.
pub(super) struct Situation<'a> {
    o: &'a Observed,
    /// The machine's Hardware.
    pub current: Option<&'a Hardware>,
    /// The Hardware that a migration has claimed for this machine.
    pub target: Option<&'a Hardware>,
    /// Where the machine is moving to: it still has another Hardware.
    pub moves_to: Option<&'a Hardware>,
    /// How the machine runs on its Hardware, or why it cannot.
    pub place: Option<Result<Place<'a>, Reason>>,
    /// Its Hardware with the DPU in it, if that is how it runs.
    pub host: Option<Host<'a>>,
    pub record: Record<'a>,
    pub reading: Reading,
    /// Why the machine shall be off although its spec asks for something else.
    pub stopped: Option<Reason>,
    pub want: Want,
}

impl<'a> Situation<'a> {
    pub fn of(o: &'a Observed) -> Self {
        let (current, target) = (current(o), target(o));
        let moves_to = target.filter(|target| current.is_some_and(|current| !std::ptr::eq(*target, current)));
        let place = current.map(|current| place(o, current));
        let host = match &place {
            Some(Ok(Place::Dpu(host))) => Some(*host),
            _ => None,
        };
        let record = record::record(o, current);
        let stopped = host.and_then(|host| maintenance::stops(o, host));
        let want = power::want(o, o.deleting() || moves_to.is_some(), stopped.is_some());
        Self { o, current, target, moves_to, place, host, record, reading: power::reading(o, &record), stopped, want }
    }

    /// Everything goes away from its Hardware: deleted, or on the way to another.
    pub fn gives_back(&self) -> bool {
        self.deleting() || self.moves_to.is_some()
    }

    /// Off, by a reading of this moment.
    pub fn is_off(&self) -> bool {
        self.reading == Reading::Fresh(PowerState::Off)
    }

    /// Off, as it was last read.
    pub fn was_off(&self) -> bool {
        matches!(self.reading, Reading::Fresh(PowerState::Off) | Reading::Old(PowerState::Off))
    }

    /// Its Hardware, if it is claimed to be installed there by a workflow.
    pub fn bare(&self) -> Option<&'a Hardware> {
        self.current.filter(|hardware| is_bare(hardware))
    }

    /// What network boot has seen of that Hardware's server.
    pub fn seen(&self) -> Option<&'a HardwareReportStatus> {
        let (hardware, report) = (self.bare()?, self.o.report.as_deref()?);
        report.status.as_ref().filter(|_| is_of(report, hardware))
    }

    /// A workflow installs this machine: as its claim says, or before there is one its spec.
    pub fn installs(&self) -> bool {
        match self.current {
            Some(hardware) => is_bare(hardware),
            None => self.machine.spec.boot.strategy == BootStrategy::Workflow || was_installed(self),
        }
    }

    /// The installer runs on the host: there is nothing to save.
    pub fn is_in_installer(&self) -> bool {
        let Some(meta) = self.bare().map(|hardware| &hardware.metadata) else { return false };
        let installs = install::Record::of(meta).filter(|record| record.phase == install::Phase::Begun);
        let erases = erase::Record::of(meta).map(|record| record.workflow);
        [installs.map(|record| record.workflow), erases]
            .into_iter()
            .flatten()
            .any(|workflow| self.record.started_for == Some(&workflow))
    }

    /// What a DPU that is down is proven so by.
    pub fn site(&self, now: Timestamp) -> Site<'a> {
        Site { now, dpus: &self.o.dpus, host: self.host_power() }
    }

    /// Of its server, with or without a DPU.
    pub fn host_power(&self) -> Option<HostPower<'a>> {
        let (is_off, read_at) = (self.is_off(), self.o.bmc.read_at);
        self.current.map(|current| HostPower { hardware: name(&current.metadata), is_off, read_at })
    }

    /// What the one-writer protocol rests on.
    pub fn writer(&self, now: Timestamp) -> writer::Observed<'a> {
        writer::Observed {
            owner: Owner::Machine(&self.o.machine.metadata),
            site: self.site(now),
            attachments: &self.o.disk_attachments,
            holds: self.o.holds.values().map(AsRef::as_ref).collect(),
            volume_attachments: &self.o.volume_attachments,
            holder_pods: &self.o.holder_pods,
            claims: self.o.claims.values().collect(),
            orphans: &self.o.orphans,
            fences: &self.o.fences,
            fence_problems: &self.o.fence_problems,
        }
    }
}

impl Observed {
    /// Everything goes away from its Hardware: deleted, or on the way to another.
    pub fn gives_back(&self) -> bool {
        Situation::of(self).gives_back()
    }
}

impl Deref for Situation<'_> {
    type Target = Observed;

    fn deref(&self) -> &Observed {
        self.o
    }
}
