//! How to reach one BMC.

use std::{fmt, time::Duration};
use trust::Bundle;

/// A password. Neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// What the BMC's certificate is checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verify {
    /// Nothing: BMCs come with self-signed certificates.
    InsecureTls,
    /// The public certificate authorities.
    System,
    /// These, and no other.
    Authorities(Bundle),
}

#[derive(Debug, Clone)]
pub struct RedfishConfig {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
    pub scheme: Scheme,
    pub username: String,
    pub password: Secret,
    pub verify: Verify,
    /// The `Id` or the `Name` of the system to act on; not needed where the BMC has one system only.
    pub system_name: Option<String>,
    /// Send the password with every request instead of opening a session with it.
    pub use_basic_auth: bool,
    /// Bounds each request, from connecting to the last byte of the answer.
    pub timeout: Duration,
    /// Sent as `X-Metalplane-Fencing-Token` with every request, so with every write.
    pub fencing_token: Option<String>,
}

impl RedfishConfig {
    /// HTTPS on its usual port, sessions, no check of the certificate, ten seconds.
    pub fn new(host: impl Into<String>, username: impl Into<String>, password: Secret) -> Self {
        let scheme = Scheme::Https;
        Self {
            host: host.into(),
            port: scheme.port(),
            scheme,
            username: username.into(),
            password,
            verify: Verify::InsecureTls,
            system_name: None,
            use_basic_auth: false,
            timeout: Duration::from_secs(10),
            fencing_token: None,
        }
    }

    /// `https://10.0.0.1:443`, without credentials.
    pub(crate) fn address(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{}://{host}:{}", self.scheme.as_str(), self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_password() {
        let mut config = RedfishConfig::new("::1", "admin", Secret::new("hunter2"));
        config.port = 8443;
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter2") && shown.contains("***"), "{shown}");
        assert_eq!(config.address(), "https://[::1]:8443");
    }
}
