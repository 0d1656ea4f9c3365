//! Who may talk to the BMC: one account, by basic authentication or by a session's token.

use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use uuid::Uuid;

use super::message::Problem;
use super::{Bmc, response};

pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
/// What a client may read before it has said who it is.
const PUBLIC: [&str; 4] = ["/redfish", "/redfish/v1", "/redfish/v1/odata", "/redfish/v1/$metadata"];
const MOST_SESSIONS: usize = 64;

struct Session {
    id: String,
    token: String,
}

/// The open sessions. The oldest makes room: a client that never logs out must not lock out the others.
#[derive(Default)]
pub struct Sessions(Mutex<Vec<Session>>);

impl Sessions {
    fn with<T>(&self, use_them: impl FnOnce(&mut Vec<Session>) -> T) -> T {
        use_them(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn ids(&self) -> Vec<String> {
        self.with(|sessions| sessions.iter().map(|session| session.id.clone()).collect())
    }
}

/// The answer to somebody unknown.
pub fn unauthorized() -> Response {
    Problem::no_access().with_header(header::WWW_AUTHENTICATE, "Basic realm=\"BMC\"").into()
}

impl Bmc {
    pub(super) fn is_public(&self, method: &Method, path: &str) -> bool {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        (reads && PUBLIC.contains(&path)) || (*method == Method::POST && path == SESSIONS)
    }

    pub(super) async fn is_known(&self, headers: &HeaderMap) -> bool {
        if let Some(token) = headers.get(TOKEN) {
            return self
                .sessions
                .with(|sessions| sessions.iter().any(|session| session.token.as_bytes() == token.as_bytes()));
        }
        let credentials = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let decoded =
            credentials.and_then(|text| text.strip_prefix("Basic ")).and_then(|text| STANDARD.decode(text).ok());
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        match decoded.as_deref().and_then(|text| text.split_once(':')) {
            Some((user, password)) => self.accepts(user, password).await,
            None => false,
        }
    }

    /// The password's file is read each time, so a test can change the password under the controller's feet.
    async fn accepts(&self, user: &str, password: &str) -> bool {
        let bmc = &self.machine.config.bmc;
        match tokio::fs::read_to_string(&bmc.password_file).await {
            Ok(wanted) => user == bmc.username && password == wanted.trim_end_matches(['\r', '\n']),
            Err(error) => {
                tracing::error!("cannot read the BMC's password {}: {error}", bmc.password_file.display());
                false
            }
        }
    }

    pub(super) async fn log_in(&self, body: &[u8]) -> Result<Response, Problem> {
        let request: Value = serde_json::from_slice(body).map_err(|_| Problem::malformed())?;
        let field = |name: &str| request[name].as_str().unwrap_or_default();
        if !self.accepts(field("UserName"), field("Password")).await {
            return Err(Problem::no_access());
        }
        let session = Session { id: Uuid::new_v4().simple().to_string(), token: Uuid::new_v4().simple().to_string() };
        let resource = session_resource(&session.id, &self.machine.config.bmc.username);
        let mut answer = response::json(StatusCode::CREATED, &resource);
        response::insert(&mut answer, TOKEN, &session.token);
        response::insert(&mut answer, header::LOCATION, &format!("{SESSIONS}/{}", session.id));
        self.sessions.with(|sessions| {
            if sessions.len() >= MOST_SESSIONS {
                sessions.remove(0);
            }
            sessions.push(session);
        });
        Ok(answer)
    }

    pub(super) fn log_out(&self, path: &str) -> Result<Response, Problem> {
        let id = path.rsplit('/').next().unwrap_or_default();
        let before = self.sessions.ids();
        self.sessions.with(|sessions| sessions.retain(|session| session.id != id));
        if before.iter().any(|session| session == id) {
            Ok(response::empty(StatusCode::NO_CONTENT))
        } else {
            Err(self.no_such_method(path))
        }
    }
}

/// A session as a resource; its token is in the answer to the log-in only.
pub fn session_resource(id: &str, user: &str) -> Value {
    json!({
        "@odata.id": format!("{SESSIONS}/{id}"),
        "@odata.type": "#Session.v1_3_0.Session",
        "Id": id,
        "Name": "User session",
        "UserName": user,
    })
}
