//! The requests to one BMC, and which of its systems is ours.

use crate::{
    config::{RedfishConfig, Verify},
    failure::{self, Layer, LayerError},
    observed::{self, Resets},
    virtual_media::Drive,
};
use http::{HeaderMap, HeaderValue};
use nv_redfish::{
    bmc_http::{BmcCredentials, CacheSettings, HttpBmc, reqwest::Client},
    core::action::ActionTarget,
    core::{Action, Bmc, EntityTypeRef, ModificationResponse, ODataId, Raw},
    quirks::{BmcQuirks, CompatBmc, RootEvidence},
};
use ports::{ErrorClass, PortError};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use url::Url;

const FENCING_HEADER: &str = "X-Metalplane-Fencing-Token";
/// An address that nothing answers is known earlier than a slow BMC.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const REDIRECTS: usize = 3;
const SYSTEMS: &str = "/redfish/v1/Systems";

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Patched {
    /// Somebody else had changed the resource before: it stays as it was.
    Conflict,
    Done,
    /// The BMC made this job of it.
    Job(ODataId),
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: PortError,
    /// What the BMC answered; `None`: nothing that it decided on.
    pub(crate) said: Option<String>,
}

impl From<PortError> for Refusal {
    fn from(error: PortError) -> Self {
        Self { error, said: None }
    }
}

/// A BMC whose service root has been read.
pub(crate) struct Service {
    config: Arc<RedfishConfig>,
    http: Arc<HttpBmc<Client>>,
    layer: Layer,
    /// Where a session is opened; `None` with basic authentication.
    sessions: Option<ODataId>,
    systems: ODataId,
    pub(crate) managers: Option<ODataId>,
    /// Where our system was last found.
    system: Option<ODataId>,
    /// The order that a job of the BMC's will set, and that job.
    waiting: Option<(ODataId, Vec<String>)>,
    /// What the description of its action Reset said: its address, and the values. It is asked for once.
    described: Option<(String, Option<Vec<String>>)>,
    pub(crate) drive: Drive,
    /// Somebody has asked for a change of what is in the drive: readings tell it.
    pub(crate) is_drive_used: bool,
}

/// A client for the BMC; connects to nothing yet.
pub(crate) fn transport(config: &RedfishConfig) -> Result<HttpBmc<Client>, PortError> {
    let invalid = |cause: &str| failure::error(config, "configuration", ErrorClass::Invalid, cause);
    let address = Url::parse(&config.address()).map_err(|e| invalid(&e.to_string()))?;
    let mut headers = HeaderMap::new();
    if let Some(token) = &config.fencing_token {
        let value = HeaderValue::from_str(token).map_err(|_| invalid("the fencing token is not a header value"))?;
        headers.insert(FENCING_HEADER, value);
    }
    // What is left out: retries, because a reset that was sent twice is two resets; proxies, because the environment of
    // the controller must not decide who sees a BMC's password.
    let mut client = reqwest::Client::builder();
    if let Verify::Authorities(bundle) = &config.verify {
        client = client.use_preconfigured_tls(bundle.client().map_err(|e| invalid(&e))?);
    }
    let client = client
        .no_proxy()
        .timeout(config.timeout)
        .connect_timeout(config.timeout.min(CONNECT_LIMIT))
        .pool_max_idle_per_host(1)
        .danger_accept_invalid_certs(config.verify == Verify::InsecureTls)
        .redirect(reqwest::redirect::Policy::custom(same_origin))
        .build()
        .map_err(|e| invalid(&e.to_string()))?;
    let credentials = password(config);
    // Every reading is fresh: no cache.
    let cache = CacheSettings::with_capacity(0);
    Ok(HttpBmc::with_custom_headers(Client::with_client(client), address, credentials, cache, headers))
}

fn password(config: &RedfishConfig) -> BmcCredentials {
    BmcCredentials::new(config.username.clone(), config.password.reveal().to_owned())
}

/// Some BMCs redirect from `/redfish/v1` to `/redfish/v1/`; to another host no request goes with a token.
fn same_origin(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let from = attempt.previous().last().map(Url::origin);
    if from == Some(attempt.url().origin()) && attempt.previous().len() <= REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

impl Service {
    pub(crate) async fn open(config: Arc<RedfishConfig>, http: Arc<HttpBmc<Client>>) -> Result<Self, PortError> {
        let step = "read the service root";
        // DSP0266, Authentication: the service root needs no credentials. Some BMCs want them.
        http.set_credentials(BmcCredentials::anonymous());
        let mut root = http.get::<Raw>(&ODataId::service_root()).await;
        let refused = |e| failure::from_http(&config, step, e).class == ErrorClass::Unauthorized;
        let is_refused = root.as_ref().is_err_and(refused);
        http.set_credentials(password(&config));
        if is_refused {
            root = http.get::<Raw>(&ODataId::service_root()).await;
        }
        let root = root.map_err(|e| failure::from_http(&config, step, &e))?;
        let quirks = BmcQuirks::classify(&RootEvidence::from_root(root.value()));
        let link = |pointer: &str| root.value().pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let sessions = link("/Links/Sessions/@odata.id").filter(|_| !config.use_basic_auth).map(ODataId::from);
        let systems = link("/Systems/@odata.id").unwrap_or_else(|| SYSTEMS.to_owned()).into();
        let managers = link("/Managers/@odata.id").map(ODataId::from);
        let layer = CompatBmc::new(http.clone(), Arc::new(quirks));
        let (system, waiting, described, drive) = (None, None, None, Drive::Unknown);
        let is_drive_used = false;
        let mut service =
            Self { config, http, layer, sessions, systems, managers, system, waiting, described, drive, is_drive_used };
        service.log_in().await?;
        Ok(service)
    }

    pub(crate) fn error(&self, step: &str, class: ErrorClass, cause: &str) -> PortError {
        failure::error(&self.config, step, class, cause)
    }

    async fn log_in(&mut self) -> Result<(), PortError> {
        let Some(sessions) = &self.sessions else { return Ok(()) };
        let account = json!({"UserName": self.config.username, "Password": self.config.password.reveal()});
        let opened = self.http.create_session::<Value, Value>(sessions, &account).await;
        let opened = opened.map_err(|e| failure::from_http(&self.config, "open a session", &e))?;
        self.http.set_credentials(BmcCredentials::token(opened.auth_token));
        Ok(())
    }

    /// True when a session has ended: the BMC refused the request without acting on it, so it may be sent again.
    async fn logged_in_again<T>(&mut self, result: &Result<T, LayerError>) -> Result<bool, PortError> {
        let refused = |e: &LayerError| failure::from_layer(&self.config, "", e).class == ErrorClass::Unauthorized;
        if self.sessions.is_none() || !result.as_ref().is_err_and(refused) {
            return Ok(false);
        }
        self.log_in().await?;
        Ok(true)
    }

    pub(crate) async fn get(&mut self, step: &str, id: &ODataId) -> Result<Arc<Raw>, PortError> {
        let mut result = self.layer.get::<Raw>(id).await;
        if self.logged_in_again(&result).await? {
            result = self.layer.get::<Raw>(id).await;
        }
        result.map_err(|e| failure::from_layer(&self.config, step, &e))
    }

    fn refusal(&self, step: &str, failed: &LayerError) -> Refusal {
        let error = failure::from_layer(&self.config, step, failed);
        Refusal { error, said: failure::answer(failed).map(str::to_owned) }
    }

    /// Sends an action once.
    pub(crate) async fn post(&mut self, step: &str, target: &str, parameters: &Value) -> Result<(), PortError> {
        self.action(step, target, parameters).await.map_err(|refusal| refusal.error)
    }

    pub(crate) async fn action(&mut self, step: &str, target: &str, parameters: &Value) -> Result<(), Refusal> {
        let action = Action::<Value, Raw>::new(ActionTarget::new(target.to_owned()));
        let mut result = self.layer.action(&action, parameters).await;
        if self.logged_in_again(&result).await? {
            result = self.layer.action(&action, parameters).await;
        }
        result.map(drop).map_err(|e| self.refusal(step, &e))
    }

    /// Changes `id` if it is still what was read as `seen`.
    pub(crate) async fn patch(
        &mut self,
        step: &str,
        id: &ODataId,
        seen: &Raw,
        change: &Value,
    ) -> Result<Patched, PortError> {
        self.update(step, id, seen, change).await.map_err(|refusal| refusal.error)
    }

    pub(crate) async fn update(
        &mut self,
        step: &str,
        id: &ODataId,
        seen: &Raw,
        change: &Value,
    ) -> Result<Patched, Refusal> {
        let mut result: Result<ModificationResponse<Raw>, _> = self.layer.update(id, seen.etag(), change).await;
        if self.logged_in_again(&result).await? {
            result = self.layer.update(id, seen.etag(), change).await;
        }
        match result {
            Ok(ModificationResponse::Task(task)) => Ok(Patched::Job(local(&task.location.0))),
            Ok(_) => Ok(Patched::Done),
            Err(e) if failure::is_precondition_failed(&e) => Ok(Patched::Conflict),
            Err(e) => Err(self.refusal(step, &e)),
        }
    }

    /// A job will set this order, as some BMCs have it done in the next POST.
    pub(crate) fn waits(&mut self, job: ODataId, order: Vec<String>) {
        self.waiting = Some((job, order));
    }

    /// The order that a job has yet to set.
    pub(crate) async fn waiting_order(&mut self) -> Result<Option<Vec<String>>, PortError> {
        let Some((job, order)) = self.waiting.clone() else { return Ok(None) };
        let is_done = match self.get("read the job that sets the boot order", &job).await {
            Ok(job) => observed::is_done(job.value()),
            // BMCs forget a job that is done.
            Err(e) if e.class == ErrorClass::NotFound => true,
            Err(e) => return Err(e),
        };
        if is_done {
            self.waiting = None;
            return Ok(None);
        }
        Ok(Some(order))
    }

    /// Reads our system.
    pub(crate) async fn system(&mut self) -> Result<(ODataId, Arc<Raw>), PortError> {
        let step = "read the system";
        if let Some(id) = self.system.clone() {
            match self.get(step, &id).await {
                // It may have another name since the BMC's last update.
                Err(e) if e.class == ErrorClass::NotFound => self.system = None,
                result => return Ok((id, result?)),
            }
        }
        let (id, system) = self.find_system(step).await?;
        self.system = Some(id.clone());
        Ok((id, system))
    }

    /// The resets that our system offers, as `system` and the description of the action say.
    pub(crate) async fn resets(&mut self, system: &Value) -> Result<Resets, PortError> {
        let reset = &system["Actions"]["#ComputerSystem.Reset"];
        let target = reset["target"].as_str().map(str::to_owned);
        let told = observed::texts(reset, "/ResetType@Redfish.AllowableValues");
        let allowable = match (told, reset["@Redfish.ActionInfo"].as_str()) {
            (Some(told), _) => Some(told),
            (None, Some(description)) => self.described(description).await?,
            (None, None) => None,
        };
        Ok(Resets { target, allowable })
    }

    async fn described(&mut self, description: &str) -> Result<Option<Vec<String>>, PortError> {
        if let Some((_, told)) = self.described.as_ref().filter(|(known, _)| known == description) {
            return Ok(told.clone());
        }
        let told = match self.get("read which resets are allowed", &description.to_owned().into()).await {
            Ok(info) => {
                let mut parameters = info.value()["Parameters"].as_array().into_iter().flatten();
                let reset_type = parameters.find(|p| p["Name"] == "ResetType");
                reset_type.and_then(|p| observed::texts(p, "/AllowableValues"))
            }
            Err(e) if matches!(e.class, ErrorClass::Unreachable | ErrorClass::Unauthorized) => return Err(e),
            Err(e) if e.class == ErrorClass::Busy => return Ok(None),
            // A BMC that cannot show it can be read and commanded all the same.
            Err(_) => None,
        };
        self.described = Some((description.to_owned(), told.clone()));
        Ok(told)
    }

    async fn find_system(&mut self, step: &str) -> Result<(ODataId, Arc<Raw>), PortError> {
        let systems = self.systems.clone();
        let collection = self.get("list the systems", &systems).await?;
        let members = members(collection.value());
        let wanted = self.config.system_name.clone();
        let mut seen = Vec::new();
        for id in &members {
            let system = self.get(step, id).await?;
            let is = |key: &str| system.value()[key].as_str().is_some_and(|name| wanted.as_deref() == Some(name));
            if is("Id") || is("Name") || (wanted.is_none() && members.len() == 1) {
                return Ok((id.clone(), system));
            }
            seen.push(system.value()["Id"].as_str().unwrap_or_default().to_owned());
        }
        let has = format!("the BMC has the systems [{}]", seen.join(", "));
        Err(match wanted {
            Some(name) => self.error(step, ErrorClass::NotFound, &format!("no system {name:?}: {has}")),
            None if members.is_empty() => self.error(step, ErrorClass::NotFound, "the BMC shows no system"),
            None => self.error(step, ErrorClass::Invalid, &format!("{has}: say which with the system's name")),
        })
    }
}

/// An address in the service, of a `Location` that may name the host as well.
fn local(location: &ODataId) -> ODataId {
    let location = location.to_string();
    Url::parse(&location).map_or(location, |url| url.path().to_owned()).into()
}

/// The members of a collection.
pub(crate) fn members(collection: &Value) -> Vec<ODataId> {
    let members = collection["Members"].as_array().into_iter().flatten();
    members.filter_map(|m| m["@odata.id"].as_str()).map(|id| id.to_owned().into()).collect()
}
