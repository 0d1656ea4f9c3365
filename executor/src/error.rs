//! What can go wrong between a plan and its effect. Every message names the object, the step and the cause.

use ports::north_bound::NorthBoundError;
use ports::{ErrorClass, PortError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else was faster, or the object is another one by now: look again.
    #[error("{what}: changed meanwhile: {message}")]
    Conflict { what: String, message: String },
    /// The name is taken.
    #[error("{what}: {message}")]
    AlreadyExists { what: String, message: String },
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
            Self::Conflict { .. } | Self::AlreadyExists { .. } | Self::NotConfirmed { .. } | Self::NotFound { .. } => {
                true
            }
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
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::NotFound { .. } => "NotFound",
            Self::Refused { .. } => "Refused",
            Self::Unavailable { .. } => "Unavailable",
            Self::NotConfirmed { .. } => "NotConfirmed",
            Self::Bmc(error) => error.class.as_str(),
            Self::NorthBound(error) => error.class().as_str(),
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
