//! The judge `cni`: the CNI plugin as runtimes call it. Six verbs and what each has to withstand by the real cnitool, behind
//! the real ptp; then pods by kubelet and containerd.
//!
//! | file | what |
//! |---|---|
//! | `calls.rs` | cases 1 to 9: a verb each, and what it must not do |
//! | `named.rs` | case 10: a configuration that names what it attaches, as a NetworkAttachmentDefinition does |
//! | `pods.rs` | cases 11 to 15: pods that kubelet starts |
//! | `tool.rs` | a sandbox that cnitool attaches, and the calls |
//!
//! A case is a test; each has the site to itself, for what it looks at is the node's. The first one and the third, ADD and DEL, are tests of
//! every run, with the server that all tests have whose pods are the node's.

mod calls;
mod named;
mod pods;
mod tool;

use super::{on_servers, on_site};
use anyhow::Result;
use tests::site::Site;

/// Set where tests may take minutes.
const LONG: &str = "LONG_TESTS";

/// A case of every run.
fn short_case(name: &str, test: impl AsyncFnOnce(&Site, &str) -> Result<()>) {
    on_servers(&[1], &format!("cni_{name}"), test);
}

fn case(name: &str, test: impl AsyncFnOnce(&Site, &str) -> Result<()>) {
    if std::env::var_os(LONG).is_none() {
        eprintln!("SKIP cni::{name}: `make judges JUDGE=cni` runs it ({LONG}=1)");
        return;
    }
    on_site(&format!("cni_{name}"), test);
}
