//! Tinkerbell's place: our definitions against those that controller-gen makes from upstream's types, the bytes of both generations of its
//! agent protocol, its own `virtual-worker` and its agent of today, with a containerd, against `boot` under a real API server, a server
//! that installs itself, a Job on a BMC of sushy-tools, manifests as Tinkerbell's users write them through their states by the real kubectl, and templates
//! as Go's own text/template with sprig renders them.

use super::{Bench, Judge, Verdict, cases};
use crate::test;
use anyhow::Result;

pub(super) const JUDGE: Judge = Judge { name: "tinkerbell", run };

fn run(bench: &Bench) -> Result<Verdict> {
    let mut checks = Vec::new();
    let mut report = String::new();
    for (package, target, filter) in [
        ("api", "tinkerbell_schema", None),
        ("proto", "tink", None),
        ("planner", "templates", None),
        ("boot", "wire", None),
        ("tests", "end_to_end", Some("netboot")),
        ("tests", "end_to_end", Some("jobs::")),
    ] {
        report.push_str(&format!("cargo xtask test --no-checks --package {package} {}\n", filter.unwrap_or_default()));
        let of_it = |case: &test::Case| filter.is_none_or(|filter| case.name.contains(filter));
        checks.extend(test::some_of_binary(bench.root, package, target, filter)?.into_iter().filter(of_it));
    }
    cases::verdict(bench, report, &checks)
}
