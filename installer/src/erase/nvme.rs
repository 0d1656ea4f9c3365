//! Which of NVMe's ways to erase a controller says that it has, and each of them. Sections are those of the NVM Express Base
//! Specification 2.0.

use super::device::Device;
use super::{LOOK, Method, Stop, in_time};
use linux_sys::nvme::{Answer, Command, Sanitize, SecureErase};
use tokio::time::Instant;

/// In Identify Controller (figure 275): optional admin commands, sanitize capabilities, format attributes.
const OACS: usize = 256;
const SANICAP: usize = 328;
const FNA: usize = 524;
/// In Identify Namespace: the LBA format in use, and its protection.
const FLBAS: usize = 26;
const DPS: usize = 29;

pub(super) fn methods(device: &mut dyn Device, until: Instant, notes: &mut Vec<String>) -> Result<Vec<Method>, Stop> {
    let identity = sent(device, &Command::identify_controller())?.data;
    let capabilities = identity[SANICAP];
    let (crypto, block) = (capabilities & 1 != 0, capabilities & 2 != 0);
    // Supported, and cryptographic too (figure 275, OACS bit 1 and FNA bit 2).
    let (formats, formats_crypto) = (identity[OACS] & 2 != 0, identity[FNA] & 4 != 0);
    if crypto || block {
        // One that was begun before goes on by itself through every restart, and nothing else is taken until it is over.
        finished(device, until)?;
    } else {
        notes.push("the controller has no sanitize that erases".to_owned());
    }
    if !formats {
        notes.push("the controller has no Format NVM".to_owned());
    }
    let all = [
        (crypto, Method::NvmeSanitizeCrypto),
        (block, Method::NvmeSanitizeBlock),
        (formats && formats_crypto, Method::NvmeFormatCrypto),
        (formats, Method::NvmeFormatUserData),
    ];
    Ok(all.into_iter().filter(|(has, _)| *has).map(|(_, method)| method).collect())
}

/// Of the whole NVM subsystem, and to its end.
pub(super) fn sanitize(device: &mut dyn Device, method: Method, until: Instant) -> Result<(), Stop> {
    let action = match method {
        Method::NvmeSanitizeCrypto => Sanitize::CryptoErase,
        _ => Sanitize::BlockErase,
    };
    sent(device, &Command::sanitize(action))?;
    match finished(device, until)? {
        // Completed, and completed with all deallocated (figure 291, SSTAT).
        1 | 4 => Ok(()),
        other => Err(Stop::Next(format!("the controller ended it with sanitize status {other}"))),
    }
}

/// The status of the last sanitize, once none is in progress.
fn finished(device: &mut dyn Device, until: Instant) -> Result<u8, Stop> {
    const IN_PROGRESS: u8 = 2;
    loop {
        let status = sent(device, &Command::sanitize_status())?.data[2] & 7;
        if status != IN_PROGRESS {
            return Ok(status);
        }
        in_time(until)?;
        device.wait(LOOK);
    }
}

/// The LBA format and the protection stay.
pub(super) fn format(device: &mut dyn Device, method: Method) -> Result<(), Stop> {
    let nsid = device.namespace()?;
    let namespace = sent(device, &Command::identify_namespace(nsid))?.data;
    let (flbas, dps) = (u32::from(namespace[FLBAS]), u32::from(namespace[DPS]));
    // Format NVM, CDW10 (figure 332): LBAF low, metadata in the block, protection and where it is.
    let settings = flbas & 0xf | (flbas >> 4 & 1) << 4 | (dps & 7) << 5 | (dps >> 3 & 1) << 8;
    if flbas >> 5 & 3 != 0 {
        return Err(Stop::Next("its LBA format is one above 15, which is not served".to_owned()));
    }
    let erase = match method {
        Method::NvmeFormatCrypto => SecureErase::Cryptographic,
        _ => SecureErase::UserData,
    };
    sent(device, &Command::format(nsid, settings, erase)).map(drop)
}

fn sent(device: &mut dyn Device, command: &Command) -> Result<Answer, Stop> {
    let answer = device.nvme(command)?;
    match answer.status {
        0 => Ok(answer),
        status => Err(Stop::Next(format!("the controller answers with status {status:#x}"))),
    }
}
