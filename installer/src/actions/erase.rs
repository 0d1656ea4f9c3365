//! `erase`: all disks of the server, at the same time, but for those of one NVMe controller, which erases all of its namespaces at once. It is
//! a success when there is one, and each is shown to be erased; its report has a line for each, whatever became of it. `inspect` tells of the
//! disks alone.
//!
//! USB disks and removable media, what a BMC shows as a medium among them, are skipped, and told of. A bay for hot-swapping makes its disk
//! removable, too: such a disk is erased. A read-only disk is a failure, for something was on it before it was that, and so is one without a
//! size. What is reached by a network is not touched, for it may be another server's; it is told of, as a controller without a driver is, and
//! neither lets the server go.

use crate::agent::Action;
use crate::disks::{Disks, Known, READ_ONLY, USB};
use crate::erase::{BlockDevice, Outcome, Report, Speaks, erase};
use crate::lines::Lines;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// One line for each disk that there is.
pub(super) fn tell_all(disks: &Disks, lines: &Lines) {
    for disk in disks.all() {
        lines.report(before(&disk).unwrap_or_else(|| Report::of(&disk, Outcome::Seen)).line());
    }
}

/// Of a disk that is not erased, whatever it is asked.
fn before(disk: &Known) -> Option<Report> {
    let is_medium = ["sr", "fd"].iter().any(|kind| disk.name.starts_with(kind));
    let (outcome, why) = match disk.refused {
        _ if disk.is_remote => (Outcome::Unserved, "is reached by a network: take it from this server"),
        Some(USB) => (Outcome::Skipped, USB),
        Some(READ_ONLY) => (Outcome::Failed, READ_ONLY),
        Some(why) if is_medium || disk.size_bytes == 0 => (Outcome::Skipped, why),
        _ if disk.size_bytes == 0 => (Outcome::Failed, "has no size: it does not work, or it is locked"),
        _ => return None,
    };
    Some(Report { why: Some(why.to_owned()), ..Report::of(disk, outcome) })
}

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    match all(disks, action.deadline, lines).await? {
        0 => Err("there is no disk to erase: the kernel of this installer has no driver for it, or it was removed"
            .to_owned()),
        _ => Ok(()),
    }
}

/// How many were erased: all of them.
pub(crate) async fn all(disks: &Disks, deadline: Instant, lines: &Lines) -> Result<usize, String> {
    let driverless = "is a controller of disks without a driver in this installer: what is behind it is not seen";
    let mut reports: Vec<Report> =
        disks.without_driver().into_iter().map(|address| Report::unserved(address, driverless)).collect();
    let mut groups: BTreeMap<String, Vec<(Arc<Known>, PathBuf)>> = BTreeMap::new();
    for disk in disks.all() {
        if let Some(report) = before(&disk) {
            reports.push(report);
            continue;
        }
        let of_nvme = disk.transport == "nvme" && !disk.serial.is_empty();
        let group = if of_nvme { format!("nvme {}", disk.serial) } else { disk.name.clone() };
        let node = disks.node(&disk);
        groups.entry(group).or_default().push((Arc::new(disk), node));
    }
    let (say, mut said) = mpsc::unbounded_channel::<String>();
    let erased = groups.into_values().map(|group| {
        let say = say.clone();
        tokio::task::spawn_blocking(move || {
            group.iter().map(|(disk, node)| one(disk, node, deadline, &say)).collect::<Vec<_>>()
        })
    });
    let erased = join_all(erased.collect::<Vec<_>>());
    tokio::pin!(erased);
    let all = loop {
        tokio::select! {
            biased;
            Some(line) = said.recv() => lines.say(&line),
            all = &mut erased => break all,
        }
    };
    for group in all {
        reports.extend(group.map_err(|panic| format!("erasing a disk: {panic}"))?);
    }
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    reports.iter().for_each(|report| lines.report(report.line()));
    let failed = reports.iter().filter(|report| matches!(report.result, Outcome::Failed | Outcome::Unserved));
    let failed: Vec<&str> = failed.map(|report| report.name.as_str()).collect();
    match failed.is_empty() {
        true => Ok(reports.iter().filter(|report| report.result == Outcome::Erased).count()),
        false => Err(format!("not erased: {}", failed.join(", "))),
    }
}

fn one(disk: &Known, node: &std::path::Path, deadline: Instant, say: &mpsc::UnboundedSender<String>) -> Report {
    let since = Instant::now();
    let speaks = match disk.transport {
        "nvme" => Speaks::Nvme,
        _ if disk.is_ata => Speaks::Ata,
        _ => Speaks::Blocks,
    };
    let opened =
        BlockDevice::open(node, disk.size_bytes).map_err(|error| format!("opening {}: {error}", node.display()));
    let tell = |line: &str| {
        // Nobody listens any more: the action is over.
        let _ = say.send(format!("disk {}: {line}", node.display()));
    };
    let done = opened.and_then(|mut device| erase(&mut device, speaks, deadline, &tell));
    let seconds = Some(since.elapsed().as_secs());
    match done {
        Ok(erased) => Report {
            method: Some(erased.method),
            read: Some(erased.read),
            why: Some(erased.notes.join("; ")).filter(|notes| !notes.is_empty()),
            seconds,
            ..Report::of(disk, Outcome::Erased)
        },
        Err(why) => Report { why: Some(why), seconds, ..Report::of(disk, Outcome::Failed) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::tests::Machine;

    #[test]
    fn what_is_not_erased_lets_the_server_go_only_where_it_is_a_medium() {
        let machine = Machine::empty();
        for (place, bytes, files) in [
            ("pci0/ata1/sda", 1 << 30, &[][..]),
            ("pci0/ata2/sdb", 1 << 30, &[("removable", "1")]),
            ("pci0/ata3/sdc", 1 << 30, &[("ro", "1")]),
            ("pci0/ata4/sdd", 0, &[]),
            ("pci0/usb1/sde", 1 << 30, &[("removable", "1")]),
            ("pci0/ata5/sr0", 1 << 30, &[("removable", "1"), ("ro", "1")]),
            ("pci0/host6/rport-6:0-0/target6:0:0/sdf", 1 << 30, &[]),
            ("platform/host7/session1/target7:0:0/sdg", 1 << 30, &[]),
            ("virtual/nvme-fabrics/ctl/nvme1/nvme1n1", 1 << 30, &[]),
        ] {
            machine.disk(place, bytes, files);
        }
        let found: Vec<_> = machine.disks().all().iter().map(|disk| (disk.name.clone(), before(disk))).collect();
        let outcomes: Vec<_> =
            found.iter().map(|(name, report)| (name.as_str(), report.as_ref().map(|report| report.result))).collect();
        use Outcome::{Failed, Skipped, Unserved};
        assert_eq!(
            outcomes,
            [
                ("nvme1n1", Some(Unserved)),
                ("sda", None),
                ("sdb", None),
                ("sdc", Some(Failed)),
                ("sdd", Some(Failed)),
                ("sde", Some(Skipped)),
                ("sdf", Some(Unserved)),
                ("sdg", Some(Unserved)),
                ("sr0", Some(Skipped)),
            ]
        );
    }

    #[tokio::test]
    async fn a_controller_without_a_driver_is_a_failure_that_names_it() {
        let machine = Machine::empty();
        machine.controller("0000:01:00.0", "0x010700", false);
        machine.controller("0000:02:00.0", "0x010802", true);
        machine.controller("0000:03:00.0", "0x010601", false);
        machine.controller("0000:04:00.0", "0x020000", false);
        let action = Action {
            name: "erase".to_owned(),
            image: "erase".to_owned(),
            command: Vec::new(),
            environment: BTreeMap::new(),
            deadline: Instant::now() + std::time::Duration::from_secs(60),
        };
        let lines = Lines::default();
        let why = run(&machine.disks(), &action, &lines).await.expect_err("refused");
        assert_eq!(why, "not erased: 0000:01:00.0");
        let told = lines.last();
        assert!(told.starts_with(r#"disk {"name":"0000:01:00.0","bytes":0,"result":"Unserved""#), "{told}");
        let machine = Machine::empty();
        machine.disk("pci0/usb1/sda", 1 << 30, &[]);
        let why = run(&machine.disks(), &action, &lines).await.expect_err("refused");
        assert!(why.contains("no disk to erase"), "{why}");
        assert_eq!(all(&machine.disks(), action.deadline, &lines).await, Ok(0));
    }
}
