//! The rules, as data: the table "Folders" of docs/design/architecture.md.

/// One folder and what it may depend on.
pub(super) struct Folder {
    /// Path below the workspace; `drivers/*` is every driver without a line of its own.
    pub(super) name: &'static str,
    pub(super) may: &'static [&'static str],
    /// But not on these.
    pub(super) never: &'static [&'static str],
    /// Drivers may be named in `wire_up.rs` only.
    pub(super) drivers_in_wire_up: bool,
}

const fn folder(name: &'static str, may: &'static [&'static str]) -> Folder {
    Folder { name, may, never: &[], drivers_in_wire_up: false }
}

const fn shell(name: &'static str) -> Folder {
    Folder {
        drivers_in_wire_up: true,
        ..folder(name, &["api", "planner", "ports", "proto", "runtime", "trust", "imaging", "drivers/*"])
    }
}

pub(super) const FOLDERS: &[Folder] = &[
    folder("api", &[]),
    folder("planner", &["api"]),
    folder("ports", &["planner"]),
    folder("proto", &[]),
    folder("version", &[]),
    folder("runtime", &["version"]),
    folder("executor", &["api", "planner", "ports", "runtime"]),
    folder("model", &["api", "executor", "planner", "ports", "runtime"]),
    folder("trust", &[]),
    folder("imaging", &["trust", "proto"]),
    folder("drivers/spdk-sys", &[]),
    folder("drivers/linux-sys", &[]),
    folder("drivers/*", &["ports", "planner", "trust"]),
    folder("drivers/metadata", &["ports", "planner", "drivers/linux-sys"]),
    folder("spdk-target", &["version", "drivers/spdk-sys"]),
    Folder {
        drivers_in_wire_up: true,
        ..folder(
            "controller",
            &["api", "executor", "planner", "ports", "proto", "runtime", "trust", "imaging", "drivers/*"],
        )
    },
    shell("dpu-agent"),
    folder("apiserver", &["api", "planner", "proto", "runtime"]),
    folder("boot", &["imaging", "planner", "proto", "runtime", "trust"]),
    folder("installer", &["version", "imaging", "trust", "proto", "drivers/linux-sys"]),
    shell("csi"),
    folder("cni", &["version", "proto"]),
    folder("pause", &["version"]),
    folder("bmctl", &["api", "planner", "proto", "runtime"]),
    Folder { never: &["controller", "dpu-agent", "apiserver"], ..folder("sandbox", &["*"]) },
    folder("tests", &["*"]),
    folder("benches", &["*"]),
    folder("benches/boot-load", &["imaging"]),
    folder("xtask", &["*"]),
];

/// Who may depend on the first may depend on the second: its words are in the first's signatures.
pub(super) const IMPLIED: &[(&str, &str)] = &[("planner", "api")];

/// What tests of any folder may use besides; the installer is the client that `boot` is for, and imaging what it writes by.
pub(super) const FOR_TESTS: &[&str] = &["imaging", "installer", "model", "sandbox"];

/// Folders that decide only, and what they may not reach by any path of normal dependencies.
pub(super) const PURE: &[&str] = &["planner", "api"];
pub(super) const IMPURE: &[&str] = &["tokio", "hyper", "tonic", "rand", "getrandom"];

/// The only folders with `unsafe`.
pub(super) const UNSAFE: &[&str] = &["drivers/spdk-sys", "drivers/linux-sys"];

/// Packages whose files may import each other in a circle of so many at most; 1: not at all.
pub(super) const CIRCLES: &[(&str, usize)] = &[("planner", 1), ("controller", 4)];
