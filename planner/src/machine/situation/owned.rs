//! What belongs to an owner, and what follows from it for giving it back.
//!
//! The owner is a machine, or one that no longer exists. The stages of a release stand on this alone: what is asked of the owner here is
//! all that they may ask, and one that no longer exists has no spec to answer from.

use super::hardware::{held, is_bare};
use super::power::{Reading, reading};
use super::record::Record;
use crate::erase;
use crate::host::{Post, PowerState};
use crate::install;
use crate::machine::named::labels_of;
use crate::machine::observed::{Belongings, Gone};
use crate::meta::{annotation, name, uid};
use crate::netboot::report::is_of;
use crate::workflow;
use crate::writer::down::HostPower;
use crate::writer::{self, Site};
use api::machine::PowerStatus;
use api::report::HardwareReportStatus;
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, labels};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub(in crate::machine) enum Owner<'a> {
    Machine(&'a BareMetalMachine),
    Gone(&'a Gone),
}

impl<'a> Owner<'a> {
    pub fn uid(self) -> &'a str {
        match self {
            Self::Machine(machine) => uid(&machine.metadata),
            Self::Gone(gone) => &gone.uid,
        }
    }

    /// What a machine was called that no longer exists nobody has to know.
    pub fn name(self) -> &'a str {
        match self {
            Self::Machine(machine) => name(&machine.metadata),
            Self::Gone(_) => "",
        }
    }

    pub fn namespace(self) -> &'a str {
        match self {
            Self::Machine(machine) => machine.metadata.namespace.as_deref().unwrap_or_default(),
            Self::Gone(gone) => &gone.namespace,
        }
    }

    pub fn is_gone(self) -> bool {
        matches!(self, Self::Gone(_))
    }

    /// Of everything that is made for it.
    pub fn labels(self) -> BTreeMap<String, String> {
        labels_of(self.name(), self.uid())
    }

    /// So long a system may take to shut down. Where the machine no longer exists it is not asked to.
    pub fn grace(self) -> SignedDuration {
        match self {
            Self::Machine(machine) => SignedDuration::from_secs(machine.spec.termination_grace_period_seconds.max(0)),
            Self::Gone(_) => SignedDuration::ZERO,
        }
    }

    /// A restart that was asked for after the last one. Whole seconds: that is what status keeps.
    pub fn restart_request(self) -> Option<Timestamp> {
        let Self::Machine(machine) = self else { return None };
        let asked: Timestamp = annotation(&machine.metadata, labels::RESTART_REQUESTED_AT)?.parse().ok()?;
        let done = machine.status.as_ref().and_then(|status| status.last_restart_at.as_ref());
        done.is_none_or(|done| asked.as_second() > done.0.as_second()).then_some(asked)
    }
}

pub(in crate::machine) struct Owned<'a> {
    own: &'a Belongings,
    pub owner: Owner<'a>,
    /// The owner's Hardware.
    pub current: Option<&'a Hardware>,
    pub record: Record<'a>,
    pub reading: Reading,
    /// Everything goes away from its Hardware: the owner is deleted, or on the way to another.
    pub gives_back: bool,
}

impl<'a> Owned<'a> {
    /// `power`: what is on record of the power actions of that Hardware, and how many attempts there were.
    pub fn new(
        (owner, own): (Owner<'a>, &'a Belongings),
        current: Option<&'a Hardware>,
        (power, attempts): (Option<&'a PowerStatus>, u32),
        gives_back: bool,
    ) -> Self {
        let record = Record::of(own, power, attempts);
        Self { own, owner, current, record, reading: reading(own, &record), gives_back }
    }

    pub fn uid(&self) -> &'a str {
        self.owner.uid()
    }

    /// What network boot has seen of that Hardware's server.
    pub fn seen(&self) -> Option<&'a HardwareReportStatus> {
        let (hardware, report) = (self.bare()?, self.own.report.as_deref()?);
        report.status.as_ref().filter(|_| is_of(report, hardware))
    }

    pub fn held(&self) -> Vec<&'a Arc<Hardware>> {
        held(self.own, self.uid()).collect()
    }

    /// Something was begun for it on the Hardware that it had: by a machine's status, or by a Workflow that has run.
    pub fn was_installed(&self) -> bool {
        let said = match self.owner {
            Owner::Machine(machine) => machine.status.as_ref().is_some_and(|status| status.install.is_some()),
            Owner::Gone(_) => false,
        };
        said || self.own.workflows.iter().any(|run| workflow::has_run(run))
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

    /// The host was powered on into its firmware's setup, and that is where it is: there is nothing to save. A firmware may ignore the override;
    /// a guest that answers was started, unless the BMC says that the setup is open.
    pub fn is_in_setup(&self) -> bool {
        let guests = self.own.nic_attachments.iter().filter_map(|a| a.status.as_ref()?.guest.as_ref());
        let mut answered = guests.filter_map(|guest| guest.answered_at.as_ref()).map(|at| at.0);
        let is_open = || self.own.bmc.host.last().is_some_and(|seen| seen.post == Post::InSetup);
        self.record.in_setup && (is_open() || !answered.any(|at| self.record.at.is_some_and(|sent| at > sent)))
    }

    /// The installer runs on the host: there is nothing to save.
    pub fn is_in_installer(&self) -> bool {
        let Some(meta) = self.current.map(|hardware| &hardware.metadata) else { return false };
        let installs = install::Record::of(meta).filter(|record| record.phase == install::Phase::Begun);
        let erases = erase::Record::of(meta).map(|record| record.workflow);
        [installs.map(|record| record.workflow), erases]
            .into_iter()
            .flatten()
            .any(|workflow| self.record.started_for == Some(&workflow))
    }

    /// What a DPU that is down is proven so by.
    pub fn site(&self, now: Timestamp) -> Site<'a> {
        Site { now, dpus: &self.own.dpus, host: self.host_power() }
    }

    /// Of its server, with or without a DPU.
    pub fn host_power(&self) -> Option<HostPower<'a>> {
        let (is_off, read_at) = (self.is_off(), self.own.bmc.read_at);
        self.current.map(|current| HostPower { hardware: name(&current.metadata), is_off, read_at })
    }

    /// What the one-writer protocol rests on.
    pub fn writer(&self, now: Timestamp) -> writer::Observed<'a> {
        writer::Observed {
            owner: writer::Owner::Machine { uid: self.uid(), namespace: self.owner.namespace() },
            site: self.site(now),
            attachments: &self.own.disk_attachments,
            holds: self.own.holds.values().map(AsRef::as_ref).collect(),
            volume_attachments: &self.own.volume_attachments,
            holder_pods: &self.own.holder_pods,
            claims: self.own.claims.values().collect(),
            orphans: &self.own.orphans,
            fences: &self.own.fences,
            fence_problems: &self.own.fence_problems,
        }
    }
}

impl Deref for Owned<'_> {
    type Target = Belongings;

    fn deref(&self) -> &Belongings {
        self.own
    }
}
