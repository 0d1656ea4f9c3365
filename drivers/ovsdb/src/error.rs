//! What can go wrong between us and an OVSDB server. The server's own strings are kept word for word.

use ports::{ErrorClass, PortError};
use std::time::Duration;

/// Cloneable, because one lost connection fails every call that waits on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "`{0}` is no OVSDB address: write unix:<path>, tcp:<host>:<port> or ssl:<host>:<port>, several with commas between"
    )]
    Address(String),
    #[error("`{0}` needs a certificate, its private key and the authority's certificate")]
    NoTlsFiles(String),
    #[error("cannot connect to the OVSDB server {address}: {cause}")]
    Connect { address: String, cause: String },
    #[error("the connection to the OVSDB server {address} ended: {cause}")]
    Closed { address: String, cause: String },
    #[error("the OVSDB server {address} did not answer `{method}` within {} ms", limit.as_millis())]
    Timeout { address: String, method: String, limit: Duration },
    /// An `error` member in a response (RFC 7047 section 4).
    #[error("the OVSDB server {address} refused `{method}`: {error}")]
    Refused { address: String, method: String, error: String },
    /// An operation of a transaction failed, and with it the whole transaction (RFC 7047 section 4.1.3).
    #[error("OVSDB transaction, step {operation}: {error}{}", details.as_ref().map(|d| format!(" ({d})")).unwrap_or_default())]
    Operation { index: usize, operation: String, error: String, details: Option<String> },
    /// It answers, but not as the leader of its cluster, or behind what was seen before.
    #[error("the OVSDB server {address} will not do: {cause}")]
    Unfit { address: String, cause: String },
    /// Of several servers, each with its reason.
    #[error("none of the database's servers will do: {0}")]
    NoneWillDo(String),
    #[error("the OVSDB server {address} sent what makes no sense: {cause}")]
    Protocol { address: String, cause: String },
}

impl Error {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Address(_) | Self::NoTlsFiles(_) | Self::Protocol { .. } => ErrorClass::Invalid,
            Self::Connect { .. }
            | Self::Closed { .. }
            | Self::Timeout { .. }
            | Self::Unfit { .. }
            | Self::NoneWillDo(_) => ErrorClass::Unreachable,
            Self::Refused { error, .. } if error.contains("unknown database") => ErrorClass::NotFound,
            Self::Refused { .. } => ErrorClass::Invalid,
            Self::Operation { error, .. } => match error.as_str() {
                // The `wait` of a guarded transaction: somebody changed the row meanwhile.
                "timed out" => ErrorClass::Busy,
                "constraint violation" | "referential integrity violation" => ErrorClass::Conflict,
                // The server is read-only for now: the backup of another one.
                "not allowed" => ErrorClass::Unreachable,
                "permission error" => ErrorClass::Unauthorized,
                "resources exhausted" | "I/O error" | "not owner" | "cluster error" => ErrorClass::Busy,
                _ => ErrorClass::Invalid,
            },
        }
    }

    pub(crate) fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Refused { error, .. } if error.contains("unknown method"))
    }

    /// As a port's error; `what` names the object and the step.
    pub fn for_port(&self, what: &str) -> PortError {
        PortError::new(self.class(), format!("{what}: {self}"))
    }
}
