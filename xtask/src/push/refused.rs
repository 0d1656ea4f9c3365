//! What a registry's refusal means, and what to do about it.

use super::credentials::{Credentials, PASSWORD, USER};
use oci_client::errors::{OciDistributionError as Refused, OciErrorCode};
use std::error::Error;

/// The registry has no such image; it may not even have the repository.
pub(super) fn is_absent(error: &Refused) -> bool {
    match error {
        Refused::ImageManifestNotFoundError(_) => true,
        Refused::ServerError { code, .. } => *code == 404,
        Refused::RegistryError { envelope, .. } => envelope.errors.iter().all(|error| {
            matches!(error.code, OciErrorCode::ManifestUnknown | OciErrorCode::NameUnknown | OciErrorCode::NotFound)
        }),
        Refused::RequestError(error) => error.status().is_some_and(|status| status.as_u16() == 404),
        _ => false,
    }
}

pub(super) fn advice(host: &str, credentials: &Credentials, error: &Refused) -> String {
    match error {
        Refused::RequestError(request) => match request.status().map(|status| status.as_u16()) {
            Some(code) => by_status(host, credentials, code, ""),
            None => transport(host, request, request.is_timeout()),
        },
        Refused::UnauthorizedError { .. } | Refused::AuthenticationFailure(_) => unauthorized(host, credentials),
        Refused::ServerError { code, message, .. } => by_status(host, credentials, *code, message),
        Refused::RegistryError { envelope, .. } => {
            let said: Vec<String> =
                envelope.errors.iter().map(|error| format!("{:?} {}", error.code, error.message)).collect();
            let denies = |code: &OciErrorCode| matches!(code, OciErrorCode::Unauthorized | OciErrorCode::Denied);
            match envelope.errors.iter().any(|error| denies(&error.code)) {
                true => format!("{} ({})", unauthorized(host, credentials), said.join("; ").trim()),
                false => format!("{host} refuses it: {}", said.join("; ").trim()),
            }
        }
        other => other.to_string(),
    }
}

fn by_status(host: &str, credentials: &Credentials, code: u16, said: &str) -> String {
    let said = said.trim();
    match code {
        401 | 403 => unauthorized(host, credentials),
        413 => format!("{host} takes no blob of that size (HTTP 413): raise the limit of the proxy before it"),
        _ => format!("{host} answers HTTP {code} {said}: its log says why; what was sent is kept, so push again later"),
    }
}

fn unauthorized(host: &str, credentials: &Credentials) -> String {
    match credentials {
        Credentials::Login { user, from, .. } => {
            format!(
                "{host} refuses user {user:?} with the password of {from}, or lets that user push nothing there: correct it"
            )
        }
        Credentials::Anonymous { looked } => {
            format!("{host} wants a login ({looked}): run `docker login {host}`, or set {USER} and {PASSWORD}")
        }
    }
}

fn transport(host: &str, error: &(dyn Error + 'static), is_timeout: bool) -> String {
    if let Some(refusal) = trust::refusal(error) {
        return refusal.advice("a file and name it by --ca-file");
    }
    let mut cause = error.source();
    while let Some(inner) = cause.and_then(Error::source) {
        cause = Some(inner);
    }
    let cause = cause.map_or_else(|| error.to_string(), ToString::to_string);
    // rustls' words for an answer that is no TLS.
    if cause.contains("InvalidContentType") {
        return format!(
            "{host} speaks no TLS there ({cause}): is the port right? A registry without TLS needs --plain-http"
        );
    }
    if is_timeout {
        return format!("{host} did not answer in time ({cause}): what was sent is kept, so push again");
    }
    format!("{host} cannot be reached ({cause}): is its address right, and is it up? What was sent is kept")
}
