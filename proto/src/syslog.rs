//! By what the installer's lines of log are known among those of the system that it installs (RFC 5424, 6.2.5).

/// The installer's APP-NAME.
pub const INSTALLER: &str = "metalplane-installer";

/// Whether a datagram is the installer's: `<PRI>1 TIMESTAMP HOSTNAME APP-NAME …`.
pub fn is_installers(datagram: &[u8]) -> bool {
    datagram.starts_with(b"<") && datagram.split(|byte| *byte == b' ').nth(3) == Some(INSTALLER.as_bytes())
}
