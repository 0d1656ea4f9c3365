//! What is said of the power while an action is under way.

use super::growth::running;
use api::conditions::{self, POWERED_ON};
use api::machine::RunStrategy;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use planner::host::{HostObserved, PowerAction, PowerState};
use planner::machine::observed::Observed;
use planner::machine::{action_name, plan};
use planner::seen::Seen;
use std::sync::Arc;

/// This action was sent just now, and the BMC was last read a second before that.
fn sent(action: PowerAction, power: PowerState) -> (Observed, Timestamp) {
    let world = running();
    let mut o = world.observe("a").expect("there");
    let machine = Arc::make_mut(&mut o.machine);
    let record = machine.status.as_mut().and_then(|status| status.power.as_mut()).expect("it was powered on");
    record.last_action = Some(action_name(action).to_owned());
    record.last_action_at = Some(MicroTime(world.now));
    if matches!(action, PowerAction::SoftOff | PowerAction::ForceOff) {
        machine.spec.run_strategy = RunStrategy::Halted;
    }
    let read_at = world.now - SignedDuration::from_secs(1);
    o.bmc.host = Seen::Stale { value: HostObserved::with_power(power), since: read_at };
    o.bmc.read_at = Some(read_at);
    (o, world.now)
}

#[test]
fn an_action_that_is_under_way_is_what_is_said_and_not_the_reading_that_is_awaited() {
    for (action, power, said) in [
        (PowerAction::On, PowerState::Off, "False PoweringOn"),
        (PowerAction::WarmReset, PowerState::On, "False Resetting"),
        (PowerAction::ForceOff, PowerState::On, "False PoweringOff"),
        (PowerAction::SoftOff, PowerState::On, "False ShuttingDown"),
    ] {
        let (o, now) = sent(action, power);
        let told = |at: Timestamp| {
            let plan = plan(&o, at);
            assert!(plan.disruptive.is_none(), "{action:?}: {:?}", plan.disruptive);
            let condition = conditions::get(&plan.status.conditions, POWERED_ON).expect("told").clone();
            format!("{} {}", condition.status, condition.reason)
        };
        assert_eq!(told(now), said, "{action:?}");
        assert_eq!(told(now + SignedDuration::from_secs(19)), said, "{action:?}");
        let late = told(now + SignedDuration::from_secs(31));
        assert!(late.ends_with("BmcReading"), "{action:?}: its effect was to be seen by now: {late}");
    }
}
