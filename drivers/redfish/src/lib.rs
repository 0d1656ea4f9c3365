//! [`Bmc`] over Redfish (DMTF DSP0266, DSP0268).
//!
//! The transport and the repairs for what vendors get wrong (entity tags that their own BMC refuses, accepted changes
//! without a task, …) are nv-redfish's. Its generated schema is not used: a resource with one mistake anywhere would
//! not be read at all, and it drops the `AllowableValues` that decide which reset may be asked for. [`observed`] reads
//! the few properties that are needed, [`plan`] decides on the request, [`service`] sends it; [`virtual_media`] has its resources
//! beside the system's.
//!
//! One request at a time per [`RedfishBmc`], each bounded by [`RedfishConfig::timeout`]. Nothing is ever sent twice, with
//! two exceptions: a request that a BMC refused because its session had ended, after a new login; and an image that a BMC
//! refused to insert, with other parameters.

mod config;
mod failure;
mod insertion;
mod observed;
mod plan;
mod service;
mod virtual_media;

pub use config::{RedfishConfig, Scheme, Secret, Verify};

use async_trait::async_trait;
use nv_redfish::bmc_http::{HttpBmc, reqwest::Client};
use nv_redfish::core::{ODataId, Raw};
use observed::{Beside, Documents};
use planner::host::{BootChange, BootOption, HostObserved, MediumChange, PowerAction};
use ports::{Bmc, ErrorClass, PortError};
use serde_json::{Value, json};
use service::{Patched, Service};
use std::sync::Arc;
use tokio::sync::Mutex;

pub struct RedfishBmc {
    config: Arc<RedfishConfig>,
    http: Arc<HttpBmc<Client>>,
    /// Opened at the first verb. Its lock is what keeps verbs apart.
    service: Mutex<Option<Service>>,
}

impl RedfishBmc {
    /// Connects to nothing yet; fails for a host or a token that no request could carry.
    pub fn new(config: RedfishConfig) -> Result<Self, PortError> {
        let http = Arc::new(service::transport(&config)?);
        Ok(Self { config: Arc::new(config), http, service: Mutex::new(None) })
    }

    async fn opened<'a>(&self, service: &'a mut Option<Service>) -> Result<&'a mut Service, PortError> {
        if service.is_none() {
            *service = Some(Service::open(self.config.clone(), self.http.clone()).await?);
        }
        let missing = || failure::error(&self.config, "open", ErrorClass::Invalid, "the service is not open");
        service.as_mut().ok_or_else(missing)
    }
}

#[async_trait]
impl Bmc for RedfishBmc {
    async fn observe(&self) -> Result<HostObserved, PortError> {
        let mut service = self.service.lock().await;
        let service = self.opened(&mut service).await?;
        let (_, system) = service.system().await?;
        let settings = settings(service, "read the settings of the system", system.value()).await?;
        let options = boot_options(service, system.value()).await?;
        let job = service.waiting_order().await?;
        let resets = service.resets(system.value()).await?;
        let unknown = || service.error("read the system", ErrorClass::Invalid, "it does not tell its PowerState");
        let power = observed::power(system.value()).ok_or_else(unknown)?;
        let settings = settings.as_ref().map(|(_, settings)| settings.value());
        let medium = virtual_media::read(service, system.value()).await;
        let beside = Beside { options, resets, job, medium };
        Ok(observed::host(Documents { system: system.value(), settings }, power, beside))
    }

    async fn power(&self, action: PowerAction) -> Result<(), PortError> {
        let step = format!("power action {action:?}");
        let mut service = self.service.lock().await;
        let service = self.opened(&mut service).await?;
        let (_, system) = service.system().await?;
        match observed::power(system.value()).map_or(plan::Power::Send, |state| plan::power(action, state)) {
            plan::Power::Nothing => return Ok(()),
            plan::Power::Refused => return Err(service.error(&step, ErrorClass::Conflict, "the host is off")),
            plan::Power::Send => {}
        }
        let resets = service.resets(system.value()).await?;
        let Some(target) = &resets.target else {
            return Err(service.error(&step, ErrorClass::Unsupported, "the system has no action Reset"));
        };
        let Some(reset_type) = resets.of(action) else {
            let allowable = resets.allowable.unwrap_or_default().join(", ");
            return Err(service.error(&step, ErrorClass::Unsupported, &format!("the BMC offers [{allowable}] only")));
        };
        service.post(&step, target, &json!({"ResetType": reset_type})).await
    }

    async fn configure_boot(&self, change: &BootChange) -> Result<(), PortError> {
        let step = match change {
            BootChange::First { reference } => format!("make {reference} the first boot option"),
            BootChange::Restore { .. } => "restore the boot order".to_owned(),
            BootChange::Next { source, .. } => format!("boot from {source:?} once"),
            BootChange::Always { source, .. } => format!("boot from {source:?} always"),
        };
        let mut service = self.service.lock().await;
        let service = self.opened(&mut service).await?;
        for _attempt in 0..2 {
            let system = service.system().await?;
            let settings = settings(service, &step, system.1.value()).await?;
            let job = service.waiting_order().await?;
            let shown = settings.as_ref().map(|(_, settings)| settings.value());
            let documents = Documents { system: system.1.value(), settings: shown };
            let patch = match plan::boot(documents, job.as_deref(), change) {
                plan::Boot::Nothing => return Ok(()),
                plan::Boot::Unsupported(why) => return Err(service.error(&step, ErrorClass::Unsupported, &why)),
                plan::Boot::NotFound(why) => return Err(service.error(&step, ErrorClass::NotFound, &why)),
                plan::Boot::Patch(patch) => patch,
            };
            let order_at = settings.as_ref().unwrap_or(&system);
            let override_at = if plan::overrides_in_settings(documents) { order_at } else { &system };
            if send(service, &step, patch, order_at, override_at).await? {
                return Ok(());
            }
        }
        Err(service.error(&step, ErrorClass::Busy, "somebody else keeps changing the system"))
    }

    async fn change_medium(&self, change: &MediumChange) -> Result<(), PortError> {
        let mut service = self.service.lock().await;
        virtual_media::change(self.opened(&mut service).await?, change).await
    }
}

/// Sends a change, in one request where both halves go to the same resource: the first would change its entity tag.
/// `Ok(false)`: somebody else has changed it.
async fn send(
    service: &mut Service,
    step: &str,
    patch: plan::Patch,
    order_at: &(ODataId, Arc<Raw>),
    override_at: &(ODataId, Arc<Raw>),
) -> Result<bool, PortError> {
    let plan::Patch { order, overriding } = patch;
    let mut boot = overriding.unwrap_or_else(|| json!({}));
    let Some(order) = order else {
        let sent = service.patch(step, &override_at.0, &override_at.1, &json!({"Boot": boot})).await?;
        return Ok(sent != Patched::Conflict);
    };
    if boot != json!({}) && order_at.0 != override_at.0 {
        // The override first: it is what would boot something else.
        let sent = service.patch(step, &override_at.0, &override_at.1, &json!({"Boot": boot})).await?;
        if sent == Patched::Conflict {
            return Ok(false);
        }
        boot = json!({});
    }
    boot["BootOrder"] = json!(order);
    match service.patch(step, &order_at.0, &order_at.1, &json!({"Boot": boot})).await? {
        Patched::Conflict => return Ok(false),
        Patched::Done => {}
        Patched::Job(job) => service.waits(job, order),
    }
    Ok(true)
}

/// The system's settings resource, if it has one (DSP0266, Settings resource).
async fn settings(service: &mut Service, step: &str, system: &Value) -> Result<Option<(ODataId, Arc<Raw>)>, PortError> {
    let Some(settings) = system.pointer("/@Redfish.Settings/SettingsObject/@odata.id").and_then(Value::as_str) else {
        return Ok(None);
    };
    let settings = ODataId::from(settings.to_owned());
    match service.get(step, &settings).await {
        // It is named and not there: changes go to the system.
        Err(e) if matches!(e.class, ErrorClass::NotFound | ErrorClass::Unsupported) => Ok(None),
        seen => Ok(Some((settings, seen?))),
    }
}

/// `None` where the BMC has no list of them, or says that it has and then cannot show it.
async fn boot_options(service: &mut Service, system: &Value) -> Result<Option<Vec<BootOption>>, PortError> {
    let Some(collection) = system.pointer("/Boot/BootOptions/@odata.id").and_then(Value::as_str) else {
        return Ok(None);
    };
    let step = "list the boot options";
    let collection = match service.get(step, &collection.to_owned().into()).await {
        Err(e) if matches!(e.class, ErrorClass::NotFound | ErrorClass::Unsupported) => return Ok(None),
        collection => collection?,
    };
    let mut options = Vec::new();
    for id in service::members(collection.value()) {
        let option = match service.get(step, &id).await {
            // Deleted since the collection was read.
            Err(e) if e.class == ErrorClass::NotFound => continue,
            option => option?,
        };
        options.extend(observed::boot_option(option.value()));
    }
    Ok(Some(options))
}
