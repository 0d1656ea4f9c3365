//! The disk from which a server without a network boots the installer, to have its own disks erased; and the report that the installer
//! leaves on it, which whoever presents the disk reads.
//!
//! A GPT with two partitions: the report's, and an EFI system partition (FAT32) with the installer as one program of UEFI, under the name
//! that firmware starts where nobody names another (UEFI 2.10, 3.5.1.1).
//!
//! The report's first MiB begins with [`MARK`] and the name of this disk, which is new each time: by it the installer knows the disk
//! among those that it erases, and no disk can have been made to look like it before. Two places follow, written in turn; each has a number that
//! grows, a length and a SHA-256 before its text, so that a reader never takes half a report for one.

use crate::gpt::create::{Kind, Partition, create};
use crate::system_partition::{END, MIB, Part, SECTOR, format, room_for, unique};
use proto::argument_area as area;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// The argument of the installer's kernel that names this disk.
pub const ARGUMENT: &str = "metalplane_eraser";
const MARK: &str = "metalplane eraser ";

/// Where the report begins.
const REPORT: u64 = MIB;
const PLACES: [u64; 2] = [REPORT + 4096, REPORT + MIB / 2];
/// Before a place's text: number, length, checksum.
const HEAD: usize = 48;
/// Of a text, in bytes: some hundred disks.
pub const MOST: usize = 128 << 10;
const SYSTEM: u64 = 2 * MIB;
/// Copied at once.
const PIECE: usize = 1 << 20;

/// How far the erasing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    Running,
    Success,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub state: State,
    /// Lines, as of an action.
    pub message: String,
}

/// Writes the disk into an empty file: `program` with `arguments`, for the installer to know it by `name`.
pub fn make(disk: &File, name: &str, program: &mut (impl Read + Seek), arguments: &str) -> io::Result<()> {
    let length = program.seek(SeekFrom::End(0))?;
    program.rewind()?;
    let places = area::find(&mut *program)?;
    if places.is_empty() {
        return Err(wrong(
            "it has no place for the kernel's arguments: write it with `cargo xtask installer-image --unified`",
        ));
    }
    let filling = area::filling(&format!("{ARGUMENT}={name} {arguments}"), "agent.eraserArguments").map_err(wrong)?;
    let system = room_for(length);
    let size = SYSTEM + system + END;
    disk.set_len(size)?;
    let mut head = [0; SECTOR as usize];
    let mark = format!("{MARK}{name}\n");
    let into = head.get_mut(..mark.len()).ok_or_else(|| wrong("its name is too long"))?;
    into.copy_from_slice(mark.as_bytes());
    disk.write_all_at(&head, REPORT)?;
    program.rewind()?;
    let mut volume = Part::new(disk, SYSTEM, system);
    let volume = format(&mut volume, b"ERASER     ")?;
    let folder = volume.root_dir().create_dir("EFI")?.create_dir("BOOT")?;
    let mut file = folder.create_file("BOOTX64.EFI")?;
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        let read = program.read(&mut piece)?;
        if read == 0 {
            break;
        }
        area::fill(&places, &filling, at, &mut piece[..read]);
        file.write_all(&piece[..read])?;
        at += read as u64;
    }
    file.flush()?;
    drop((file, folder));
    volume.unmount()?;
    let part = |name: &str, kind, offset, length| Partition { name: name.to_owned(), kind, offset, length };
    let partitions = [part("report", Kind::Linux, REPORT, MIB), part("eraser", Kind::EfiSystem, SYSTEM, system)];
    create(disk, (size, SECTOR), &partitions, unique(name))?;
    disk.sync_all()
}

/// Whether this disk has that name.
pub fn is_named(disk: &File, name: &str) -> io::Result<bool> {
    let mut head = [0; SECTOR as usize];
    match disk.read_exact_at(&mut head, REPORT) {
        // It is smaller.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(head.starts_with(format!("{MARK}{name}\n").as_bytes())),
    }
}

/// The installer's side of the report.
pub struct Writer<'a> {
    disk: &'a File,
    number: u64,
}

impl<'a> Writer<'a> {
    /// Goes on from what is there: of a boot before.
    pub fn new(disk: &'a File) -> io::Result<Self> {
        Ok(Self { disk, number: newest(disk)?.map_or(0, |(number, _)| number) })
    }

    /// On the disk when it returns. A message that is too long loses its end.
    pub fn write(&mut self, report: &Report) -> io::Result<()> {
        let mut text = serde_json::to_vec(report)?;
        if text.len() > MOST {
            // A character is at most six bytes of JSON.
            let message = report.message.chars().take(MOST / 8).collect();
            text = serde_json::to_vec(&Report { state: report.state, message })?;
        }
        self.number += 1;
        let mut place = Vec::with_capacity(HEAD + text.len());
        place.extend(self.number.to_le_bytes());
        place.extend((text.len() as u64).to_le_bytes());
        place.extend(digest(self.number, &text));
        place.extend(&text);
        place.resize(place.len().next_multiple_of(4096), 0);
        self.disk.write_all_at(&place, PLACES[usize::from(self.number % 2 == 1)])?;
        self.disk.sync_data()
    }
}

/// The newest one that is whole, with its number. Whoever boots from the disk writes there: nothing is believed of it but its form.
pub fn newest(disk: &File) -> io::Result<Option<(u64, Report)>> {
    let mut newest: Option<(u64, Report)> = None;
    for place in PLACES {
        let mut head = [0; HEAD];
        disk.read_exact_at(&mut head, place)?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (number, length) = (word(0), word(8));
        let Some(length) = usize::try_from(length).ok().filter(|length| (1..=MOST).contains(length)) else { continue };
        let mut text = vec![0; length];
        disk.read_exact_at(&mut text, place + HEAD as u64)?;
        let is_whole = digest(number, &text)[..] == head[16..];
        let report = serde_json::from_slice(&text).ok().filter(|_| is_whole);
        if let Some(report) = report
            && newest.as_ref().is_none_or(|(known, _)| number > *known)
        {
            newest = Some((number, report));
        }
    }
    Ok(newest)
}

fn digest(number: u64, text: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(number.to_le_bytes());
    hash.update(text);
    hash.finalize().into()
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fatfs::{FatType, FileSystem, FsOptions};
    use std::io::Cursor;

    fn made() -> File {
        let disk = tempfile::tempfile().expect("a file");
        let mut program = vec![7; 3 << 20];
        let empty = proto::argument_area::empty();
        program[PIECE - 100..PIECE - 100 + empty.len()].copy_from_slice(empty.as_bytes());
        make(&disk, "a-name", &mut Cursor::new(program), "console=ttyS0").expect("made");
        disk
    }

    fn report(state: State, message: &str) -> Report {
        Report { state, message: message.to_owned() }
    }

    #[test]
    fn the_program_is_where_firmware_looks_and_has_its_arguments() {
        let disk = made();
        assert!(is_named(&disk, "a-name").expect("read") && !is_named(&disk, "a-nam").expect("read"));
        let size = disk.metadata().expect("a size").len();
        let mut volume = Part::new(&disk, SYSTEM, size - SYSTEM - END);
        let volume = FileSystem::new(&mut volume, FsOptions::new()).expect("a FAT volume");
        assert_eq!(volume.fat_type(), FatType::Fat32);
        let mut program = Vec::new();
        volume.root_dir().open_file("EFI/BOOT/BOOTX64.EFI").expect("there").read_to_end(&mut program).expect("read");
        assert_eq!(program.len(), 3 << 20);
        assert!(program[PIECE - 100..].starts_with(b"metalplane_eraser=a-name console=ttyS0  "));
    }

    #[test]
    fn a_program_without_a_place_for_its_arguments_is_refused() {
        let disk = tempfile::tempfile().expect("a file");
        let error = make(&disk, "a", &mut Cursor::new(vec![7; 4096]), "").expect_err("no place");
        assert!(error.to_string().contains("--unified"), "{error}");
    }

    #[test]
    fn the_newest_report_that_is_whole_is_read() {
        let disk = made();
        assert_eq!(newest(&disk).expect("read"), None);
        let mut writer = Writer::new(&disk).expect("a writer");
        for message in ["one", "two", "three"] {
            writer.write(&report(State::Running, message)).expect("written");
            assert_eq!(newest(&disk).expect("read").expect("a report").1, report(State::Running, message));
        }
        // Another boot goes on.
        Writer::new(&disk).expect("a writer").write(&report(State::Success, "four")).expect("written");
        assert_eq!(newest(&disk).expect("read"), Some((4, report(State::Success, "four"))));
        // One that is half written is none, and the one before counts.
        disk.write_all_at(b"x", PLACES[0] + HEAD as u64 + 3).expect("written");
        assert_eq!(newest(&disk).expect("read"), Some((3, report(State::Running, "three"))));
        disk.write_all_at(&u64::MAX.to_le_bytes(), PLACES[1] + 8).expect("written");
        assert_eq!(newest(&disk).expect("read"), None);
    }

    #[test]
    fn a_message_that_is_too_long_loses_its_end() {
        let disk = made();
        let long = "\u{1}".repeat(MOST);
        Writer::new(&disk).expect("a writer").write(&report(State::Failed, &long)).expect("written");
        let (_, read) = newest(&disk).expect("read").expect("a report");
        assert!(read.state == State::Failed && !read.message.is_empty() && long.starts_with(&read.message));
    }
}
