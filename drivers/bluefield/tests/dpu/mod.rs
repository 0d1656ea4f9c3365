//! A DPU in a network namespace of the test's own. A representor is one end of a veth pair; the other end, which has its name with `-h`, stands for
//! the host's function: its carrier is what a host sees as its link.

use nix::sched::{CloneFlags, unshare};
use planner::exposure::ExposureId;
use ports::emulation::NicFunction;
use std::process::Command;

pub fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output().expect("ip(8)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", args.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A representor's or the host's.
pub fn has_device(name: &str) -> bool {
    ip(&["-o", "link", "show"]).contains(&format!(" {name}@"))
}

pub fn nic(number: u32) -> NicFunction {
    let id = ExposureId { uid: format!("nic-{number}"), epoch: 1 };
    NicFunction { id, mac: format!("02:00:00:00:00:0{number}"), mtu: 8942, device: format!("mp{number}") }
}

/// The host's function has a link.
pub fn host_sees_link(host: &str) -> bool {
    ip(&["-o", "link", "show", host]).contains("LOWER_UP")
}

/// Runs it in a network namespace of its own, or says why not.
pub fn on_a_dpu<F: Future<Output = ()>>(test: &str, body: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP {test}: needs root for network namespaces");
        return;
    }
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(body());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
