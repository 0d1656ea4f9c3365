//! What SPDK answers when it refuses: a negated error number of the system.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    what: String,
    code: i32,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>, code: i32) -> Self {
        Self { what: what.into(), code }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.what)?;
        match self.code {
            ..-1 => write!(f, "{}", std::io::Error::from_raw_os_error(-self.code)),
            // Where SPDK says no more than that; its log does.
            code => write!(f, "SPDK ended with {code}"),
        }
    }
}

impl std::error::Error for Error {}
