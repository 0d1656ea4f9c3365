//! Which server: the Hardware that this machine has, or the one that it tries to get.
//!
//! The claim is the annotation `metalplane.io/claimed-by`, set by compare-and-swap on the Hardware's resourceVersion, and in the
//! same write `metalplane.io/boot-strategy`: how the machine boots does not change while it has the server. Two leaders at once may
//! claim two for one machine; the second is given back here.

use super::draft::Draft;
use super::observed::{DpuSeen, Observed, annotation, label, name, uid};
use super::plan::Action;
use super::{place, release, verify};
use crate::install;
use crate::reason::{Blocked, Reason, Waiting};
use crate::selector;
use crate::verbs::{self, Verb};
use api::conditions::{self, is_true};
use api::dpu::{Maintenance, PowerDomain};
use api::labels;
use api::machine::{BootStrategy, Disk, HardwareChoice};
use api::tinkerbell::Hardware;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The claimed server and the DPU in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host<'a> {
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
        Power { name: self.name(), shares_power, boot_id, dpu: Some(self.dpu.name()) }
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
pub(super) enum Place<'a> {
    Dpu(Host<'a>),
    Bare(&'a Hardware),
}

/// What the planning of a host's power has to know of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Power<'a> {
    pub name: &'a str,
    pub shares_power: bool,
    /// Of the DPU, if there is one whose agent lives.
    pub boot_id: Option<&'a str>,
    pub dpu: Option<&'a str>,
}

impl<'a> Power<'a> {
    pub fn bare(hardware: &'a Hardware) -> Self {
        Self { name: name(&hardware.metadata), shares_power: false, boot_id: None, dpu: None }
    }
}

/// Its machine has claimed it to be installed there by a workflow. A Dpu that is assigned to that server meanwhile changes nothing.
pub(super) fn is_bare(hardware: &Hardware) -> bool {
    install::strategy(&hardware.metadata) == Some(BootStrategy::Workflow)
}

/// A workflow installs this machine: as its claim says, or before there is one its spec.
pub(super) fn installs(o: &Observed) -> bool {
    match current(o) {
        Some(hardware) => is_bare(hardware),
        None => o.machine.spec.boot.strategy == BootStrategy::Workflow || was_installed(o),
    }
}

/// Something was begun for this machine on the Hardware that its status names.
pub(super) fn was_installed(o: &Observed) -> bool {
    o.machine.status.as_ref().is_some_and(|status| status.install.is_some())
}

pub(super) fn held(o: &Observed) -> Vec<&Arc<Hardware>> {
    each_held(o).collect()
}

fn each_held(o: &Observed) -> impl Iterator<Item = &Arc<Hardware>> {
    o.hardware.iter().filter(|hardware| annotation(&hardware.metadata, labels::CLAIMED_BY) == Some(o.uid()))
}

/// The Hardware that a migration has claimed for this machine.
pub fn target(o: &Observed) -> Option<&Hardware> {
    let lock = verbs::lock(&o.machine.metadata).filter(|lock| lock.verb == Verb::Migration)?;
    let marked = |hardware: &&Arc<Hardware>| annotation(&hardware.metadata, labels::CLAIMED_FOR) == Some(&lock.uid);
    each_held(o).find(marked).map(AsRef::as_ref)
}

/// The machine's Hardware. A machine that moves may hold two: it has the one that it leaves until that is given up. One that is
/// gone has the one that it left something on. Asked by every step of every plan.
pub fn current(o: &Observed) -> Option<&Hardware> {
    let target = target(o);
    let is_target = |hardware: &Hardware| target.is_some_and(|target| std::ptr::eq(target, hardware));
    let mine = || each_held(o).map(AsRef::as_ref).filter(|hardware| !is_target(hardware));
    let mut each = mine();
    let Some(one) = each.next() else { return target.or_else(|| left_on(o)) };
    if each.next().is_none() {
        return Some(one);
    }
    let first = |hardware: &&Hardware| name(&hardware.metadata).to_owned();
    let recorded = o.machine.status.as_ref().and_then(|status| status.hardware_name.as_deref());
    let used = mine().filter(|hardware| in_use(o, hardware)).min_by_key(first);
    let of_record = || mine().find(|hardware| Some(name(&hardware.metadata)) == recorded);
    used.or_else(of_record).or_else(|| mine().min_by_key(first))
}

/// Of a machine that is gone, and of which no server is any more: one with whose power a DPU has lost what was granted on it too
/// late. It is only read, whoever has it now.
fn left_on(o: &Observed) -> Option<&Hardware> {
    let dpus = o.dpus.iter().filter(|dpu| o.gone && dpu.silent && dpu.dpu.spec.power_domain == PowerDomain::Host);
    let mut left = dpus.filter(|dpu| release::granted_on(o).any(|on| on == dpu.name()));
    let of_it = left.next()?.hardware_name()?;
    o.hardware.iter().map(AsRef::as_ref).find(|hardware| name(&hardware.metadata) == of_it)
}

/// Where the machine is moving to: it still has another Hardware.
pub(super) fn moves_to(o: &Observed) -> Option<&Hardware> {
    target(o).filter(|target| current(o).is_some_and(|current| !std::ptr::eq(*target, current)))
}

fn in_use(o: &Observed, hardware: &Hardware) -> bool {
    o.dpus.iter().any(|dpu| {
        dpu.hardware_name() == Some(name(&hardware.metadata))
            && (o.disk_attachments.iter().any(|a| a.spec.dpu_name == dpu.name())
                || o.nic_attachments.iter().any(|a| a.spec.dpu_name == dpu.name()))
    })
}

/// The claimed Hardware, if there is one; what is claimed beyond it, and not to move there, is given back.
pub(super) fn claimed<'a>(o: &'a Observed, draft: &mut Draft) -> Option<&'a Hardware> {
    let (kept, target) = (current(o)?, target(o));
    let needed = |h: &Hardware| std::ptr::eq(h, kept) || target.is_some_and(|target| std::ptr::eq(h, target));
    for surplus in held(o).into_iter().filter(|h| !needed(h) && !in_use(o, h)) {
        draft.act(Action::UnclaimHardware { name: name(&surplus.metadata).to_owned() });
    }
    Some(kept)
}

/// Where the machine is.
pub(super) fn place<'a>(o: &'a Observed, hardware: &'a Hardware) -> Result<Place<'a>, Reason> {
    match is_bare(hardware) {
        true => Ok(Place::Bare(hardware)),
        false => host(o, hardware).map(Place::Dpu),
    }
}

/// The DPU of a claimed Hardware.
pub(super) fn host<'a>(o: &'a Observed, hardware: &'a Hardware) -> Result<Host<'a>, Reason> {
    let name = name(&hardware.metadata);
    let of_it = dpu_of(&o.dpus, name).filter(|_| !is_bare(hardware));
    let dpu = of_it.ok_or(Blocked::HardwareHasNoDpu { hardware: name.to_owned() })?;
    let namespace = dpu.namespace().ok_or_else(|| not_ready(dpu))?;
    Ok(Host { hardware, dpu, namespace })
}

pub(super) fn dpu_of<'a>(dpus: &'a [DpuSeen], hardware: &str) -> Option<&'a DpuSeen> {
    let of_it = || dpus.iter().filter(|dpu| dpu.hardware_name() == Some(hardware));
    of_it()
        .filter(|dpu| dpu.dpu.spec.approved)
        .min_by_key(|dpu| dpu.name())
        .or_else(|| of_it().min_by_key(|d| d.name()))
}

pub(super) fn not_ready(dpu: &DpuSeen) -> Reason {
    let conditions = dpu.dpu.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let message = match conditions::get(conditions, conditions::READY) {
        Some(ready) => format!("{}: {}", ready.reason, ready.message),
        None => "its agent has not reported yet".to_owned(),
    };
    Waiting::DpuNotReady { dpu: dpu.name().to_owned(), message }.into()
}

/// Chooses a Hardware and claims it. Where the Hardware was deleted under a machine whose disks or NICs are granted, no other one
/// will do: its host runs. That one is claimed again once it is there again.
pub(super) fn choose(o: &Observed, draft: &mut Draft) -> Reason {
    let chosen = match release::granted_on(o).next() {
        Some(dpu) => deleted_under(o, Some(dpu)).map(|hardware| (hardware, BootStrategy::CloudDisk)),
        None if was_installed(o) => deleted_under(o, None).map(|hardware| (hardware, BootStrategy::Workflow)),
        None => pick(o, o.machine.spec.hardware.iter().collect()),
    };
    match chosen {
        Ok((hardware, strategy)) => take(hardware, strategy, draft),
        Err(reason) => reason,
    }
}

fn deleted_under<'a>(o: &'a Observed, dpu: Option<&str>) -> Result<&'a Hardware, Reason> {
    let of_it = o.dpus.iter().find(|seen| Some(seen.name()) == dpu).and_then(DpuSeen::hardware_name);
    let recorded = o.machine.status.as_ref().and_then(|status| status.hardware_name.as_deref());
    let wanted = of_it.or(recorded).unwrap_or_default();
    let missing = || Blocked::HardwareMissing { hardware: wanted.to_owned() };
    let hardware = o.hardware.iter().find(|h| name(&h.metadata) == wanted).ok_or_else(missing)?;
    // The machine is on it: no policy, and nothing that its DPU lacks now, makes that otherwise.
    is_free(hardware).map(|()| hardware.as_ref())
}

/// Of a machine that is being deleted: nothing is taken from its host before that can be switched off.
pub(super) fn again(o: &Observed, draft: &mut Draft) -> Option<Reason> {
    let Some(dpu) = release::granted_on(o).next() else {
        // An installed host runs on as well. What was made for it goes before its server is given back: by that it is known which of
        // the two has taken the claim. Where its Hardware does not come back there is nothing left to give back.
        let left = was_installed(o) && !(o.workflows.is_empty() && o.templates.is_empty());
        let hardware = left.then(|| deleted_under(o, None).ok()).flatten()?;
        return Some(take(hardware, BootStrategy::Workflow, draft));
    };
    Some(match deleted_under(o, Some(dpu)) {
        Ok(hardware) => take(hardware, BootStrategy::CloudDisk, draft),
        Err(reason) => reason,
    })
}

/// Chooses where a machine may move to, by the same check. `o.hardware` is the whole inventory.
pub fn choose_target<'a>(o: &'a Observed, asked: Option<&HardwareChoice>) -> Result<&'a Hardware, Reason> {
    let own = o.machine.spec.hardware.as_ref();
    // A name is somebody's decision, and stands above what the machine was first asked to run on.
    if let Some(asked) = asked.filter(|asked| asked.name.is_some()) {
        return pick(o, vec![asked]).and_then(with_dpu);
    }
    if let Some(hardware) = own.and_then(|own| own.name.clone()) {
        return Err(Blocked::HardwarePinned { machine: o.name().to_owned(), hardware }.into());
    }
    pick(o, own.into_iter().chain(asked).collect()).and_then(with_dpu)
}

/// Cloud disks move to cloud disks.
fn with_dpu((hardware, strategy): (&Hardware, BootStrategy)) -> Result<&Hardware, Reason> {
    match strategy {
        BootStrategy::Workflow => {
            Err(Blocked::HardwareHasNoDpu { hardware: name(&hardware.metadata).to_owned() }.into())
        }
        BootStrategy::CloudDisk | BootStrategy::Auto => Ok(hardware),
    }
}

/// A Hardware that all choices select, and that may be claimed, and how the machine boots there.
fn pick<'a>(o: &'a Observed, choices: Vec<&HardwareChoice>) -> Result<(&'a Hardware, BootStrategy), Reason> {
    if let Some(wanted) = choices.iter().find_map(|choice| choice.name.as_deref()) {
        let Some(hardware) = o.hardware.iter().find(|h| name(&h.metadata) == wanted) else {
            return Err(Blocked::HardwareMissing { hardware: wanted.to_owned() }.into());
        };
        return may_claim(o, hardware).map(|strategy| (hardware.as_ref(), strategy));
    }
    let chosen = |hardware: &&Arc<Hardware>| {
        let labels = hardware.metadata.labels.clone().unwrap_or_default();
        choices.iter().filter_map(|c| c.selector.as_ref()).all(|wanted| selector::matches(wanted, &labels))
    };
    // Each machine has an order of its own, or many that start at once would all try the same one.
    let mut candidates: Vec<&Arc<Hardware>> = o.hardware.iter().filter(chosen).collect();
    candidates.sort_by_cached_key(|h| api::names::short(&format!("{}/{}", o.uid(), name(&h.metadata)), 12));
    let mut refused = BTreeMap::<&'static str, usize>::new();
    let mut taken = false;
    for hardware in candidates {
        match may_claim(o, hardware) {
            Ok(strategy) => return Ok((hardware, strategy)),
            Err(reason) => {
                taken |= matches!(reason, Reason::Waiting(_));
                *refused.entry(reason.name()).or_default() += 1;
            }
        }
    }
    let summary = match refused.is_empty() {
        true => "no Hardware has the labels that are asked for".to_owned(),
        false => refused.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", "),
    };
    Err(match taken {
        true => Waiting::NoFreeHardware { summary }.into(),
        false => Blocked::NoHardwareFits { summary }.into(),
    })
}

fn take(hardware: &Hardware, strategy: BootStrategy, draft: &mut Draft) -> Reason {
    let name = name(&hardware.metadata).to_owned();
    draft.act(Action::ClaimHardware {
        name: name.clone(),
        uid: uid(&hardware.metadata).to_owned(),
        resource_version: hardware.metadata.resource_version.clone().unwrap_or_default(),
        strategy,
    });
    Waiting::Creating { what: format!("the claim on Hardware '{name}'") }.into()
}

fn is_free(hardware: &Hardware) -> Result<(), Reason> {
    let meta = &hardware.metadata;
    let hardware_name = name(meta).to_owned();
    if meta.deletion_timestamp.is_some() {
        return Err(Waiting::HardwareBeingDeleted { hardware: hardware_name }.into());
    }
    if let Some(owner) = annotation(meta, labels::TINKERBELL_OWNER).or(label(meta, labels::TINKERBELL_OWNER)) {
        return Err(Waiting::HardwareTaken { hardware: hardware_name, by: format!("Tinkerbell's '{owner}'") }.into());
    }
    if let Some(claimer) = annotation(meta, labels::CLAIMED_BY) {
        let by = annotation(meta, labels::CLAIMED_BY_NAME).unwrap_or(claimer);
        return Err(Waiting::HardwareTaken { hardware: hardware_name, by: format!("machine '{by}'") }.into());
    }
    Ok(())
}

fn may_claim(o: &Observed, hardware: &Hardware) -> Result<BootStrategy, Reason> {
    is_free(hardware)?;
    let meta = &hardware.metadata;
    let hardware_name = name(meta).to_owned();
    let own_labels = meta.labels.clone().unwrap_or_default();
    let allowed = o.policies.iter().any(|policy| {
        policy.metadata.namespace == meta.namespace
            && selector::matches(&policy.spec.selector, &own_labels)
            && selector::matches(&policy.spec.claim_namespaces, &o.namespace_labels)
    });
    if !allowed {
        return Err(Blocked::NoPolicy { hardware: hardware_name, namespace: o.namespace().to_owned() }.into());
    }
    if hardware.spec.bmc_ref.is_none() {
        return Err(Blocked::HardwareHasNoBmc { hardware: hardware_name }.into());
    }
    if let Some(by) = o.busy.get(&hardware_name) {
        return Err(Waiting::HardwareBusy { hardware: hardware_name, by: by.clone() }.into());
    }
    let dpu = dpu_of(&o.dpus, &hardware_name);
    let strategy = place::strategy(o, hardware, dpu)?;
    if let Some(dpu) = dpu {
        if strategy == BootStrategy::CloudDisk {
            usable(dpu)?;
        }
        if let Some((_, by)) = dpu.attached.iter().find(|(uid, _)| *uid != o.uid()) {
            // A Hardware that was deleted and created again under a machine that runs says nothing of that.
            return Err(Waiting::HardwareTaken { hardware: hardware_name, by: format!("machine '{by}'") }.into());
        }
        without_orphans(dpu, &hardware_name)?;
    }
    if strategy == BootStrategy::Workflow {
        return Ok(strategy);
    }
    let dpu = dpu.ok_or(Blocked::HardwareHasNoDpu { hardware: hardware_name })?;
    verify::claimable(dpu)?;
    room(o, dpu)?;
    o.machine.spec.disks.iter().try_for_each(|disk| presents(dpu, disk))?;
    connects(o, dpu).map(|()| strategy)
}

/// The DPU has the bus on which a disk is asked for.
pub(super) fn presents(dpu: &DpuSeen, disk: &Disk) -> Result<(), Reason> {
    // An agent that cannot read what it presents with says neither capacity nor buses.
    let status = dpu.dpu.status.as_ref().filter(|status| status.capacity.is_some()).ok_or_else(|| not_ready(dpu))?;
    if status.buses.contains(&disk.bus) {
        return Ok(());
    }
    let there: Vec<String> = status.buses.iter().map(|bus| format!("{bus:?}")).collect();
    let there = if there.is_empty() { "no bus".to_owned() } else { there.join(" or ") };
    Err(Blocked::DpuLacksBus {
        disk: disk.name.clone(),
        bus: format!("{:?}", disk.bus),
        dpu: dpu.name().to_owned(),
        there,
    }
    .into())
}

/// Of the volumes that are there already: the DPU can connect each.
fn connects(o: &Observed, dpu: &DpuSeen) -> Result<(), Reason> {
    for disk in &o.machine.spec.disks {
        let claim = super::volumes::claim_name(&o.machine, disk);
        if let Some(volume) = o.claims.get(&claim).and_then(|seen| seen.volume.as_ref()) {
            crate::connector::choose(&claim, volume, dpu)?;
        }
    }
    Ok(())
}

fn usable(dpu: &DpuSeen) -> Result<(), Reason> {
    let name = dpu.name().to_owned();
    if dpu.dpu.metadata.deletion_timestamp.is_some() {
        return Err(Waiting::DpuNotReady { dpu: name, message: "it is being deleted".to_owned() }.into());
    }
    if !dpu.dpu.spec.approved {
        return Err(Blocked::DpuNotApproved { dpu: name }.into());
    }
    if dpu.dpu.spec.maintenance != Maintenance::None {
        return Err(Blocked::DpuInMaintenance { dpu: name }.into());
    }
    let status = dpu.dpu.status.as_ref().ok_or_else(|| not_ready(dpu))?;
    if status.namespace.is_none() {
        return Err(not_ready(dpu));
    }
    if is_true(&status.conditions, conditions::PARKED) {
        return Ok(());
    }
    if dpu.silent {
        return Err(Waiting::DpuSilent { dpu: name }.into());
    }
    if !is_true(&status.conditions, conditions::READY) {
        return Err(not_ready(dpu));
    }
    Ok(())
}

/// *OrphanIsNotGranted*: somebody's system may run on what its host has. A DPU that went down with its host has lost all of it.
fn without_orphans(dpu: &DpuSeen, hardware: &str) -> Result<(), Reason> {
    let Some(status) = dpu.dpu.status.as_ref() else { return Ok(()) };
    if status.orphans.is_empty() || is_true(&status.conditions, conditions::PARKED) {
        return Ok(());
    }
    let (hardware, dpu, count) = (hardware.to_owned(), dpu.name().to_owned(), status.orphans.len());
    Err(Waiting::HardwareHasOrphans { hardware, dpu, count }.into())
}

fn room(o: &Observed, dpu: &DpuSeen) -> Result<(), Reason> {
    let capacity = dpu.dpu.status.as_ref().and_then(|status| status.capacity.as_ref()).ok_or_else(|| not_ready(dpu))?;
    let spec = &o.machine.spec;
    let boot_disks = spec.disks.iter().filter(|disk| disk.boot_order == Some(1)).count();
    // The seed, where there is one, is a disk too; it and the boot disk have slots of their own.
    let wanted = [
        ("disks", spec.disks.len() + usize::from(super::seed::is_disk(o)), capacity.disks),
        ("interfaces", spec.interfaces.len(), capacity.nics),
        ("hot-plug ports", spec.disks.len() - boot_disks + spec.interfaces.len(), capacity.hot_plug_ports),
    ];
    for (what, wanted, there) in wanted {
        if wanted > there as usize {
            let message = format!("{wanted} {what} are asked for, it has {there}");
            return Err(Blocked::DpuTooSmall { dpu: dpu.name().to_owned(), message }.into());
        }
    }
    Ok(())
}
