//! Commands of an ATA disk, by SCSI's ATA PASS-THROUGH (16) (SAT-3, 12.2.2.3) and SG_IO (`scsi/sg.h`). Commands are those of ACS-3.
//!
//! A [`Command`] is made by its constructors alone: what a disk answers follows from the command.

use nix::libc::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// One command with its registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    command: u8,
    feature: u16,
    count: u16,
    lba: u64,
    /// Of what the disk answers.
    data: usize,
}

/// The registers that a disk answers with, and its data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u8,
    pub error: u8,
    pub count: u16,
    pub lba: u64,
    pub data: Vec<u8>,
}

/// What SANITIZE DEVICE does (7.37, table 156).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sanitize {
    CryptoScramble,
    BlockErase,
    /// Once, with zeros.
    Overwrite,
}

const SANITIZE: u8 = 0xb4;

impl Answer {
    /// The disk did what it was told.
    pub fn is_success(&self) -> bool {
        self.status & FAILED == 0
    }
}

impl Command {
    /// IDENTIFY DEVICE (7.12).
    pub fn identify() -> Self {
        Self { command: 0xec, feature: 0, count: 1, lba: 0, data: 512 }
    }

    /// SANITIZE STATUS EXT (7.37.8).
    pub fn sanitize_status() -> Self {
        Self { command: SANITIZE, feature: 0, count: 0, lba: 0, data: 0 }
    }

    /// Restricted: a failure is ended by another one alone. Each has its own key in the LBA field.
    pub fn sanitize(action: Sanitize) -> Self {
        let (feature, count, lba) = match action {
            Sanitize::CryptoScramble => (0x11, 0, 0x4372_7970),
            Sanitize::BlockErase => (0x12, 0, 0x426b_4572),
            Sanitize::Overwrite => (0x14, 1, 0x4f57_0000_0000),
        };
        Self { command: SANITIZE, feature, count, lba, data: 0 }
    }

    /// Command, feature, count and LBA: what a test compares.
    pub fn words(&self) -> (u8, u16, u16, u64) {
        (self.command, self.feature, self.count, self.lba)
    }

    /// The command descriptor block.
    fn block(&self) -> [u8; 16] {
        let reads = self.data > 0;
        let extended = !reads;
        // Protocol 4 is PIO data-in, 3 is without data.
        let protocol = if reads { 4 } else { 3 };
        // The registers are asked for (CK_COND); data come in blocks (BYT_BLOK), as many as the count says (T_LENGTH), from the disk (T_DIR).
        let transfer = if reads { 0x20 | 0x08 | 0x04 | 0x02 } else { 0x20 };
        let [_, _, l5, l4, l3, l2, l1, l0] = self.lba.to_be_bytes();
        let ([f1, f0], [c1, c0]) = (self.feature.to_be_bytes(), self.count.to_be_bytes());
        let first = protocol << 1 | u8::from(extended);
        [0x85, first, transfer, f1, f0, c1, c0, l3, l0, l4, l1, l5, l2, 0x40, self.command, 0]
    }
}

/// `struct sg_io_hdr`.
#[repr(C)]
struct Header {
    interface_id: i32,
    direction: i32,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    data_len: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: i32,
    usr_ptr: *mut c_void,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: i32,
    duration: u32,
    info: u32,
}

mod ioctl {
    nix::ioctl_readwrite_bad!(sg_io, 0x2285, super::Header);
}

const NONE: i32 = -1;
const FROM_DEVICE: i32 = -3;
const TIMEOUT_MS: u32 = 30_000;

/// Sends the command and waits for its answer. An error is the kernel's, or one of a device that answers without registers: it is no
/// ATA disk, or its adapter does not pass commands through.
pub fn submit(device: &File, command: &Command) -> io::Result<Answer> {
    let (block, mut sense, mut data) = (command.block(), [0u8; 64], vec![0u8; command.data]);
    let mut header = Header {
        interface_id: i32::from(b'S'),
        direction: if data.is_empty() { NONE } else { FROM_DEVICE },
        cmd_len: 16,
        mx_sb_len: 64,
        iovec_count: 0,
        data_len: u32::try_from(data.len()).map_err(io::Error::other)?,
        data: if data.is_empty() { std::ptr::null_mut() } else { data.as_mut_ptr().cast() },
        command: block.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: TIMEOUT_MS,
        flags: 0,
        pack_id: 0,
        usr_ptr: std::ptr::null_mut(),
        status: 0,
        masked_status: 0,
        msg_status: 0,
        sb_len_wr: 0,
        host_status: 0,
        driver_status: 0,
        resid: 0,
        duration: 0,
        info: 0,
    };
    // SAFETY: the structure has the layout of the kernel's. It, the command, the sense buffer and the data, each with its own length in
    // the structure, live until the call has returned; the kernel writes no more than these lengths. The descriptor is open.
    unsafe { ioctl::sg_io(device.as_raw_fd(), &mut header) }?;
    if header.host_status != 0 {
        return Err(io::Error::other(format!("its adapter does not answer (host status {:#x})", header.host_status)));
    }
    let mut answer = registers(&sense[..usize::from(header.sb_len_wr).min(sense.len())])
        .ok_or_else(|| io::Error::other("it answers without ATA registers"))?;
    answer.data = data;
    Ok(answer)
}

/// Of the status: an error, or a fault of the device (ACS-3, 6.2).
const FAILED: u8 = 0x01 | 0x20;

/// Of the descriptor ATA Status Return (SAT-3, 12.2.2.6) in sense data in descriptor format. In fixed format (12.2.2.7), which the kernel
/// has for failed commands, half of the registers is missing: what matters of these is that they failed.
fn registers(sense: &[u8]) -> Option<Answer> {
    if let Some([error, status]) = sense.get(3..5).filter(|_| sense[0] & 0x7f == 0x70) {
        let failed = Answer { status: *status, error: *error, ..Answer::default() };
        return Some(failed).filter(|failed| !failed.is_success());
    }
    let mut rest = sense.get(8..).filter(|_| sense[0] & 0x7f == 0x72)?;
    loop {
        let (kind, length) = (*rest.first()?, usize::from(*rest.get(1)?) + 2);
        if kind == 0x09 {
            let r = rest.get(..14)?;
            let lba = u64::from_be_bytes([0, 0, r[10], r[8], r[6], r[11], r[9], r[7]]);
            return Some(Answer {
                status: r[13],
                error: r[3],
                count: u16::from_be_bytes([r[4], r[5]]),
                lba,
                data: Vec::new(),
            });
        }
        rest = rest.get(length..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_the_kernels() {
        assert_eq!(size_of::<Header>(), 88);
        assert_eq!(std::mem::offset_of!(Header, data), 16);
        assert_eq!(std::mem::offset_of!(Header, timeout_ms), 40);
        assert_eq!(std::mem::offset_of!(Header, status), 64);
    }

    #[test]
    fn a_command_has_its_registers_where_sat_has_them() {
        let block = Command::sanitize(Sanitize::CryptoScramble).block();
        assert_eq!(block, [0x85, 7, 0x20, 0, 0x11, 0, 0, 0x43, 0x70, 0, 0x79, 0, 0x72, 0x40, 0xb4, 0]);
        let block = Command::sanitize(Sanitize::Overwrite).block();
        assert_eq!(block, [0x85, 7, 0x20, 0, 0x14, 0, 1, 0, 0, 0x57, 0, 0x4f, 0, 0x40, 0xb4, 0]);
        let block = Command::identify().block();
        assert_eq!(block, [0x85, 8, 0x2e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x40, 0xec, 0]);
    }

    #[test]
    fn registers_are_read_out_of_the_descriptor() {
        let mut sense = vec![0x72, 1, 0, 0x1d, 0, 0, 0, 14];
        assert_eq!(registers(&sense), None);
        sense.extend([0x09, 0x0c, 1, 0, 0x80, 0, 1, 2, 3, 4, 5, 6, 0x40, 0x50]);
        let found = registers(&sense).expect("registers");
        assert_eq!((found.status, found.count), (0x50, 0x8000));
        assert_eq!(found.lba, 0x0503_0106_0402);
        for length in 0..sense.len() {
            assert_eq!(registers(&sense[..length]), None);
        }
        assert_eq!(registers(&[0x70, 0, 0, 0, 0x50]), None, "what succeeded is not told by half of its registers");
        let failed = registers(&[0x70, 0, 5, 4, 0x51]).expect("registers");
        assert_eq!((failed.status, failed.error), (0x51, 4));
    }

    #[test]
    fn what_is_no_disk_is_an_error() {
        let file = tempfile::tempfile().expect("a file");
        assert!(submit(&file, &Command::identify()).is_err());
    }
}
