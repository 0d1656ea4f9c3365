//! Disks that answer as the specifications say, and not as they should: what they are told, and what is believed of them.

use super::*;
use linux_sys::{ata as ata_sys, nvme as nvme_sys};
use std::cell::RefCell;

const SIZE: usize = 3 << 20;

/// A disk in memory. What it can, how it answers, and what it was told.
struct Memory {
    data: Vec<u8>,
    /// Identify Controller: sanitize capabilities, Format NVM, and whether that is cryptographic too.
    sanicap: u8,
    formats: bool,
    formats_crypto: bool,
    /// Word 59 of IDENTIFY DEVICE; `None`: no ATA disk.
    word_59: Option<u16>,
    frozen: bool,
    /// Methods that it says it has done, and has not.
    lies: bool,
    /// Methods that it refuses.
    refuses: bool,
    /// Looks at the status before an operation is over.
    lasts: u32,
    left: u32,
    /// How it ended: SSTAT of NVMe.
    ends: u8,
    written: usize,
    /// A write or read beyond it fails.
    breaks_at: Option<u64>,
    /// What is written there does not stay.
    forgets: Option<usize>,
    told: Vec<String>,
    waits: u32,
}

impl Memory {
    fn new() -> Self {
        let data = (0..SIZE).map(|at| (at / 7 % 251) as u8).collect();
        Self {
            data,
            sanicap: 0,
            formats: false,
            formats_crypto: false,
            word_59: None,
            frozen: false,
            lies: false,
            refuses: false,
            lasts: 2,
            left: 0,
            ends: 1,
            written: 0,
            breaks_at: None,
            forgets: None,
            told: Vec::new(),
            waits: 0,
        }
    }

    fn wipes(&mut self) {
        if !self.lies {
            self.data.fill(0);
        }
    }

    fn is_zero(&self) -> bool {
        self.data.iter().all(|byte| *byte == 0)
    }
}

impl Device for Memory {
    fn size_bytes(&self) -> u64 {
        self.data.len() as u64
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        into.copy_from_slice(&self.data[at..at + into.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.breaks_at.is_some_and(|at| offset + data.len() as u64 > at) {
            return Err(io::Error::other("medium error"));
        }
        let at = offset as usize;
        self.data[at..at + data.len()].copy_from_slice(data);
        if let Some(at) = self.forgets.filter(|forgets| (at..at + data.len()).contains(forgets)) {
            self.data[at] = 7;
        }
        self.written += data.len();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn namespace(&mut self) -> io::Result<u32> {
        Ok(3)
    }

    fn nvme(&mut self, command: &nvme_sys::Command) -> io::Result<nvme_sys::Answer> {
        let (opcode, nsid, cdw10) = command.words();
        let answer = |data: Vec<u8>| Ok(nvme_sys::Answer { status: 0, data });
        match (opcode, cdw10) {
            (0x06, 1) => {
                let mut identity = vec![0; 4096];
                identity[328] = self.sanicap;
                identity[256] = u8::from(self.formats) << 1;
                identity[524] = u8::from(self.formats_crypto) << 2;
                return answer(identity);
            }
            (0x06, 0) => {
                assert_eq!(nsid, 3);
                let mut namespace = vec![0; 4096];
                // LBA format 2 with metadata in the block, protection type 1 at its front.
                (namespace[26], namespace[29]) = (0x12, 0x09);
                return answer(namespace);
            }
            (0x02, _) => {
                let in_progress = self.left > 0;
                self.left = self.left.saturating_sub(1);
                let mut log = vec![0; 32];
                log[2] = if in_progress { 2 } else { self.ends };
                return answer(log);
            }
            _ => {}
        }
        self.told.push(format!("{opcode:02x} {nsid} {cdw10:x}"));
        if self.refuses {
            return Ok(nvme_sys::Answer { status: 0x1c, data: Vec::new() });
        }
        self.left = if opcode == 0x84 { self.lasts } else { 0 };
        self.wipes();
        answer(Vec::new())
    }

    fn ata(&mut self, command: &ata_sys::Command) -> io::Result<ata_sys::Answer> {
        let word = self.word_59.ok_or_else(|| io::Error::other("no ATA disk"))?;
        let (opcode, feature, count, lba) = command.words();
        let done = ata_sys::Answer { status: 0x50, ..ata_sys::Answer::default() };
        match (opcode, feature) {
            (0xec, _) => {
                let mut data = vec![0; 512];
                data[118..120].copy_from_slice(&word.to_le_bytes());
                Ok(ata_sys::Answer { data, ..done })
            }
            (0xb4, 0) => {
                let in_progress = self.left > 0;
                self.left = self.left.saturating_sub(1);
                let ended = if self.ends == 1 { 0x8000 } else { 0 };
                let count = if in_progress { 0x4000 } else { ended } | u16::from(self.frozen) << 13;
                Ok(ata_sys::Answer { count, ..done })
            }
            _ => {
                self.told.push(format!("{opcode:02x} {feature:x} {count} {lba:x}"));
                if self.refuses {
                    return Ok(ata_sys::Answer { status: 0x51, error: 4, ..done });
                }
                self.left = self.lasts;
                self.wipes();
                Ok(done)
            }
        }
    }

    fn wait(&mut self, _: Duration) {
        self.waits += 1;
    }
}

fn erased(device: &mut Memory, speaks: Speaks) -> Result<Erased, String> {
    erase(device, speaks, Instant::now() + Duration::from_secs(60), &|_| ())
}

#[test]
fn an_nvme_disk_is_told_the_best_that_it_says_it_has() {
    for (sanicap, formats, crypto, told, method) in [
        (7, true, true, "84 0 4", Method::NvmeSanitizeCrypto),
        (2, true, true, "84 0 2", Method::NvmeSanitizeBlock),
        // Overwriting by the controller alone is none of those that are asked for.
        (4, true, true, "80 3 532", Method::NvmeFormatCrypto),
        (0, true, false, "80 3 332", Method::NvmeFormatUserData),
    ] {
        let mut disk = Memory { sanicap, formats, formats_crypto: crypto, ..Memory::new() };
        let done = erased(&mut disk, Speaks::Nvme).expect("erased");
        assert_eq!((done.method, disk.told.as_slice()), (method, &[told.to_owned()][..]));
        assert!(disk.is_zero() && disk.written == 0 && done.read.contains("none of which"), "{done:?}");
        assert_eq!(disk.waits, if sanicap & 3 == 0 { 0 } else { 2 }, "it is waited for to its end");
    }
    let mut disk = Memory::new();
    let done = erased(&mut disk, Speaks::Nvme).expect("erased");
    assert_eq!((done.method, disk.written, disk.told.len()), (Method::Overwrite, SIZE, 0));
    assert!(done.notes.iter().any(|note| note.contains("no Format NVM")), "{done:?}");
}

#[test]
fn an_ata_disk_is_told_the_best_that_it_says_it_has() {
    for (word, told, method) in [
        (0xf000, "b4 11 0 43727970", Method::AtaCryptoScramble),
        (0xd000, "b4 12 0 426b4572", Method::AtaBlockErase),
        (0x5000, "b4 14 1 4f5700000000", Method::AtaOverwrite),
    ] {
        let mut disk = Memory { word_59: Some(word), ..Memory::new() };
        let done = erased(&mut disk, Speaks::Ata).expect("erased");
        assert_eq!((done.method, disk.told.as_slice()), (method, &[told.to_owned()][..]));
        assert!(disk.is_zero() && disk.written == 0);
    }
    for word_59 in [None, Some(0), Some(0x1000), Some(0xe000)] {
        let mut disk = Memory { word_59, ..Memory::new() };
        let done = erased(&mut disk, Speaks::Ata).expect("erased");
        assert_eq!((done.method, disk.written), (Method::Overwrite, SIZE), "{word_59:x?}");
    }
}

#[test]
fn a_disk_is_believed_nothing() {
    // It says that all is done, and nothing is: each way is tried, and the last one is by our own hand.
    for speaks in [Speaks::Nvme, Speaks::Ata] {
        let all = || Memory { sanicap: 7, formats: true, formats_crypto: true, word_59: Some(0xf000), ..Memory::new() };
        for mut disk in
            [Memory { lies: true, ..all() }, Memory { refuses: true, ..all() }, Memory { ends: 3, lies: true, ..all() }]
        {
            let done = erased(&mut disk, speaks).expect("erased");
            assert_eq!((done.method, disk.told.len()), (Method::Overwrite, if speaks == Speaks::Nvme { 4 } else { 3 }));
            assert!(disk.is_zero() && done.notes.len() >= 3, "{done:?}");
        }
    }
    // A disk that looks blank has data between the places, perhaps: it is not believed either.
    let blank = || Memory { data: vec![0xff; SIZE], sanicap: 1, ..Memory::new() };
    let done = erased(&mut Memory { lies: true, ..blank() }, Speaks::Nvme).expect("erased");
    assert!(done.method == Method::Overwrite && done.notes[1].contains("what was there before"), "{done:?}");
    let done = erased(&mut blank(), Speaks::Nvme).expect("erased");
    assert_eq!(done.method, Method::NvmeSanitizeCrypto);
    // One that takes no mark shows nothing.
    let mut disk = Memory { forgets: Some(0), ..blank() };
    let why = erased(&mut disk, Speaks::Nvme).expect_err("refused");
    assert!(why.contains("does not hold the mark") && disk.told.is_empty(), "{why}");
}

#[test]
fn what_is_not_zero_after_it_was_overwritten_is_not_erased() {
    for forgets in [0, SIZE / 2 + 1, SIZE - 1] {
        let mut disk = Memory { forgets: Some(forgets), ..Memory::new() };
        let why = erased(&mut disk, Speaks::Blocks).expect_err("refused");
        assert!(why.contains(&format!("byte {forgets} is another")), "{why}");
    }
    let mut disk = Memory { breaks_at: Some(SIZE as u64 - 1), ..Memory::new() };
    let why = erased(&mut disk, Speaks::Blocks).expect_err("refused");
    assert!(why.contains("writing at byte") && why.contains("medium error"), "{why}");
}

#[test]
fn a_frozen_disk_has_failed_and_is_not_overwritten() {
    let mut disk = Memory { word_59: Some(0xf000), frozen: true, ..Memory::new() };
    let why = erased(&mut disk, Speaks::Ata).expect_err("refused");
    assert!(why.contains("frozen") && disk.written == 0 && disk.told.is_empty(), "{why}");
}

#[test]
fn what_was_begun_before_ends_first_and_no_wait_is_for_ever() {
    let mut disk = Memory { sanicap: 1, left: 5, lasts: 0, ..Memory::new() };
    erased(&mut disk, Speaks::Nvme).expect("erased");
    assert!(disk.waits >= 4 && disk.told == ["84 0 4"], "{:?}", disk.told);
    for speaks in [Speaks::Nvme, Speaks::Ata, Speaks::Blocks] {
        let mut disk = Memory { sanicap: 1, word_59: Some(0xf000), left: u32::MAX, ..Memory::new() };
        let why = erase(&mut disk, speaks, Instant::now(), &|_| ()).expect_err("the time is over");
        assert!(why.contains("time is over") && disk.written == 0, "{speaks:?}: {why}");
    }
}

#[test]
fn progress_is_said() {
    let said = RefCell::new(Vec::new());
    let mut disk = Memory::new();
    let until = Instant::now() + Duration::from_secs(60);
    erase(&mut disk, Speaks::Blocks, until, &|line| said.borrow_mut().push(line.to_owned())).expect("erased");
    assert_eq!(said.into_inner(), ["Overwrite"], "a small disk is done at once");
}

/// The controller reads these lines: its own test holds it to the same file.
#[test]
fn the_report_is_as_the_controller_reads_it() {
    let disk = |name: &str, serial: &str, wwid: &str, bytes, result| Report {
        name: name.to_owned(),
        serial: serial.to_owned(),
        wwid: wwid.to_owned(),
        bytes,
        result,
        method: None,
        read: None,
        seconds: None,
        why: None,
    };
    let erased = Report {
        method: Some(Method::NvmeSanitizeCrypto),
        read: Some("1002 places, none of which holds what it held".to_owned()),
        seconds: Some(12),
        ..disk("nvme0n1", "S3X \"1\"", "eui.0025385b01234567", 1_920_383_410_176, Outcome::Erased)
    };
    let failed = Report {
        why: Some("the firmware has frozen its sanitize commands".to_owned()),
        ..disk("sda", "W1", "naa.5000c500a1b2c3d4", 4_000_787_030_016, Outcome::Failed)
    };
    let skipped = Report { why: Some("is a USB disk".to_owned()), ..disk("sdb", "", "", 15_728_640, Outcome::Skipped) };
    let seen = disk("vda", "V1", "", 1 << 30, Outcome::Seen);
    let lines: String = [erased, failed, skipped, seen].iter().map(|report| format!("{}\n", report.line())).collect();
    assert_eq!(lines, include_str!("../../../proto/golden/disks.txt"));
}
