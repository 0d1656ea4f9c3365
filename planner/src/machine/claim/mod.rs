//! Which server: the Hardware that this machine has, or the one that it tries to get.
//!
//! The claim is the annotation `metalplane.io/claimed-by`, set by compare-and-swap on the Hardware's resourceVersion, and in the
//! same write `metalplane.io/boot-strategy`: how the machine boots does not change while it has the server. Two leaders at once may
//! claim two for one machine; the second is given back here.

pub(super) mod local_disk;
pub(super) mod strategy;
mod verify;

pub use local_disk::asked as asked_size;

pub use super::situation::{current, target};

use super::draft::Draft;
use super::named::{claim_name, is_by_disk};
use super::observed::{Belongings, DpuSeen, Observed};
use super::plan::Action;
use super::situation::{Situation, dpu_of, granted_on, in_use};
use crate::about::About;
use crate::dpu::eraser;
use crate::dpu::not_ready;
use crate::meta::{annotation, label, name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use crate::{connector, enrol, install, selector};
use api::HardwarePolicy;
use api::conditions::{self, is_true};
use api::dpu::{LocalDisks, Maintenance};
use api::machine::{BootStrategy, Disk, HardwareChoice};
use api::tinkerbell::Hardware;
use api::{labels, names};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The claimed Hardware, if there is one; what is claimed beyond it, and not to move there, is given back.
pub(super) fn claimed<'a>(o: &Situation<'a>, draft: &mut Draft) -> Option<&'a Hardware> {
    let kept = o.owned.current?;
    let needed = |h: &Hardware| std::ptr::eq(h, kept) || o.target.is_some_and(|target| std::ptr::eq(h, target));
    for surplus in o.owned.held().into_iter().filter(|h| !needed(h) && !in_use(o, h)) {
        draft.act(Action::UnclaimHardware { name: name(&surplus.metadata).to_owned() });
    }
    Some(kept)
}

/// Chooses a Hardware and claims it. Where the Hardware was deleted under a machine whose disks or NICs are granted, no other one
/// will do: its host runs. That one is claimed again once it is there again.
pub(super) fn choose(o: &Situation<'_>, draft: &mut Draft) -> Reason {
    let chosen = match granted_on(o).next() {
        Some(dpu) => deleted_under(o, Some(dpu)).map(|hardware| (hardware, BootStrategy::CloudDisk)),
        None if o.owned.was_installed() => deleted_under(o, None).map(|hardware| (hardware, BootStrategy::Workflow)),
        None => pick(o, o.machine.spec.hardware.iter().collect()),
    };
    match chosen {
        Ok((hardware, strategy)) => take(o, hardware, strategy, draft),
        Err(reason) => reason,
    }
}

fn deleted_under<'a>(o: &'a Observed, dpu: Option<&str>) -> Result<&'a Hardware, Reason> {
    let of_it = o.dpus.iter().find(|seen| Some(seen.name()) == dpu).and_then(DpuSeen::hardware_name);
    let recorded = o.machine.status.as_ref().and_then(|status| status.hardware_name.as_deref());
    let of_run = || o.workflows.iter().find_map(|run| run.spec.hardware_ref.as_deref());
    let wanted = of_it.or(recorded).or_else(of_run).unwrap_or_default();
    let missing = || Blocked::HardwareMissing { hardware: wanted.to_owned() };
    let hardware = o.hardware.iter().find(|h| name(&h.metadata) == wanted).ok_or_else(missing)?;
    // The machine is on it: no policy, and nothing that its DPU lacks now, makes that otherwise.
    is_free(hardware).map(|()| hardware.as_ref())
}

/// Of a machine that is being deleted: nothing is taken from its host before that can be switched off.
pub(super) fn again(o: &Situation<'_>, draft: &mut Draft) -> Option<Reason> {
    let Some(dpu) = granted_on(o).next() else { return installed_again(o, draft) };
    Some(match deleted_under(o, Some(dpu)) {
        Ok(hardware) => take(o, hardware, BootStrategy::CloudDisk, draft),
        Err(reason) => reason,
    })
}

/// An installed host runs on as well, and so a machine that was not released does not go before its Hardware is there again, or an administrator
/// gives the server up. One that was released says so in its status (`super::release`, *told*).
fn installed_again(o: &Situation<'_>, draft: &mut Draft) -> Option<Reason> {
    if !o.owned.was_installed() {
        return None;
    }
    match deleted_under(o, None) {
        Ok(hardware) => Some(take(o, hardware, BootStrategy::Workflow, draft)),
        // Whoever has claimed it since powers it off before anything else.
        Err(Reason::Waiting(Waiting::HardwareTaken { .. })) => None,
        Err(Reason::Blocked(Blocked::HardwareMissing { hardware })) => {
            let given_up = annotation(&o.machine.metadata, labels::SERVER_GIVEN_UP) == Some(&hardware);
            (!given_up).then(|| Blocked::ServerLeftOn { hardware }.into())
        }
        Err(reason) => Some(reason),
    }
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
    let chosen = |hardware: &&Arc<Hardware>| choices.iter().all(|choice| selects(choice, hardware));
    let mut candidates: Vec<&Arc<Hardware>> = o.hardware.iter().filter(chosen).collect();
    candidates.sort_by_cached_key(|hardware| place(o.uid(), hardware));
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

/// A machine that has nothing yet takes whatever server will do; of others it is known which one they need.
pub fn chooses(o: &Observed) -> bool {
    let has_nothing = o.disk_attachments.is_empty() && o.nic_attachments.is_empty();
    let owned = &Situation::of(o).owned;
    has_nothing && !o.deleting() && owned.current.is_none() && !owned.was_installed()
}

/// Those of these servers that the machine asks for, in the order in which it tries them.
pub fn asked_for(o: &Observed, mut servers: Vec<Arc<Hardware>>) -> Vec<Arc<Hardware>> {
    servers.retain(|hardware| o.machine.spec.hardware.iter().all(|choice| selects(choice, hardware)));
    servers.sort_by_cached_key(|hardware| place(o.uid(), hardware));
    servers
}

fn selects(choice: &HardwareChoice, hardware: &Hardware) -> bool {
    let labels = || hardware.metadata.labels.clone().unwrap_or_default();
    choice.name.as_deref().is_none_or(|wanted| name(&hardware.metadata) == wanted)
        && choice.selector.as_ref().is_none_or(|wanted| selector::matches(wanted, &labels()))
}

/// One of the servers in `o.hardware` will do.
pub fn finds(o: &Observed) -> bool {
    pick(o, o.machine.spec.hardware.iter().collect()).is_ok()
}

/// Each machine has an order of its own, or many that start at once would all try the same server.
fn place(machine_uid: &str, hardware: &Hardware) -> u64 {
    names::place(&format!("{machine_uid}/{}", name(&hardware.metadata)))
}

fn take(o: &Observed, hardware: &Hardware, strategy: BootStrategy, draft: &mut Draft) -> Reason {
    let local_disks = match erased_by(o, hardware) {
        Some(_) => LocalDisks::Erase,
        None => LocalDisks::Keep,
    };
    let name = name(&hardware.metadata).to_owned();
    draft.act(Action::ClaimHardware {
        name: name.clone(),
        uid: uid(&hardware.metadata).to_owned(),
        resource_version: hardware.metadata.resource_version.clone().unwrap_or_default(),
        strategy,
        local_disks,
    });
    Waiting::Creating { what: About::HardwareClaim(name.to_owned()) }.into()
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
    if let Some(by) = install::claimer(meta) {
        return Err(Waiting::HardwareTaken { hardware: hardware_name, by }.into());
    }
    Ok(())
}

fn may_claim(o: &Observed, hardware: &Hardware) -> Result<BootStrategy, Reason> {
    is_free(hardware)?;
    let meta = &hardware.metadata;
    let hardware_name = name(meta).to_owned();
    if policies(o, hardware).next().is_none() {
        return Err(Blocked::NoPolicy { hardware: hardware_name, namespace: o.namespace().to_owned() }.into());
    }
    if enrol::is_unapproved(hardware) {
        return Err(Blocked::HardwareNotApproved { hardware: hardware_name }.into());
    }
    if hardware.spec.bmc_ref.is_none() {
        return Err(Blocked::HardwareHasNoBmc { hardware: hardware_name }.into());
    }
    if let Some(by) = o.installed.get(&hardware_name) {
        // As below, of a server without a DPU.
        return Err(Waiting::HardwareTaken { hardware: hardware_name, by: by.clone() }.into());
    }
    if let Some(by) = o.busy.get(&hardware_name) {
        return Err(Waiting::HardwareBusy { hardware: hardware_name, by: by.clone() }.into());
    }
    let dpu = dpu_of(&o.dpus, &hardware_name);
    let strategy = strategy::strategy(o, hardware, dpu)?;
    if let Some(dpu) = dpu {
        if strategy == BootStrategy::CloudDisk {
            usable(dpu)?;
        }
        if let Some((_, by)) = dpu.attached.iter().find(|(uid, _)| *uid != o.uid()) {
            // A Hardware that was deleted and created again under a machine that runs says nothing of that.
            return Err(Waiting::HardwareTaken { hardware: hardware_name, by: by.clone() }.into());
        }
        without_orphans(dpu, &hardware_name)?;
    }
    if let (Some(dpu), Some(policy)) = (dpu, erased_by(o, hardware)) {
        let why = match strategy {
            BootStrategy::Workflow => {
                Some(format!("Dpu '{}' is in it, and the machine is not booted from that", dpu.name()))
            }
            _ => eraser::missing(dpu, hardware),
        };
        if let Some(why) = why {
            return Err(Blocked::EraseNotServed { hardware: hardware_name, policy, why }.into());
        }
    }
    if strategy == BootStrategy::Workflow {
        let report = o.reports.get(name(meta)).map(AsRef::as_ref);
        // What is not known is told once the machine has the server.
        return local_disk::check(&o.machine.spec, hardware, report).map(|_| strategy);
    }
    let dpu = dpu.ok_or(Blocked::HardwareHasNoDpu { hardware: hardware_name })?;
    verify::claimable(dpu)?;
    room(o, dpu)?;
    if let Some(reason) = o.unfit.get(dpu.name()) {
        return Err(reason.clone());
    }
    o.machine.spec.disks.iter().try_for_each(|disk| presents(dpu, disk))?;
    connects(o, dpu).map(|()| strategy)
}

/// Those by which this machine may claim that server.
fn policies<'a>(o: &'a Belongings, hardware: &'a Hardware) -> impl Iterator<Item = &'a HardwarePolicy> {
    let own_labels = hardware.metadata.labels.clone().unwrap_or_default();
    let applies = move |policy: &&HardwarePolicy| {
        policy.metadata.namespace == hardware.metadata.namespace
            && selector::matches(&policy.spec.selector, &own_labels)
            && selector::matches(&policy.spec.claim_namespaces, &o.namespace_labels)
    };
    o.policies.iter().map(AsRef::as_ref).filter(applies)
}

/// The policy by which the disks of this server are erased before it is free. One that says so counts, whatever others say.
pub(super) fn erased_by(o: &Belongings, hardware: &Hardware) -> Option<String> {
    let erases = |policy: &&HardwarePolicy| policy.spec.release_policy.local_disks == LocalDisks::Erase;
    policies(o, hardware).find(erases).map(|policy| name(&policy.metadata).to_owned())
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
        let claim = claim_name(&o.machine, disk);
        if let Some(volume) = o.claims.get(&claim).and_then(|seen| seen.volume.as_ref()) {
            connector::choose(&claim, volume, dpu)?;
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
        ("disks", spec.disks.len() + usize::from(is_by_disk(&o.machine)), capacity.disks),
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
