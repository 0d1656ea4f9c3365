//! The tables of docs/benchmarks.md, from the last line of each history.
//!
//! A table stands between `<!-- bench NAME -->` and `<!-- /bench -->`; what is outside is written by people.

use crate::figure::{Figure, shown};
use crate::history::{self, Record};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A figure's name in the history, what it is, and what is aimed at (empty: nothing).
type Row = (&'static str, &'static str, &'static str);

/// Every kind of run with the figures that it measures.
const TABLES: &[(&str, &[Row])] = &[
    (
        "starts",
        &[
            (
                "ours",
                "ours: apply → power-on sent, and first packet → `GuestReachable`",
                "p50 at most 0.5 s, p99 at most 1 s",
            ),
            ("applyToPowerOnSent", "of that, apply → power-on sent", ""),
            ("firstPacketToGuestReachable", "of that, first packet → `GuestReachable`", ""),
            ("applyToVolumesReady", "apply → volumes ready (clone, binding)", ""),
            ("applyToPing", "apply → ping from the other DPU's switch", ""),
            ("hotPlug", "hot-plug: apply → block device in the guest", "at most 2 s"),
            ("hotPlugNic", "hot-plug: apply → the NIC's address in the guest, by DHCP", ""),
            ("deleteToOff", "delete → host off (it is asked first)", ""),
            ("offToClaimable", "host off → hardware claimable again", "at most 10 s"),
        ],
    ),
    (
        "clone",
        &[
            ("clone1GiB", "1 GiB", "at most 1 s"),
            ("clone10GiB", "10 GiB", "at most 1 s"),
            ("clone100GiB", "100 GiB", "at most 1 s"),
        ],
    ),
    (
        "disks",
        &[
            ("native", "claim named → `Exposed`, connected by the agent", "at most 500 ms"),
            ("spdk", "the same, through SPDK (vfio-user)", "at most 500 ms"),
            ("spdkMany", "62 more disks at once, through SPDK: 64 on one host", ""),
            ("holderPod", "the same as the first, by a holder pod", ""),
            ("moveOurs", "cold migration, without the guest's shutdown and start", "at most 5 s"),
            ("move", "cold migration, asked for → ended", ""),
        ],
    ),
    (
        "pods",
        &[
            ("quietAdd", "ADD", "at most 10 ms"),
            ("quietCheck", "CHECK", "at most 10 ms"),
            ("quietDelete", "DEL", "at most 10 ms"),
            ("process", "a process that does nothing (`true`)", ""),
            ("coldAdd", "ADD, with nothing of the plugin's program in memory", "at most 10 ms"),
            ("size", "the plugin's program, without symbols", "at most 4 MiB"),
        ],
    ),
    (
        "members",
        &[
            ("vnicInForce", "a VNic with `nodeName`: created → `InForce`", ""),
            ("vnicAnswers", "of that VNic, created → first answer to a ping from another node", ""),
            ("ruleInForce", "a rule of a group with one member: changed → `InForce`", ""),
            ("podStart", "a pod without a NIC: created → `Running`", ""),
            ("podStartNic", "a pod with one NIC: created → `Running`", ""),
            (
                "podStartWrites",
                "everybody's writes to the API server for a pod's start, Events and Leases apart: without a NIC",
                "",
            ),
            ("podStartNicWrites", "the same with one NIC", "at most 6 more"),
            ("podEndWrites", "for a pod's end, without a NIC", ""),
            ("podEndNicWrites", "the same with one NIC", "at most 5 more"),
            ("podEvents", "Events of a pod's life, without a NIC", ""),
            ("podNicEvents", "the same with one NIC", ""),
        ],
    ),
    ("lost", &[("noticed", "agent silenced → its Dpu is `Ready: Unknown`", "within 5 s")]),
    (
        "footprint",
        &[
            ("agentMemory", "agent, resident memory", "at most 16 MiB"),
            ("agentAnonymous", "of that, anonymous", ""),
            ("agentCpu", "agent, idle, of one core", "under 0.5 %"),
            ("controllerMemory", "controller, resident memory, one machine", ""),
            ("controllerAnonymous", "of that, anonymous", ""),
            ("controllerCpu", "controller, idle, of one core", ""),
        ],
    ),
    (
        "load",
        &[
            ("minutes", "minutes under load", ""),
            ("hotPlug", "hot-plug under load", ""),
            ("restarts", "restarts of the host", ""),
            ("failedWrites", "writes of the guest that failed", "none"),
            ("calledSilent", "an agent was called silent", "never"),
            ("emulationUnreachable", "an emulator was called unreachable", "never"),
            ("switchUnreachable", "a switch was called unreachable", "never"),
        ],
    ),
    (
        "scale",
        &[
            ("machinesPerMinute", "machines per minute, from all created at once to the last one ready", ""),
            ("createdToReady", "created → ready, of one of them (a second of it is the simulated guest)", ""),
            ("requestsPerMachine", "requests of the controller to the API server, per machine", ""),
            ("reconcilesPerMachine", "looks of the controller at one object, per machine", ""),
            ("cpuPerMachine", "processor time of the controller, per machine", ""),
            ("memoryBefore", "controller, resident memory, DPUs and Hardware only", ""),
            ("memory", "controller, resident memory, all machines ready", ""),
            ("memoryPeak", "controller, most resident memory", ""),
            ("idleCpu", "controller, idle, of one core", ""),
            ("idleRequestsPerMinute", "controller, idle, requests per minute", ""),
            ("mostSilent", "DPUs called silent at one time, at most", "none"),
        ],
    ),
    (
        "network",
        &[
            ("vnicsPerMinute", "VNics per minute, from all made at once to the last one's port in NB", ""),
            ("fullSync", "NB is empty, all objects are there: controller started → everything written", "at most 60 s"),
            ("fullSyncTransactions", "of that, transactions", ""),
            ("fullSyncBytes", "of that, sent to NB", ""),
            ("fullSyncNorthd", "everything written → every port in SB (northd)", ""),
            (
                "restartTransactions",
                "controller started again with nothing to do: transactions beside its token",
                "none",
            ),
            (
                "restartWrites",
                "the same, writes to the API server beside its Lease (the rights of agents, at each start)",
                "",
            ),
            ("madeOurs", "a VNic is made: apply → in NB (ours)", "p99 at most 100 ms"),
            ("madeNorthd", "of that VNic, NB → SB (northd)", ""),
            ("madeChassis", "of that VNic, SB → up on its chassis", ""),
            ("madeWhole", "of that VNic, apply → up", "p99 at most 1 s with OVN 24.03 or newer"),
            ("madeTransactions", "of that VNic, transactions to NB", ""),
            ("madeTransactionsSmall", "the same beside 100 VNics", "the same"),
            ("madeBytes", "of that VNic, bytes to NB", "at most 4096"),
            ("madeBytesSmall", "the same beside 100 VNics", "within 10 %"),
            ("deletedOurs", "a VNic is deleted: apply → out of NB (ours)", "p99 at most 100 ms"),
            ("deletedNorthd", "of that VNic, NB → SB (northd)", ""),
            ("deletedTransactions", "of that VNic, transactions to NB", ""),
            ("deletedTransactionsSmall", "the same beside 100 VNics", "the same"),
            ("deletedBytes", "of that VNic, bytes to NB", "at most 4096"),
            ("deletedBytesSmall", "the same beside 100 VNics", "within 10 %"),
            ("ruleOurs", "a rule is changed: apply → in NB (ours)", "p99 at most 100 ms"),
            ("ruleNorthd", "of that rule, NB → SB (northd)", ""),
            ("ruleChassis", "of that rule, SB → installed on the chassis", ""),
            ("ruleWhole", "of that rule, apply → installed", "p99 at most 1 s with OVN 24.03 or newer"),
            ("ruleTransactions", "of that rule, transactions to NB (the rows, and the number that chassis tell)", ""),
            ("ruleTransactionsSmall", "the same beside 100 VNics", "the same"),
            ("ruleBytes", "of that rule, bytes to NB", "at most 4096"),
            ("ruleBytesSmall", "the same beside 100 VNics", "within 10 %"),
            ("memory", "controller, resident memory, with nothing to do", ""),
            ("memoryPeak", "controller, most resident memory, full sync included", "at most 400 MiB"),
        ],
    ),
    (
        "boot",
        &[
            ("dhcpOffer", "DHCP, all clients within a second: DISCOVER → OFFER", "p99 at most 100 ms"),
            ("dhcpOfferDnsmasq", "the same of dnsmasq", ""),
            ("dhcpOfferKea", "the same of Kea", ""),
            ("dhcpOfferByDnsmasq", "of the p99, ours ÷ dnsmasq's", ""),
            ("dhcpOfferByKea", "of the p99, ours ÷ Kea's", ""),
            ("dhcpWhole", "the same, DISCOVER → ACK", ""),
            ("dhcpWholeDnsmasq", "the same of dnsmasq", ""),
            ("dhcpWholeKea", "the same of Kea", ""),
            ("dhcpWholeByDnsmasq", "of the p99, ours ÷ dnsmasq's", ""),
            ("dhcpWholeByKea", "of the p99, ours ÷ Kea's", ""),
            (
                "dhcpLast",
                "DHCP, all clients in the same moment, lost packets sent again after 1 s: until the last one has its ACK",
                "",
            ),
            ("dhcpLastDnsmasq", "the same of dnsmasq", ""),
            ("dhcpLastKea", "the same of Kea", ""),
            ("dhcpLost", "of that, packets without an answer", ""),
            ("dhcpLostDnsmasq", "the same of dnsmasq", ""),
            ("dhcpLostKea", "the same of Kea", ""),
            (
                "dhcpAgain",
                "packets without an answer within 1 s, of those within a second and of those below, a round",
                "none",
            ),
            ("dhcpAgainDnsmasq", "the same of dnsmasq", ""),
            ("dhcpAgainKea", "the same of Kea", ""),
            ("dhcpRate", "DHCP, 50 clients at once, over and over: offers per second, each with its ACK", ""),
            ("dhcpRateDnsmasq", "the same of dnsmasq", ""),
            ("dhcpRateKea", "the same of Kea", ""),
            ("dhcpRateByDnsmasq", "ours ÷ dnsmasq's", ""),
            ("dhcpRateByKea", "ours ÷ Kea's", ""),
            ("tftp512", "TFTP, blocks of 512 bytes, per second", ""),
            ("tftp512Ratio", "ours ÷ tftpd-hpa's", ""),
            ("tftp1468", "TFTP, blocks of 1,468 bytes, per second", ""),
            ("tftp1468Ratio", "ours ÷ tftpd-hpa's", ""),
            ("tftpWindow", "TFTP, blocks of 1,468 bytes in windows of 8, per second", ""),
            ("tftpWindowRatio", "ours ÷ atftpd's", ""),
            ("http", "HTTP, the image, per second", ""),
            ("httpRatio", "ours ÷ nginx's", ""),
            ("imageRaw", "image onto a disk, raw, per second", ""),
            ("imageRawRatio", "ours ÷ curl, dd", "0.9"),
            ("imageGzip", "image onto a disk, gzip, per second of the image", ""),
            ("imageGzipRatio", "ours ÷ curl, gzip, dd", "0.9"),
            ("imageZstd", "image onto a disk, zstd, per second of the image", ""),
            ("imageZstdRatio", "ours ÷ curl, zstd, dd", "0.9"),
            ("imageQcow2", "image onto a disk, qcow2, per second of the image", ""),
            ("imageQcow2Ratio", "ours ÷ curl, then qemu-img convert", "0.9"),
            ("imagePackedQcow2", "image onto a disk, qcow2 with packed clusters, per second of the image", ""),
            ("imagePackedQcow2Ratio", "ours ÷ curl, then qemu-img convert", "0.9"),
            ("ready", "a large inventory: boot started → ready", ""),
            ("memory", "the same, resident memory when it is ready", "at most 95 MiB"),
            ("memoryPeak", "the same, most resident memory, clients included", "at most 95 MiB"),
            ("offerLarge", "the same, all clients within a second: DISCOVER → OFFER", "p99 at most 100 ms"),
            ("wholeLarge", "the same, DISCOVER → ACK", ""),
        ],
    ),
    (
        "spdk",
        &[
            ("aioRandomRead32", "file, read, queue depth 32: ratio", "0.9"),
            ("aioRandomRead32Direct", "of that, direct, per second", ""),
            ("aioRandomRead128", "file, read, queue depth 128: ratio", "0.9"),
            ("aioRandomRead128Direct", "of that, direct, per second", ""),
            ("aioRandomWrite32", "file, write, queue depth 32: ratio", "0.9"),
            ("aioRandomWrite32Direct", "of that, direct, per second", ""),
            ("aioRandomWrite128", "file, write, queue depth 128: ratio", "0.9"),
            ("aioRandomWrite128Direct", "of that, direct, per second", ""),
            ("mallocRandomRead32", "memory, read, queue depth 32: ratio", ""),
            ("mallocRandomRead128", "memory, read, queue depth 128: ratio", ""),
            ("mallocRandomWrite32", "memory, write, queue depth 32: ratio", ""),
            ("mallocRandomWrite128", "memory, write, queue depth 128: ratio", ""),
            ("mallocRandomRead128Direct", "memory, read, queue depth 128, direct, per second", ""),
        ],
    ),
    (
        "stall",
        &[
            ("pause", "longest time without an operation done, nothing going on", ""),
            ("pauseHotPlug", "the same while another disk comes and goes", ""),
            ("hotPlug", "that took", ""),
            ("pauseResize", "the same while the disk grows", ""),
            ("resize", "that took", ""),
            ("pauseRestart", "the same while the agent starts anew and finds its disks", ""),
            ("restart", "that took", ""),
        ],
    ),
];

const END: &str = "<!-- /bench -->";

fn document(root: &Path) -> PathBuf {
    root.join("docs/benchmarks.md")
}

/// The table of one run; `None`: no such kind.
pub fn table(name: &str, record: &Record) -> Option<String> {
    let (_, rows) = TABLES.iter().find(|(known, _)| *known == name)?;
    let mut out = String::new();
    let on = record.on.iter().fold(record.machine.clone(), |machine, on| format!("{machine}, {on}"));
    let _ = writeln!(out, "`{}`, {}, commit {}, {on}:\n", record.command, record.day(), record.commit);
    let _ = writeln!(out, "| what | aim | p50 | p99 | least to most | samples |");
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    for (figure, what, aim) in *rows {
        let Some(figure) = record.figures.get(*figure) else { continue };
        let _ = writeln!(out, "| {what} | {aim} | {} |", cells(figure));
    }
    Some(out)
}

fn cells(figure: &Figure) -> String {
    let unit = figure.unit;
    match figure.n {
        1 => format!("{}{unit} | | | 1", shown(figure.p50)),
        n => format!(
            "{}{unit} | {}{unit} | {} to {}{unit} | {n}",
            shown(figure.p50),
            shown(figure.p99),
            shown(figure.min),
            shown(figure.max)
        ),
    }
}

/// The document with every table as the histories say.
fn told(root: &Path, text: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, marked)) = rest.split_once("<!-- bench ") {
        let (name, behind) = marked.split_once(" -->").context("a mark `<!-- bench NAME` does not end")?;
        let (_, after) = behind.split_once(END).with_context(|| format!("`{END}` is missing behind {name}"))?;
        ensure!(TABLES.iter().any(|(known, _)| *known == name), "docs/benchmarks.md: there is no figure {name:?}");
        let table = match history::last(root, name)? {
            Some(record) => table(name, &record).unwrap_or_default(),
            None => "Not measured yet.\n".to_owned(),
        };
        let _ = write!(out, "{before}<!-- bench {name} -->\n{table}{END}");
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

pub fn write(root: &Path) -> Result<()> {
    let path = document(root);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    fs::write(&path, told(root, &text)?).with_context(|| format!("write {}", path.display()))?;
    history::give_to_the_owner_of(root, &path)
}

/// Fails if the document is not what would be written.
pub fn check(root: &Path) -> Result<()> {
    let path = document(root);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    if told(root, &text)? != text {
        bail!("{} does not say what benches/history says: run `cargo xtask bench tables`", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Unit;

    fn record(ours: &[f64]) -> Record {
        let figure = Figure::of(Unit::Milliseconds, ours).expect("samples");
        Record {
            date: "2026-01-01 10:00".into(),
            commit: "abc".into(),
            machine: "2 x CPU".into(),
            on: None,
            command: "cargo xtask bench starts".into(),
            figures: [("ours".to_owned(), figure)].into(),
        }
    }

    #[test]
    fn the_documentation_says_what_was_measured() {
        check(crate::root()).expect("the tables are up to date");
    }

    #[test]
    fn every_table_stands_in_the_documentation() {
        let text = fs::read_to_string(document(crate::root())).expect("readable");
        for (name, _) in TABLES {
            assert!(text.contains(&format!("<!-- bench {name} -->")), "{name} has no place in docs/benchmarks.md");
        }
    }

    #[test]
    fn a_table_is_written_between_its_marks_and_nowhere_else() {
        let root = tempfile::tempdir().expect("a folder");
        history::append(root.path(), "starts", &record(&[812.0, 1200.0, 640.0])).expect("written");
        let before =
            "# Figures\n<!-- bench starts -->\nold\n<!-- /bench -->\nrest\n<!-- bench clone -->\n<!-- /bench -->\n";
        let after = told(root.path(), before).expect("told");
        assert!(
            after.starts_with("# Figures\n<!-- bench starts -->\n`cargo xtask bench starts`, 2026-01-01, commit abc")
        );
        assert!(after.contains("| 812 ms | 1200 ms | 640 to 1200 ms | 3 |"), "{after}");
        assert!(after.contains("<!-- /bench -->\nrest\n<!-- bench clone -->\nNot measured yet.\n"), "{after}");
        assert!(!after.contains("old"), "{after}");
        assert_eq!(told(root.path(), &after).expect("told"), after);
    }

    #[test]
    fn a_figure_that_nobody_knows_is_an_error() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(told(root.path(), "<!-- bench none-such -->\n<!-- /bench -->").is_err());
        assert!(told(root.path(), "<!-- bench clone -->\n").is_err());
    }
}
