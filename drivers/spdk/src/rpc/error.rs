//! What can go wrong with a call, with the target's code kept.

use ports::{ErrorClass, PortError};
use std::fmt;

/// JSON-RPC 2.0, section 5.1. SPDK answers with these and with negative `errno` values.
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;
pub const EPERM: i64 = -1;
pub const ENOENT: i64 = -2;
pub const EAGAIN: i64 = -11;
pub const ENOMEM: i64 = -12;
pub const EACCES: i64 = -13;
pub const EBUSY: i64 = -16;
pub const EEXIST: i64 = -17;
pub const ENODEV: i64 = -19;
pub const EINVAL: i64 = -22;
pub const ENOSPC: i64 = -28;
pub const ETIMEDOUT: i64 = -110;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RpcError {
    /// No connection, or no answer in time: whether the call took effect is not known.
    Unreachable(String),
    Refused {
        method: &'static str,
        code: i64,
        message: String,
    },
    /// It answered, and the answer is not what the method promises.
    Malformed {
        method: &'static str,
        cause: String,
    },
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(cause) => f.write_str(cause),
            Self::Refused { method, code, message } => write!(f, "{method}: {message} ({code})"),
            Self::Malformed { method, cause } => write!(f, "{method}: the answer cannot be understood: {cause}"),
        }
    }
}

impl std::error::Error for RpcError {}

impl RpcError {
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Unreachable(_) | Self::Malformed { .. } => None,
        }
    }

    /// It is there already. SPDK says so with EEXIST, or with bare words behind "invalid parameters".
    pub fn is_exists(&self) -> bool {
        self.says(EEXIST, "File exists")
    }

    /// It is not there.
    pub fn is_gone(&self) -> bool {
        self.says(ENODEV, "No such device") || self.says(ENOENT, "No such file or directory")
    }

    /// It is still at what it was asked before.
    pub fn is_again(&self) -> bool {
        self.says(EAGAIN, "Resource temporarily unavailable")
    }

    fn says(&self, errno: i64, words: &str) -> bool {
        match self {
            Self::Refused { code, message, .. } => *code == errno || message.contains(words),
            Self::Unreachable(_) | Self::Malformed { .. } => false,
        }
    }

    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable(_) => ErrorClass::Unreachable,
            Self::Malformed { .. } => ErrorClass::Invalid,
            Self::Refused { .. } if self.is_exists() => ErrorClass::Conflict,
            Self::Refused { .. } if self.is_gone() => ErrorClass::NotFound,
            Self::Refused { .. } if self.is_again() => ErrorClass::Busy,
            Self::Refused { .. } if self.says(ENOSPC, "No space left") => ErrorClass::Busy,
            Self::Refused { code, message, .. } => match *code {
                METHOD_NOT_FOUND => ErrorClass::Unsupported,
                EACCES => ErrorClass::Unauthorized,
                ETIMEDOUT => ErrorClass::Unreachable,
                // A lvstore on a claimed bdev; a snapshot that has clones; no memory just now.
                EPERM | EBUSY | ENOMEM => ErrorClass::Busy,
                // "Internal error" is also what a subsystem says that another call has paused; a request that cannot be
                // decoded says so in words.
                INTERNAL_ERROR if !message.contains("decode") => ErrorClass::Busy,
                _ => ErrorClass::Invalid,
            },
        }
    }

    /// In the port's shape: `step` names the object and what was tried.
    pub fn at(&self, step: &str) -> PortError {
        PortError::new(self.class(), format!("{step}: {self}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i64, message: &str) -> ErrorClass {
        RpcError::Refused { method: "a_method", code, message: message.to_owned() }.class()
    }

    #[test]
    fn each_code_has_its_class() {
        assert_eq!(refused(EEXIST, "File exists"), ErrorClass::Conflict);
        assert_eq!(refused(INVALID_PARAMS, "File exists"), ErrorClass::Conflict);
        assert_eq!(refused(ENODEV, "No such device"), ErrorClass::NotFound);
        assert_eq!(refused(INVALID_PARAMS, "No space left on device"), ErrorClass::Busy);
        assert_eq!(refused(INTERNAL_ERROR, "Operation not permitted"), ErrorClass::Busy);
        assert_eq!(refused(INTERNAL_ERROR, "spdk_json_decode_object failed"), ErrorClass::Invalid);
        assert_eq!(refused(INVALID_PARAMS, "Invalid parameters"), ErrorClass::Invalid);
        assert_eq!(refused(METHOD_NOT_FOUND, "Method not found"), ErrorClass::Unsupported);
        assert_eq!(refused(EBUSY, "Device or resource busy"), ErrorClass::Busy);
    }

    #[test]
    fn the_code_stays_in_the_message() {
        let error = RpcError::Refused { method: "bdev_aio_create", code: -17, message: "File exists".to_owned() };
        assert_eq!(error.at("disk a").to_string(), "Conflict: disk a: bdev_aio_create: File exists (-17)");
    }
}
