//! Which ways to sanitize an ATA disk says that it has, and each of them. Sections are those of ACS-3.

use super::device::Device;
use super::{LOOK, Method, Stop, in_time};
use linux_sys::ata::{Answer, Command, Sanitize};
use tokio::time::Instant;

/// IDENTIFY DEVICE (7.12.7.24): the sanitize feature set, and each of its ways.
const WORD: usize = 59;
const SUPPORTED: u16 = 1 << 12;
const CRYPTO: u16 = 1 << 13;
const OVERWRITE: u16 = 1 << 14;
const BLOCK: u16 = 1 << 15;

/// The count that SANITIZE STATUS EXT answers with (7.37.8.4).
const COMPLETED: u16 = 1 << 15;
const IN_PROGRESS: u16 = 1 << 14;
const FROZEN: u16 = 1 << 13;

pub(super) fn methods(device: &mut dyn Device, until: Instant, notes: &mut Vec<String>) -> Result<Vec<Method>, Stop> {
    let identity = sent(device, &Command::identify())?.data;
    let word = u16::from_le_bytes([identity[2 * WORD], identity[2 * WORD + 1]]);
    if word & SUPPORTED == 0 {
        notes.push("the disk has no sanitize".to_owned());
        return Ok(Vec::new());
    }
    // One that was begun before goes on by itself through every restart.
    if finished(device, until)? & FROZEN != 0 {
        let why = "the firmware has frozen its sanitize commands (SANITIZE FREEZE LOCK EXT): change that in the setup of the server";
        return Err(Stop::Disk(why.to_owned()));
    }
    let all = [(CRYPTO, Method::AtaCryptoScramble), (BLOCK, Method::AtaBlockErase), (OVERWRITE, Method::AtaOverwrite)];
    Ok(all.into_iter().filter(|(bit, _)| word & bit != 0).map(|(_, method)| method).collect())
}

pub(super) fn sanitize(device: &mut dyn Device, method: Method, until: Instant) -> Result<(), Stop> {
    let action = match method {
        Method::AtaCryptoScramble => Sanitize::CryptoScramble,
        Method::AtaBlockErase => Sanitize::BlockErase,
        _ => Sanitize::Overwrite,
    };
    sent(device, &Command::sanitize(action))?;
    match finished(device, until)? & COMPLETED {
        0 => Err(Stop::Next("the disk did not end it without an error".to_owned())),
        _ => Ok(()),
    }
}

/// The count of the last status, once none is in progress.
fn finished(device: &mut dyn Device, until: Instant) -> Result<u16, Stop> {
    loop {
        let count = sent(device, &Command::sanitize_status())?.count;
        if count & IN_PROGRESS == 0 {
            return Ok(count);
        }
        in_time(until)?;
        device.wait(LOOK);
    }
}

fn sent(device: &mut dyn Device, command: &Command) -> Result<Answer, Stop> {
    let answer = device.ata(command)?;
    match answer.is_success() {
        true => Ok(answer),
        false => {
            Err(Stop::Next(format!("the disk answers with status {:#04x}, error {:#04x}", answer.status, answer.error)))
        }
    }
}
