//! When a VNic's port is said to be in force: what the agent's word is worth, and when a number is needed.

use crate::network::barrier::{Known, Verdict};
use crate::network::bound::{Observed, changing, is_changing, is_granted, judge, passes, tell_metadata};
use crate::network::ready;
use crate::reason::{Reason, Waiting};
use api::attachment::Grant;
use api::conditions::{self, CONNECTED, ConditionStatus, IN_FORCE, METADATA_SERVED, PROGRAMMED};
use api::{NicAttachment, VNic};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const NOW: jiff::Timestamp = jiff::Timestamp::UNIX_EPOCH;

/// Held by the third grant, whose rows are written.
fn vnic() -> VNic {
    serde_json::from_value(json!({
        "metadata": {"name": "eth0", "namespace": "team-a", "uid": "n", "generation": 2}, "spec": {"subnet": "blue"},
        "status": {"grant": {"epoch": 3}, "programmed": {"epoch": 3},
            "holder": {"attachmentNamespace": "metalplane-dpu-dpu-1", "attachmentName": "bm-01-eth0", "attachmentUID": "a",
                "dpuName": "dpu-1", "dpuUID": "d"}},
    }))
    .expect("a VNic")
}

fn attachment(epoch: u64, connected: bool) -> NicAttachment {
    let mut said = Vec::new();
    conditions::set(&mut said, CONNECTED, connected.into(), "Because", "", Some(1), NOW);
    serde_json::from_value(json!({
        "metadata": {"name": "bm-01-eth0", "uid": "a"},
        "spec": {"owner": {"kind": "BareMetalMachine", "name": "bm-01", "namespace": "team-a", "uid": "m"}, "dpuName": "dpu-1",
            "interfaceName": "eth0", "vnicName": "eth0", "vnicUID": "n", "logicalPort": "mp-n", "macAddress": "02:00:00:00:00:07",
            "functionKind": "HotplugPF", "mtu": 1442, "release": false},
        "status": {"fence": {"bootID": "b", "identity": "i", "epoch": epoch}, "conditions": said},
    }))
    .expect("a NicAttachment")
}

fn said(
    vnic: &VNic,
    attachment: Option<NicAttachment>,
    known: Known,
    installed: u64,
) -> (Option<&'static str>, Option<Verdict>) {
    let (said, verdict) = judge_of(vnic, attachment, known, installed);
    (said.err().map(|reason| reason.name()), verdict)
}

fn judge_of(
    vnic: &VNic,
    attachment: Option<NicAttachment>,
    known: Known,
    installed: u64,
) -> (Result<(), Reason>, Option<Verdict>) {
    let (attachments, chassis) =
        (attachment.map(Arc::new), BTreeMap::from([("chassis-1".to_owned(), Some(installed))]));
    judge(&Observed {
        vnic,
        attachments: &attachments.into_iter().collect::<Vec<_>>(),
        chassis: Some("chassis-1"),
        peers: BTreeSet::new(),
        known,
        number: 20,
        installed: Ok(&chassis),
        elapsed: Duration::ZERO,
    })
}

#[test]
fn the_agents_word_for_this_grant_is_enough() {
    let there = |epoch, connected| said(&vnic(), Some(attachment(epoch, connected)), Known::Nothing, 0);
    assert_eq!(there(3, true), (None, None));
    for (epoch, connected) in [(3, false), (2, true)] {
        assert_eq!(there(epoch, connected), (Some("NotBound"), None), "{epoch} {connected}");
    }
    assert_eq!(said(&vnic(), None, Known::Nothing, 0), (Some("NotBound"), None));
    let mut free = vnic();
    free.status.as_mut().expect("a status").holder = None;
    assert_eq!(said(&free, Some(attachment(3, true)), Known::Nothing, 0), (Some("NotHeld"), None));
}

#[test]
fn what_is_changed_under_a_grant_needs_a_number_of_its_own() {
    let mut vnic = vnic();
    assert!(is_granted(&vnic, &[], Some(3)) && !is_granted(&vnic, &[], Some(4)) && !is_granted(&vnic, &[], None));
    let works = || Some(attachment(3, true));
    assert!(matches!(said(&vnic, works(), Known::Committed, 30), (Some("NotInForce"), Some(Verdict::Ask(_)))));
    let lags = said(&vnic, works(), Known::Number(12), 11);
    assert!(matches!(lags, (Some("NotInForce"), Some(Verdict::Lags { number: 12, .. }))), "{lags:?}");
    let reached = said(&vnic, works(), Known::Number(12), 12);
    assert!(matches!(reached, (None, Some(Verdict::InForce { number: 12, .. }))), "{reached:?}");

    // A controller that starts in between knows by the status that a number is missing.
    let told = ready::say(&[], IN_FORCE, Some(&changing(&vnic)), &vnic.metadata, NOW).expect("new");
    vnic.status.as_mut().expect("a status").conditions = told;
    assert!(is_changing(&vnic));
    assert!(matches!(said(&vnic, works(), Known::Nothing, 30), (Some("NotInForce"), Some(Verdict::Ask(_)))));
    assert_eq!(
        said(&vnic, Some(attachment(3, false)), Known::Nothing, 30),
        (Some("NotInForce"), None),
        "it stays said"
    );
    let waiting: Reason = Waiting::SouthBoundUnreachable { message: String::new() }.into();
    let told = ready::say(&[], IN_FORCE, Some(&waiting), &vnic.metadata, NOW).expect("new");
    vnic.status.as_mut().expect("a status").conditions = told;
    assert!(is_changing(&vnic), "whatever it waits for");
    let mut free = vnic.clone();
    free.status.as_mut().expect("a status").holder = None;
    let (reason, _) = judge_of(&free, None, Known::Nothing, 30);
    let told = ready::say(&[], IN_FORCE, reason.err().as_ref(), &free.metadata, NOW).expect("new");
    free.status.as_mut().expect("a status").conditions = told;
    assert!(!is_changing(&free), "the next grant is a new one");
    let told = ready::say(&[], IN_FORCE, None, &vnic.metadata, NOW).expect("new");
    vnic.status.as_mut().expect("a status").conditions = told;
    assert!(!is_changing(&vnic));
}

/// OVN has lost the rows, and the status has not named the grant yet: they were written before it.
#[test]
fn a_grant_tells_that_its_rows_were_written() {
    let mut vnic = vnic();
    vnic.status.as_mut().expect("a status").programmed = None;
    let mut granted = attachment(3, false);
    assert!(!is_granted(&vnic, &[Arc::new(granted.clone())], Some(3)), "nothing is granted");
    granted.spec.grant = Some(Grant { epoch: 3 });
    let granted = [Arc::new(granted)];
    assert!(is_granted(&vnic, &granted, Some(3)) && !is_granted(&vnic, &granted, Some(4)));
    vnic.status.as_mut().expect("a status").holder = None;
    assert!(!is_granted(&vnic, &granted, Some(3)), "the attachment is not the holder");
}

#[test]
fn what_a_vnic_waits_for_within_a_moment_is_not_told_and_what_changes_for_its_user_is() {
    let (not_bound, not_held) = (judge_of(&vnic(), None, Known::Nothing, 0).0.expect_err("not bound"), {
        let mut free = vnic();
        free.status.as_mut().expect("a status").holder = None;
        judge_of(&free, None, Known::Nothing, 0).0.expect_err("not held")
    });
    let said = |type_: &str, reason: Option<&Reason>| {
        let mut vnic = vnic();
        let told = ready::say(&[], type_, reason, &vnic.metadata, NOW).expect("new");
        vnic.status.as_mut().expect("a status").conditions = told;
        vnic
    };
    for waits in [&not_held, &not_bound] {
        assert!(passes(&vnic(), Some(waits)) && passes(&said(IN_FORCE, Some(&not_held)), Some(waits)));
        let mut in_force = said(IN_FORCE, None);
        assert!(!passes(&in_force, Some(waits)), "it is in force no more");
        in_force.metadata.deletion_timestamp = Some(Time(NOW));
        assert!(passes(&in_force, Some(waits)), "nobody asks any more");
        assert!(!passes(&said(PROGRAMMED, Some(&not_held)), Some(waits)), "what was wrong is right");
        assert!(!passes(&said(IN_FORCE, Some(&changing(&vnic()))), Some(waits)), "what was changing does no more");
    }
    assert!(!passes(&vnic(), None), "it is in force");
    assert!(!passes(&vnic(), Some(&changing(&vnic()))), "a controller that starts goes by it");
}

#[test]
fn whose_guest_is_not_answered_is_said_of_the_vnic() {
    let (vnic, mut there) = (vnic(), attachment(3, true));
    let mut conditions_of = Vec::new();
    let mut tell = |there: &NicAttachment| {
        tell_metadata(&mut conditions_of, &vnic, &[Arc::new(there.clone())], NOW);
        conditions::get(&conditions_of, METADATA_SERVED).map(|said| (said.status.clone(), said.message.clone()))
    };
    assert_eq!(tell(&there), None);
    let own = &mut there.status.as_mut().expect("a status").conditions;
    conditions::set(own, METADATA_SERVED, ConditionStatus::False, "MetadataUnavailable", "no device", Some(1), NOW);
    assert_eq!(tell(&there), Some(("False".to_owned(), "no device".to_owned())));
    conditions::remove(&mut there.status.as_mut().expect("a status").conditions, METADATA_SERVED);
    assert_eq!(tell(&there), None, "it goes with its cause");
}

/// A group in which it is no longer is judged where members of other groups are.
#[test]
fn what_is_changed_under_a_grant_is_in_force_where_its_peers_are_too() {
    let (vnic, attachments) = (vnic(), [Arc::new(attachment(3, true))]);
    let mut chassis = BTreeMap::from([("chassis-1".to_owned(), Some(20)), ("chassis-2".to_owned(), Some(19))]);
    let said = |chassis: &BTreeMap<String, Option<u64>>, known| {
        let (peers, elapsed) = (BTreeSet::from(["chassis-2".to_owned()]), Duration::from_secs(60));
        let observed = Observed {
            vnic: &vnic,
            attachments: &attachments,
            chassis: Some("chassis-1"),
            peers,
            known,
            number: 20,
            installed: Ok(chassis),
            elapsed,
        };
        judge(&observed).0.err().map(|reason| reason.name())
    };
    assert_eq!(said(&chassis, Known::Number(20)), Some("ChassisUnresponsive"));
    assert_eq!(said(&chassis, Known::Nothing), None, "a new grant: nobody knew the VNic before");
    chassis.insert("chassis-2".to_owned(), Some(20));
    assert_eq!(said(&chassis, Known::Number(20)), None);
}

/// No agent tells of a port that somebody else plugs.
#[test]
fn a_vnic_of_a_node_is_in_force_by_a_number() {
    let mut vnic = vnic();
    vnic.spec.node_name = Some("node-1".to_owned());
    vnic.status.as_mut().expect("its status").holder = None;
    assert!(matches!(said(&vnic, None, Known::Nothing, 20), (Some("NotInForce"), Some(Verdict::Ask(_)))));
    assert_eq!(said(&vnic, None, Known::Number(20), 19).0, Some("NotInForce"));
    assert_eq!(said(&vnic, None, Known::Number(20), 20).0, None);
    let status = vnic.status.as_mut().expect("its status");
    conditions::set(&mut status.conditions, IN_FORCE, ConditionStatus::True, "InForce", "", Some(2), NOW);
    assert_eq!(said(&vnic, None, Known::Nothing, 0), (None, None), "as it is said");
    vnic.metadata.generation = Some(3);
    assert_eq!(said(&vnic, None, Known::Nothing, 20).0, Some("NotInForce"));
}
