//! Which request carries a verb out. No I/O.

use crate::observed;
use planner::host::{BootChange, BootSource, PowerAction, PowerState};
use serde_json::{Value, json};

const OVERRIDE_TARGETS: &str = "/Boot/BootSourceOverrideTarget@Redfish.AllowableValues";

/// What to do about a power action on a host in this state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// It is so already, or about to be.
    Nothing,
    /// There is nothing running that could be reset.
    Refused,
    Send,
}

pub(crate) fn power(action: PowerAction, state: PowerState) -> Power {
    use PowerState::{Off, On, PoweringOff, PoweringOn};
    match (action, state) {
        (PowerAction::On, On | PoweringOn) => Power::Nothing,
        (PowerAction::SoftOff | PowerAction::ForceOff, Off) | (PowerAction::SoftOff, PoweringOff) => Power::Nothing,
        // Some BMCs answer a restart of a host that is off by switching it on.
        (PowerAction::WarmReset, Off | PoweringOff) => Power::Refused,
        _ => Power::Send,
    }
}

/// The first `ResetType` for the action that the BMC allows; without a list, the usual one. `PowerCycle` is never a
/// warm reset: functions that a DPU presents would lose their power.
pub(crate) fn reset_type(action: PowerAction, allowable: Option<&[String]>) -> Option<&'static str> {
    let wanted: &[&'static str] = match action {
        PowerAction::On => &["On", "ForceOn"],
        PowerAction::SoftOff => &["GracefulShutdown", "PushPowerButton"],
        PowerAction::ForceOff => &["ForceOff"],
        PowerAction::WarmReset => &["ForceRestart"],
    };
    match allowable {
        None => wanted.first().copied(),
        Some(allowable) => wanted.iter().find(|w| allowable.iter().any(|a| a == *w)).copied(),
    }
}

/// The change of `Boot` that a verb asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Boot {
    /// It is so already.
    Nothing,
    Patch(Value),
    /// The BMC cannot express it.
    Unsupported(String),
    NotFound(String),
}

pub(crate) fn boot(system: &Value, change: &BootChange) -> Boot {
    let current = observed::boot_order(system);
    match (change, current) {
        (BootChange::First { reference }, Some(current)) => {
            if !current.contains(reference) {
                return Boot::NotFound(format!("{reference} is not in the boot order [{}]", current.join(", ")));
            }
            let others = current.iter().filter(|r| *r != reference);
            patch_order(&current, std::iter::once(reference).chain(others).cloned().collect())
        }
        (BootChange::First { .. }, None) => Boot::Unsupported("the BMC shows no Boot.BootOrder".to_owned()),
        (BootChange::ContinuousHdd, _) => continuous_hdd(system),
        (BootChange::Restore { order }, current) => restore(system, order, current.as_deref()),
    }
}

fn patch_order(current: &[String], order: Vec<String>) -> Boot {
    if current == order { Boot::Nothing } else { Boot::Patch(json!({"Boot": {"BootOrder": order}})) }
}

fn continuous_hdd(system: &Value) -> Boot {
    if observed::continuous_override(system) == Some(BootSource::Hdd) {
        return Boot::Nothing;
    }
    let allowable = observed::allowable_overrides(system);
    if system.pointer(OVERRIDE_TARGETS).is_some() && !allowable.contains(&BootSource::Hdd) {
        return Boot::Unsupported("the BMC allows no continuous override to Hdd".to_owned());
    }
    Boot::Patch(json!({"Boot": {
        "BootSourceOverrideEnabled": "Continuous",
        "BootSourceOverrideTarget": "Hdd",
        "BootSourceOverrideMode": "UEFI",
    }}))
}

/// Options that are gone are left out, or the BMC would refuse the whole order; options that are new come last. An
/// override ends, because nobody but us sets a continuous one.
fn restore(system: &Value, order: &[String], current: Option<&[String]>) -> Boot {
    let mut boot = json!({});
    if let Some(current) = current.filter(|_| !order.is_empty()) {
        let known = order.iter().filter(|r| current.contains(r));
        let new = current.iter().filter(|r| !order.contains(r));
        let wanted: Vec<&String> = known.chain(new).collect();
        if wanted != current.iter().collect::<Vec<_>>() {
            boot["BootOrder"] = json!(wanted);
        }
    }
    if observed::continuous_override(system).is_some() {
        boot["BootSourceOverrideEnabled"] = "Disabled".into();
        // Some BMCs want both, others do not know the target.
        if observed::texts(system, OVERRIDE_TARGETS).is_some_and(|targets| targets.iter().any(|t| t == "None")) {
            boot["BootSourceOverrideTarget"] = "None".into();
        }
    }
    if boot == json!({}) { Boot::Nothing } else { Boot::Patch(json!({"Boot": boot})) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(order: &[&str]) -> Value {
        json!({"Boot": {"BootOrder": order}})
    }

    fn order(order: &[&str]) -> Boot {
        Boot::Patch(json!({"Boot": {"BootOrder": order}}))
    }

    #[test]
    fn a_warm_reset_is_never_a_power_cycle() {
        let allowable = ["PowerCycle", "GracefulRestart", "On"].map(str::to_owned);
        assert_eq!(reset_type(PowerAction::WarmReset, Some(&allowable)), None);
        assert_eq!(reset_type(PowerAction::WarmReset, None), Some("ForceRestart"));
    }

    #[test]
    fn the_power_button_stands_in_for_a_graceful_shutdown() {
        let allowable = ["PushPowerButton", "ForceOff"].map(str::to_owned);
        assert_eq!(reset_type(PowerAction::SoftOff, Some(&allowable)), Some("PushPowerButton"));
        assert_eq!(reset_type(PowerAction::On, Some(&["ForceOn".to_owned()])), Some("ForceOn"));
    }

    #[test]
    fn what_is_so_already_is_not_asked_for() {
        assert_eq!(power(PowerAction::On, PowerState::On), Power::Nothing);
        assert_eq!(power(PowerAction::ForceOff, PowerState::Off), Power::Nothing);
        // A guest that hangs in its shutdown must still lose its power.
        assert_eq!(power(PowerAction::ForceOff, PowerState::PoweringOff), Power::Send);
        assert_eq!(power(PowerAction::WarmReset, PowerState::Off), Power::Refused);
        assert_eq!(power(PowerAction::WarmReset, PowerState::On), Power::Send);
    }

    #[test]
    fn the_others_keep_their_order() {
        let first = |r: &str| BootChange::First { reference: r.to_owned() };
        assert_eq!(boot(&system(&["A", "B", "C"]), &first("C")), order(&["C", "A", "B"]));
        assert_eq!(boot(&system(&["A", "B"]), &first("A")), Boot::Nothing);
        assert!(matches!(boot(&system(&["A", "B"]), &first("X")), Boot::NotFound(_)));
        assert!(matches!(boot(&json!({"Boot": {}}), &first("A")), Boot::Unsupported(_)));
    }

    #[test]
    fn restore_leaves_out_what_is_gone_and_appends_what_is_new() {
        let back = |o: &[&str]| BootChange::Restore { order: o.iter().map(|&r| r.to_owned()).collect() };
        assert_eq!(boot(&system(&["C", "A", "D"]), &back(&["A", "B", "C"])), order(&["A", "C", "D"]));
        assert_eq!(boot(&system(&["A", "C"]), &back(&["A", "B", "C"])), Boot::Nothing);
        let set = json!({"Boot": {"BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideTarget": "Hdd"}});
        let disabled = Boot::Patch(json!({"Boot": {"BootSourceOverrideEnabled": "Disabled"}}));
        assert_eq!(boot(&set, &back(&[])), disabled);
    }

    #[test]
    fn an_override_is_set_only_where_it_is_allowed() {
        let allowing =
            |targets: &[&str]| json!({"Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": targets}});
        assert!(matches!(boot(&allowing(&["Pxe"]), &BootChange::ContinuousHdd), Boot::Unsupported(_)));
        assert!(matches!(boot(&allowing(&["Pxe", "Hdd"]), &BootChange::ContinuousHdd), Boot::Patch(_)));
        assert!(matches!(boot(&json!({}), &BootChange::ContinuousHdd), Boot::Patch(_)));
    }
}
