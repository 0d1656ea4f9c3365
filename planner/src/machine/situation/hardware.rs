//! Which servers the machine has, which of them it is on, and the DPU in it.

use crate::dpu::boot_disk::BootDiskReads;
use crate::dpu::{not_ready, rank};
use crate::install;
use crate::machine::observed::{Belongings, DpuSeen, Observed};
use crate::meta::{annotation, name};
use crate::reason::{Blocked, Reason};
use crate::verbs::{Verb, lock};
use api::dpu::PowerDomain;
use api::labels;
use api::machine::BootStrategy;
use api::tinkerbell::Hardware;
use std::sync::Arc;

/// The claimed server and the DPU in it.
#[derive(Debug, Clone, Copy)]
pub(in crate::machine) struct Host<'a> {
    pub hardware: &'a Hardware,
    pub dpu: &'a DpuSeen,
    /// The DPU's namespace.
    pub namespace: &'a str,
}

impl<'a> Host<'a> {
    pub fn name(&self) -> &'a str {
        name(&self.hardware.metadata)
    }

    /// Whose power is planned.
    pub fn power(&self) -> Power<'a> {
        let (shares_power, boot_id) = (self.shares_power(), self.boot_id());
        let boot_disk_reads = self.dpu.boot_disk_reads.as_ref().filter(|_| !self.dpu.silent);
        Power { name: self.name(), shares_power, boot_id, dpu: Some(self.dpu.name()), boot_disk_reads }
    }

    pub fn shares_power(&self) -> bool {
        self.dpu.dpu.spec.power_domain == PowerDomain::Host
    }

    /// The agent lives and says on which boot.
    pub fn boot_id(&self) -> Option<&'a str> {
        if self.dpu.silent { None } else { self.dpu.boot_id() }
    }
}

/// A claimed server: with its DPU, or one that boots without.
#[derive(Debug, Clone, Copy)]
pub(in crate::machine) enum Place<'a> {
    Dpu(Host<'a>),
    Bare(&'a Hardware),
}

/// What the planning of a host's power has to know of it.
#[derive(Debug, Clone, Copy)]
pub(in crate::machine) struct Power<'a> {
    pub name: &'a str,
    pub shares_power: bool,
    /// Of the DPU, if there is one whose agent lives.
    pub boot_id: Option<&'a str>,
    pub dpu: Option<&'a str>,
    /// As its DPU's agent tells now.
    pub boot_disk_reads: Option<&'a BootDiskReads>,
}

impl<'a> Power<'a> {
    pub fn bare(hardware: &'a Hardware) -> Self {
        Self { name: name(&hardware.metadata), shares_power: false, boot_id: None, dpu: None, boot_disk_reads: None }
    }
}

/// Its machine has claimed it to be installed there by a workflow. A Dpu that is assigned to that server meanwhile changes nothing.
pub(in crate::machine) fn is_bare(hardware: &Hardware) -> bool {
    install::strategy(&hardware.metadata) == Some(BootStrategy::Workflow)
}

/// The Hardware that is claimed by the owner with this UID.
pub(in crate::machine) fn held<'a>(own: &'a Belongings, uid: &'a str) -> impl Iterator<Item = &'a Arc<Hardware>> {
    own.hardware.iter().filter(move |hardware| annotation(&hardware.metadata, labels::CLAIMED_BY) == Some(uid))
}

/// The Hardware that a migration has claimed for this machine.
pub fn target(o: &Observed) -> Option<&Hardware> {
    let lock = lock(&o.machine.metadata).filter(|lock| lock.verb == Verb::Migration)?;
    let marked = |hardware: &&Arc<Hardware>| annotation(&hardware.metadata, labels::CLAIMED_FOR) == Some(&lock.uid);
    held(o, o.uid()).find(marked).map(AsRef::as_ref)
}

/// The machine's Hardware. A machine that moves may hold two: it has the one that it leaves until that is given up.
pub fn current(o: &Observed) -> Option<&Hardware> {
    let target = target(o);
    let is_target = |hardware: &Hardware| target.is_some_and(|target| std::ptr::eq(target, hardware));
    let mine = held(o, o.uid()).map(AsRef::as_ref).filter(|hardware| !is_target(hardware)).collect();
    let recorded = o.machine.status.as_ref().and_then(|status| status.hardware_name.as_deref());
    most_likely(o, mine, |hardware| Some(name(&hardware.metadata)) == recorded).or(target)
}

/// Of several: one that is in use, or the one that is on record.
pub(in crate::machine) fn most_likely<'a>(
    own: &Belongings,
    mine: Vec<&'a Hardware>,
    is_on_record: impl Fn(&Hardware) -> bool,
) -> Option<&'a Hardware> {
    let first = |hardware: &&Hardware| name(&hardware.metadata).to_owned();
    let each = || mine.iter().copied();
    let used = each().filter(|hardware| in_use(own, hardware)).min_by_key(first);
    used.or_else(|| each().find(|hardware| is_on_record(hardware))).or_else(|| each().min_by_key(first))
}

pub(in crate::machine) fn in_use(o: &Belongings, hardware: &Hardware) -> bool {
    o.dpus.iter().any(|dpu| {
        dpu.hardware_name() == Some(name(&hardware.metadata))
            && (o.disk_attachments.iter().any(|a| a.spec.dpu_name == dpu.name())
                || o.nic_attachments.iter().any(|a| a.spec.dpu_name == dpu.name()))
    })
}

/// Where the machine is.
pub(in crate::machine) fn place<'a>(o: &'a Belongings, hardware: &'a Hardware) -> Result<Place<'a>, Reason> {
    match is_bare(hardware) {
        true => Ok(Place::Bare(hardware)),
        false => host(o, hardware).map(Place::Dpu),
    }
}

/// The DPU of a claimed Hardware.
pub(in crate::machine) fn host<'a>(o: &'a Belongings, hardware: &'a Hardware) -> Result<Host<'a>, Reason> {
    let name = name(&hardware.metadata);
    let of_it = dpu_in(o, name).filter(|_| !is_bare(hardware));
    let dpu = of_it.ok_or(Blocked::HardwareHasNoDpu { hardware: name.to_owned() })?;
    let namespace = dpu.namespace().ok_or_else(|| not_ready(dpu))?;
    Ok(Host { hardware, dpu, namespace })
}

/// The DPU in a server that the owner of `o` has. Of several it is the one that has what was granted: a second one that is assigned to the
/// server, whatever it is called, changes nothing under a host that runs.
pub(in crate::machine) fn dpu_in<'a>(o: &'a Belongings, hardware: &str) -> Option<&'a DpuSeen> {
    let attached = || {
        let disks = o.disk_attachments.iter().map(|a| a.spec.dpu_name.as_str());
        disks.chain(o.nic_attachments.iter().map(|a| a.spec.dpu_name.as_str()))
    };
    let of_it = |on: &str| o.dpus.iter().find(|dpu| dpu.name() == on && dpu.hardware_name() == Some(hardware));
    granted_on(o).find_map(of_it).or_else(|| attached().find_map(of_it)).or_else(|| dpu_of(&o.dpus, hardware))
}

/// The DPU in a server by which a machine that has nothing there gets it.
pub(in crate::machine) fn dpu_of<'a>(dpus: &'a [DpuSeen], hardware: &str) -> Option<&'a DpuSeen> {
    dpus.iter().filter(|dpu| dpu.hardware_name() == Some(hardware)).min_by_key(|seen| rank(&seen.dpu))
}

pub(in crate::machine) fn is_granted(o: &Belongings) -> bool {
    granted_on(o).next().is_some()
}

/// The DPUs of what was granted.
pub(in crate::machine) fn granted_on(o: &Belongings) -> impl Iterator<Item = &str> {
    let disks = o.disk_attachments.iter().filter(|a| a.spec.grant.is_some()).map(|a| a.spec.dpu_name.as_str());
    let nics = o.nic_attachments.iter().filter(|a| a.spec.grant.is_some()).map(|a| a.spec.dpu_name.as_str());
    disks.chain(nics)
}
