//! Whether the boot option of a DPU's disk is known before a machine is there, and whether the server is taken to find it
//! ([`crate::machine`], *discover*).

use super::{DiscoverySeen, Observed, hold_disk, rank};
use crate::boot_option::Learnt;
use crate::boot_option::discovery::{Outcome, Record, is_under_way};
use crate::enrol::is_unapproved;
use crate::meta::{annotation, label, name, uid};
use api::conditions::{self, ConditionStatus, is_true};
use api::dpu::Maintenance;
use api::tinkerbell::Hardware;
use api::{Dpu, labels, names};
use jiff::{SignedDuration, Timestamp};

/// How often a server is looked at that somebody has.
const EVERY: SignedDuration = SignedDuration::from_mins(1);

pub(super) struct Verdict {
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
    /// The server is claimed for it, with this on record.
    pub begins: Option<Record>,
    /// Of what has the server nobody tells when it is over.
    pub again: Option<Timestamp>,
}

/// `None`: nobody asks.
pub(super) fn judge(o: &Observed, now: Timestamp) -> Option<Verdict> {
    let seen = o.discovery.as_ref()?;
    let (dpu, hardware) = (&*o.dpu, o.hardware.as_deref());
    let verdict =
        |status, reason, message: String| Some(Verdict { status, reason, message, begins: None, again: None });
    let waits = |message: String| verdict(ConditionStatus::Unknown, "NotLookedFor", message);
    let Some(hardware) = hardware else { return waits("spec.hardwareRef names no Hardware that is there".to_owned()) };
    let meta = &hardware.metadata;
    let controller = controller(dpu);
    if let Some(option) = annotation(meta, labels::BOOT_OPTION) {
        return verdict(ConditionStatus::True, "Named", format!("an administrator names it: '{option}'"));
    }
    let learnt = annotation(meta, labels::BOOT_PATH).and_then(Learnt::parse);
    if let Some(learnt) = learnt.filter(|learnt| learnt.controller.as_deref() == Some(&controller)) {
        return verdict(ConditionStatus::True, "Listed", format!("the firmware lists the disk at {}", learnt.path));
    }
    let record = Record::of(meta);
    // Once it is over the server is given back, which may take a while.
    let is_over = || record.as_ref().is_some_and(|record| record.outcome.is_some());
    if is_under_way(meta) && !is_over() {
        let message = format!("the controller looks for it, by a start of '{}' into its firmware setup", name(meta));
        return verdict(ConditionStatus::Unknown, "Discovering", message);
    }
    if let Some(record) = record.filter(|record| record.controller == controller) {
        let (status, reason) = match record.outcome {
            Some(Outcome::Listed) => (ConditionStatus::True, "Listed"),
            Some(Outcome::NotListed) => (ConditionStatus::False, "NotListed"),
            Some(Outcome::HostOn) => (ConditionStatus::Unknown, "HostOn"),
            Some(Outcome::Failed) => (ConditionStatus::False, "DiscoveryFailed"),
            // It was given back by force.
            None => (ConditionStatus::False, "DiscoveryFailed"),
        };
        return verdict(status, reason, record.message);
    }
    if let Some(why) = forbidden(o, hardware, seen) {
        let again = (seen.busy.is_some() || seen.attached).then(|| now + EVERY);
        return waits(why).map(|verdict| Verdict { again, ..verdict });
    }
    let record =
        Record { dpu: uid(&dpu.metadata).to_owned(), controller, since: now, outcome: None, message: String::new() };
    let message = format!("the controller takes '{}' to look for it", name(meta));
    Some(Verdict {
        status: ConditionStatus::Unknown,
        reason: "Discovering",
        message,
        begins: Some(record),
        again: None,
    })
}

/// The serial number of the boot controller: as the agent tells it, which keeps what it has told, or as agents make it.
fn controller(dpu: &Dpu) -> String {
    let told = dpu.status.as_ref().and_then(|status| status.boot_controller.as_ref());
    told.map_or_else(|| names::boot_serial(name(&dpu.metadata)), |told| told.serial_number.clone())
}

/// Why the server is not taken now.
fn forbidden(o: &Observed, hardware: &Hardware, seen: &DiscoverySeen) -> Option<String> {
    let (dpu, meta) = (&*o.dpu, &hardware.metadata);
    let none = api::dpu::DpuStatus::default();
    let status = dpu.status.as_ref().unwrap_or(&none);
    let taken = [labels::CLAIMED_BY_NAME, labels::CLAIMED_BY, labels::TINKERBELL_OWNER];
    let taken = taken.into_iter().find_map(|key| annotation(meta, key)).or(label(meta, labels::TINKERBELL_OWNER));
    let why = if dpu.spec.type_.is_node() {
        "an ordinary node presents no disk to a host"
    } else if dpu.metadata.deletion_timestamp.is_some() || !dpu.spec.approved {
        "the Dpu is not approved, or is being deleted"
    } else if dpu.spec.maintenance != Maintenance::None {
        "spec.maintenance is not None"
    } else if status.namespace.is_none()
        || status.capacity.is_none()
        || (o.silent && !is_true(&status.conditions, conditions::PARKED))
    {
        "the DPU's agent does not answer"
    } else if !is_true(&status.conditions, conditions::READY) && !is_true(&status.conditions, conditions::PARKED) {
        "the Dpu is not Ready"
    } else if conditions::get(&status.conditions, conditions::HOST_VERIFIED).is_none_or(|said| said.status == "False") {
        "the server is not verified: see the condition HostVerified"
    } else if !status.orphans.is_empty() {
        "the Dpu reports orphans"
    } else if seen.attached {
        "disks or NICs are attached to the Dpu"
    } else if meta.deletion_timestamp.is_some() || is_unapproved(hardware) || hardware.spec.bmc_ref.is_none() {
        "the Hardware is not approved, has no spec.bmcRef, or is being deleted"
    } else if let Some(by) = taken {
        return Some(format!("'{by}' has the server: a machine's start finds the disk"));
    } else if let Some(by) = &seen.busy {
        return Some(format!("{by} has the server"));
    } else if let Some(other) = seen.dpus.iter().find(|other| rank(other) < rank(dpu)) {
        let other = name(&other.metadata);
        return Some(format!("Dpu '{other}' is in the server too, and machines there are given that one"));
    } else {
        return hold_disk::missing(dpu, hardware);
    };
    Some(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpu::tests::observed;
    use crate::host::PowerState;
    use api::dpu::{BootController, DpuCapacity, HardwareReference, PowerDomain};
    use api::tinkerbell::hardware::TypedLocalObjectReference;
    use std::sync::Arc;

    fn site() -> Observed {
        let mut o = observed(PowerDomain::Standby, false, Some(PowerState::Off));
        let mut dpu = Dpu::clone(&o.dpu);
        dpu.metadata.uid = Some("uid-1".to_owned());
        dpu.spec.hardware_ref = Some(HardwareReference { name: "server-1".to_owned(), serial_number: None });
        let status = dpu.status.get_or_insert_default();
        status.namespace = Some("metalplane-dpu-dpu-1".to_owned());
        status.capacity = Some(DpuCapacity::default());
        status.hold_disks = vec!["x86_64".to_owned()];
        status.boot_controller = Some(BootController { serial_number: "MP1".to_owned(), ..BootController::default() });
        let now = Timestamp::UNIX_EPOCH;
        for said in [conditions::READY, conditions::HOST_VERIFIED] {
            conditions::set(&mut status.conditions, said, ConditionStatus::True, "Test", "", None, now);
        }
        o.dpu = Arc::new(dpu);
        let mut hardware = Hardware::default();
        hardware.metadata.name = Some("server-1".to_owned());
        hardware.spec.bmc_ref = Some(TypedLocalObjectReference { name: "server-1".to_owned(), ..Default::default() });
        (o.hardware, o.discovery) = (Some(Arc::new(hardware)), Some(DiscoverySeen::default()));
        o
    }

    fn annotate(o: &mut Observed, key: &str, value: &str) {
        let mut hardware = Hardware::clone(o.hardware.as_ref().expect("there"));
        hardware.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        o.hardware = Some(Arc::new(hardware));
    }

    fn word(o: &Observed) -> (&'static str, bool) {
        let verdict = judge(o, Timestamp::UNIX_EPOCH).expect("asked for");
        (verdict.reason, verdict.begins.is_some())
    }

    #[test]
    fn a_server_that_nobody_has_is_taken_once() {
        let mut o = site();
        assert_eq!(word(&o), ("Discovering", true));
        let begun = judge(&o, Timestamp::UNIX_EPOCH).and_then(|verdict| verdict.begins).expect("it begins");
        annotate(&mut o, labels::BOOT_DISCOVERY, &begun.text());
        annotate(&mut o, labels::CLAIMED_BY, "uid-1");
        annotate(&mut o, labels::BOOT_STRATEGY, labels::DISCOVERY);
        assert_eq!(word(&o), ("Discovering", false));
        let mut o = site();
        let over = Record { outcome: Some(Outcome::NotListed), message: "none".to_owned(), ..begun.clone() };
        annotate(&mut o, labels::BOOT_DISCOVERY, &over.text());
        assert_eq!(word(&o), ("NotListed", false), "it is not done again and again");
        annotate(&mut o, labels::BOOT_DISCOVERY, &Record { controller: "another".to_owned(), ..over }.text());
        assert_eq!(word(&o), ("Discovering", true), "another DPU's disk is another");
        o.discovery = None;
        assert!(judge(&o, Timestamp::UNIX_EPOCH).is_none());
    }

    fn other(approved: bool) -> Arc<Dpu> {
        Arc::new(Dpu::new("dpu-0", api::dpu::DpuSpec { approved, ..Default::default() }))
    }

    #[test]
    fn nobody_is_disturbed() {
        let mut o = site();
        annotate(&mut o, labels::CLAIMED_BY_NAME, "machines/bm-01");
        assert_eq!(word(&o), ("NotLookedFor", false));
        let seen = |change: fn(&mut DiscoverySeen)| {
            let mut o = site();
            change(o.discovery.as_mut().expect("asked for"));
            word(&o)
        };
        assert_eq!(seen(|seen| seen.busy = Some("Job 'a'".to_owned())), ("NotLookedFor", false));
        assert_eq!(seen(|seen| seen.attached = true), ("NotLookedFor", false));
        assert_eq!(seen(|seen| seen.dpus = vec![other(true)]), ("NotLookedFor", false), "they would take turns");
        assert_eq!(seen(|seen| seen.dpus = vec![other(false)]), ("Discovering", true), "no machine is given that one");
        let mut o = site();
        o.hardware = None;
        assert_eq!(word(&o), ("NotLookedFor", false));
        let told = |change: fn(&mut Dpu)| {
            let mut o = site();
            let mut dpu = Dpu::clone(&o.dpu);
            change(&mut dpu);
            o.dpu = Arc::new(dpu);
            word(&o)
        };
        assert_eq!(told(|_| ()), ("Discovering", true));
        assert_eq!(told(|dpu| dpu.spec.approved = false), ("NotLookedFor", false));
        assert_eq!(told(|dpu| dpu.spec.maintenance = Maintenance::Drain), ("NotLookedFor", false));
        assert_eq!(told(|dpu| dpu.status.as_mut().expect("told").hold_disks.clear()), ("NotLookedFor", false));
        let unready =
            |dpu: &mut Dpu| dpu.status.as_mut().expect("told").conditions.retain(|c| c.type_ != conditions::READY);
        assert_eq!(told(unready), ("NotLookedFor", false));
        let mut o = site();
        o.silent = true;
        assert_eq!(word(&o), ("NotLookedFor", false));
    }
}
