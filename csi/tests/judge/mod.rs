//! csi-sanity, run on a driver. Its unedited reports and the command lines are kept in `target/judges/csi-sanity/`.

use crate::{driver::Driver, fixture::tool};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Why csi-sanity may leave a specification out: a capability that this driver does not claim. Anything else that is left
/// out fails the test.
const LEFT_OUT: [&str; 3] = [
    "pending",
    "skipped - testnodevolumeattachlimit not enabled",
    "skipped - SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported",
];

/// What the judge modifies volumes with.
const MUTABLE_PARAMETERS: &str = "iops: \"5000\"\nbandwidthMiBps: \"200\"\n";

/// `None`, after saying so by the test's name, where it was not built.
pub fn program(test: &str) -> Option<PathBuf> {
    let found = tool("csi-sanity");
    if found.is_none() {
        eprintln!("SKIP {test}: csi-sanity is missing: run tools/build.sh kubernetes");
    }
    found
}

/// `report`: what it is called. `without`: specifications, by expressions, that are not run.
pub fn judge(program: &Path, driver: Driver, folder: &Path, report: &str, access_type: &str, without: &[&str]) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/judges/csi-sanity");
    fs::create_dir_all(&kept).expect("a folder for the report");
    let mutable = folder.join("mutable-parameters.yaml");
    fs::write(&mutable, MUTABLE_PARAMETERS).expect("a file for the judge");
    let mut command = Command::new(program);
    command
        .arg(format!("--csi.endpoint=unix://{}", driver.socket.display()))
        .arg(format!("--csi.mountdir={}", folder.join("target").display()))
        .arg(format!("--csi.stagingdir={}", folder.join("staging").display()))
        .arg(format!("--csi.testvolumeaccesstype={access_type}"))
        .arg(format!("--csi.testvolumemutableparameters={}", mutable.display()))
        .arg(format!("--ginkgo.junit-report={}", kept.join(format!("{report}.xml")).display()))
        .args(["--ginkgo.no-color", "--ginkgo.v"])
        .args(without.iter().map(|expression| format!("--ginkgo.skip={expression}")));
    let output = command.output().expect("csi-sanity starts");
    let said = String::from_utf8_lossy(&output.stdout);
    fs::write(kept.join(format!("{report}.txt")), &output.stdout).expect("the report");
    fs::write(kept.join(format!("{report}.command")), format!("{command:?}\n")).expect("the command line");
    let summary = said.lines().rev().find(|line| line.contains(" Passed | ")).unwrap_or("no summary").to_owned();
    eprintln!("csi-sanity, {report}: {summary}");
    assert!(output.status.success() && summary.contains(" 0 Failed "), "{summary}; see {}", kept.display());
    let xml = fs::read_to_string(kept.join(format!("{report}.xml"))).expect("the XML report");
    let reasons = xml.split("<skipped message=\"").skip(1).filter_map(|rest| rest.split('"').next());
    // What an expression left out says no more than "skipped".
    let known = |reason: &&str| {
        LEFT_OUT.iter().any(|known| reason.contains(known)) || !without.is_empty() && *reason == "skipped"
    };
    let unexpected: Vec<&str> = reasons.filter(|reason| !known(reason)).collect();
    assert!(unexpected.is_empty(), "left out for another reason: {unexpected:#?}");
    assert!(driver.stop(), "the driver ends well");
}
