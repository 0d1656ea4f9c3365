//! What can go wrong between a plan and its effect. Every message names the object, the step and the cause.

use ports::north_bound::NorthBoundError;
use ports::{ErrorClass, PortError};
use std::future::Future;
use std::time::Duration;

/// After this the API server counts as unreachable.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else was faster, or the object is another one by now: look again.
    #[error("{what}: changed meanwhile: {message}")]
    Conflict { what: String, message: String },
    #[error("{what}: not found")]
    NotFound { what: String },
    /// The API server understood and refused: RBAC, a policy, a quota, validation.
    #[error("{what}: refused: {message}")]
    Refused { what: String, message: String },
    #[error("{what}: {message}")]
    Unavailable { what: String, message: String },
    /// A quorum read did not confirm what the plan rests on.
    #[error("{what}: not confirmed: {message}")]
    NotConfirmed { what: String, message: String },
    #[error(transparent)]
    Bmc(#[from] PortError),
    #[error("OVN's north-bound database: {0}")]
    NorthBound(#[from] NorthBoundError),
}

impl Error {
    /// The caches were behind, and catch up by themselves.
    pub fn is_stale(&self) -> bool {
        let behind = |error: &NorthBoundError| matches!(error.class(), ErrorClass::Conflict | ErrorClass::NotFound);
        match self {
            Self::Conflict { .. } | Self::NotConfirmed { .. } | Self::NotFound { .. } => true,
            Self::NorthBound(error) => behind(error),
            Self::Refused { .. } | Self::Unavailable { .. } | Self::Bmc(_) => false,
        }
    }

    /// OVN's database is away, whatever was asked of it.
    pub fn is_north_bound_away(&self) -> bool {
        matches!(self, Self::NorthBound(error) if error.class() == ErrorClass::Unreachable)
    }

    pub fn class(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "Conflict",
            Self::NotFound { .. } => "NotFound",
            Self::Refused { .. } => "Refused",
            Self::Unavailable { .. } => "Unavailable",
            Self::NotConfirmed { .. } => "NotConfirmed",
            Self::Bmc(error) => error.class.as_str(),
            Self::NorthBound(error) => error.class().as_str(),
        }
    }
}

/// One call to the API server, bounded in time. `what` names the object and the step.
pub async fn call<T>(what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    let what = what.to_owned();
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => {
            let message = status.message.clone();
            Err(match status.code {
                404 => Error::NotFound { what },
                409 => Error::Conflict { what, message },
                400 | 403 | 405 | 422 => Error::Refused { what, message },
                _ => Error::Unavailable { what, message },
            })
        }
        Ok(Err(error)) => Err(Error::Unavailable { what, message: causes(&error) }),
        Err(_) => {
            let message = format!("the API server did not answer within {} s", LIMIT.as_secs());
            Err(Error::Unavailable { what, message })
        }
    }
}

/// `None` for what does not exist.
pub fn found<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn causes(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
