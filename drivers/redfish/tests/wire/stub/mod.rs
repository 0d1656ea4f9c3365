//! A BMC on the wire that does what a test tells it: the answers that real ones give on bad days.

pub mod media;

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use media::Media;
use redfish::{RedfishConfig, Scheme, Secret};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, task::AbortHandle};

pub const PASSWORD: &str = "correct-horse";
const SYSTEM: &str = "/redfish/v1/Systems/1";
pub const RESET_INFO: &str = "/redfish/v1/Systems/1/ResetActionInfo";
const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";

#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
}

#[derive(Default)]
pub struct Script {
    pub requests: Vec<Request>,
    /// Statuses for the next writes; then they succeed.
    pub write_statuses: VecDeque<u16>,
    /// Writes are answered only after this long.
    pub write_delay: Duration,
    pub boot_order: Vec<String>,
    pub version: u32,
    pub power: &'static str,
    /// The valid session tokens; `None`: no session service, and no authentication at all.
    pub tokens: Option<Vec<String>>,
    pub more_systems: bool,
    /// The resets that the description of the action names; `None`: nothing tells.
    pub resets: Option<&'static [&'static str]>,
    /// Whoever reads this gets that status.
    pub refused: Option<(&'static str, u16)>,
    /// `None`: the BMC has no virtual media.
    pub media: Option<Media>,
}

pub struct Stub {
    pub script: Arc<Mutex<Script>>,
    port: u16,
    serving: AbortHandle,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Stub {
    pub async fn start(script: Script) -> Self {
        let script = Arc::new(Mutex::new(script));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("an address").port();
        let router = Router::new().fallback(answer).with_state(script.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Self { script, port, serving }
    }

    pub fn config(&self) -> RedfishConfig {
        let mut config = RedfishConfig::new("127.0.0.1", "admin", Secret::new(PASSWORD));
        config.port = self.port;
        config.scheme = Scheme::Http;
        config
    }

    pub fn requests(&self, method: &Method) -> Vec<Request> {
        let script = self.script.lock().expect("the script");
        script.requests.iter().filter(|r| r.method == method).cloned().collect()
    }
}

pub fn script() -> Script {
    Script { power: "On", boot_order: vec!["Boot0001".to_owned(), "Boot0002".to_owned()], ..Script::default() }
}

async fn answer(
    State(script): State<Arc<Mutex<Script>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let request = Request { method, path: uri.path().to_owned(), headers, body };
    let delay = {
        let mut script = script.lock().expect("the script");
        script.requests.push(request.clone());
        if request.method == Method::GET { Duration::ZERO } else { script.write_delay }
    };
    tokio::time::sleep(delay).await;
    let mut script = script.lock().expect("the script");
    respond(&mut script, &request)
}

fn respond(script: &mut Script, request: &Request) -> Response {
    if let Some(refused) = authenticate(script, request) {
        return refused;
    }
    if let Some((_, status)) = script.refused.filter(|(path, _)| *path == request.path) {
        return StatusCode::from_u16(status).expect("a status").into_response();
    }
    if let Some(response) = media::respond(script, request) {
        return response;
    }
    match (&request.method, request.path.as_str()) {
        (&Method::GET, "/redfish/v1") => Json(root(script)).into_response(),
        (&Method::GET, "/redfish/v1/Systems") => {
            let mut members = vec![json!({"@odata.id": SYSTEM})];
            if script.more_systems {
                members.insert(0, json!({"@odata.id": "/redfish/v1/Systems/Dpu"}));
            }
            Json(json!({"@odata.id": "/redfish/v1/Systems", "Members": members})).into_response()
        }
        (&Method::GET, "/redfish/v1/Systems/Dpu") => {
            Json(json!({"@odata.id": "/redfish/v1/Systems/Dpu", "Id": "Dpu", "PowerState": "Off"})).into_response()
        }
        (&Method::GET, SYSTEM) => Json(system(script)).into_response(),
        (&Method::GET, RESET_INFO) => {
            let parameter = json!({"Name": "ResetType", "AllowableValues": script.resets});
            Json(json!({"@odata.id": RESET_INFO, "Parameters": [parameter]})).into_response()
        }
        (_, SYSTEM | RESET) => write(script, request),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn authenticate(script: &mut Script, request: &Request) -> Option<Response> {
    let tokens = script.tokens.as_mut()?;
    if request.path == "/redfish/v1/SessionService/Sessions" {
        if request.body["Password"] != PASSWORD {
            return Some(StatusCode::UNAUTHORIZED.into_response());
        }
        let token = format!("token-{}", script.version);
        script.version += 1;
        tokens.push(token.clone());
        let location = "/redfish/v1/SessionService/Sessions/1";
        let headers = [("X-Auth-Token", token.as_str()), ("Location", location)];
        return Some((StatusCode::CREATED, headers, Json(json!({"@odata.id": location}))).into_response());
    }
    let known = request.header("x-auth-token").is_some_and(|t| tokens.iter().any(|known| known == t));
    (!known && request.path != "/redfish/v1").then(|| StatusCode::UNAUTHORIZED.into_response())
}

fn root(script: &Script) -> Value {
    let mut root = json!({"@odata.id": "/redfish/v1", "Systems": {"@odata.id": "/redfish/v1/Systems"}});
    if script.media.is_some() {
        root["Managers"] = json!({"@odata.id": "/redfish/v1/Managers"});
    }
    if script.tokens.is_some() {
        root["Links"] = json!({"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}});
    }
    root
}

fn etag(script: &Script) -> String {
    format!("\"{}\"", script.version)
}

fn system(script: &Script) -> Value {
    let mut reset = json!({"target": RESET});
    if script.resets.is_some() {
        reset["@Redfish.ActionInfo"] = RESET_INFO.into();
    }
    let mut system = json!({
        "@odata.id": SYSTEM, "@odata.etag": etag(script), "Id": "1", "Name": "Server", "PowerState": script.power,
        "Boot": {"BootOrder": script.boot_order},
        "Actions": {"#ComputerSystem.Reset": reset},
    });
    if script.media.as_ref().is_some_and(|media| media.below_system) {
        system["VirtualMedia"] = media::link();
    }
    system
}

fn write(script: &mut Script, request: &Request) -> Response {
    if let Some(status) = script.write_statuses.pop_front() {
        if status == 412 {
            // Somebody else was faster.
            script.version += 1;
        }
        let said = json!({"error": {"@Message.ExtendedInfo": [{"Message": "Not today."}]}});
        return (StatusCode::from_u16(status).expect("a status"), Json(said)).into_response();
    }
    if request.path == SYSTEM {
        if request.header("if-match") != Some(etag(script).as_str()) {
            return StatusCode::PRECONDITION_FAILED.into_response();
        }
        script.version += 1;
        let order = request.body["Boot"]["BootOrder"].as_array().into_iter().flatten();
        script.boot_order = order.filter_map(Value::as_str).map(str::to_owned).collect();
    }
    StatusCode::NO_CONTENT.into_response()
}
