//! The virtual functions of a SmartNIC in the node: real network devices, rtnetlink as it is, devlink as recordings have it, and a sysfs tree as the
//! kernel lays it out (Documentation/PCI/pci-iov-howto.rst).

use super::dpu::{host_sees_link, ip, nic, on_a_dpu};
use super::recorded::{PARENT, Recorded, port};
use async_trait::async_trait;
use bluefield::devlink::{Devlink, Kernel};
use bluefield::vf::VirtualFunctions;
use ports::conformance::pod_devices;
use ports::{ErrorClass, PodDevices};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// Two functions of the node, among others that are not: the physical one, a host's, and one whose driver is not the kernel's.
struct Node {
    board: Recorded,
    sysfs: TempDir,
    pod: Mutex<Option<(Child, String)>>,
}

const REPRESENTORS: [&str; 2] = ["ens1f0npf0vf0", "ens1f0npf0vf1"];

impl Node {
    fn new() -> Self {
        let board = Recorded::new(vec![
            port(0xffff).physical("ens1f0np0"),
            port(0x1_0001).vf(REPRESENTORS[1], 0, 0, 1, false),
            port(0x1_0000).vf(REPRESENTORS[0], 0, 0, 0, false),
            port(0x1_0002).vf("ens1f0npf0vf2", 0, 0, 2, false),
            port(0x3_0000).vf("c1pf0vf0", 1, 0, 0, true),
        ]);
        board.add_devices();
        let node = Self { board, sysfs: tempfile::tempdir().expect("a folder"), pod: Mutex::default() };
        let devices = node.sysfs.path().join("bus/pci/devices");
        std::fs::create_dir_all(devices.join(PARENT)).expect("make a folder");
        for number in 0..3 {
            let address = format!("0000:03:00.{}", number + 2);
            std::fs::create_dir(devices.join(&address)).expect("make a folder");
            let link = devices.join(PARENT).join(format!("virtfn{number}"));
            std::os::unix::fs::symlink(format!("../{address}"), link).expect("link");
        }
        for device in REPRESENTORS.map(|name| format!("{name}-h")) {
            ip(&["link", "set", &device, "down"]);
            node.shows(&device, true);
        }
        node
    }

    /// What sysfs has of a network device that is here, or is not.
    fn shows(&self, device: &str, is_here: bool) {
        let number = REPRESENTORS.iter().position(|name| device == format!("{name}-h")).expect("one of them");
        let folder: PathBuf =
            self.sysfs.path().join(format!("bus/pci/devices/{PARENT}/virtfn{number}/net")).join(device);
        match is_here {
            true => std::fs::create_dir_all(&folder).expect("make a folder"),
            false => std::fs::remove_dir_all(folder.parent().expect("net")).expect("remove"),
        }
    }

    /// The pod ends, and the kernel gives hardware back to the node; one end of a veth pair, which stands for it here, would go.
    fn give_back(&self) {
        let Some((mut pod, device)) = self.pod.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let inside = format!("--net=/proc/{}/ns/net", pod.id());
        let own = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
        let moved = Command::new("nsenter").args([&inside, "ip", "link", "set", &device, "netns", &own]).status();
        assert!(moved.expect("nsenter(1)").success(), "{device} comes back");
        pod.kill().and_then(|()| pod.wait()).expect("the pod ends");
        self.shows(&device, true);
    }

    fn port(&self) -> VirtualFunctions {
        VirtualFunctions::new(self.board.clone(), self.sysfs.path())
    }
}

#[async_trait]
impl pod_devices::Bench for Node {
    async fn open(&self) -> Box<dyn PodDevices> {
        Box::new(self.port())
    }

    async fn move_away(&self, device: &str) {
        let mut command = Command::new("unshare");
        // The line says that the namespace is made.
        command.args(["--net", "sh", "-c", "echo; exec sleep 1000"]).stdout(Stdio::piped());
        let mut pod = command.spawn().expect("unshare(1)");
        let mut line = [0];
        self.give_back();
        std::io::Read::read_exact(pod.stdout.as_mut().expect("piped"), &mut line).expect("the pod's line");
        ip(&["link", "set", device, "netns", &pod.id().to_string()]);
        self.shows(device, false);
        *self.pod.lock().unwrap_or_else(PoisonError::into_inner) = Some((pod, device.to_owned()));
    }

    async fn end_pod(&self) {
        self.give_back();
    }

    async fn foreign_device(&self, _: &str) {
        for name in REPRESENTORS {
            ip(&["link", "set", &format!("{name}-h"), "up"]);
        }
    }

    async fn is_prepared(&self, pod_end: &str, mac: &str) -> bool {
        let shown = ip(&["link", "show", pod_end]);
        shown.contains(mac) && shown.contains("mtu 1442")
    }

    fn device_stays(&self) -> bool {
        true
    }
}

#[test]
fn keeps_the_ports_promises() {
    on_a_dpu("keeps_the_ports_promises", || async { pod_devices::suite(&Node::new()).await });
}

#[test]
fn a_function_that_somebody_uses_is_not_taken() {
    on_a_dpu("a_function_that_somebody_uses_is_not_taken", || async {
        let node = Node::new();
        let port = node.port();
        assert_eq!(port.most().await, Ok(3));
        ip(&["link", "set", &format!("{}-h", REPRESENTORS[0]), "up"]);
        port.make(&nic(1)).await.expect("the other one");
        let made = port.list().await.expect("list");
        assert_eq!((made.len(), made[0].device.as_str()), (1, REPRESENTORS[1]));
        port.set_link(&nic(1).id, true).await.expect("up");
        ip(&["link", "set", &format!("{}-h", REPRESENTORS[1]), "up"]);
        assert!(host_sees_link(&format!("{}-h", REPRESENTORS[1])), "the pod has a carrier");
        // The third one is bound to another driver: the node has no network device of it.
        let full = port.make(&nic(2)).await.expect_err("there is none left");
        assert!(full.class == ErrorClass::Busy && full.message.contains("each of the 3"), "{full}");
        port.remove(&nic(1).id).await.expect("remove");
        assert!(!host_sees_link(&format!("{}-h", REPRESENTORS[1])), "the fence");
        let still_up = port.make(&nic(2)).await.expect_err("whoever had it has not let go");
        assert_eq!(still_up.class, ErrorClass::Busy);
        ip(&["link", "set", &format!("{}-h", REPRESENTORS[1]), "down"]);
        port.make(&nic(2)).await.expect("it is free");
    });
}

#[test]
fn a_node_without_functions_is_told_what_to_do() {
    on_a_dpu("a_node_without_functions_is_told_what_to_do", || async {
        let board = Recorded::new(vec![port(0xffff).physical("ens1f0np0")]);
        let refused = VirtualFunctions::new(board, "/nonexistent".as_ref()).list().await.expect_err("none");
        assert!(refused.class == ErrorClass::Unsupported && refused.message.contains("sriov_numvfs"), "{refused}");
    });
    match Devlink::new(Kernel).virtual_functions() {
        Ok(functions) => assert_eq!(functions, [], "a machine with functions of its own"),
        Err(error) => assert_eq!(error.class, ErrorClass::Unsupported, "{error}"),
    }
}
