//! Admin commands of an NVMe controller, by its namespace's block device (`linux/nvme_ioctl.h`). Sections are those of the NVM Express
//! Base Specification 2.0 and, for Format NVM's data, of the NVM Command Set Specification 1.0.
//!
//! A [`Command`] is made by its constructors alone: how much a controller writes into memory follows from the command, so a buffer of any
//! other length would not be sound.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// One command with all that its submission has in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    opcode: u8,
    nsid: u32,
    cdw10: u32,
    /// Of what the controller answers.
    data: usize,
    timeout_ms: u32,
}

/// `status`: the status code and its type, 0 for a success (section 3.3.3.2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub data: Vec<u8>,
}

/// What Sanitize does (section 5.24, SANACT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sanitize {
    BlockErase,
    CryptoErase,
}

/// What Format NVM does to the data that was there (section 5.14, SES). There is no third: setting 0 erases nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecureErase {
    UserData,
    Cryptographic,
}

const SHORT_MS: u32 = 30_000;
/// Of a format, which ends only when it is done.
const FORMAT_MS: u32 = 12 * 3600 * 1000;

impl Command {
    /// Identify Controller (section 5.17.2.1).
    pub fn identify_controller() -> Self {
        Self { opcode: 0x06, nsid: 0, cdw10: 1, data: 4096, timeout_ms: SHORT_MS }
    }

    /// Identify Namespace of the NVM command set (section 5.17.2.2).
    pub fn identify_namespace(nsid: u32) -> Self {
        Self { opcode: 0x06, nsid, cdw10: 0, data: 4096, timeout_ms: SHORT_MS }
    }

    /// Get Log Page, Sanitize Status (section 5.16.1.20): the first 32 bytes, all namespaces.
    pub fn sanitize_status() -> Self {
        let dwords_less_one = 32 / 4 - 1;
        Self { opcode: 0x02, nsid: u32::MAX, cdw10: 0x81 | dwords_less_one << 16, data: 32, timeout_ms: SHORT_MS }
    }

    /// Sanitize: of the whole NVM subsystem, restricted (a failure is ended by another Sanitize alone), and deallocating.
    pub fn sanitize(action: Sanitize) -> Self {
        let action = match action {
            Sanitize::BlockErase => 2,
            Sanitize::CryptoErase => 4,
        };
        Self { opcode: 0x84, nsid: 0, cdw10: action, data: 0, timeout_ms: SHORT_MS }
    }

    /// Format NVM of one namespace. `format`: the low 9 bits of CDW10, LBA format and protection as they are.
    pub fn format(nsid: u32, format: u32, erase: SecureErase) -> Self {
        let setting = match erase {
            SecureErase::UserData => 1,
            SecureErase::Cryptographic => 2,
        };
        Self { opcode: 0x80, nsid, cdw10: format & 0x1ff | setting << 9, data: 0, timeout_ms: FORMAT_MS }
    }

    /// Opcode, namespace and CDW10: what a test compares.
    pub fn words(&self) -> (u8, u32, u32) {
        (self.opcode, self.nsid, self.cdw10)
    }
}

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct Passthru {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

mod ioctl {
    // `_IO('N', 0x40)` and `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
    nix::ioctl_none!(id, b'N', 0x40);
    nix::ioctl_readwrite!(admin, b'N', 0x41, super::Passthru);
}

/// The identifier of the namespace behind a block device. An error if that is none of NVMe's.
pub fn namespace(device: &File) -> io::Result<u32> {
    // SAFETY: NVME_IOCTL_ID takes no argument; the descriptor is open for as long as `device` is borrowed, and one that is no namespace
    // is answered with an error.
    let nsid = unsafe { ioctl::id(device.as_raw_fd()) }?;
    u32::try_from(nsid).map_err(io::Error::other)
}

/// Sends the command and waits for its answer. An error is the kernel's; what the controller refuses is a status.
pub fn submit(device: &File, command: &Command) -> io::Result<Answer> {
    let mut data = vec![0; command.data];
    let mut passthru = Passthru {
        opcode: command.opcode,
        nsid: command.nsid,
        addr: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
        data_len: u32::try_from(data.len()).map_err(io::Error::other)?,
        cdw10: command.cdw10,
        timeout_ms: command.timeout_ms,
        ..Passthru::default()
    };
    // SAFETY: the structure has the layout of the kernel's and lives until the call has returned, as does `data`, of which `addr` and
    // `data_len` are the whole; each command's constructor gives it the length that this command answers with. No metadata are asked for.
    let status = unsafe { ioctl::admin(device.as_raw_fd(), &mut passthru) }?;
    Ok(Answer { status: u16::try_from(status).unwrap_or(u16::MAX), data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_the_kernels() {
        assert_eq!(size_of::<Passthru>(), 72);
        assert_eq!(std::mem::offset_of!(Passthru, addr), 24);
        assert_eq!(std::mem::offset_of!(Passthru, cdw10), 40);
        assert_eq!(std::mem::offset_of!(Passthru, timeout_ms), 64);
    }

    #[test]
    fn no_format_has_setting_0() {
        for erase in [SecureErase::UserData, SecureErase::Cryptographic] {
            let (_, _, cdw10) = Command::format(1, 0xffff, erase).words();
            assert!(matches!(cdw10 >> 9 & 7, 1 | 2) && cdw10 & 0x1ff == 0x1ff && cdw10 >> 12 == 0, "{cdw10:x}");
        }
    }

    #[test]
    fn what_is_no_namespace_is_an_error() {
        let file = tempfile::tempfile().expect("a file");
        assert!(namespace(&file).is_err());
        assert!(submit(&file, &Command::sanitize_status()).is_err());
    }
}
