//! The action `ComputerSystem.Reset`. It answers at once; what it starts shows in `PowerState`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::Value;

use super::message::Problem;
use super::{Bmc, response};
use crate::server::actions::Action;
use crate::server::machine::{Machine, Power};

const ACTION: &str = "ComputerSystem.Reset";
const PARAMETER: &str = "ResetType";
/// Whoever orders a change may say by which right; it is logged, so that a test can see an old leader's orders.
const FENCING_TOKEN: &str = "x-metalplane-fencing-token";

pub const ALLOWED: [&str; 7] =
    ["On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle", "PushPowerButton"];

impl Bmc {
    pub(super) async fn reset(&self, headers: &HeaderMap, body: &Bytes) -> Response {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let kind = request[PARAMETER].as_str();
        let power = *self.machine.power.borrow();
        let outcome = match kind {
            None => Err(Problem::parameter_missing(ACTION, PARAMETER)),
            Some(kind) => self.perform(kind, power).await,
        };
        let status = outcome.as_ref().map_or_else(Problem::status, |()| StatusCode::NO_CONTENT);
        self.log.add(&Action {
            time: jiff::Timestamp::now().to_string(),
            action: kind.unwrap_or_default(),
            power: power.name(),
            fencing_token: headers.get(FENCING_TOKEN).and_then(|value| value.to_str().ok()),
            status: status.as_u16(),
        });
        tracing::info!(server = self.machine.config.name, "reset {kind:?} while {}: {status}", power.name());
        outcome.map_or_else(Response::from, |()| response::empty(status))
    }

    async fn perform(&self, kind: &str, power: Power) -> Result<(), Problem> {
        let machine = &self.machine;
        let off = matches!(power, Power::Off | Power::PoweringOff);
        let done = match kind {
            "On" | "PushPowerButton" if off => {
                switch_on(machine);
                Ok(())
            }
            // What is so already is no error.
            "On" => Ok(()),
            "ForceOff" => {
                cut(machine, false);
                Ok(())
            }
            kind if off && ALLOWED.contains(&kind) => return Err(Problem::in_standby()),
            "PowerCycle" => {
                cut(machine, true);
                Ok(())
            }
            "GracefulShutdown" | "PushPowerButton" => machine.press_button(false).await,
            "GracefulRestart" => machine.press_button(true).await,
            "ForceRestart" => machine.reset().await,
            other => return Err(Problem::parameter_value(other, PARAMETER, ACTION)),
        };
        done.map_err(|error| {
            tracing::error!("reset {kind}: {error:#}");
            Problem::internal()
        })
    }
}

/// Starts the host, after the end of a run that is just ending.
fn switch_on(machine: &Arc<Machine>) {
    let machine = Arc::clone(machine);
    machine.power.send_if_modified(|power| {
        let off = *power == Power::Off;
        if off {
            *power = Power::PoweringOn;
        }
        off
    });
    tokio::spawn(async move {
        if *machine.power.borrow() == Power::PoweringOff {
            machine.settled(Power::Off).await;
        }
        if let Err(error) = machine.switch_on().await {
            tracing::error!("the host stays off: {error:#}");
        }
    });
}

fn cut(machine: &Arc<Machine>, then_on: bool) {
    let machine = Arc::clone(machine);
    tokio::spawn(async move { machine.cut(then_on).await });
}
