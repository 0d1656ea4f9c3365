//! Erases one disk, and shows that it did.
//!
//! | the disk | in this order, until one has worked |
//! |---|---|
//! | NVMe | Sanitize by crypto erase, by block erase; Format NVM with cryptographic erase, with user data erase; overwriting |
//! | ATA | SANITIZE DEVICE by crypto scramble, by block erase, by overwriting; overwriting by us |
//! | any other | overwriting |
//!
//! What the disk does not say that it can is not tried, and neither is what erases nothing: Format NVM with setting 0, a discard alone. **A
//! method has worked when it was read back**: overwriting, all of it as zeros; any other, at 1,000 places and both ends, none of
//! which may hold what it held before. A place that was blank gets a mark first. So nothing is believed that a disk says of itself.
//!
//! An ATA disk whose sanitize commands the firmware has frozen has failed, and so has one that ends none of its own: the reason has to be
//! looked at, and an overwriting would not reach all that a sanitize does.

mod ata;
mod check;
mod device;
mod nvme;
mod overwrite;
#[cfg(test)]
mod tests;

pub use device::{BlockDevice, Device};

use crate::disks::Known;
use check::Before;
use serde::Serialize;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at a sanitize operation.
const LOOK: Duration = Duration::from_secs(2);

/// In the words of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Method {
    NvmeSanitizeCrypto,
    NvmeSanitizeBlock,
    NvmeFormatCrypto,
    NvmeFormatUserData,
    AtaCryptoScramble,
    AtaBlockErase,
    AtaOverwrite,
    Overwrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Outcome {
    Seen,
    Erased,
    Failed,
    Skipped,
    Unserved,
}

/// One line of an action's report, which the controller reads (`proto/golden/disks.txt`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wwid: String,
    pub bytes: u64,
    pub result: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// What was read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Report {
    pub fn of(disk: &Known, result: Outcome) -> Self {
        Self {
            name: disk.name.clone(),
            serial: disk.serial.clone(),
            wwid: disk.wwn.clone(),
            bytes: disk.size_bytes,
            result,
            method: None,
            read: None,
            seconds: None,
            why: None,
        }
    }

    /// Of what is no disk that is seen.
    pub fn unserved(name: String, why: &str) -> Self {
        let (result, why) = (Outcome::Unserved, Some(why.to_owned()));
        let (serial, wwid) = (String::new(), String::new());
        Self { name, serial, wwid, bytes: 0, result, method: None, read: None, seconds: None, why }
    }

    pub fn line(&self) -> String {
        format!("disk {}", serde_json::to_string(self).unwrap_or_default())
    }
}

/// What commands a disk takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Nvme,
    Ata,
    Blocks,
}

/// What a disk was erased by, what was read back, and why nothing better was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    pub method: Method,
    pub read: String,
    pub notes: Vec<String>,
}

/// Why a method has not worked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stop {
    /// The next one is tried.
    Next(String),
    /// No other one is.
    Disk(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Next(error.to_string())
    }
}

/// By the first of its methods that works. An error says what each of them came to.
pub fn erase(device: &mut dyn Device, speaks: Speaks, until: Instant, say: &dyn Fn(&str)) -> Result<Erased, String> {
    let mut notes = Vec::new();
    let methods = match speaks {
        Speaks::Nvme => nvme::methods(device, until, &mut notes),
        Speaks::Ata => ata::methods(device, until, &mut notes),
        Speaks::Blocks => Ok(Vec::new()),
    };
    let methods = match methods {
        Ok(methods) => methods,
        Err(Stop::Next(why)) => {
            notes.push(why);
            Vec::new()
        }
        Err(Stop::Disk(why)) => return Err(why),
    };
    for method in methods.into_iter().chain([Method::Overwrite]) {
        say(&format!("{method:?}"));
        match by(device, method, until, say) {
            Ok(read) => return Ok(Erased { method, read, notes }),
            Err(Stop::Next(why)) => notes.push(format!("{method:?}: {why}")),
            Err(Stop::Disk(why)) => {
                notes.push(format!("{method:?}: {why}"));
                break;
            }
        }
        if Instant::now() >= until {
            break;
        }
    }
    Err(notes.join("; "))
}

fn by(device: &mut dyn Device, method: Method, until: Instant, say: &dyn Fn(&str)) -> Result<String, Stop> {
    if method == Method::Overwrite {
        return overwrite::all(device, until, say);
    }
    let before = Before::read(device)?;
    match method {
        Method::NvmeSanitizeCrypto | Method::NvmeSanitizeBlock => nvme::sanitize(device, method, until)?,
        Method::NvmeFormatCrypto | Method::NvmeFormatUserData => nvme::format(device, method)?,
        _ => ata::sanitize(device, method, until)?,
    }
    before.is_gone(device)
}

fn in_time(until: Instant) -> Result<(), Stop> {
    match Instant::now() < until {
        true => Ok(()),
        false => Err(Stop::Disk("the action's time is over".to_owned())),
    }
}
