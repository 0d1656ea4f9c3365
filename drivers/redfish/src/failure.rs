//! From what went wrong on the wire to the port's error classes.

use crate::config::RedfishConfig;
use nv_redfish::{
    bmc_http::reqwest::BmcError,
    core::{Bmc, RepairError},
    quirks::CompatBmc,
};
use planner::host::redacted;
use ports::{ErrorClass, PortError};
use reqwest::StatusCode;
use serde_json::Value;
use std::error::Error;

/// Where an administrator writes whom to trust.
const AUTHORITIES: &str = "ca.crt in the Secret of this BMC, or to the bundle of all BMCs (bmc.caBundle of the chart)";

/// A BMC's own words can be long; conditions and events should not be.
const LONGEST: usize = 400;

pub(crate) type Layer = CompatBmc<nv_redfish::bmc_http::HttpBmc<nv_redfish::bmc_http::reqwest::Client>>;
pub(crate) type LayerError = <Layer as Bmc>::Error;

/// An error of this BMC, with the password and what URLs keep secret cut out, should the BMC have repeated them.
pub(crate) fn error(config: &RedfishConfig, step: &str, class: ErrorClass, cause: &str) -> PortError {
    let mut cause = redacted(cause);
    if !config.password.reveal().is_empty() {
        cause = cause.replace(config.password.reveal(), "***");
    }
    let cause: String = cause.chars().take(LONGEST).collect();
    PortError::new(class, format!("BMC {}: {step}: {cause}", config.address()))
}

pub(crate) fn from_layer(config: &RedfishConfig, step: &str, failed: &LayerError) -> PortError {
    match failed {
        RepairError::Transport(failed) => from_http(config, step, failed),
        RepairError::Decode(failed) => {
            error(config, step, ErrorClass::Invalid, &format!("the answer makes no sense: {failed}"))
        }
    }
}

pub(crate) fn from_http(config: &RedfishConfig, step: &str, failed: &BmcError) -> PortError {
    match failed {
        BmcError::InvalidResponse { status, text, .. } => from_status(config, step, *status, text),
        BmcError::ReqwestError(failed) => from_transport(config, step, failed),
        BmcError::ActionNotSupported => error(config, step, ErrorClass::Unsupported, "the BMC has no such action"),
        other => error(config, step, ErrorClass::Invalid, &format!("the answer makes no sense: {other}")),
    }
}

fn from_transport(config: &RedfishConfig, step: &str, failed: &reqwest::Error) -> PortError {
    if failed.is_timeout() {
        let cause = format!("no answer within {:?}", config.timeout);
        return error(config, step, ErrorClass::Unreachable, &cause);
    }
    let class = if failed.is_builder() || failed.is_redirect() { ErrorClass::Invalid } else { ErrorClass::Unreachable };
    if let Some(refusal) = trust::refusal(failed) {
        return error(config, step, ErrorClass::Unreachable, &refusal.advice(AUTHORITIES));
    }
    // The outer errors say "error sending request"; the innermost says why.
    let mut cause: &dyn Error = failed;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    error(config, step, class, &cause.to_string())
}

fn from_status(config: &RedfishConfig, step: &str, status: StatusCode, body: &str) -> PortError {
    let class = match status.as_u16() {
        401 | 403 => ErrorClass::Unauthorized,
        404 => ErrorClass::NotFound,
        405 | 501 => ErrorClass::Unsupported,
        // 412: somebody else changed the resource in between; 500 and the gateways': many BMCs while they start.
        409 | 412 | 423 | 429 | 500 | 502 | 503 | 504 => ErrorClass::Busy,
        _ if is_for_now(body) => ErrorClass::Busy,
        _ => ErrorClass::Invalid,
    };
    let mut cause = format!("HTTP {}", status.as_u16());
    let said = said(body);
    if !said.is_empty() {
        cause = format!("{cause}: {said}");
    }
    if class == ErrorClass::Unauthorized {
        cause = format!("update the Secret of this BMC: it refuses user {:?} ({cause})", config.username);
    }
    error(config, step, class, &cause)
}

/// What BMCs say with status 400 and take a little later: HPE's iLO while POST runs, and DSP0268's own words.
const FOR_NOW: [&str; 4] =
    ["UnableToModifyDuringSystemPOST", "ServiceTemporarilyUnavailable", "ResourceInUse", "ResourceNotReady"];

fn is_for_now(body: &str) -> bool {
    let Ok(body) = serde_json::from_str::<Value>(body) else { return false };
    let messages = body.pointer("/error/@Message.ExtendedInfo").or_else(|| body.get("@Message.ExtendedInfo"));
    let ids = messages.and_then(Value::as_array).into_iter().flatten().filter_map(|m| m["MessageId"].as_str());
    ids.filter_map(|id| id.rsplit('.').next()).any(|id| FOR_NOW.contains(&id))
}

/// What the BMC answered when it refused a request.
pub(crate) fn answer(failed: &LayerError) -> Option<&str> {
    match failed {
        RepairError::Transport(BmcError::InvalidResponse { text, .. }) => Some(text),
        _ => None,
    }
}

pub(crate) fn is_precondition_failed(failed: &LayerError) -> bool {
    let RepairError::Transport(BmcError::InvalidResponse { status, .. }) = failed else { return false };
    *status == StatusCode::PRECONDITION_FAILED
}

/// What the BMC says, by DSP0266, Error responses: the extended messages, or else the summary, or else
/// the body as it is.
fn said(body: &str) -> String {
    let Ok(body) = serde_json::from_str::<Value>(body) else { return body.trim().to_owned() };
    let messages = body.pointer("/error/@Message.ExtendedInfo").or_else(|| body.get("@Message.ExtendedInfo"));
    let messages: Vec<&str> =
        messages.and_then(Value::as_array).into_iter().flatten().filter_map(|m| m["Message"].as_str()).collect();
    if messages.is_empty() {
        return body.pointer("/error/message").and_then(Value::as_str).unwrap_or_default().to_owned();
    }
    messages.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;
    use serde_json::json;

    fn config() -> RedfishConfig {
        RedfishConfig::new("bmc.example", "admin", Secret::new("hunter2"))
    }

    fn answered(status: u16, body: &Value) -> PortError {
        from_status(&config(), "Reset", StatusCode::from_u16(status).expect("a status"), &body.to_string())
    }

    #[test]
    fn statuses_have_classes() {
        let expected = [
            (400, ErrorClass::Invalid),
            (401, ErrorClass::Unauthorized),
            (403, ErrorClass::Unauthorized),
            (404, ErrorClass::NotFound),
            (405, ErrorClass::Unsupported),
            (409, ErrorClass::Busy),
            (412, ErrorClass::Busy),
            (422, ErrorClass::Invalid),
            (429, ErrorClass::Busy),
            (501, ErrorClass::Unsupported),
            (503, ErrorClass::Busy),
        ];
        for (status, class) in expected {
            assert_eq!(answered(status, &json!({})).class, class, "{status}");
        }
    }

    #[test]
    fn what_is_refused_during_post_is_for_later() {
        let said = |id: &str| json!({"error": {"@Message.ExtendedInfo": [{"MessageId": id}]}});
        assert_eq!(answered(400, &said("iLO.2.14.UnableToModifyDuringSystemPOST")).class, ErrorClass::Busy);
        assert_eq!(answered(400, &said("Base.1.8.PropertyUnknown")).class, ErrorClass::Invalid);
    }

    #[test]
    fn the_bmc_is_quoted_and_the_password_is_not() {
        let body = json!({"error": {"message": "General", "@Message.ExtendedInfo": [
            {"Message": "The value hunter2 is bad."}, {"MessageId": "Base.1.0.Nothing"}, {"Message": "Try again."}]}});
        let message = answered(400, &body).message;
        assert_eq!(message, "BMC https://bmc.example:443: Reset: HTTP 400: The value *** is bad. Try again.");
        let url = "http://ann:secret@nas/a.iso?sig=secret";
        let said = json!({"error": {"message": format!("{}{url} is no image", "x".repeat(LONGEST - 30))}});
        assert!(
            answered(400, &said).message.contains("http://nas/a.iso") && !answered(400, &said).message.contains("secr")
        );
        assert!(answered(401, &json!({})).message.contains("update the Secret of this BMC"));
        assert!(answered(400, &json!({"error": {"message": "General"}})).message.ends_with("HTTP 400: General"));
    }
}
