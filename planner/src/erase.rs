//! What a Hardware has on record about the erasing of its disks, and what its eraser reported of each.
//!
//! As an installation, it stands beside the claim and under the same compare-and-swap: a server whose disks are to be erased is
//! given back when `Done` is on record, or `WithData`, which an administrator asked for; no lost Workflow and no old cache can say
//! so instead. A report is what the action `erase` of our installer tells in its message, a line for each disk: the protocol
//! of agents has no other place for it. A disk counts as erased only if it was read back, by what the report says.

use crate::meta::annotation;
use api::labels;
use api::machine::PowerStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of the action whose message is the report.
pub const ACTION: &str = "erase";

/// What the Workflow does. Each disk is overwritten in the worst case, and read: a day and more for the largest.
pub const TEXT: &str = r#"version: "0.1"
name: erase
global_timeout: 176400
tasks:
  - name: erase
    worker: "{{.device_1}}"
    actions:
      - {name: erase, image: metalplane.io/erase, timeout: 172800}
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The server may boot the installer, and run this Workflow alone.
    Begun,
    /// Each disk was shown to be erased.
    Done,
    /// An administrator takes the server with what is on its disks.
    WithData,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Begun, Self::Done, Self::WithData];

    pub fn word(self) -> &'static str {
        match self {
            Self::Begun => "Begun",
            Self::Done => "Done",
            Self::WithData => "WithData",
        }
    }
}

/// `metalplane.io/erase`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Counts the tries of one release, from 1; 0 if an administrator took the server before the first one.
    pub number: u32,
    pub phase: Phase,
    /// The UID of the Workflow, or [`NO_WORKFLOW`].
    pub workflow: String,
}

/// Of a server that was taken before its erasing began.
pub const NO_WORKFLOW: &str = "none";

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.number, self.phase.word(), self.workflow)
    }
}

impl Record {
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let number = parts.next()?.parse().ok()?;
        let word = parts.next()?;
        let phase = Phase::ALL.into_iter().find(|phase| phase.word() == word)?;
        let workflow = parts.next().filter(|uid| !uid.is_empty())?.to_owned();
        parts.next().is_none().then_some(Self { number, phase, workflow })
    }

    pub fn of(hardware: &ObjectMeta) -> Option<Self> {
        Self::parse(annotation(hardware, labels::ERASE)?)
    }

    /// Nothing is left to do to the disks.
    pub fn is_over(&self) -> bool {
        self.phase != Phase::Begun
    }
}

/// Something is on record, whether it can be read or not: no installation runs any more.
pub fn is_recorded(hardware: &ObjectMeta) -> bool {
    annotation(hardware, labels::ERASE).is_some()
}

/// A claim says that the disks are erased first, an installation was begun, and nothing says that it is over.
pub fn is_owed(hardware: &ObjectMeta) -> bool {
    let claimed_so = annotation(hardware, labels::LOCAL_DISKS) == Some("Erase");
    claimed_so && crate::install::is_recorded(hardware) && !Record::of(hardware).is_some_and(|record| record.is_over())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is there.
    Seen,
    Erased,
    Failed,
    /// A USB disk or a removable medium, what a BMC shows as one among them: it is neither installed on nor erased.
    Skipped,
    /// What this installer does not erase, and no disk of this server that has to come back: one behind a network, or a controller without
    /// a driver, whatever is behind it.
    Unserved,
}

/// One disk, as the installer tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// As the kernel of the installer calls it, in that boot.
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwid: String,
    pub bytes: u64,
    pub result: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What was read back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Why it was not erased, or not by a better method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Disk {
    /// The same disk, whatever it was called in that boot.
    fn is(&self, other: &Self) -> bool {
        if !self.wwid.is_empty() && !other.wwid.is_empty() {
            return self.wwid == other.wwid;
        }
        match self.serial.is_empty() && other.serial.is_empty() {
            true => self.name == other.name && self.bytes == other.bytes,
            false => self.serial == other.serial,
        }
    }

    fn is_device(&self, device: &str) -> bool {
        names(device, &self.name, &self.serial, &self.wwid)
    }

    /// As an action's message has it; see [`disks`].
    pub fn line(&self) -> String {
        format!("disk {}", serde_json::to_string(self).unwrap_or_default())
    }

    /// By what a person finds it.
    pub fn words(&self) -> String {
        match (self.serial.as_str(), self.wwid.as_str()) {
            ("", "") => format!("disk {} without a serial number", self.name),
            ("", wwid) => format!("disk {} (wwid {wwid})", self.name),
            (serial, _) => format!("disk {} (serial number {serial})", self.name),
        }
    }

    fn told(&self) -> String {
        let (method, read) = (self.method.as_deref().unwrap_or_default(), self.read.as_deref().unwrap_or_default());
        format!("{}: {method}, read back: {read}, {} s", self.words(), self.seconds.unwrap_or_default())
    }
}

/// `device` as an inventory has it: `/dev/nvme0n1`, or a link below `/dev/disk/by-id`, which has a serial number or wwid in it. The
/// others are a disk's, as an agent tells them.
pub fn names(device: &str, name: &str, serial: &str, wwid: &str) -> bool {
    let last = device.rsplit('/').next().unwrap_or_default();
    if !device.contains("/by-id/") {
        return last == name;
    }
    let wwid = wwid.rsplit('.').next().unwrap_or_default();
    [serial, wwid].into_iter().any(|id| id.len() >= 4 && last.contains(id))
}

/// The lines of an action's message that tell of a disk.
pub fn disks(message: &str) -> Vec<Disk> {
    let lines = message.lines().filter_map(|line| line.strip_prefix("disk ").filter(|line| line.starts_with('{')));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The disks that installers have told of, as they are on record at a Hardware. An error says that nobody can tell.
pub fn seen(hardware: &ObjectMeta) -> Result<Vec<Disk>, String> {
    let Some(recorded) = annotation(hardware, labels::DISKS_SEEN) else { return Ok(Vec::new()) };
    serde_json::from_str(recorded).map_err(|error| {
        format!("the Hardware's annotation {} cannot be read ({error}): remove it", labels::DISKS_SEEN)
    })
}

/// What is on record, and of what is told now each disk that is not among it.
pub fn seen_with(recorded: &[Disk], told: impl IntoIterator<Item = Disk>) -> Vec<Disk> {
    let mut all = recorded.to_vec();
    for disk in told {
        let is_one = !matches!(disk.result, Outcome::Skipped | Outcome::Unserved);
        if is_one && !all.iter().any(|known| known.is(&disk)) {
            all.push(Disk { result: Outcome::Seen, method: None, read: None, seconds: None, why: None, ..disk });
        }
    }
    all
}

/// What the eraser reported, against what was there before: the inventory's devices, and the disks that installers saw. An error
/// names the disks that are not erased. `has_disks`: the server cannot be without a disk of its own.
pub fn judge(report: &[Disk], devices: &[&str], seen: &[Disk], has_disks: bool) -> Result<(), String> {
    let mut why = Vec::new();
    for disk in report {
        let named = devices.iter().any(|device| disk.is_device(device));
        match disk.result {
            Outcome::Erased if disk.method.is_none() || disk.read.is_none() => {
                why.push(format!("{}: the report does not say how it was erased and read back", disk.words()));
            }
            Outcome::Erased => {}
            Outcome::Skipped if !named => {}
            Outcome::Seen | Outcome::Failed | Outcome::Skipped | Outcome::Unserved => {
                let cause = disk.why.as_deref().unwrap_or("it was not erased");
                why.push(format!("{}: {cause}", disk.words()));
            }
        }
    }
    for before in seen.iter().filter(|before| !report.iter().any(|disk| disk.is(before))) {
        why.push(format!("{}: an installer saw it before, and the eraser did not", before.words()));
    }
    for device in devices.iter().filter(|device| !report.iter().any(|disk| disk.is_device(device))) {
        why.push(format!("{device}: the Hardware names it in spec.disks, and the eraser did not see it"));
    }
    if has_disks && report.iter().all(|disk| disk.result == Outcome::Skipped) {
        why.push("the eraser saw no disk".to_owned());
    }
    if why.is_empty() { Ok(()) } else { Err(why.join("; ")) }
}

/// `metalplane.io/erase-report`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Erased, or WithData.
    pub result: String,
    pub at: jiff::Timestamp,
    /// `namespace/name` of the machine that had the server.
    pub machine: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// What was known not to be erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Report {
    pub fn of(hardware: &ObjectMeta) -> Option<Self> {
        serde_json::from_str(annotation(hardware, labels::ERASE_REPORT)?).ok()
    }

    /// For an Event.
    pub fn told(&self, hardware: &str) -> String {
        let disks = self.disks.iter().filter(|disk| disk.result == Outcome::Erased).map(Disk::told);
        let disks = disks.collect::<Vec<_>>().join("; ");
        match (self.result.as_str(), &self.why) {
            ("Erased", _) if disks.is_empty() => format!("Hardware '{hardware}' has no disk of its own to erase"),
            ("Erased", _) => format!("the disks of Hardware '{hardware}' are erased: {disks}"),
            (_, None) => format!("an administrator took Hardware '{hardware}' with what is on its disks"),
            (_, Some(why)) => {
                format!("an administrator took Hardware '{hardware}' with what is on its disks: {why}")
            }
        }
    }
}

/// `metalplane.io/erase-power`: what the status of a machine would say of the power actions of its server, if there were one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PowerRecord {
    pub power: Option<PowerStatus>,
    #[serde(default)]
    pub power_on_attempts: u32,
}

impl PowerRecord {
    pub fn of(hardware: &ObjectMeta) -> Option<Self> {
        serde_json::from_str(annotation(hardware, labels::ERASE_POWER)?).ok()
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the installer writes it; its own test holds it to the same file.
    const GOLDEN: &str = include_str!("../../proto/golden/disks.txt");

    fn disk(name: &str, serial: &str, wwid: &str, result: Outcome) -> Disk {
        let erased = result == Outcome::Erased;
        let said = |text: &str| erased.then(|| text.to_owned());
        Disk {
            name: name.to_owned(),
            serial: serial.to_owned(),
            wwid: wwid.to_owned(),
            bytes: 1 << 30,
            result,
            method: said("Overwrite"),
            read: said("all of it is zero"),
            seconds: erased.then_some(9),
            why: None,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        for phase in Phase::ALL {
            let record = Record { number: 2, phase, workflow: "a-b".to_owned() };
            assert_eq!(Record::parse(&record.to_string()), Some(record));
        }
        for text in ["", "1/Begun", "1/Begun/", "x/Begun/a", "1/begun/a", "1/Done/a/b"] {
            assert_eq!(Record::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_the_installer_writes_is_read() {
        let read = disks(&format!("erase: metalplane.io/erase\n{GOLDEN}disk /dev/vda: log\ndisk {{broken"));
        let all: Vec<_> = read.iter().map(|disk| (disk.name.as_str(), disk.result)).collect();
        let wanted =
            [("nvme0n1", Outcome::Erased), ("sda", Outcome::Failed), ("sdb", Outcome::Skipped), ("vda", Outcome::Seen)];
        assert_eq!(all, wanted);
        assert_eq!(read[0].method.as_deref(), Some("NvmeSanitizeCrypto"));
        assert_eq!((read[0].serial.as_str(), read[0].wwid.as_str()), ("S3X \"1\"", "eui.0025385b01234567"));
    }

    #[test]
    fn every_disk_that_was_known_has_to_be_erased_and_read_back() {
        let erased = disk("nvme0n1", "N1", "eui.0025385b01234567", Outcome::Erased);
        let judged = |report: &[Disk], devices: &[&str], seen: &[Disk]| judge(report, devices, seen, true);
        let both = [erased.clone(), disk("sda", "S1", "naa.5000c500", Outcome::Erased)];
        for device in [
            "/dev/nvme0n1",
            "/dev/disk/by-id/nvme-Fast_N1",
            "/dev/disk/by-id/nvme-eui.0025385b01234567",
            "/dev/disk/by-id/wwn-0x5000c500",
        ] {
            let is_known = device != "/dev/disk/by-id/nvme-Fast_N1";
            assert_eq!(judged(&both, &[device], &[]).is_ok(), is_known, "{device}: two letters name no disk");
        }
        // What nobody has to find again is not on record, and what is on record once stays as it was.
        let told = [
            disk("sda", "S1", "", Outcome::Failed),
            disk("sdb", "U1", "", Outcome::Skipped),
            disk("0000:01:00.0", "", "", Outcome::Unserved),
            disk("sdz", "S1", "", Outcome::Erased),
        ];
        let recorded = seen_with(&[], told.clone());
        assert_eq!(recorded, [disk("sda", "S1", "", Outcome::Seen)]);
        assert_eq!(seen_with(&recorded, told), recorded);
        let annotated = |text: &str| ObjectMeta {
            annotations: Some([(labels::DISKS_SEEN.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let text = serde_json::to_string(&recorded).expect("JSON");
        assert_eq!(seen(&annotated(&text)), Ok(recorded));
        assert!(seen(&annotated("rubbish")).is_err_and(|why| why.contains("remove it")), "nobody can tell");
        // Another name in this boot, or another serial number as it is written.
        let renamed = disk("nvme7n1", "other", "eui.0025385b01234567", Outcome::Seen);
        assert_eq!(judged(&both, &[], &[renamed]), Ok(()));
        let without = |change: fn(&mut Disk)| {
            let mut disk = erased.clone();
            change(&mut disk);
            [disk]
        };
        for (report, devices, seen, named) in [
            (&both[..1], &[][..], &both[1..], "serial number S1"),
            (&both[..1], &["/dev/sda"], &[], "/dev/sda"),
            (&[], &[], &[], "no disk"),
            (&[disk("sda", "S1", "", Outcome::Failed)], &[], &[], "serial number S1"),
            (&[disk("sda", "S1", "", Outcome::Seen)], &[], &[], "serial number S1"),
            (&[disk("sdb", "", "", Outcome::Skipped)], &[], &[], "no disk"),
            (&[erased.clone(), disk("0000:01:00.0", "", "", Outcome::Unserved)], &[], &[], "0000:01:00.0"),
            (&[erased.clone(), disk("sdb", "U1", "", Outcome::Skipped)], &["/dev/sdb"], &[], "serial number U1"),
            (&without(|disk| disk.read = None), &[], &[], "read back"),
            (&without(|disk| disk.method = None), &[], &[], "read back"),
        ] {
            let why = judged(report, devices, seen).expect_err(named);
            assert!(why.contains(named), "{named}: {why}");
        }
        let medium = disk("sdb", "U1", "", Outcome::Skipped);
        assert_eq!(judged(&[erased, medium.clone()], &[], &[]), Ok(()));
        // With a DPU there may be none; what was there before has to be found all the same.
        assert_eq!(judge(&[medium], &[], &[], false), Ok(()));
        assert!(judge(&[], &["/dev/sda"], &[], false).is_err_and(|why| why.contains("/dev/sda")));
        assert!(judge(&[], &[], &both[1..], false).is_err_and(|why| why.contains("S1")));
    }

    #[test]
    fn an_event_says_that_there_was_no_disk() {
        let at = jiff::Timestamp::UNIX_EPOCH;
        let mut report =
            Report { result: "Erased".to_owned(), at, machine: "a/b".to_owned(), disks: vec![], why: None };
        assert_eq!(report.told("hw"), "Hardware 'hw' has no disk of its own to erase");
        report.disks = vec![disk("sda", "S1", "", Outcome::Erased)];
        assert!(report.told("hw").contains("serial number S1"));
    }
}
