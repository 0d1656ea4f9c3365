//! *TimeWentBack* of docs/design/fencing.md: the API server is back in an earlier state, and has forgotten what hosts were shown since.
//!
//! The agents tell: one whose confirmed renewal is gone says so on its Lease. Then every Dpu that may have shown anything is asked
//! for a report (ExposuresKnown=False), and nothing is granted to anybody until each has told what its host has, or is proved down.
//! Only when all are asked is the agent's word noted as handled, so a controller that ends in between begins again.

use super::Observed;
use crate::observed::DpuSeen;
use crate::own_bmc;
use crate::reason::{Reason, Waiting};
use api::Dpu;
use api::conditions::{self, ConditionStatus, EXPOSURES_KNOWN};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// How often a Dpu is looked at that was asked, or that is to be noted as handled.
pub(crate) const EVERY: SignedDuration = SignedDuration::from_secs(1);

/// What is known of an agent by its Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heard {
    /// The Lease's metalplane.io/went-back.
    pub went_back: u64,
    /// The agent has renewed since this controller began to lead.
    pub since_leading: bool,
    /// The agent has renewed since this controller saw that its Dpu is asked.
    pub since_asked: bool,
}

/// What one look at all Dpus shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Site {
    /// A Dpu whose agent says that time went back, and that is not handled.
    pub noticed_by: Option<String>,
    /// Every Dpu that may have shown anything is asked.
    pub all_asked: bool,
}

/// Its host may have been shown something.
pub fn counts(dpu: &Dpu) -> bool {
    dpu.spec.is_admitted() || dpu.status.as_ref().is_some_and(|status| status.boot_id.is_some())
}

pub fn is_asked(dpu: &Dpu) -> bool {
    let said = dpu.status.as_ref().and_then(|status| conditions::get(&status.conditions, EXPOSURES_KNOWN));
    said.is_some_and(|said| said.status == ConditionStatus::False.as_str())
}

/// Its agent has said more often that time went back than was handled.
pub fn is_noticed(dpu: &Dpu, heard: Heard) -> bool {
    heard.went_back > dpu.status.as_ref().map(|status| status.went_back_handled).unwrap_or_default()
}

/// Why nothing may be granted now, as far as it lies with this Dpu. What an agent that does not answer has shown, was recorded
/// before; after a restore it is asked for.
pub fn forbids_grant(dpu: &Dpu, silent: bool, heard: Heard) -> Option<Reason> {
    let name = dpu.metadata.name.clone().unwrap_or_default();
    if !counts(dpu) {
        return None;
    }
    if is_asked(dpu) || is_noticed(dpu, heard) {
        return Some(Waiting::ExposuresUnknown { dpu: name }.into());
    }
    (!silent && !heard.since_leading).then(|| Waiting::DpuNotHeard { dpu: name }.into())
}

/// The condition ExposuresKnown; `None`: it was never asked.
/// `parked`: it went off with its host, as read in this process.
pub(super) fn verdict(o: &Observed, parked: bool) -> Option<(ConditionStatus, &'static str, String)> {
    if let Some(noticed_by) = o.site.noticed_by.as_ref().filter(|_| counts(&o.dpu)) {
        let message = format!(
            "the agent of Dpu '{noticed_by}' found that the API server is back in an earlier state, by a restore of etcd for example: nothing is \
             granted on any DPU before this DPU's agent has reported what the host has. Next: approve the Dpu and start the agent; if the DPU is \
             dead: switch it off by its own BMC, or taint its Node and: bmctl dpu confirm-down UID; if it never presented anything: kubectl \
             delete dpu"
        );
        return Some((ConditionStatus::False, "TimeWentBack", message));
    }
    let status = o.dpu.status.as_ref()?;
    let said = conditions::get(&status.conditions, EXPOSURES_KNOWN)?;
    let reported = !o.silent && o.heard.since_asked && status.went_back >= o.heard.went_back;
    Some(match !is_asked(&o.dpu) || reported || parked || o.asked.as_ref().is_some_and(|asked| is_down(asked, said)) {
        true => (ConditionStatus::True, "Known", String::new()),
        false => (ConditionStatus::False, "TimeWentBack", said.message.clone()),
    })
}

/// Proved after it was asked: what the Dpu said before, an administrator's word too, is of the state that was put back.
fn is_down(dpu: &DpuSeen, asked: &Condition) -> bool {
    let confirmed = dpu.is_confirmed_down() && dpu.dpu.metadata.generation > asked.observed_generation;
    confirmed || (dpu.silent && own_bmc::not_off(dpu).is_none())
}

/// As of which generation of the Dpu it was asked first.
pub(super) fn asked_of(dpu: &Dpu) -> Option<i64> {
    let said = conditions::get(&dpu.status.as_ref()?.conditions, EXPOSURES_KNOWN)?;
    if is_asked(dpu) { said.observed_generation } else { None }
}

/// Up to which of its agent's words every Dpu was asked. A Lease that was made anew begins at nothing.
pub(super) fn handled(o: &Observed) -> u64 {
    let before = o.dpu.status.as_ref().map(|status| status.went_back_handled).unwrap_or_default();
    match (o.site.all_asked, o.silent) {
        // Nobody is there who would say it again; and of a Lease that is gone nothing is known.
        (true, true) => before.max(o.heard.went_back),
        (true, false) => o.heard.went_back,
        (false, true) => before,
        (false, false) => before.min(o.heard.went_back),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::observed;
    use super::super::{Plan, plan};
    use super::*;
    use api::dpu::PowerDomain;
    use jiff::Timestamp;
    use std::sync::Arc;

    /// What the controller would write, and see next.
    fn written(o: &mut Observed, plan: &Plan) {
        let Some(new) = &plan.status else { return };
        let mut dpu = Dpu::clone(&o.dpu);
        let status = dpu.status.get_or_insert_default();
        status.conditions = new.conditions.clone();
        status.went_back_handled = new.went_back_handled;
        o.dpu = Arc::new(dpu);
    }

    fn round(o: &mut Observed) -> Option<&'static str> {
        let next = plan(o, Timestamp::UNIX_EPOCH);
        written(o, &next);
        forbids_grant(&o.dpu, o.silent, o.heard).map(|reason| reason.name())
    }

    #[test]
    fn nothing_is_granted_from_the_first_word_until_the_report() {
        let mut o = observed(PowerDomain::Standby, false, None);
        o.heard = Heard { since_leading: true, ..Heard::default() };
        assert_eq!(round(&mut o), None);
        o.heard.went_back = 1;
        assert_eq!(forbids_grant(&o.dpu, false, o.heard).map(|reason| reason.name()), Some("ExposuresUnknown"));
        o.site.noticed_by = Some("dpu-1".into());
        assert_eq!(round(&mut o), Some("ExposuresUnknown"));
        assert_eq!(
            o.dpu.status.as_ref().map(|status| status.went_back_handled),
            Some(0),
            "another Dpu is not asked yet"
        );
        o.site.all_asked = true;
        round(&mut o);
        assert_eq!(o.dpu.status.as_ref().map(|status| status.went_back_handled), Some(1));
        o.site = Site::default();
        o.heard.since_asked = true;
        assert_eq!(round(&mut o), Some("ExposuresUnknown"), "what its host has was not told since");
        let mut dpu = Dpu::clone(&o.dpu);
        dpu.status.get_or_insert_default().went_back = 1;
        o.dpu = Arc::new(dpu);
        o.heard.since_asked = false;
        assert_eq!(round(&mut o), Some("ExposuresUnknown"), "told before it was asked");
        o.heard.since_asked = true;
        assert_eq!(round(&mut o), None);
    }

    #[test]
    fn one_that_does_not_answer_is_waited_for_until_it_is_proved_down() {
        let mut o = observed(PowerDomain::Standby, true, None);
        assert_eq!(round(&mut o), None, "an agent that does not answer keeps nobody waiting");
        o.site.noticed_by = Some("dpu-2".into());
        assert_eq!(round(&mut o), Some("ExposuresUnknown"));
        o.site.noticed_by = None;
        assert_eq!(round(&mut o), Some("ExposuresUnknown"));
        let mut seen = DpuSeen { dpu: o.dpu.clone(), silent: true, ..Default::default() };
        o.asked = Some(seen.clone());
        assert_eq!(round(&mut o), Some("ExposuresUnknown"));
        let mut dpu = Dpu::clone(&o.dpu);
        dpu.spec.confirmed_down = Some(api::dpu::ConfirmedDown { boot_id: "b1".into() });
        (seen.dpu, seen.out_of_service) = (Arc::new(dpu.clone()), true);
        (o.dpu, o.asked) = (Arc::new(dpu.clone()), Some(seen.clone()));
        assert_eq!(round(&mut o), Some("ExposuresUnknown"), "that was said before the restore");
        let mut dpu = Dpu::clone(&o.dpu);
        dpu.metadata.generation = Some(2);
        (seen.dpu, seen.out_of_service) = (Arc::new(dpu.clone()), true);
        (o.dpu, o.asked) = (Arc::new(dpu), Some(seen));
        assert_eq!(round(&mut o), None);
    }

    #[test]
    fn the_one_that_noticed_may_die() {
        let mut o = observed(PowerDomain::Standby, true, None);
        o.heard.went_back = 1;
        o.site = Site { noticed_by: Some("dpu-1".into()), all_asked: true };
        assert_eq!(round(&mut o), Some("ExposuresUnknown"));
        assert!(!is_noticed(&o.dpu, o.heard), "all were asked");
        o.heard = Heard::default();
        o.site = Site::default();
        round(&mut o);
        assert_eq!(o.dpu.status.as_ref().map(|status| status.went_back_handled), Some(1), "its Lease was deleted");
    }

    #[test]
    fn a_new_leader_hears_everybody_first() {
        let o = observed(PowerDomain::Standby, false, None);
        assert_eq!(forbids_grant(&o.dpu, false, Heard::default()).map(|reason| reason.name()), Some("DpuNotHeard"));
        assert_eq!(forbids_grant(&o.dpu, true, Heard::default()), None);
    }
}
