//! Errors as a runtime reads them (CNI specification 1.1.0, section 5).

use serde_json::json;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: u32,
    pub message: String,
}

impl Error {
    fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// 4: the environment.
    pub(crate) fn environment(message: impl Into<String>) -> Self {
        Self::new(4, message)
    }

    /// 5: a file or a device.
    pub(crate) fn io(message: impl Into<String>) -> Self {
        Self::new(5, message)
    }

    /// 6: the configuration is no JSON of the right shape.
    pub(crate) fn decode(message: impl Into<String>) -> Self {
        Self::new(6, message)
    }

    /// 7: the configuration, or what the pod asks for.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(7, message)
    }

    /// 11: the runtime should try again later.
    pub(crate) fn again(message: impl Into<String>) -> Self {
        Self::new(11, message)
    }

    /// 50: the plugin cannot serve now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(50, message)
    }

    /// 100, our own: what ADD left is not as it left it.
    pub(crate) fn changed(message: impl Into<String>) -> Self {
        Self::new(100, message)
    }

    pub fn to_json(&self) -> String {
        let said = json!({"cniVersion": crate::result::NEWEST, "code": self.code, "msg": self.message});
        format!("{said}\n")
    }
}
