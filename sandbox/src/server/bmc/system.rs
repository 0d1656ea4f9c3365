//! The resource `Systems/1` and, where this kind of server has one, its settings resource: what each shows, and what of it
//! can be changed.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::time::Duration;

use super::message::Problem;
use super::{Bmc, reset, response};
use crate::server::boot::{BootOption, OverrideEnabled, OverrideTarget, Settings};
use crate::server::personality::{Order, Owner, PostTold};
use crate::server::{machine::Machine, system_uuid};

pub const PATH: &str = "/redfish/v1/Systems/1";
pub const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
pub const BOOT_OPTIONS: &str = "/redfish/v1/Systems/1/BootOptions";

/// The job that sets a boot order in the next POST, of a BMC that makes one.
pub const JOB: &str = "/redfish/v1/TaskService/Tasks/JID_1";

/// What the BMC calls an option in its list.
pub fn option_id(machine: &Machine, option: BootOption) -> String {
    let reference = option.reference();
    let number = reference.trim_start_matches("Boot0");
    if machine.personality.has_own_ids { number.to_owned() } else { reference.to_owned() }
}

pub fn boot_option(machine: &Machine, option: BootOption) -> Value {
    let reference = option.reference();
    let words = (machine.personality.words)(option, &machine.config.boot_disk());
    let id = option_id(machine, option);
    let mut shown = json!({
        "@odata.id": format!("{BOOT_OPTIONS}/{id}"),
        "@odata.type": "#BootOption.v1_0_4.BootOption",
        "Id": id,
        "Name": format!("Boot option {reference}"),
        "BootOptionReference": reference,
        "DisplayName": words.display,
        "BootOptionEnabled": true,
    });
    if let Some(path) = words.path {
        shown["UefiDevicePath"] = path.into();
    }
    shown
}

/// The settings resource of this kind of server.
pub fn settings_path(machine: &Machine) -> Option<String> {
    match machine.personality.order {
        Order::Settings(name) => Some(format!("{PATH}/{name}")),
        Order::AtOnce | Order::Job | Order::Missing => None,
    }
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
            "Boot": self.boot(),
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
        if let Some(settings) = settings_path(machine) {
            let object = json!({ "@odata.id": settings });
            system["@Redfish.Settings"] =
                json!({ "@odata.type": "#Settings.v1_3_5.Settings", "SettingsObject": object });
        }
        if let Some(media) = self.media_of(Owner::System) {
            system["VirtualMedia"] = media;
        }
        self.tell_post(&mut system, power == "On");
        let etag = response::etag(&system);
        system["@odata.etag"] = json!(etag);
        (system, etag)
    }

    fn tell_post(&self, system: &mut Value, on: bool) {
        let (posting, in_setup) = (self.machine.is_in_post(), self.machine.is_in_setup());
        let post_s = self.faults.now().post_s;
        let posting = posting || self.machine.is_started_within(Duration::from_secs(post_s));
        let told = if post_s > 0 { PostTold::BootProgress } else { self.machine.personality.post };
        match told {
            PostTold::Never => {}
            PostTold::BootProgress => {
                let state = match (on, posting) {
                    (false, _) => "None",
                    (true, true) => "SystemHardwareInitializationComplete",
                    (true, false) if in_setup => "SetupEntered",
                    (true, false) => "OSRunning",
                };
                system["BootProgress"] = json!({ "LastState": state });
            }
            PostTold::PostState => {
                let state = match (on, posting) {
                    (false, _) => "PowerOff",
                    (true, true) => "InPost",
                    (true, false) => "FinishedPost",
                };
                system["Oem"] = json!({ "Hpe": { "PostState": state } });
            }
        }
    }

    /// The settings resource at this path, and its entity tag.
    pub(super) fn settings(&self, path: &str) -> Option<(Value, String)> {
        let machine = &self.machine;
        settings_path(machine).filter(|there| there == path)?;
        let settings = machine.boot_settings();
        let mut boot = json!({ "BootOrder": settings.pending.as_ref().unwrap_or(&settings.order) });
        if machine.personality.is_strict {
            self.tell_overrides(&mut boot, &settings);
        }
        let mut resource = json!({
            "@odata.id": path,
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": path.rsplit('/').next(),
            "Name": "Settings of the system",
            "Boot": boot,
        });
        let etag = response::etag(&resource);
        resource["@odata.etag"] = json!(etag);
        Some((resource, etag))
    }

    /// The job that sets the boot order, once there was one.
    pub(super) fn job(&self) -> Option<Value> {
        (self.machine.personality.order == Order::Job).then(|| {
            let waits = self.machine.boot_settings().pending.is_some();
            json!({
                "@odata.id": JOB,
                "@odata.type": "#Task.v1_7_3.Task",
                "Id": "JID_1",
                "Name": "Configure: BIOS.Setup.1-1",
                "TaskState": if waits { "Pending" } else { "Completed" },
            })
        })
    }

    fn boot(&self) -> Value {
        let (personality, settings) = (self.machine.personality, self.machine.boot_settings());
        let mut boot = json!({});
        if personality.order != Order::Missing {
            boot["BootOrder"] = json!(settings.order);
        }
        if !personality.options.is_empty() {
            boot["BootOptions"] = json!({ "@odata.id": BOOT_OPTIONS });
        }
        boot["BootSourceOverrideEnabled"] = json!(settings.enabled);
        boot["BootSourceOverrideTarget"] = json!(settings.target);
        boot["BootSourceOverrideMode"] = json!("UEFI");
        if !personality.is_strict {
            self.tell_overrides(&mut boot, &settings);
        }
        boot
    }

    fn overrides(&self) -> Vec<OverrideEnabled> {
        let all = self.machine.personality.overrides.iter().copied();
        all.filter(|enabled| *enabled != OverrideEnabled::Once || !self.faults.now().only_continuous).collect()
    }

    /// What may be asked for.
    fn tell_overrides(&self, boot: &mut Value, settings: &Settings) {
        let personality = self.machine.personality;
        let disk = self.machine.config.boot_disk();
        let options = settings.options(personality);
        let references: Vec<&str> = options.iter().map(|option| option.reference()).collect();
        let paths: Vec<String> = options.iter().filter_map(|option| (personality.words)(*option, &disk).path).collect();
        boot["BootSourceOverrideEnabled@Redfish.AllowableValues"] = json!(self.overrides());
        boot["BootSourceOverrideTarget@Redfish.AllowableValues"] = json!(personality.targets());
        boot["BootSourceOverrideMode@Redfish.AllowableValues"] = json!(["UEFI"]);
        boot["UefiTargetBootSourceOverride"] = json!(settings.uefi_target);
        boot["UefiTargetBootSourceOverride@Redfish.AllowableValues"] = json!(paths);
        boot["BootNext"] = json!(settings.boot_next);
        boot["BootNext@Redfish.AllowableValues"] = json!(references);
    }

    /// The power state, unless a fault makes the BMC lie.
    pub(super) fn shown_power(&self) -> String {
        self.faults.now().wrong_state.unwrap_or_else(|| self.machine.power.borrow().name().to_owned())
    }

    /// Changes the system, or its settings.
    pub(super) async fn change_system(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response, Problem> {
        let personality = self.machine.personality;
        let shown = || self.settings(path).unwrap_or_else(|| self.system());
        let (resource, etag) = shown();
        is_current(headers, &etag, personality.is_strict)?;
        if personality.refuses_in_post && self.machine.is_in_post() {
            return Err(Problem::in_post());
        }
        let Ok(Value::Object(request)) = serde_json::from_slice(body) else { return Err(Problem::malformed()) };
        let before = self.machine.boot_settings();
        let mut settings = before.clone();
        for (name, value) in &request {
            match (name.as_str(), value) {
                ("Boot", Value::Object(boot)) => {
                    let in_settings = path != PATH;
                    self.change_boot(&mut settings, boot, in_settings)?;
                }
                ("Boot", other) => return Err(Problem::bad_value(name, other)),
                (name, _) if name.starts_with('@') => {}
                (name, _) if resource.get(name).is_some() => return Err(Problem::read_only(name)),
                (name, _) => return Err(Problem::unknown_property(name)),
            }
        }
        let has_job = personality.order == Order::Job && settings.pending != before.pending;
        let changed = self.machine.change_boot_settings(|current| *current = settings).await;
        changed.map_err(|error| {
            tracing::error!("{error:#}");
            Problem::internal()
        })?;
        if has_job {
            let mut accepted = response::empty(StatusCode::ACCEPTED);
            response::insert(&mut accepted, header::LOCATION, JOB);
            return Ok(accepted);
        }
        Ok(response::resource(StatusCode::OK, &shown().0))
    }

    fn change_boot(
        &self,
        settings: &mut Settings,
        boot: &Map<String, Value>,
        in_settings: bool,
    ) -> Result<(), Problem> {
        let personality = self.machine.personality;
        for (name, value) in boot {
            if in_settings && name != "BootOrder" && !personality.is_strict {
                return Err(Problem::unknown_property(name));
            }
            match name.as_str() {
                "BootOrder" => self.change_order(settings, name, value, in_settings)?,
                "BootSourceOverrideEnabled" => {
                    settings.enabled = parsed(name, value)?;
                    if !self.overrides().contains(&settings.enabled) {
                        return Err(Problem::bad_value(name, value));
                    }
                    settings.ignores_once = self.faults.now().ignores_once;
                }
                "BootSourceOverrideTarget" => {
                    settings.target = parsed(name, value)?;
                    if !personality.targets().contains(&settings.target) {
                        return Err(Problem::bad_value(name, value));
                    }
                }
                "BootSourceOverrideMode" if value == "UEFI" => {}
                "UefiTargetBootSourceOverride" => settings.uefi_target = parsed(name, value)?,
                "BootNext" => settings.boot_next = parsed(name, value)?,
                "BootSourceOverrideMode" => return Err(Problem::bad_value(name, value)),
                "BootOptions" => return Err(Problem::read_only(name)),
                name if name.contains('@') => {}
                name => return Err(Problem::unknown_property(name)),
            }
        }
        self.check_target(settings)?;
        if settings.enabled == OverrideEnabled::Disabled {
            settings.target = OverrideTarget::None;
        }
        Ok(())
    }

    fn change_order(
        &self,
        settings: &mut Settings,
        name: &str,
        value: &Value,
        in_settings: bool,
    ) -> Result<(), Problem> {
        let personality = self.machine.personality;
        if personality.order == Order::Missing {
            return Err(Problem::unknown_property(name));
        }
        let order: Vec<BootOption> = parsed(name, value)?;
        let options = settings.options(personality);
        let unique = order.iter().enumerate().all(|(position, option)| !order[..position].contains(option));
        if order.is_empty() || !unique || !order.iter().all(|option| options.contains(option)) {
            return Err(Problem::bad_value(name, value));
        }
        match (personality.order, in_settings) {
            (Order::Settings(_), false) => return Err(Problem::read_only(name)),
            (Order::Job, _) if settings.pending.is_some() => return Err(Problem::job_waits()),
            (Order::Settings(_) | Order::Job, _) => {
                settings.pending = Some(order).filter(|order| *order != settings.order);
            }
            (Order::AtOnce | Order::Missing, _) => settings.order = order,
        }
        Ok(())
    }

    /// A target that leads nowhere is refused now, not ignored at the next start.
    fn check_target(&self, settings: &Settings) -> Result<(), Problem> {
        let (personality, disk) = (self.machine.personality, self.machine.config.boot_disk());
        let path = settings.uefi_target.as_deref();
        let options = settings.options(personality);
        let known =
            |path: &str| options.iter().any(|option| (personality.words)(*option, &disk).path.as_deref() == Some(path));
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
}

/// Whether a change rests on the resource as it is; `is_strict`: it has to say on which.
pub(super) fn is_current(headers: &HeaderMap, etag: &str, is_strict: bool) -> Result<(), Problem> {
    let wanted = headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok());
    let matches = |wanted: &str| {
        let is_it = |tag: &str| (tag == "*" && !is_strict) || tag.trim_start_matches("W/") == etag;
        wanted.split(',').any(|tag| is_it(tag.trim()))
    };
    if wanted.map_or(!is_strict, matches) { Ok(()) } else { Err(Problem::precondition_failed()) }
}

fn parsed<T: DeserializeOwned>(name: &str, value: &Value) -> Result<T, Problem> {
    serde_json::from_value(value.clone()).map_err(|_| Problem::bad_value(name, value))
}
