//! Whether a machine asks for what is about to be created for it.
//!
//! A plan rests on a cache. The cache of BareMetalMachines may be behind that of PersistentVolumeClaims or VNics: then the
//! controller sees that a user has deleted a claim, and not that its disk was taken out of the spec before. So the machine
//! is read from quorum right before the write, and compared here with the one that the plan rests on. The same before a server
//! is claimed, or anything is attached, held or granted: after a restore of etcd each cache learns of it in its own time.

use super::named::{claim_name, is_users_own};
use super::plan::Action;
use crate::install::Phase;
use crate::meta::{annotation, name};
use api::machine::{Disk, Interface};
use api::{BareMetalMachine, labels, names};

/// Whether an action creates something that a stale plan would create for nobody.
pub fn needs_fresh_machine(action: &Action) -> bool {
    matches!(
        action,
        Action::CreateClaim(_)
            | Action::CreateVNic(_)
            | Action::CreateDiskAttachment(_)
            | Action::CreateNicAttachment(_)
            | Action::TakeHold(_)
            | Action::TakeVNic { .. }
            | Action::GrantDisk { .. }
            | Action::GrantNic { .. }
    ) || needs_machine_of_this_moment(action)
}

/// For which no earlier reading of the machine will do: who gets a server, and what is written over its disks.
pub fn needs_machine_of_this_moment(action: &Action) -> bool {
    matches!(
        action,
        Action::ClaimHardware { .. }
            | Action::CreateTemplate(_)
            | Action::CreateWorkflow(_)
            | Action::RecordInstall { .. }
    )
}

/// `planned`: the machine that the plan rests on. `fresh`: the one of that name, read from quorum. An error says why the
/// action must not be carried out.
pub fn asks_for(planned: &BareMetalMachine, fresh: &BareMetalMachine, action: &Action) -> Result<(), String> {
    let of = |what: &str| format!("BareMetalMachine '{}' {what}", name(&planned.metadata));
    if fresh.metadata.uid != planned.metadata.uid {
        return Err(of("was deleted, and created again under the same name"));
    }
    // One that is being deleted claims its server again, if the Hardware was deleted and is there again, to give back what it has; and has
    // the disks of its server erased.
    let of_release = match action {
        Action::ClaimHardware { .. } | Action::CreateTemplate(_) | Action::CreateWorkflow(_) => true,
        // A release grants nothing else.
        Action::GrantDisk { .. } => true,
        Action::CreateDiskAttachment(attachment) => attachment.spec.eraser.is_some(),
        _ => false,
    };
    let again = planned.metadata.deletion_timestamp.is_some() && of_release;
    if fresh.metadata.deletion_timestamp.is_some() && !again {
        return Err(of("is being deleted"));
    }
    let (same, what) = match action {
        Action::CreateClaim(claim) => {
            let claim = name(&claim.metadata);
            let asked = disk(fresh, claim);
            (asked.is_some() && asked == disk(planned, claim), format!("the disk of claim '{claim}'"))
        }
        Action::CreateVNic(vnic) => {
            let vnic = name(&vnic.metadata);
            let asked = interface(fresh, vnic);
            (asked.is_some() && asked == interface(planned, vnic), format!("the interface of VNic '{vnic}'"))
        }
        // What is written over a disk is asked for at this moment, by a machine that shall run.
        Action::RecordInstall { record, .. } if record.phase == Phase::Begun => {
            let asked = |machine: &BareMetalMachine| {
                let annotations = [labels::REINSTALL_REQUESTED_AT, labels::PAUSED, labels::POWER_REQUESTED];
                let said = annotations.map(|key| annotation(&machine.metadata, key).map(str::to_owned));
                let spec = &machine.spec;
                (spec.boot.clone(), spec.run_strategy, spec.cloud_init.clone(), said)
            };
            (asked(fresh) == asked(planned), format!("installation {}", record.number))
        }
        _ => return Ok(()),
    };
    if same { Ok(()) } else { Err(of(&format!("no longer asks for {what}, or asks for another"))) }
}

/// The disk whose claim the controller creates under this name.
fn disk<'a>(machine: &'a BareMetalMachine, claim: &str) -> Option<&'a Disk> {
    let is_it = |disk: &&Disk| !is_users_own(machine, disk) && claim_name(machine, disk) == claim;
    machine.spec.disks.iter().find(is_it)
}

/// The interface whose VNic the controller creates under this name.
fn interface<'a>(machine: &'a BareMetalMachine, vnic: &str) -> Option<&'a Interface> {
    let is_it = |interface: &&Interface| {
        interface.vnic.is_none() && names::vnic(name(&machine.metadata), &interface.name) == vnic
    };
    machine.spec.interfaces.iter().find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::VNic;
    use api::network::VNicSpec;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    fn machine() -> BareMetalMachine {
        let machine = json!({
            "apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine",
            "metadata": {"name": "a", "namespace": "team", "uid": "1"},
            "spec": {
                "disks": [{"name": "data", "size": "1Gi", "source": {"blank": {}}}],
                "interfaces": [{"name": "eth0", "subnet": "blue"}],
            },
        });
        serde_json::from_value(machine).expect("a machine")
    }

    fn actions() -> [Action; 2] {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.name = Some(names::claim("a", "data"));
        let spec = VNicSpec { subnet: "blue".to_owned(), ..VNicSpec::default() };
        let vnic = VNic::new(&names::vnic("a", "eth0"), spec);
        [Action::CreateClaim(Box::new(claim)), Action::CreateVNic(Box::new(vnic))]
    }

    /// What is said of a claim and of a VNic after a change of the machine.
    fn after(change: impl Fn(&mut BareMetalMachine)) -> [Result<(), String>; 2] {
        let mut fresh = machine();
        change(&mut fresh);
        actions().map(|action| {
            assert!(needs_fresh_machine(&action));
            asks_for(&machine(), &fresh, &action)
        })
    }

    #[test]
    fn what_is_still_asked_for_is_created() {
        assert_eq!(after(|_| {}), [Ok(()), Ok(())]);
        let another_label = after(|fresh| fresh.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));
        assert_eq!(another_label, [Ok(()), Ok(())]);
    }

    #[test]
    fn nothing_is_created_for_a_machine_that_is_going_or_is_another() {
        assert!(after(|fresh| fresh.metadata.uid = Some("2".to_owned())).iter().all(Result::is_err));
        let going = after(|fresh| fresh.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH)));
        assert!(going.iter().all(Result::is_err));
    }

    /// A release has the server's own disks erased, and grants nothing else; one that the plan does not know of grants nothing.
    #[test]
    fn a_machine_that_is_going_gets_an_eraser_and_nothing_else() {
        let going = |mut machine: BareMetalMachine| {
            machine.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
            machine
        };
        let attachment = |what: serde_json::Value| {
            let mut spec = json!({"owner": {"kind": "BareMetalMachine", "name": "a", "uid": "1"}, "dpuName": "dpu",
                "diskName": "d", "slot": "Boot", "serial": "s", "uuid": "u"});
            spec.as_object_mut().expect("an object").extend(what.as_object().expect("an object").clone());
            let spec = serde_json::from_value(spec).expect("a spec");
            Action::CreateDiskAttachment(Box::new(api::DiskAttachment::new("d", spec)))
        };
        let eraser = attachment(json!({"eraser": {"machine": "x86_64"}}));
        let grant = Action::GrantDisk {
            target: crate::meta::target(&machine().metadata),
            epoch: 1,
            seed: None,
            holder_pod_uid: None,
        };
        for action in [&eraser, &grant] {
            assert_eq!(asks_for(&going(machine()), &going(machine()), action), Ok(()));
            assert!(asks_for(&machine(), &going(machine()), action).is_err(), "the plan rests on an older machine");
        }
        let seed = attachment(json!({"seedSecretName": "seed"}));
        assert!(asks_for(&going(machine()), &going(machine()), &seed).is_err());
    }

    #[test]
    fn nothing_is_created_for_what_was_taken_out_of_the_spec_or_changed() {
        assert!(matches!(after(|fresh| fresh.spec.disks.clear()), [Err(_), Ok(())]));
        assert!(matches!(after(|fresh| fresh.spec.interfaces.clear()), [Ok(()), Err(_)]));
        let larger = after(|fresh| fresh.spec.disks[0].size = fresh.spec.disks[0].size.take().map(|_| quantity()));
        assert!(matches!(larger, [Err(_), Ok(())]));
    }

    /// What a restore put in the place of a claim is not made anew.
    #[test]
    fn nothing_is_created_for_a_disk_that_a_restore_gave_another_claim() {
        let mark = format!("{}data", labels::CLAIM);
        let restored = after(|fresh| fresh.metadata.annotations = Some([(mark.clone(), "b".to_owned())].into()));
        assert!(matches!(restored, [Err(_), Ok(())]));
    }

    fn quantity() -> k8s_openapi::apimachinery::pkg::api::resource::Quantity {
        api::quantity::quantity(2 << 30)
    }
}
