//! One error shape for all ports: a class that decides what happens next, and a sentence for the user.

use std::fmt;

/// What the caller may do about it. A closed set: it becomes a condition reason and a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// No answer in time, or no connection. The effect may or may not have happened: observe again.
    Unreachable,
    /// Credentials or permission refused. Retrying with the same credentials is useless.
    Unauthorized,
    /// Answered, but cannot now (503, in use, operation under way). Retry with back-off.
    Busy,
    /// The thing named does not exist.
    NotFound,
    /// It exists with other parameters, or belongs to somebody else. Never overwritten.
    Conflict,
    /// The part cannot do this at all (for example an online resize of an emulated NVMe disk).
    Unsupported,
    /// We asked for something invalid, or the answer makes no sense.
    Invalid,
}

impl ErrorClass {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "Unreachable",
            Self::Unauthorized => "Unauthorized",
            Self::Busy => "Busy",
            Self::NotFound => "NotFound",
            Self::Conflict => "Conflict",
            Self::Unsupported => "Unsupported",
            Self::Invalid => "Invalid",
        }
    }
}

/// A failed verb. `message` names the object, the step and the cause; it never holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PortError {
    pub class: ErrorClass,
    pub message: String,
}

impl PortError {
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.as_str(), self.message)
    }
}
