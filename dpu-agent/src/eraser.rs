//! Erasers: disks from which the host boots the installer to have its own disks erased (`imaging::eraser`). The agent makes them of the
//! programs that are in its image, and reads on them what the installer reports: such a host has no network.

use crate::clock;
use crate::seed::Seeds;
use api::attachment::{EraserReport, EraserState};
use imaging::eraser::{self, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use planner::agent::{Entry, Function};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// A program of UEFI is called so, with what its machine's processors are in between.
const NAME: (&str, &str) = ("eraser-", ".efi");

#[derive(Debug, Clone, Default)]
pub struct Erasers {
    folder: PathBuf,
    arguments: String,
}

impl Erasers {
    pub fn new(folder: PathBuf, arguments: String) -> Self {
        Self { folder, arguments }
    }

    /// For which machines there is a program.
    pub(crate) fn machines(&self) -> Vec<String> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let machine = |name: &str| Some(name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?.to_owned());
        let mut machines: Vec<String> =
            files.filter_map(|file| machine(file.file_name().to_str()?)).filter(|name| !name.is_empty()).collect();
        machines.sort();
        machines
    }

    /// Makes the disk for the attachment with this UID. Whole or not at all.
    pub(crate) fn write(&self, seeds: &Seeds, uid: &str, machine: &str) -> io::Result<()> {
        if !self.machines().iter().any(|known| known == machine) {
            let known = self.machines().join(", ");
            let why = format!("there is no eraser for {machine} in {}, but for: {known}", self.folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let mut program = File::open(self.folder.join(format!("{}{machine}{}", NAME.0, NAME.1)))?;
        seeds.make(uid, |image| eraser::make(image, uid, &mut program, &self.arguments))
    }
}

/// What is on those that were granted, by UID. What cannot be read says nothing: the emulation tells what is wrong with a disk.
pub(crate) fn reports(record: &BTreeMap<String, Entry>, seeds: &Seeds) -> BTreeMap<String, EraserReport> {
    let granted = record.iter().filter(|(_, entry)| matches!(entry.function, Function::Eraser(_)));
    granted.filter_map(|(uid, _)| Some((uid.clone(), report(seeds, uid)?))).collect()
}

fn report(seeds: &Seeds, uid: &str) -> Option<EraserReport> {
    let disk = File::open(seeds.path(uid)).ok()?;
    let newest = eraser::newest(&disk).inspect_err(|error| tracing::debug!(%error, uid, "reading an eraser's report"));
    let (number, report) = newest.ok()??;
    let state = match report.state {
        State::Running => EraserState::Running,
        State::Success => EraserState::Success,
        State::Failed => EraserState::Failed,
    };
    // Whoever wrote it may have meant the terminal of who reads it.
    let shown = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    let message = report.message.chars().map(shown).collect();
    Some(EraserReport { state, number, message, at: MicroTime(clock::now()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_made_of_the_program_for_its_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = proto::argument_area::empty();
        for file in ["eraser-x86_64.efi", "eraser-.efi", "other"] {
            fs::write(folder.path().join(file), &program).expect("written");
        }
        let seeds = Seeds::open(folder.path().join("seeds")).expect("open");
        let erasers = Erasers::new(folder.path().to_owned(), "console=ttyS0".to_owned());
        assert_eq!(erasers.machines(), ["x86_64"]);
        erasers.write(&seeds, "uid", "x86_64").expect("made");
        assert!(seeds.list().expect("list").contains("uid"));
        assert_eq!(report(&seeds, "uid"), None);
        let disk = File::options().read(true).write(true).open(seeds.path("uid")).expect("open");
        let mut writer = eraser::Writer::new(&disk).expect("a writer");
        writer.write(&eraser::Report { state: State::Failed, message: "x\u{1b}[2J\ny".into() }).expect("written");
        let told = report(&seeds, "uid").expect("told");
        assert_eq!((told.state, told.number, told.message.as_str()), (EraserState::Failed, 1, "x [2J\ny"));
        let error = erasers.write(&seeds, "other", "aarch64").expect_err("no program");
        assert!(error.to_string().contains("aarch64") && error.to_string().contains("x86_64"), "{error}");
    }
}
