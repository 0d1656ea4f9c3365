//! Faults of the BMC, injected by tests: HTTP on the unix socket `faults.sock`.
//!
//! `GET /` shows what is set, `PUT /` replaces it, `DELETE /` clears it. Counters go down as they are used.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};

use super::slots;

/// What goes wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Every answer comes this much later.
    pub slow_ms: u64,
    /// So many changes (anything but GET, sessions apart) are done and then the connection is cut.
    pub lost_answer: u32,
    /// So many requests are answered 401, whatever their credentials.
    pub status_401: u32,
    /// So many requests are answered 503.
    pub status_503: u32,
    /// The power state that is told instead of the true one.
    pub wrong_state: Option<String>,
}

/// The faults in force, shared by the BMC and the admin socket.
#[derive(Clone, Default)]
pub struct Injected(Arc<Mutex<Faults>>);

impl Injected {
    pub fn now(&self) -> Faults {
        self.with(|faults| faults.clone())
    }

    /// Uses up one of a counted fault; false if none is left.
    pub fn use_up(&self, counter: impl FnOnce(&mut Faults) -> &mut u32) -> bool {
        self.with(|faults| {
            let left = counter(faults);
            let used = *left > 0;
            *left = left.saturating_sub(1);
            used
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Serves the admin socket.
pub async fn serve(path: &Path, injected: Injected) -> Result<()> {
    let listener = slots::listen(path)?;
    let handlers = get(show).put(replace).post(replace).delete(clear);
    let router = Router::new().route("/", handlers.clone()).route("/faults", handlers).with_state(injected);
    axum::serve(listener, router).await.context("serve the faults socket")
}

async fn show(State(injected): State<Injected>) -> Response {
    axum::Json(injected.now()).into_response()
}

async fn replace(State(injected): State<Injected>, body: Bytes) -> Response {
    match serde_json::from_slice::<Faults>(&body) {
        Ok(faults) => {
            injected.with(|current| *current = faults.clone());
            axum::Json(faults).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("not a set of faults: {error}\n")).into_response(),
    }
}

async fn clear(State(injected): State<Injected>) -> Response {
    injected.with(|current| *current = Faults::default());
    axum::Json(Faults::default()).into_response()
}
