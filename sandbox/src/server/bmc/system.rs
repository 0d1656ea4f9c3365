//! The resource `Systems/1`: what it shows, and what of it can be changed.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::message::Problem;
use super::{Bmc, reset, response};
use crate::server::boot::{BootOption, OverrideEnabled, OverrideTarget, Settings};
use crate::server::{machine::Machine, system_uuid};

pub const PATH: &str = "/redfish/v1/Systems/1";
pub const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
pub const BOOT_OPTIONS: &str = "/redfish/v1/Systems/1/BootOptions";

/// The boot options that this server has.
pub fn boot_options(machine: &Machine) -> Vec<BootOption> {
    let there = |option: &BootOption| *option != BootOption::LocalDisk || machine.personality.has_local_disk;
    BootOption::ALL.into_iter().filter(there).collect()
}

pub fn boot_option(option: BootOption) -> Value {
    let reference = option.reference();
    json!({
        "@odata.id": format!("{BOOT_OPTIONS}/{reference}"),
        "@odata.type": "#BootOption.v1_0_4.BootOption",
        "Id": reference,
        "Name": format!("Boot option {reference}"),
        "BootOptionReference": reference,
        "DisplayName": option.display_name(),
        "UefiDevicePath": option.uefi_device_path(),
        "BootOptionEnabled": true,
    })
}

impl Bmc {
    /// The resource and its entity tag.
    pub(super) fn system(&self) -> (Value, String) {
        let machine = &self.machine;
        let power = self.shown_power();
        let mut system = json!({
            "@odata.id": PATH,
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": "1",
            "Name": machine.config.name,
            "SystemType": "Physical",
            "Manufacturer": machine.personality.manufacturer,
            "Model": machine.personality.model,
            "SerialNumber": machine.config.serial_number,
            "UUID": system_uuid(&machine.config).to_string(),
            "PowerState": power,
            "Status": { "State": if power == "On" { "Enabled" } else { "StandbyOffline" }, "Health": "OK" },
            "Boot": boot(&machine.boot_settings(), &boot_options(machine)),
            "MemorySummary": { "TotalSystemMemoryGiB": f64::from(machine.config.memory_mib) / 1024.0 },
            "ProcessorSummary": { "Count": 1, "CoreCount": machine.config.vcpus },
            "Links": {
                "Chassis": [{ "@odata.id": "/redfish/v1/Chassis/1" }],
                "ManagedBy": [{ "@odata.id": "/redfish/v1/Managers/1" }],
            },
            "Actions": { "#ComputerSystem.Reset": {
                "target": RESET,
                "ResetType@Redfish.AllowableValues": reset::ALLOWED,
            }},
        });
        let etag = response::etag(&system);
        system["@odata.etag"] = json!(etag);
        (system, etag)
    }

    /// The power state, unless a fault makes the BMC lie.
    pub(super) fn shown_power(&self) -> String {
        self.faults.now().wrong_state.unwrap_or_else(|| self.machine.power.borrow().name().to_owned())
    }

    pub(super) async fn change_system(&self, headers: &HeaderMap, body: &Bytes) -> Result<Response, Problem> {
        let (_, etag) = self.system();
        if let Some(wanted) = headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok())
            && !wanted.split(',').any(|tag| matches!(tag.trim(), "*") || tag.trim().trim_start_matches("W/") == etag)
        {
            return Err(Problem::precondition_failed());
        }
        let Ok(Value::Object(request)) = serde_json::from_slice(body) else { return Err(Problem::malformed()) };
        let mut settings = self.machine.boot_settings();
        for (name, value) in &request {
            match (name.as_str(), value) {
                ("Boot", Value::Object(boot)) => change_boot(&mut settings, boot, &boot_options(&self.machine))?,
                ("Boot", other) => return Err(Problem::bad_value(name, other)),
                (name, _) if name.starts_with('@') => {}
                (name, _) if self.system().0.get(name).is_some() => return Err(Problem::read_only(name)),
                (name, _) => return Err(Problem::unknown_property(name)),
            }
        }
        let changed = self.machine.change_boot_settings(|current| *current = settings).await;
        changed.map_err(|error| {
            tracing::error!("{error:#}");
            Problem::internal()
        })?;
        Ok(response::resource(StatusCode::OK, &self.system().0))
    }
}

fn boot(settings: &Settings, options: &[BootOption]) -> Value {
    let references: Vec<&str> = options.iter().map(|option| option.reference()).collect();
    let paths: Vec<&str> = options.iter().map(|option| option.uefi_device_path()).collect();
    json!({
        "BootOrder": settings.order,
        "BootOptions": { "@odata.id": BOOT_OPTIONS },
        "BootSourceOverrideEnabled": settings.enabled,
        "BootSourceOverrideEnabled@Redfish.AllowableValues":
            [OverrideEnabled::Disabled, OverrideEnabled::Once, OverrideEnabled::Continuous],
        "BootSourceOverrideTarget": settings.target,
        "BootSourceOverrideTarget@Redfish.AllowableValues": OverrideTarget::ALL,
        "BootSourceOverrideMode": "UEFI",
        "BootSourceOverrideMode@Redfish.AllowableValues": ["UEFI"],
        "UefiTargetBootSourceOverride": settings.uefi_target,
        "UefiTargetBootSourceOverride@Redfish.AllowableValues": paths,
        "BootNext": settings.boot_next,
        "BootNext@Redfish.AllowableValues": references,
    })
}

fn change_boot(settings: &mut Settings, boot: &Map<String, Value>, options: &[BootOption]) -> Result<(), Problem> {
    for (name, value) in boot {
        match name.as_str() {
            "BootOrder" => {
                let order: Vec<BootOption> = parsed(name, value)?;
                let unique = order.iter().enumerate().all(|(position, option)| !order[..position].contains(option));
                if order.is_empty() || !unique || !order.iter().all(|option| options.contains(option)) {
                    return Err(Problem::bad_value(name, value));
                }
                settings.order = order;
            }
            "BootSourceOverrideEnabled" => settings.enabled = parsed(name, value)?,
            "BootSourceOverrideTarget" => settings.target = parsed(name, value)?,
            "BootSourceOverrideMode" if value == "UEFI" => {}
            "UefiTargetBootSourceOverride" => settings.uefi_target = parsed(name, value)?,
            "BootNext" => settings.boot_next = parsed(name, value)?,
            "BootSourceOverrideMode" => return Err(Problem::bad_value(name, value)),
            "BootOptions" => return Err(Problem::read_only(name)),
            name if name.contains('@') => {}
            name => return Err(Problem::unknown_property(name)),
        }
    }
    check_target(settings, options)?;
    if settings.enabled == OverrideEnabled::Disabled {
        settings.target = OverrideTarget::None;
    }
    Ok(())
}

/// A target that leads nowhere is refused now, not ignored at the next start.
fn check_target(settings: &Settings, options: &[BootOption]) -> Result<(), Problem> {
    let path = settings.uefi_target.as_deref();
    let known = |path: &str| options.iter().any(|option| option.uefi_device_path() == path);
    match settings.target {
        OverrideTarget::UefiTarget if !path.is_some_and(known) => {
            Err(Problem::bad_value("UefiTargetBootSourceOverride", &json!(settings.uefi_target)))
        }
        OverrideTarget::UefiBootNext if !settings.boot_next.is_some_and(|next| options.contains(&next)) => {
            Err(Problem::bad_value("BootNext", &json!(settings.boot_next)))
        }
        _ => Ok(()),
    }
}

fn parsed<T: DeserializeOwned>(name: &str, value: &Value) -> Result<T, Problem> {
    serde_json::from_value(value.clone()).map_err(|_| Problem::bad_value(name, value))
}
