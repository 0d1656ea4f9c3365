//! From a `ComputerSystem` document to the planner's words.
//!
//! Only the properties that are needed are looked at, so that a BMC with a mistake elsewhere can still be used.

use crate::plan;
use planner::host::{BootConfiguration, BootOption, BootSource, HostObserved, Lack, PowerAction, PowerState};
use serde_json::Value;
use std::collections::BTreeSet;

fn text(document: &Value, pointer: &str) -> Option<String> {
    document.pointer(pointer).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned)
}

pub(crate) fn texts(document: &Value, pointer: &str) -> Option<Vec<String>> {
    let values = document.pointer(pointer)?.as_array()?;
    Some(values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// `None` when the BMC does not tell.
pub(crate) fn power(system: &Value) -> Option<PowerState> {
    match system["PowerState"].as_str()? {
        "On" | "Paused" | "Sleeping" => Some(PowerState::On),
        "Off" => Some(PowerState::Off),
        "PoweringOn" => Some(PowerState::PoweringOn),
        "PoweringOff" => Some(PowerState::PoweringOff),
        _ => None,
    }
}

/// `None` when the BMC has no boot order.
pub(crate) fn boot_order(system: &Value) -> Option<Vec<String>> {
    texts(system, "/Boot/BootOrder")
}

/// The resets that the BMC offers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Resets {
    /// Where they are sent; `None`: it offers none.
    pub(crate) target: Option<String>,
    /// Values of `ResetType`; `None`: it does not tell.
    pub(crate) allowable: Option<Vec<String>>,
}

impl Resets {
    /// The `ResetType` for an action; `None`: it does not offer that.
    pub(crate) fn of(&self, action: PowerAction) -> Option<&'static str> {
        self.target.as_ref().and_then(|_| plan::reset_type(action, self.allowable.as_deref()))
    }
}

fn lacks(system: &Value, options: Option<&Vec<BootOption>>, resets: &Resets) -> BTreeSet<Lack> {
    use PowerAction::{ForceOff, On, SoftOff, WarmReset};
    let power = [On, SoftOff, ForceOff, WarmReset].into_iter().filter(|action| resets.of(*action).is_none());
    let options = options.is_none().then_some(Lack::BootOptions);
    let order = boot_order(system).is_none().then_some(Lack::BootOrder);
    power.map(Lack::Power).chain(options).chain(order).collect()
}

/// `options`: `None` where the BMC has no list of them.
pub(crate) fn host(
    system: &Value,
    power: PowerState,
    options: Option<Vec<BootOption>>,
    resets: &Resets,
) -> HostObserved {
    let lacks = lacks(system, options.as_ref(), resets);
    let boot = BootConfiguration {
        order: boot_order(system).unwrap_or_default(),
        options: options.unwrap_or_default(),
        continuous_override: continuous_override(system),
        allowable_overrides: allowable_overrides(system),
    };
    HostObserved {
        power,
        boot,
        serial_number: text(system, "/SerialNumber"),
        model: text(system, "/Model"),
        manufacturer: text(system, "/Manufacturer"),
        lacks,
    }
}

pub(crate) fn boot_option(option: &Value) -> Option<BootOption> {
    let reference = text(option, "/BootOptionReference").or_else(|| text(option, "/Id"))?;
    let display_name = text(option, "/DisplayName").or_else(|| text(option, "/Name"));
    let display_name = display_name.unwrap_or_else(|| reference.clone());
    Some(BootOption { reference, display_name, uefi_device_path: text(option, "/UefiDevicePath") })
}

fn source(target: &str) -> Option<BootSource> {
    match target {
        "None" => None,
        "Hdd" => Some(BootSource::Hdd),
        "Pxe" => Some(BootSource::Pxe),
        "UefiTarget" => Some(BootSource::UefiTarget),
        _ => Some(BootSource::Other),
    }
}

pub(crate) fn continuous_override(system: &Value) -> Option<BootSource> {
    if text(system, "/Boot/BootSourceOverrideEnabled")? != "Continuous" {
        return None;
    }
    source(&text(system, "/Boot/BootSourceOverrideTarget")?)
}

pub(crate) fn allowable_overrides(system: &Value) -> Vec<BootSource> {
    let enabled = texts(system, "/Boot/BootSourceOverrideEnabled@Redfish.AllowableValues");
    if enabled.is_some_and(|values| !values.iter().any(|v| v == "Continuous")) {
        return Vec::new();
    }
    let targets = texts(system, "/Boot/BootSourceOverrideTarget@Redfish.AllowableValues").unwrap_or_default();
    let mut sources: Vec<BootSource> = Vec::new();
    for source in targets.iter().filter_map(|t| source(t)) {
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn overrides_count_only_when_continuous() {
        let boot = |enabled: &str, target: &str| json!({"Boot": {"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target}});
        assert_eq!(continuous_override(&boot("Continuous", "Hdd")), Some(BootSource::Hdd));
        assert_eq!(continuous_override(&boot("Continuous", "BiosSetup")), Some(BootSource::Other));
        assert_eq!(continuous_override(&boot("Continuous", "None")), None);
        assert_eq!(continuous_override(&boot("Once", "Hdd")), None);
        assert_eq!(continuous_override(&json!({})), None);
    }

    #[test]
    fn nothing_is_allowable_without_continuous() {
        let mut system = json!({"Boot": {
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "Usb", "Cd"]}});
        assert_eq!(allowable_overrides(&system), [BootSource::Pxe, BootSource::Hdd, BootSource::Other]);
        system["Boot"]["BootSourceOverrideEnabled@Redfish.AllowableValues"] = json!(["Disabled", "Once"]);
        assert_eq!(allowable_overrides(&system), []);
    }

    #[test]
    fn what_is_not_shown_is_lacking() {
        let full = json!({"Boot": {"BootOrder": []}});
        let resets = |allowable: Option<&[&str]>| Resets {
            target: Some("/Reset".to_owned()),
            allowable: allowable.map(|all| all.iter().map(|&reset| reset.to_owned()).collect()),
        };
        let seen = |system: &Value, options: Option<Vec<BootOption>>, resets: &Resets| {
            host(system, PowerState::On, options, resets).lacks.into_iter().collect::<Vec<_>>()
        };
        // An order that is empty before the first POST is one.
        assert_eq!(seen(&full, Some(Vec::new()), &resets(None)), []);
        let told = resets(Some(&["ForceOn", "ForceOff", "PowerCycle"]));
        let (soft, warm) = (Lack::Power(PowerAction::SoftOff), Lack::Power(PowerAction::WarmReset));
        assert_eq!(seen(&full, Some(Vec::new()), &told), [soft, warm]);
        assert_eq!(seen(&json!({}), None, &resets(None)), [Lack::BootOptions, Lack::BootOrder]);
        assert_eq!(seen(&full, Some(Vec::new()), &Resets::default()).len(), 4);
    }

    #[test]
    fn a_boot_option_needs_a_reference_only() {
        let option = boot_option(&json!({"Id": "Boot0003"})).expect("an option");
        assert_eq!((option.reference.as_str(), option.display_name.as_str()), ("Boot0003", "Boot0003"));
        assert_eq!(boot_option(&json!({"Name": "x"})), None);
    }
}
