//! The disk that an installation has put the system on, as Metalplane's installer tells in an action's report (`proto/golden/written.txt`).
//!
//! It stays in the machine's status when its Workflow is deleted. Where several disks were written nobody says which one has the system.

use super::actions;
use crate::install::Record;
use crate::machine::situation::Situation;
use crate::meta::uid;
use api::machine::{InstallStatus, InstalledDisk};
use api::tinkerbell::workflow::WorkflowStatus;
use serde::Deserialize;

#[derive(Deserialize)]
struct Written {
    serial: Option<String>,
    wwid: Option<String>,
    path: Option<String>,
    #[serde(default)]
    partitions: Vec<String>,
}

/// Of the installation on record.
pub(in crate::machine) fn of(
    o: &Situation<'_>,
    record: &Record,
    before: Option<&InstallStatus>,
) -> Option<InstalledDisk> {
    let run = o.workflows.iter().find(|run| uid(&run.metadata) == record.workflow);
    match run.and_then(|run| run.status.as_ref()) {
        Some(status) => told(status),
        None => before.filter(|before| before.workflow_uid == record.workflow)?.disk.clone(),
    }
}

/// An action that wrote it anew told of it anew.
fn told(status: &WorkflowStatus) -> Option<InstalledDisk> {
    let mut all: Vec<InstalledDisk> = Vec::new();
    for line in actions(status).filter_map(|action| action.message.as_deref()).flat_map(str::lines) {
        let Some(disk) = line.strip_prefix("written ").and_then(read) else { continue };
        all.retain(|known| !is_same(known, &disk));
        all.push(disk);
    }
    let one = all.pop()?;
    all.is_empty().then_some(one)
}

fn read(line: &str) -> Option<InstalledDisk> {
    let Written { serial, wwid, path, partitions } = serde_json::from_str(line).ok()?;
    Some(InstalledDisk { serial_number: serial, wwid, uefi_device_path: path, partition_guids: partitions })
}

fn is_same(one: &InstalledDisk, other: &InstalledDisk) -> bool {
    let by = |disk: &InstalledDisk| (disk.serial_number.clone(), disk.wwid.clone(), disk.uefi_device_path.clone());
    by(one) == by(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tinkerbell::workflow::{Action, Task};

    /// As the installer writes it; its own test holds it to the same file.
    const GOLDEN: &str = include_str!("../../../../proto/golden/written.txt");

    fn workflow(messages: &[&str]) -> WorkflowStatus {
        let action = |message: &&str| Action { message: Some((*message).to_owned()), ..Action::default() };
        let task = Task { actions: messages.iter().map(action).collect(), ..Task::default() };
        WorkflowStatus { tasks: vec![task], ..WorkflowStatus::default() }
    }

    #[test]
    fn the_one_disk_that_was_written() {
        let (first, second) = GOLDEN.split_once('\n').expect("two lines");
        let said = format!("disk {{\"name\":\"sdb\"}}\n{first}\n1024 bytes written");
        let disk = told(&workflow(&[&said, "", first])).expect("written twice");
        assert_eq!(disk.serial_number.as_deref(), Some("S3X \"1\""));
        assert_eq!(disk.wwid.as_deref(), Some("eui.0025385b01234567"));
        let path = "PciRoot(0x0)/Pci(0x3,0x2)/Pci(0x0,0x0)/NVMe(0x1,67-45-23-01-5B-38-25-00)";
        assert_eq!(disk.uefi_device_path.as_deref(), Some(path));
        assert_eq!(disk.partition_guids, ["bfbe3bd4-61a5-4f1b-8e5a-3f2b7a3f1c55"]);
        assert_eq!(told(&workflow(&[second])), Some(InstalledDisk::default()), "a disk that nothing is known of");
        assert_eq!(told(&workflow(&[GOLDEN])), None, "nobody says which one has the system");
        assert_eq!(told(&workflow(&["written in vain", "written {", ""])), None);
    }
}
