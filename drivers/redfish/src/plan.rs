//! Which request carries a verb out. No I/O.

use crate::observed::{self, Documents};
use planner::host::{BootChange, BootMode, BootOverride, BootSource, PowerAction, PowerState};
use serde_json::{Value, json};

pub(crate) const OVERRIDE_TARGETS: &str = "/Boot/BootSourceOverrideTarget@Redfish.AllowableValues";

/// Supermicro's word for a virtual CD drive, which DSP0268 does not have.
const USB_CD: &str = "UsbCd";

/// Redfish's words for the sources that are asked for (DSP0268, ComputerSystem).
pub(crate) const SOURCES: [(BootSource, &str); 8] = [
    (BootSource::Pxe, "Pxe"),
    (BootSource::UefiHttp, "UefiHttp"),
    (BootSource::Hdd, "Hdd"),
    (BootSource::Cd, "Cd"),
    (BootSource::Cd, USB_CD),
    (BootSource::Setup, "BiosSetup"),
    (BootSource::UefiShell, "UefiShell"),
    (BootSource::UefiTarget, "UefiTarget"),
];

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
    Patch(Patch),
    /// The BMC cannot express it.
    Unsupported(String),
    NotFound(String),
}

/// The two halves of a change. The order goes to the settings where there are any; an override does so only where the
/// settings show that they have one: elsewhere it belongs to the system.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) order: Option<Vec<String>>,
    /// Properties of `Boot`.
    pub(crate) overriding: Option<Value>,
}

/// Where the override of a boot source is changed.
pub(crate) fn overrides_in_settings(documents: Documents<'_>) -> bool {
    let settings = documents.settings.and_then(|settings| settings["Boot"].as_object());
    settings.is_some_and(|boot| boot.keys().any(|key| key.starts_with("BootSourceOverride")))
}

/// `job`: the order that waits in a job of the BMC's.
pub(crate) fn boot(documents: Documents<'_>, job: Option<&[String]>, change: &BootChange) -> Boot {
    let current = documents.coming(job);
    match (change, current) {
        (BootChange::First { reference }, Some(current)) => {
            if !current.contains(reference) {
                return Boot::NotFound(format!("{reference} is not in the boot order [{}]", current.join(", ")));
            }
            let others = current.iter().filter(|r| *r != reference);
            let order: Vec<String> = std::iter::once(reference).chain(others).cloned().collect();
            patch(Some(order).filter(|order| *order != current), documents)
        }
        (BootChange::First { .. }, None) => Boot::Unsupported("the BMC shows no Boot.BootOrder".to_owned()),
        (BootChange::Restore { order }, current) => {
            patch(current.and_then(|current| restored(order, &current)), documents)
        }
        (BootChange::Next { source, mode }, _) => overriding(documents, "Once", *source, *mode),
        (BootChange::Always { source, mode }, _) => overriding(documents, "Continuous", *source, *mode),
    }
}

fn patch(order: Option<Vec<String>>, documents: Documents<'_>) -> Boot {
    let patch = Patch { order, overriding: ended(documents) };
    if patch == Patch::default() { Boot::Nothing } else { Boot::Patch(patch) }
}

/// Options that are gone are left out, or the BMC would refuse the whole order; options that are new come last. `None`: it
/// is so.
fn restored(order: &[String], current: &[String]) -> Option<Vec<String>> {
    let known = order.iter().filter(|r| current.contains(r));
    let new = current.iter().filter(|r| !order.contains(r));
    let wanted: Vec<String> = known.chain(new).cloned().collect();
    (!order.is_empty() && wanted != current).then_some(wanted)
}

/// What ends an override, if there is one.
fn ended(documents: Documents<'_>) -> Option<Value> {
    in_force(documents)?;
    let mut boot = json!({"BootSourceOverrideEnabled": "Disabled"});
    // Some BMCs want both, others do not know the target.
    if targets(documents).is_some_and(|targets| targets.iter().any(|target| target == "None")) {
        boot["BootSourceOverrideTarget"] = "None".into();
    }
    Some(boot)
}

fn in_force(documents: Documents<'_>) -> Option<(&'static str, BootOverride)> {
    let find = |of: &Value| {
        ["Once", "Continuous"].into_iter().find_map(|enabled| Some((enabled, observed::boot_override(of, enabled)?)))
    };
    find(documents.system).or_else(|| documents.settings.and_then(find))
}

/// The targets that the BMC says that it takes.
fn targets(documents: Documents<'_>) -> Option<Vec<String>> {
    documents.first(|of| observed::texts(of, OVERRIDE_TARGETS))
}

/// The target that stands for a source; `None`: there is no word for it.
fn word(documents: Documents<'_>, source: BootSource) -> Option<&'static str> {
    let told = targets(documents).unwrap_or_default();
    let is_told = |word: &str| told.iter().any(|told| told == word);
    if source == BootSource::Cd && is_told(USB_CD) && (!is_told("Cd") || is_usb_cd(documents.system)) {
        return Some(USB_CD);
    }
    SOURCES.iter().find(|(known, _)| *known == source).map(|(_, word)| *word)
}

/// By OpenStack's sushy (`System.set_system_boot_options`): of the two targets that Supermicro's X11 and X12 list, only `UsbCd` boots
/// virtual media; of a model of theirs that lists both too, only `Cd` does.
fn is_usb_cd(system: &Value) -> bool {
    let is = |key: &str, value: &str| system[key].as_str().is_some_and(|told| told.trim().eq_ignore_ascii_case(value));
    is("Manufacturer", "Supermicro") && !is("Model", "ARS-111GL-NHR")
}

fn overriding(documents: Documents<'_>, enabled: &'static str, source: BootSource, mode: BootMode) -> Boot {
    let Some(target) = word(documents, source) else {
        return Boot::Unsupported("the source Other names nothing that could be asked for".to_owned());
    };
    let is_so = |found: &BootOverride| found.source == source && found.mode.is_none_or(|found| found == mode);
    if in_force(documents).is_some_and(|(how, found)| how == enabled && is_so(&found)) {
        return Boot::Nothing;
    }
    if targets(documents).is_some() && !observed::allowed(documents, enabled).contains(&source) {
        return Boot::Unsupported(format!("the BMC takes no boot source override to {target} with {enabled}"));
    }
    let mode = match mode {
        BootMode::Uefi => "UEFI",
        BootMode::Legacy => "Legacy",
    };
    let boot = json!({
        "BootSourceOverrideEnabled": enabled,
        "BootSourceOverrideTarget": target,
        "BootSourceOverrideMode": mode,
    });
    Boot::Patch(Patch { order: None, overriding: Some(boot) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(order: &[&str]) -> Value {
        json!({"Boot": {"BootOrder": order}})
    }

    fn strings(order: &[&str]) -> Vec<String> {
        order.iter().map(|&r| r.to_owned()).collect()
    }

    fn order(order: &[&str]) -> Boot {
        Boot::Patch(Patch { order: Some(strings(order)), overriding: None })
    }

    fn boot(system: &Value, change: &BootChange) -> Boot {
        super::boot(Documents { system, settings: None }, None, change)
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
        let overriding = Some(json!({"BootSourceOverrideEnabled": "Disabled"}));
        assert_eq!(boot(&set, &back(&[])), Boot::Patch(Patch { order: None, overriding }));
    }

    #[test]
    fn an_override_would_come_before_the_order() {
        let mut once = system(&["A", "B"]);
        once["Boot"]["BootSourceOverrideEnabled"] = "Once".into();
        once["Boot"]["BootSourceOverrideTarget"] = "Hdd".into();
        let first = BootChange::First { reference: "A".to_owned() };
        let overriding = Some(json!({"BootSourceOverrideEnabled": "Disabled"}));
        assert_eq!(boot(&once, &first), Boot::Patch(Patch { order: None, overriding }));
    }

    #[test]
    fn what_is_pending_is_what_the_next_start_takes() {
        let (system, settings) = (system(&["A", "B", "C"]), system(&["B", "A", "C"]));
        let documents = Documents { system: &system, settings: Some(&settings) };
        let first = |reference: &str| BootChange::First { reference: reference.to_owned() };
        assert_eq!(super::boot(documents, None, &first("B")), Boot::Nothing);
        assert_eq!(super::boot(documents, None, &first("C")), order(&["C", "B", "A"]));
        assert_eq!(super::boot(documents, Some(&strings(&["C", "A", "B"])), &first("C")), Boot::Nothing);
        assert!(!overrides_in_settings(documents));
    }

    #[test]
    fn an_override_is_set_only_where_it_is_allowed() {
        let allowing =
            |targets: &[&str]| json!({"Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": targets}});
        let hdd = BootChange::Always { source: BootSource::Hdd, mode: BootMode::Uefi };
        assert!(matches!(boot(&allowing(&["Pxe"]), &hdd), Boot::Unsupported(_)));
        assert!(matches!(boot(&allowing(&["Pxe", "Hdd"]), &hdd), Boot::Patch(_)));
        assert!(matches!(boot(&json!({}), &hdd), Boot::Patch(_)));
        let target = BootChange::Always { source: BootSource::UefiTarget, mode: BootMode::Uefi };
        assert!(matches!(boot(&allowing(&["UefiTarget"]), &target), Boot::Unsupported(_)), "by its schema");
    }

    #[test]
    fn a_virtual_cd_has_its_own_target_where_it_needs_one() {
        let mut system = json!({"Manufacturer": "Supermicro", "Model": "SYS-821GE",
            "Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe", "Cd", "UsbCd"]}});
        let change = BootChange::Next { source: BootSource::Cd, mode: BootMode::Uefi };
        let target = |system: &Value| match boot(system, &change) {
            Boot::Patch(Patch { overriding: Some(boot), .. }) => boot["BootSourceOverrideTarget"].clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(target(&system), "UsbCd");
        system["Model"] = "ARS-111GL-NHR".into();
        assert_eq!(target(&system), "Cd");
        system["Manufacturer"] = "AMI".into();
        assert_eq!(target(&system), "Cd");
        system["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"] = json!(["UsbCd"]);
        assert_eq!(target(&system), "UsbCd");
        system["Boot"]["BootSourceOverrideTarget"] = "UsbCd".into();
        system["Boot"]["BootSourceOverrideEnabled"] = "Once".into();
        assert_eq!(boot(&system, &change), Boot::Nothing);
        assert_eq!(target(&json!({})), "Cd");
    }
}
