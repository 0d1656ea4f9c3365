//! Which orphans of a DPU its agent may detach from the host (*OrphanIsKept* of docs/design/fencing.md).
//!
//! One whose attachment gave up its hold by proof goes at once: its volume or its VNic may be another's by now. Any goes while
//! the host is reported powered off, in a reading that began after the controller learnt of the orphan and late enough that a
//! power-on sent before, by another leader too, would show in it.

use super::Observed;
use crate::host::{BmcNeed, PowerState};
use crate::identity::{self, Identity};
use api::dpu::{Orphan, Releasable};
use api::{VNic, VolumeHold};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// A host that was sent a power-on may be reported off for so long.
const SETTLE: SignedDuration = SignedDuration::from_secs(30);

#[derive(Debug, Clone)]
pub struct OrphanSeen {
    pub orphan: Orphan,
    /// When this controller first saw it reported, by its own clock.
    pub since: Timestamp,
    /// Of its volume.
    pub hold: Option<Arc<VolumeHold>>,
    /// Of its logical port.
    pub vnic: Option<Arc<VNic>>,
}

/// An epoch is never used twice: after a restore the hold may be of before the orphan's grant.
#[derive(Debug, Clone, PartialEq)]
pub struct RaiseEpoch {
    pub hold: Arc<VolumeHold>,
    pub epoch: u64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Verdict {
    pub raise: Vec<RaiseEpoch>,
    pub releasable: Vec<Releasable>,
    /// Of the host.
    pub bmc: BmcNeed,
    pub wake_at: Option<Timestamp>,
}

pub(super) fn judge(o: &Observed, now: Timestamp) -> Verdict {
    let raise: Vec<RaiseEpoch> = o.orphans.iter().filter_map(raise).collect();
    // Who may be released is said once the epochs are raised: nobody would know of them afterwards.
    let settled = |seen: &&OrphanSeen| !raise.iter().any(|raise| Some(&raise.hold) == seen.hold.as_ref());
    let (passed, waiting): (Vec<_>, Vec<_>) = o.orphans.iter().filter(settled).partition(|seen| has_passed_on(seen));
    let mut verdict = Verdict { raise: raise.clone(), ..Verdict::default() };
    let mut may_go = |seen: &OrphanSeen| {
        verdict.releasable.push(Releasable { uid: seen.orphan.uid.clone(), epoch: seen.orphan.epoch });
    };
    passed.into_iter().for_each(&mut may_go);
    let Some(due) = waiting.iter().map(|seen| seen.since + SETTLE).max() else { return verdict };
    let off = is_server(o) && o.host.last().is_some_and(|host| host.power == PowerState::Off);
    match o.host.fresh() {
        Some(_) if off && o.host_read_at >= Some(due) => waiting.into_iter().for_each(may_go),
        // It is read once more before anything rests on it.
        _ if off && now >= due => verdict.bmc = BmcNeed::Now,
        _ if off => (verdict.bmc, verdict.wake_at) = (BmcNeed::Slow, Some(due)),
        _ => {}
    }
    verdict.bmc = verdict.bmc.max(BmcNeed::Slow);
    verdict
}

/// A hold that somebody has is left to that holder's own grant.
fn raise(seen: &OrphanSeen) -> Option<RaiseEpoch> {
    let hold = seen.hold.as_ref().filter(|hold| hold.spec.holder.is_none())?;
    (hold.spec.epoch < seen.orphan.epoch).then(|| RaiseEpoch { hold: hold.clone(), epoch: seen.orphan.epoch })
}

/// Its hold was taken away from it by proof.
fn has_passed_on(seen: &OrphanSeen) -> bool {
    let Orphan { uid, epoch, .. } = &seen.orphan;
    let fences = seen.hold.iter().flat_map(|hold| &hold.spec.fences);
    if fences.into_iter().any(|fence| fence.attachment_uid == *uid && fence.epoch == *epoch) {
        return true;
    }
    // A NIC's hold has no record of that; but it is given only to whom a later grant can be made.
    let status = seen.vnic.as_ref().and_then(|vnic| vnic.status.as_ref());
    let holder = status.and_then(|status| status.holder.as_ref());
    holder.is_some_and(|holder| holder.attachment_uid != *uid) && status.is_some_and(|s| s.grant.epoch > *epoch)
}

/// The BMC that is read is not known to be of another server.
fn is_server(o: &Observed) -> bool {
    !matches!(identity::check(&o.dpu, o.host.last()), Identity::Differs(_))
}

#[cfg(test)]
mod tests {
    use super::super::tests::observed;
    use super::*;
    use crate::seen::Seen;
    use api::dpu::PowerDomain;
    use api::hold::{FenceProof, FenceRecord, Holder};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn orphan(uid: &str) -> OrphanSeen {
        let orphan = Orphan { uid: uid.into(), epoch: 3, ..Orphan::default() };
        OrphanSeen { orphan, since: at(100), hold: None, vnic: None }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn held(power: PowerState, read_at: i64) -> Observed {
        let mut o = observed(PowerDomain::Standby, false, Some(power));
        (o.orphans, o.host_read_at) = (vec![orphan("a")], Some(at(read_at)));
        o
    }

    fn uids(verdict: &Verdict) -> Vec<&str> {
        verdict.releasable.iter().map(|one| one.uid.as_str()).collect()
    }

    #[test]
    fn a_running_host_keeps_its_orphans() {
        let verdict = judge(&held(PowerState::On, 500), at(500));
        assert_eq!((uids(&verdict), verdict.bmc, verdict.wake_at), (vec![], BmcNeed::Slow, None));
        let none = judge(&observed(PowerDomain::Standby, false, Some(PowerState::Off)), at(500));
        assert_eq!(none, Verdict::default(), "without orphans no BMC is read");
    }

    #[test]
    fn a_host_that_is_off_gives_them_up_by_a_reading_that_no_power_on_can_be_behind() {
        let early = judge(&held(PowerState::Off, 110), at(110));
        assert_eq!((uids(&early), early.wake_at), (vec![], Some(at(130))));
        let due = judge(&held(PowerState::Off, 110), at(131));
        assert_eq!((uids(&due), due.bmc), (vec![], BmcNeed::Now));
        let read = judge(&held(PowerState::Off, 131), at(132));
        assert_eq!(uids(&read), ["a"]);
        let mut stale = held(PowerState::Off, 131);
        stale.host = match stale.host {
            Seen::Fresh(value) => Seen::Stale { value, since: at(131) },
            other => other,
        };
        assert_eq!((uids(&judge(&stale, at(900))), judge(&stale, at(900)).bmc), (vec![], BmcNeed::Now));
    }

    #[test]
    fn the_bmc_of_another_server_proves_nothing() {
        let mut o = held(PowerState::Off, 131);
        let mut dpu = api::Dpu::clone(&o.dpu);
        dpu.spec.hardware_ref =
            Some(api::dpu::HardwareReference { name: "rack1-u07".into(), serial_number: Some("A1".into()) });
        o.dpu = Arc::new(dpu);
        if let Seen::Fresh(host) = &mut o.host {
            host.serial_number = Some("B2".into());
        }
        assert_eq!(uids(&judge(&o, at(132))), Vec::<&str>::new());
    }

    #[test]
    fn one_whose_hold_passed_on_by_proof_goes_under_a_running_host() {
        let mut o = held(PowerState::On, 131);
        let fence = |epoch| FenceRecord {
            attachment_uid: "a".into(),
            epoch,
            dpu_uid: "d".into(),
            boot_id: None,
            proof: FenceProof::StorageFenced,
            at: Time(at(0)),
        };
        let mut hold = VolumeHold::new("h", Default::default());
        (hold.spec.epoch, hold.spec.fences) = (4, vec![fence(2)]);
        o.orphans[0].hold = Some(Arc::new(hold.clone()));
        assert_eq!(uids(&judge(&o, at(132))), Vec::<&str>::new(), "an earlier grant of it");
        hold.spec.fences.push(fence(3));
        o.orphans[0].hold = Some(Arc::new(hold));
        assert_eq!(uids(&judge(&o, at(132))), ["a"]);
    }

    #[test]
    fn an_empty_hold_of_before_its_grant_is_raised_before_anything_goes() {
        let mut o = held(PowerState::Off, 131);
        let mut hold = VolumeHold::new("h", Default::default());
        hold.spec.epoch = 1;
        o.orphans[0].hold = Some(Arc::new(hold.clone()));
        let verdict = judge(&o, at(132));
        assert_eq!((uids(&verdict), verdict.raise.iter().map(|r| r.epoch).collect::<Vec<_>>()), (vec![], vec![3]));
        hold.spec.epoch = 3;
        o.orphans[0].hold = Some(Arc::new(hold.clone()));
        let verdict = judge(&o, at(132));
        assert_eq!((uids(&verdict), verdict.raise.len()), (vec!["a"], 0));
        (hold.spec.epoch, hold.spec.holder) = (1, Some(Holder::default()));
        o.orphans[0].hold = Some(Arc::new(hold));
        assert_eq!(judge(&o, at(132)).raise.len(), 0, "somebody has it");
    }

    #[test]
    fn a_nic_goes_when_a_later_grant_of_its_vnic_is_anothers() {
        let verdict = |holder: Option<&str>, epoch| {
            let mut o = held(PowerState::On, 131);
            let spec = serde_json::json!({"subnet": "blue", "addresses": ["10.20.0.7"]});
            let mut vnic = VNic::new("v", serde_json::from_value(spec).expect("a spec"));
            let status = vnic.status.get_or_insert_default();
            status.holder = holder.map(|uid| Holder { attachment_uid: uid.into(), ..Holder::default() });
            status.grant.epoch = epoch;
            o.orphans[0].vnic = Some(Arc::new(vnic));
            !judge(&o, at(132)).releasable.is_empty()
        };
        assert!(verdict(Some("b"), 4));
        assert!(!verdict(Some("b"), 2), "restored from before its grant");
        assert!(!verdict(Some("a"), 3) && !verdict(None, 4));
    }
}
