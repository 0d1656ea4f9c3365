//! What a machine that no longer exists has left: a controller that did not know yet that it had been deposed, or a request of one that
//! arrived late, made it after the last look; or its finalizer was taken away by force.
//!
//! It is planned by the stages of a release, which stand on what belongs to its owner alone. There is no spec, so nothing can be asked for,
//! and no status: what is on record of power actions is at the Hardware.

use super::draft::Draft;
use super::observed::{Belongings, Leftovers};
use super::plan::{Action, Disruptive};
use super::release::{pods_leave, take_back, unclaim};
use super::situation::{Owned, Owner, granted_on, held, is_bare, is_granted, most_likely, vetted_of};
use super::{discover, erase, install, status};
use crate::boot_option::discovery;
use crate::erase::PowerRecord;
use crate::host::BmcNeed;
use crate::meta::{annotation, name};
use crate::reason::{Reason, Waiting};
use crate::writer::down;
use api::dpu::PowerDomain;
use api::labels;
use api::tinkerbell::Hardware;
use install::was_begun;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// What one round decided, as of a machine ([`super::Plan`]).
#[derive(Debug, Clone)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub disruptive: Option<Disruptive>,
    /// The server that `disruptive` and `bmc` are about.
    pub hardware_name: Option<String>,
    /// What goes on record at that server before a power action is sent.
    pub power: PowerRecord,
    /// What the release waits for.
    pub waits_for: Option<Reason>,
    pub wake_at: Option<Timestamp>,
    pub bmc: BmcNeed,
    /// The same of DPUs' own BMCs, each by the name of its bmc.tinkerbell.org Machine.
    pub dpu_bmcs: BTreeMap<String, BmcNeed>,
}

impl Plan {
    /// Nothing to do in this round.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.disruptive.is_none()
    }
}

/// What to give back now.
pub fn plan(left: &Leftovers, now: Timestamp) -> Plan {
    let current = server(left);
    let own = vetted_of(&left.own, current);
    // What is on record at another's server is another's.
    let is_mine = |hardware: &&Hardware| annotation(&hardware.metadata, labels::CLAIMED_BY) == Some(&left.of.uid);
    let recorded = current.filter(is_mine).and_then(|hardware| PowerRecord::of(&hardware.metadata)).unwrap_or_default();
    let power = (recorded.power.as_ref(), recorded.power_on_attempts);
    let o = &Owned::new((Owner::Gone(&left.of), own.as_ref()), current, power, true);
    let mut draft = Draft::default();
    draft.glance(o);
    let waits_for = release(o, now, &mut draft);
    let power = status::power::record(o, recorded.clone(), None, (draft.disruptive.as_ref(), false), now);
    Plan {
        actions: draft.actions,
        disruptive: draft.disruptive,
        hardware_name: current.map(|hardware| name(&hardware.metadata).to_owned()),
        power,
        waits_for,
        wake_at: draft.wake_at.map(|at| at.max(now)),
        bmc: draft.bmc,
        dpu_bmcs: draft.dpu_bmcs,
    }
}

/// The server that it has, or where there is none any more the one that it left something on: that is only read, whoever has it now.
pub fn server(left: &Leftovers) -> Option<&Hardware> {
    let mine = held(&left.own, &left.of.uid).map(AsRef::as_ref).collect();
    let is_on_record = |hardware: &Hardware| PowerRecord::of(&hardware.metadata).is_some();
    most_likely(&left.own, mine, is_on_record).or_else(|| left_on(&left.own))
}

/// One with whose power a DPU has lost what was granted on it too late.
fn left_on(own: &Belongings) -> Option<&Hardware> {
    let dpus = own.dpus.iter().filter(|dpu| dpu.silent && dpu.dpu.spec.power_domain == PowerDomain::Host);
    let mut left = dpus.filter(|dpu| granted_on(own).any(|on| on == dpu.name()));
    let of_it = left.next()?.hardware_name()?;
    own.hardware.iter().map(AsRef::as_ref).find(|hardware| name(&hardware.metadata) == of_it)
}

/// While it has a server on which something was granted, that is read off first: its finalizer may have been taken away by force, under a
/// running host. So it may be where the Hardware is gone as well: unknown means wait. Nobody is switched off for a machine that is not
/// there.
fn release(o: &Owned<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let held = o.held();
    if let Some(hardware) = held.first() {
        if discovery::is_under_way(&hardware.metadata) {
            return discover::plan(o, hardware, now, draft);
        }
        if (is_bare(hardware) || erase::is_begun(hardware))
            && let Some(reason) = erase::plan(o, hardware, now, draft)
        {
            return Some(reason);
        }
        if (is_granted(o) || was_begun(o, hardware))
            && !o.is_off()
            && let Some(reason) = erase::off(o, hardware, now, draft)
        {
            return Some(reason);
        }
    }
    if let Some(dpu) = granted_on(o).find(|dpu| !has_hardware(o, dpu)) {
        draft.wake(now + erase::GLANCE);
        return Some(Waiting::HostUnknown { dpu: dpu.to_owned() }.into());
    }
    let taken_back = take_back(o, now, draft).or_else(|| pods_leave(o, now, draft));
    if let Some(reason) = taken_back.or_else(|| install::remove(o, draft)) {
        return Some(reason);
    }
    if let Some(hardware) = held.first()
        && let Some(reason) = erase::plan(o, hardware, now, draft)
    {
        return Some(reason);
    }
    unclaim(o, draft);
    None
}

fn has_hardware(own: &Belongings, dpu: &str) -> bool {
    let of_it = down::dpu(&own.dpus, dpu).and_then(|dpu| dpu.hardware_name());
    of_it.is_some_and(|of_it| own.hardware.iter().any(|hardware| name(&hardware.metadata) == of_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::observed::Gone;
    use api::hold::Holder;
    use api::network::VNicStatus;
    use api::{VNic, names};
    use std::sync::Arc;

    /// A VNic that its user made outlives the machine, and the next one is to have it.
    #[test]
    fn a_vnic_is_free_before_it_is_unprotected() {
        let attachment_name = names::attachment("machine", "bm-01", "eth1");
        let holder = Holder { attachment_name, attachment_uid: "attachment".to_owned(), ..Holder::default() };
        let mut vnic = VNic::new("users-own", Default::default());
        vnic.metadata.uid = Some("vnic".to_owned());
        vnic.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
        let mark = (format!("{}machine", labels::IN_USE_BY), "eth1".to_owned());
        vnic.metadata.annotations = Some([mark].into());
        vnic.status = Some(VNicStatus { holder: Some(holder.clone()), ..VNicStatus::default() });
        let of = Gone { uid: "machine".to_owned(), ..Gone::default() };
        let mut left = Leftovers { of, ..Leftovers::default() };
        left.own.vnics.insert("users-own".to_owned(), Arc::new(vnic.clone()));
        let actions = plan(&left, Timestamp::UNIX_EPOCH).actions;
        assert!(
            matches!(actions.as_slice(), [Action::FreeVNic { holder: free, .. }] if *free == holder),
            "{actions:?}"
        );
        let mut made = vnic.clone();
        made.metadata.labels = Some([(labels::MACHINE_UID.to_owned(), "machine".to_owned())].into());
        left.own.vnics.insert("users-own".to_owned(), Arc::new(made.clone()));
        let actions = plan(&left, Timestamp::UNIX_EPOCH).actions;
        assert!(matches!(actions.as_slice(), [Action::UnprotectVNic { .. }]), "it ends with its machine: {actions:?}");
        made.metadata.annotations = None;
        left.own.vnics.insert("users-own".to_owned(), Arc::new(made));
        let actions = plan(&left, Timestamp::UNIX_EPOCH).actions;
        assert!(matches!(actions.as_slice(), [Action::DeleteVNic { .. }]), "{actions:?}");
        vnic.status = None;
        left.own.vnics.insert("users-own".to_owned(), Arc::new(vnic));
        let actions = plan(&left, Timestamp::UNIX_EPOCH).actions;
        assert!(matches!(actions.as_slice(), [Action::UnprotectVNic { .. }]), "{actions:?}");
    }
}
