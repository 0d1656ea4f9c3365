//! From a `ComputerSystem` document to the planner's words.
//!
//! Only the properties that are needed are looked at, so that a BMC with a mistake elsewhere can still be used.

use crate::plan;
use planner::host::{
    BootConfiguration, BootMode, BootOption, BootOverride, BootSource, HostObserved, Lack, MediaUrl, Medium, Post,
    PowerAction, PowerState,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// What a system shows, and what its settings resource shows where it has one (DSP0266, Settings resource): changes of the
/// system go there, and the firmware takes them over in its next POST.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Documents<'a> {
    pub(crate) system: &'a Value,
    pub(crate) settings: Option<&'a Value>,
}

impl Documents<'_> {
    /// Some BMCs tell only in the settings which overrides they take.
    pub(crate) fn first<T>(self, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        read(self.system).or_else(|| self.settings.and_then(&read))
    }

    /// The order that was written and is not the firmware's yet. Some BMCs have an empty one in their settings, which says
    /// nothing.
    pub(crate) fn pending(self) -> Option<Vec<String>> {
        let pending = boot_order(self.settings?).filter(|order| !order.is_empty())?;
        (boot_order(self.system).as_ref() != Some(&pending)).then_some(pending)
    }

    /// The order that the next start takes.
    pub(crate) fn coming(self, job: Option<&[String]>) -> Option<Vec<String>> {
        job.map(<[String]>::to_vec).or_else(|| self.pending()).or_else(|| boot_order(self.system))
    }
}

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

fn lacks(system: &Value, beside: &Beside) -> BTreeSet<Lack> {
    use PowerAction::{ForceOff, On, SoftOff, WarmReset};
    let power = [On, SoftOff, ForceOff, WarmReset].into_iter().filter(|action| beside.resets.of(*action).is_none());
    let options = beside.options.is_none().then_some(Lack::BootOptions);
    let order = boot_order(system).is_none().then_some(Lack::BootOrder);
    let media = beside.medium.is_none().then_some(Lack::VirtualMedia);
    power.map(Lack::Power).chain(options).chain(order).chain(media).collect()
}

/// What was read beside the system.
#[derive(Default)]
pub(crate) struct Beside {
    /// `None` where the BMC has no list of them.
    pub(crate) options: Option<Vec<BootOption>>,
    pub(crate) resets: Resets,
    /// The order that waits in a job of the BMC's.
    pub(crate) job: Option<Vec<String>>,
    /// `None` where the BMC has no virtual CD or DVD drive.
    pub(crate) medium: Option<Medium>,
}

pub(crate) fn host(documents: Documents<'_>, power: PowerState, beside: Beside) -> HostObserved {
    let system = documents.system;
    let lacks = lacks(system, &beside);
    let Beside { options, job, medium, .. } = beside;
    let boot = BootConfiguration {
        order: boot_order(system).unwrap_or_default(),
        pending: job.or_else(|| documents.pending()),
        options: options.unwrap_or_default(),
        next: documents.first(|of| boot_override(of, "Once")),
        always: documents.first(|of| boot_override(of, "Continuous")),
        allowed_next: allowed(documents, "Once"),
        allowed_always: allowed(documents, "Continuous"),
    };
    HostObserved {
        power,
        boot,
        serial_number: text(system, "/SerialNumber"),
        system_uuid: text(system, "/UUID"),
        model: text(system, "/Model"),
        manufacturer: text(system, "/Manufacturer"),
        firmware_version: text(system, "/BiosVersion"),
        post: if power == PowerState::On { post(system) } else { Post::Unknown },
        pcie_devices: links(system, "/PCIeDevices"),
        medium: medium.unwrap_or_default(),
        lacks,
    }
}

/// Of a VirtualMedia resource: a CD or a DVD can be inserted.
pub(crate) fn is_optical(drive: &Value) -> bool {
    texts(drive, "/MediaTypes").is_some_and(|types| types.iter().any(|of| of == "CD" || of == "DVD"))
}

/// Of a VirtualMedia resource. Some BMCs go on showing the image that they have ejected, and some do not tell `Inserted`.
pub(crate) fn medium(drive: &Value) -> Medium {
    let image = text(drive, "/Image");
    if drive["Inserted"].as_bool().unwrap_or(image.is_some()) {
        return Medium::Inserted(image.map(MediaUrl::shown));
    }
    Medium::Ejected
}

pub(crate) fn links(document: &Value, pointer: &str) -> Vec<String> {
    let links = document.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let mut links: Vec<String> = links.filter_map(|link| link["@odata.id"].as_str()).map(str::to_owned).collect();
    links.sort();
    links
}

/// By `BootProgress`, or by HPE's `PostState`, which tells where there is no `BootProgress`.
fn post(system: &Value) -> Post {
    let progress = text(system, "/BootProgress/LastState").filter(|state| state != "None" && state != "OEM");
    match progress.as_deref() {
        Some("SetupEntered") => return Post::InSetup,
        Some("OSBootStarted" | "OSRunning") => return Post::Done,
        Some(_) => return Post::Running,
        None => {}
    }
    match text(system, "/Oem/Hpe/PostState").as_deref() {
        Some("InPost" | "InPostDiscoveryComplete" | "Reset") => Post::Running,
        Some("FinishedPost") => Post::Done,
        _ => Post::Unknown,
    }
}

/// Whether a Task (DSP0268) or a job of iDRAC's has ended, one way or another.
pub(crate) fn is_done(job: &Value) -> bool {
    let state = text(job, "/TaskState").or_else(|| text(job, "/JobState")).unwrap_or_default();
    let ends = ["Completed", "Exception", "Killed", "Cancelled", "Failed", "Interrupted"];
    ends.iter().any(|end| state.starts_with(end))
}

/// What iDRAC puts before the name of an option whose device is gone.
const GONE: &str = "Unavailable:";

pub(crate) fn boot_option(option: &Value) -> Option<BootOption> {
    let reference = text(option, "/BootOptionReference").or_else(|| text(option, "/Id"))?;
    let display_name = text(option, "/DisplayName").or_else(|| text(option, "/Name"));
    let display_name = display_name.unwrap_or_else(|| reference.clone());
    let present = !display_name.starts_with(GONE);
    let enabled = option["BootOptionEnabled"] != false;
    Some(BootOption { reference, display_name, uefi_device_path: text(option, "/UefiDevicePath"), enabled, present })
}

fn source(target: &str) -> Option<BootSource> {
    if target == "None" {
        return None;
    }
    Some(plan::SOURCES.iter().find(|(_, word)| *word == target).map_or(BootSource::Other, |(source, _)| *source))
}

/// The override that is in force once or always.
pub(crate) fn boot_override(document: &Value, enabled: &str) -> Option<BootOverride> {
    if text(document, "/Boot/BootSourceOverrideEnabled")? != enabled {
        return None;
    }
    let source = source(&text(document, "/Boot/BootSourceOverrideTarget")?)?;
    let mode = match text(document, "/Boot/BootSourceOverrideMode").as_deref() {
        Some("UEFI") => Some(BootMode::Uefi),
        Some("Legacy") => Some(BootMode::Legacy),
        _ => None,
    };
    Some(BootOverride { source, mode })
}

/// What the BMC says that it takes once or always; nothing where it does not tell its targets.
pub(crate) fn allowed(documents: Documents<'_>, enabled: &str) -> Vec<BootSource> {
    let told = documents.first(|of| texts(of, "/Boot/BootSourceOverrideEnabled@Redfish.AllowableValues"));
    if told.is_some_and(|values| !values.iter().any(|v| v == enabled)) {
        return Vec::new();
    }
    let targets = documents.first(|of| texts(of, plan::OVERRIDE_TARGETS)).unwrap_or_default();
    let sources: BTreeSet<BootSource> = targets.iter().filter_map(|t| source(t)).collect();
    // DSP0268, ComputerSystem: UefiTarget may not be continuous.
    let is_asked = |source: &BootSource| {
        *source != BootSource::Other && (*source != BootSource::UefiTarget || enabled != "Continuous")
    };
    sources.into_iter().filter(is_asked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(system: &Value) -> Documents<'_> {
        Documents { system, settings: None }
    }

    #[test]
    fn overrides_are_told_apart() {
        let boot = |enabled: &str, target: &str| json!({"Boot": {"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target}});
        let source = |document: &Value, enabled: &str| boot_override(document, enabled).map(|of| (of.source, of.mode));
        assert_eq!(source(&boot("Continuous", "Hdd"), "Continuous"), Some((BootSource::Hdd, None)));
        assert_eq!(source(&boot("Continuous", "BiosSetup"), "Continuous"), Some((BootSource::Setup, None)));
        assert_eq!(source(&boot("Continuous", "Utilities"), "Continuous"), Some((BootSource::Other, None)));
        assert_eq!(source(&boot("Continuous", "None"), "Continuous"), None);
        assert_eq!(source(&boot("Once", "Hdd"), "Continuous"), None);
        assert_eq!(source(&boot("Once", "Pxe"), "Once"), Some((BootSource::Pxe, None)));
        let mut legacy = boot("Once", "Pxe");
        legacy["Boot"]["BootSourceOverrideMode"] = json!("Legacy");
        assert_eq!(source(&legacy, "Once"), Some((BootSource::Pxe, Some(BootMode::Legacy))));
        assert_eq!(source(&json!({}), "Once"), None);
    }

    #[test]
    fn what_may_be_asked_once_and_what_always() {
        let mut system = json!({"Boot": {
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "Usb", "Cd", "UefiTarget"]}});
        let (always, once) = ([BootSource::Pxe, BootSource::Hdd, BootSource::Cd], BootSource::UefiTarget);
        assert_eq!(allowed(of(&system), "Continuous"), always);
        assert_eq!(allowed(of(&system), "Once"), [&always[..], &[once]].concat());
        system["Boot"]["BootSourceOverrideEnabled@Redfish.AllowableValues"] = json!(["Disabled", "Once"]);
        assert_eq!(allowed(of(&system), "Continuous"), []);
        // As an AMI BMC tells it: in the settings alone.
        assert_eq!(allowed(Documents { system: &json!({}), settings: Some(&system) }, "Once").len(), 4);
    }

    #[test]
    fn an_order_in_the_settings_is_pending_until_it_is_the_systems() {
        let order = |order: &[&str]| json!({"Boot": {"BootOrder": order}});
        let (old, new) = (order(&["A", "B"]), order(&["B", "A"]));
        fn pending(system: &Value, settings: Option<&Value>) -> Option<Vec<String>> {
            Documents { system, settings }.pending()
        }
        assert_eq!(pending(&old, Some(&new)), Some(vec!["B".to_owned(), "A".to_owned()]));
        assert_eq!(pending(&new, Some(&new)), None);
        assert_eq!(pending(&old, Some(&order(&[]))), None);
        assert_eq!(pending(&old, Some(&json!({}))), None);
        assert_eq!(pending(&old, None), None);
    }

    #[test]
    fn how_far_the_firmware_is() {
        let progress = |state: &str| post(&json!({"BootProgress": {"LastState": state}}));
        assert_eq!(progress("MemoryInitializationStarted"), Post::Running);
        assert_eq!(progress("SetupEntered"), Post::InSetup);
        assert_eq!(progress("OSRunning"), Post::Done);
        assert_eq!(progress("OEM"), Post::Unknown);
        assert_eq!(post(&json!({"Oem": {"Hpe": {"PostState": "InPostDiscoveryComplete"}}})), Post::Running);
        assert_eq!(post(&json!({"Oem": {"Hpe": {"PostState": "FinishedPost"}}})), Post::Done);
    }

    #[test]
    fn what_is_not_shown_is_lacking() {
        let full = json!({"Boot": {"BootOrder": []}});
        let resets = |allowable: Option<&[&str]>| Resets {
            target: Some("/Reset".to_owned()),
            allowable: allowable.map(|all| all.iter().map(|&reset| reset.to_owned()).collect()),
        };
        let seen = |system: &Value, beside: Beside| {
            host(of(system), PowerState::On, beside).lacks.into_iter().collect::<Vec<_>>()
        };
        let all = |resets| Beside { options: Some(Vec::new()), resets, job: None, medium: Some(Medium::Unknown) };
        // An order that is empty before the first POST is one.
        assert_eq!(seen(&full, all(resets(None))), []);
        let told = resets(Some(&["ForceOn", "ForceOff", "PowerCycle"]));
        let (soft, warm) = (Lack::Power(PowerAction::SoftOff), Lack::Power(PowerAction::WarmReset));
        assert_eq!(seen(&full, all(told)), [soft, warm]);
        let none = Beside { resets: resets(None), ..Beside::default() };
        assert_eq!(seen(&json!({}), none), [Lack::BootOptions, Lack::BootOrder, Lack::VirtualMedia]);
        assert_eq!(seen(&full, all(Resets::default())).len(), 4);
    }

    #[test]
    fn what_is_in_a_drive() {
        let inserted = |image: &str| Medium::Inserted(Some(MediaUrl::shown(image)));
        for (drive, expected) in [
            (json!({"Image": null, "Inserted": false}), Medium::Ejected),
            (json!({"Image": "", "Inserted": null}), Medium::Ejected),
            (json!({"Image": "http://a/b.iso", "Inserted": false}), Medium::Ejected),
            (json!({"Image": "http://a/b.iso", "Inserted": true}), inserted("http://a/b.iso")),
            (json!({"Image": "http://a/b.iso"}), inserted("http://a/b.iso")),
            (json!({"Inserted": true}), Medium::Inserted(None)),
        ] {
            assert_eq!(medium(&drive), expected, "{drive}");
        }
        assert!(is_optical(&json!({"MediaTypes": ["USBStick", "DVD"]})));
        assert!(!is_optical(&json!({"MediaTypes": ["Floppy"]})) && !is_optical(&json!({})));
    }

    #[test]
    fn a_boot_option_needs_a_reference_only() {
        let option = boot_option(&json!({"Id": "Boot0003"})).expect("an option");
        assert_eq!((option.reference.as_str(), option.display_name.as_str()), ("Boot0003", "Boot0003"));
        assert!(option.enabled && option.present);
        assert_eq!(boot_option(&json!({"Name": "x"})), None);
        let gone = json!({"Id": "1", "DisplayName": "Unavailable: ubuntu", "BootOptionEnabled": false});
        let gone = boot_option(&gone).expect("an option");
        assert!(!gone.enabled && !gone.present);
    }
}
