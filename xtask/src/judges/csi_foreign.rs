//! Other people's storage behind a machine: the kubelet connector with data (our own driver forced through holder pods: boot,
//! hot-plug, growth, detach, a DPU that is lost), the protocol on the mock driver of Kubernetes' storage tests, and data on
//! csi-driver-host-path where there is one; and RBD images as ceph-csi describes them, on a Ceph of one node, a takeover on a whole site among it. The tests do it;
//! here they are counted, and what nobody ran is named; where there is a Ceph, what did not run on it has failed.

use super::{Bench, Judge, Verdict, Word};
use crate::image;
use crate::test::{self, Case, Outcome};
use anyhow::{Context, Result, ensure};
use sandbox::ceph::Programs;
use std::fmt::Write as _;
use std::fs;

pub(super) const JUDGE: Judge = Judge { name: "csi-foreign", run };

/// In the names of its tests.
const FILTER: &str = "holder_pods";
/// It has to run wherever anything does: only this one may be missing.
const OPTIONAL: &str = "host_path";

/// Package and test program of what runs on a Ceph of one node, and which of its tests: a server that boots from a clone by
/// QEMU's own client; volumes and fences by an SPDK target and by QEMU's storage daemon; the same by processes that hold an image
/// open; a whole site on which an image passes from a silent DPU to another.
const RBD: [(&str, &str, Option<&str>); 4] = [
    ("sandbox", "server", Some("rbd::")),
    ("sandbox", "rbd", None),
    ("ceph", "blocklist", None),
    ("tests", "ceph", None),
];

/// What no driver here can be asked, and why.
const UNASKED: [(&str, &str); 1] = [(
    "group snapshot by a driver of others",
    "the mock driver of Kubernetes' storage tests (1.37, test/e2e/storage/drivers/csi-test) serves no GroupController; \
     groups of our own driver: csi/tests/cluster.rs, tests/tests/end_to_end/verbs.rs",
)];

fn run(bench: &Bench) -> Result<Verdict> {
    image::run(bench.root, &image::Options::default())?;
    let cases = test::some_of_binary(bench.root, "tests", "end_to_end", Some(FILTER))?;
    ensure!(!cases.is_empty(), "no end-to-end test has {FILTER} in its name");
    let mut report = format!("cargo xtask test --no-checks --package tests {FILTER}\n");
    note(&mut report, &cases)?;
    let mut rbd = Vec::new();
    for (package, target, filter) in RBD {
        let some = test::some_of_binary(bench.root, package, target, filter)?;
        ensure!(!some.is_empty(), "the test {target} of {package} has nothing on RBD");
        writeln!(report, "cargo xtask test --no-checks --package {package} {}", filter.unwrap_or_default())?;
        note(&mut report, &some)?;
        rbd.extend(some);
    }
    for (what, why) in UNASKED {
        writeln!(report, "{what}: not run: {why}")?;
    }
    fs::write(bench.folder.join("report"), report).context("write the report")?;
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    Ok(verdict(&cases, &rbd, runtime.block_on(Programs::find()).is_ok()))
}

fn note(report: &mut String, cases: &[Case]) -> Result<()> {
    for case in cases {
        let outcome = match &case.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "failed".to_owned(),
            Outcome::Skipped(reason) => format!("not run: {reason}"),
        };
        writeln!(report, "{}: {outcome}", case.name).context("note a case")?;
    }
    write!(report, "{}", test::failures(cases)).context("note what failed")
}

/// Who needs it says that it is missing by this word.
const SPDK: &str = "SPDK";

/// `rbd`: each of them needs a part that may be missing. `has_ceph`: that one is not.
fn verdict(cases: &[Case], rbd: &[Case], has_ceph: bool) -> Verdict {
    let all = || cases.iter().chain(rbd);
    let passed = all().filter(|case| case.outcome == Outcome::Passed).count();
    let is_left_out =
        |case: &&Case| matches!(&case.outcome, Outcome::Skipped(reason) if has_ceph && !reason.contains(SPDK));
    let failed = all().filter(|case| case.outcome == Outcome::Failed).chain(rbd.iter().filter(is_left_out));
    let failed: Vec<&str> = failed.map(|case| case.name.as_str()).collect();
    let left_out = |case: &Case| match &case.outcome {
        Outcome::Skipped(reason) => Some(format!("{} not run: {reason}", case.name)),
        _ => None,
    };
    let unasked = UNASKED.map(|(what, why)| format!("{what} not run: {why}"));
    let not_run: Vec<String> = all().filter_map(left_out).chain(unasked).collect();
    let needed = cases.iter().filter(|case| !case.name.contains(OPTIONAL)).find_map(|case| match &case.outcome {
        Outcome::Skipped(reason) => Some(reason.clone()),
        _ => None,
    });
    let (word, reason) = match (failed.is_empty(), needed) {
        (false, _) => (Word::Fail, format!("failed: {}", failed.join(", "))),
        (true, Some(reason)) => (Word::Skip, reason),
        (true, None) => (Word::Pass, not_run.join("; ")),
    };
    Verdict { word, done: passed, all: all().count() + UNASKED.len(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn case(name: &str, outcome: Outcome) -> Case {
        Case::new("tests end_to_end", name, outcome, Duration::ZERO)
    }

    #[test]
    fn what_was_not_run_is_named_and_what_has_to_run_is_no_pass() {
        let optional =
            || case("holder_pods::foreign::a_disk_of_csi_driver_host_path", Outcome::Skipped("no plugin".into()));
        let good = [case("holder_pods::a", Outcome::Passed), optional()];
        let rbd = [case("rbd::boots", Outcome::Passed), case("rbd::fences", Outcome::Skipped("no Ceph".into()))];
        let pass = verdict(&good, &rbd, false);
        assert_eq!((pass.word, pass.done, pass.all), (Word::Pass, 2, 5));
        assert!(pass.reason.contains("no Ceph") && pass.reason.contains("no plugin"), "{}", pass.reason);
        assert!(
            pass.reason.contains("group snapshot") && pass.reason.contains("no GroupController"),
            "{}",
            pass.reason
        );
        let without = [case("holder_pods::a", Outcome::Skipped("not root".into())), optional()];
        assert_eq!(verdict(&without, &[], true).to_string(), "skip 0/3 not root");
        let bad = [case("holder_pods::a", Outcome::Failed), optional()];
        assert_eq!(verdict(&bad, &[], true).to_string(), "fail 0/3 failed: holder_pods::a");
        let bad = [case("rbd::boots", Outcome::Failed)];
        assert_eq!(verdict(&good, &bad, true).to_string(), "fail 1/4 failed: rbd::boots");
        // With a Ceph each has to run that wants no more than that.
        let skipped = [case("rbd::boots", Outcome::Skipped("no root".into()))];
        assert_eq!(verdict(&good, &skipped, true).to_string(), "fail 1/4 failed: rbd::boots");
        let without_spdk = [case("rbd::by_spdk", Outcome::Skipped("SPDK_DIR is not set: no SPDK".into()))];
        assert_eq!(verdict(&good, &without_spdk, true).word, Word::Pass);
    }
}
