//! Real veth pairs, in network namespaces of the test's own.

use async_trait::async_trait;
use nix::sched::{CloneFlags, unshare};
use pod_devices::Veth;
use ports::PodDevices;
use ports::conformance::pod_devices::{Bench, suite};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output().expect("ip(8)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", args.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A process in a network namespace of its own: that ends with it.
#[derive(Default)]
struct Node {
    pod: Mutex<Option<Child>>,
}

#[async_trait]
impl Bench for Node {
    async fn open(&self) -> Box<dyn PodDevices> {
        Box::new(Veth)
    }

    async fn move_away(&self, device: &str) {
        let mut command = Command::new("unshare");
        // The line says that the namespace is made.
        command.args(["--net", "sh", "-c", "echo; exec sleep 1000"]).stdout(Stdio::piped());
        let mut pod = command.spawn().expect("unshare(1)");
        let mut line = [0];
        std::io::Read::read_exact(pod.stdout.as_mut().expect("piped"), &mut line).expect("the pod's line");
        ip(&["link", "set", device, "netns", &pod.id().to_string()]);
        let before = self.pod.lock().unwrap_or_else(PoisonError::into_inner).replace(pod);
        end(before);
    }

    async fn end_pod(&self) {
        end(self.pod.lock().unwrap_or_else(PoisonError::into_inner).take());
        // The kernel takes a namespace down in the background.
        for _ in 0..200 {
            if !ip(&["link", "show"]).contains("mpsuite") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    async fn foreign_device(&self, name: &str) {
        ip(&["link", "add", name, "type", "bridge"]);
    }

    async fn is_prepared(&self, pod_end: &str, mac: &str) -> bool {
        let shown = ip(&["link", "show", pod_end]);
        // Off already: the request changes nothing, and the kernel would say so if it did not know the feature.
        shown.contains(mac) && shown.contains("mtu 1442") && !sends_partial_checksums(pod_end)
    }
}

/// `ethtool -k` shows it where it is installed.
fn sends_partial_checksums(device: &str) -> bool {
    match Command::new("ethtool").args(["-k", device]).output() {
        Ok(shown) => String::from_utf8_lossy(&shown.stdout).contains("tx-checksumming: on"),
        Err(_) => false,
    }
}

fn end(pod: Option<Child>) {
    if let Some(mut pod) = pod {
        pod.kill().and_then(|()| pod.wait()).expect("the pod ends");
    }
}

#[test]
fn veth_pairs_keep_the_ports_promises() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP veth_pairs_keep_the_ports_promises: needs root for network namespaces");
        return;
    }
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(suite(&Node::default()));
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
