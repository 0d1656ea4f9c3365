//! csi-sanity, the CSI project's own judge, against the real binary on a real XFS, for both access types. Its unedited
//! reports and the command lines are kept in `target/judges/csi-sanity/`.

mod driver;
mod fixture;

use driver::Driver;
use fixture::{Mounted, tool};
use std::{fs, path::Path, process::Command};

/// Why csi-sanity may leave a specification out: a capability that this driver does not claim. Anything else that is left
/// out fails the test.
const LEFT_OUT: [&str; 3] = [
    "pending",
    "skipped - testnodevolumeattachlimit not enabled",
    "skipped - SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported",
];

/// What the judge modifies volumes with.
const MUTABLE_PARAMETERS: &str = "iops: \"5000\"\nbandwidthMiBps: \"200\"\n";

#[test]
fn csi_sanity_with_mounted_volumes() {
    judge("csi_sanity_with_mounted_volumes", "mount");
}

#[test]
fn csi_sanity_with_block_volumes() {
    judge("csi_sanity_with_block_volumes", "block");
}

fn judge(test: &str, access_type: &str) {
    let Some(sanity) = tool("csi-sanity") else {
        eprintln!("SKIP {test}: csi-sanity is missing: run tools/build.sh kubernetes");
        return;
    };
    let Some(mounted) = Mounted::xfs(test, "40G") else { return };
    let driver = Driver::start(&mounted, &[]);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/judges/csi-sanity");
    fs::create_dir_all(&kept).expect("a folder for the report");
    let mutable = mounted.beside().join("mutable-parameters.yaml");
    fs::write(&mutable, MUTABLE_PARAMETERS).expect("a file for the judge");
    let mut command = Command::new(sanity);
    command
        .arg(format!("--csi.endpoint=unix://{}", driver.socket.display()))
        .arg(format!("--csi.mountdir={}", mounted.beside().join("target").display()))
        .arg(format!("--csi.stagingdir={}", mounted.beside().join("staging").display()))
        .arg(format!("--csi.testvolumeaccesstype={access_type}"))
        .arg(format!("--csi.testvolumemutableparameters={}", mutable.display()))
        .arg(format!("--ginkgo.junit-report={}", kept.join(format!("{access_type}.xml")).display()))
        .args(["--ginkgo.no-color", "--ginkgo.v"]);
    let output = command.output().expect("csi-sanity starts");
    let report = String::from_utf8_lossy(&output.stdout);
    fs::write(kept.join(format!("{access_type}.txt")), &output.stdout).expect("the report");
    fs::write(kept.join(format!("{access_type}.command")), format!("{command:?}\n")).expect("the command line");
    let summary = report.lines().rev().find(|line| line.contains(" Passed | ")).unwrap_or("no summary").to_owned();
    eprintln!("csi-sanity, {access_type}: {summary}");
    assert!(output.status.success() && summary.contains(" 0 Failed "), "{summary}; see {}", kept.display());
    let xml = fs::read_to_string(kept.join(format!("{access_type}.xml"))).expect("the XML report");
    let reasons = xml.split("<skipped message=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let unexpected: Vec<&str> = reasons.filter(|it| !LEFT_OUT.iter().any(|known| it.contains(known))).collect();
    assert!(unexpected.is_empty(), "left out for another reason: {unexpected:#?}");
    assert!(driver.stop(), "the driver ends well");
}
