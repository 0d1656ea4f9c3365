//! The log of what the BMC was told to do: one line of JSON per Reset action. Tests count power cycles by it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::Serialize;

/// One Reset action as it came in.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action<'a> {
    pub time: String,
    pub action: &'a str,
    /// Power when it came in.
    pub power: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<&'a str>,
    /// HTTP status of the answer.
    pub status: u16,
}

pub struct Log {
    file: Mutex<File>,
}

impl Log {
    pub fn open(path: &Path) -> Result<Log> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("open the log of actions {}", path.display()))?;
        Ok(Log { file: Mutex::new(file) })
    }

    /// Appends one line, whole.
    pub fn add(&self, action: &Action<'_>) {
        let written = serde_json::to_string(action).map_err(std::io::Error::other).and_then(|line| {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(format!("{line}\n").as_bytes())
        });
        if let Err(error) = written {
            tracing::error!("an action is missing in the log: {error}");
        }
    }
}
