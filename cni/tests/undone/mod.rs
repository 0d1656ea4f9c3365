//! An ADD of two NICs of which the second one fails, by whatever: neither is left, in the pod, on the node or in a file, and what is the pod's own
//! stays.

use super::agent::{self, Agent};
use super::{Call, Pods, asking, config, ip, offer_with};
use proto::interfaces::v1alpha1::Interface;
use std::process::Command;
use tempfile::TempDir;

const MACS: [&str; 2] = ["02:00:00:00:21:07", "02:00:00:00:21:08"];

fn nic(name: &str, device: &str, place: usize) -> Interface {
    let mac_address = MACS[place].to_owned();
    let addresses = vec![format!("10.2{place}.0.7/24"), format!("fd00:2{place}::7/64")];
    Interface { mac_address, addresses, routes: vec![], ..agent::interface(name, &format!("mq{device}")) }
}

fn is_on_node(device: &str) -> bool {
    Command::new("ip").args(["link", "show", device]).output().expect("ip(8)").status.success()
}

#[test]
fn an_add_whose_second_nic_fails_leaves_neither() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP undone::an_add_whose_second_nic_fails_leaves_neither: needs root for network namespaces");
        return;
    }
    let dir = TempDir::new().expect("a folder");
    let (folder, config) = (dir.path(), config(dir.path(), asking()));
    let pods = Pods::start(&["undone"]);
    let netns = pods.path(0);
    let device = format!("u{}", std::process::id() % 1_000_000);
    let [first, second] = ["a", "b"].map(|end| format!("{device}{end}"));
    let (net1, net2) = (nic("net1", &first, 0), nic("net2", &second, 1));
    let agent = Agent::start(folder, Ok(net1.clone()));
    let run = |verb| Call { verb, container: "c1", netns: &netns };
    let is_clean = |how: &str| {
        let devices = pods.devices(0);
        assert!(!devices.contains("net1") && !devices.contains("mq"), "{how}: {devices}");
        assert_eq!(std::fs::read_dir(folder.join("state")).expect("the folder").count(), 0, "{how}");
    };

    // Of a veth pair both ends go: the first one had arrived in the pod.
    let is_undone = |how: &str, net1: &Interface, net2: &Interface, said: (u64, &str)| {
        agent.answer_all(&[net1.clone(), net2.clone()]);
        offer_with(&first, MACS[0]);
        let (code, message) = run("ADD").fails(&config);
        assert!(code == said.0 && message.contains(said.1), "{how}: {code}: {message}");
        is_clean(how);
        assert!(!is_on_node(&format!("mp{first}")), "{how}: the first one is deleted");
        run("DEL").succeeds(&config);
        is_clean(how);
    };
    is_undone("the device is missing", &net1, &net2, (11, "is not on the node"));
    assert!(!pods.devices(0).contains("net2"));

    offer_with(&second, MACS[1]);
    let none = Interface { addresses: vec!["10.21.0.7".to_owned()], ..net2.clone() };
    is_undone("named, and then no more", &net1, &none, (5, "'10.21.0.7', which is no address or network"));
    assert!(!pods.devices(0).contains("net2") && !is_on_node(&format!("mp{second}")));

    // Of a virtual machine's NIC any MAC address would do, once it has had it.
    ip(&format!("-n {} link add net2 type bridge", pods.0[0]));
    for configured_by_pod in [false, true] {
        offer_with(&second, MACS[1]);
        let taken = Interface { configured_by_pod, ..net2.clone() };
        is_undone("the pod has such a device", &net1, &taken, (7, "'net2' already"));
        let own = ip(&format!("-n {} -details link show net2", pods.0[0]));
        assert!(own.contains("bridge") && !is_on_node(&format!("mp{second}")), "{configured_by_pod}: {own}");
    }
    ip(&format!("-n {} link del net2", pods.0[0]));

    // A function goes back to the node.
    agent.answer_all(&[Interface { function: true, ..net1.clone() }, net2.clone()]);
    offer_with(&first, MACS[0]);
    let (code, _) = run("ADD").fails(&config);
    let given_back = "mp020000002107";
    assert!(code == 11 && is_on_node(given_back) && is_on_node(&format!("mp{first}")), "{code}");
    is_clean("a function");
    ip(&format!("link del {given_back}"));
    assert_eq!(agent.detached(), Vec::<String>::new(), "nothing that DEL had to end");

    // Once both are there, both are attached.
    agent.answer_all(&[net1, net2]);
    offer_with(&first, MACS[0]);
    offer_with(&second, MACS[1]);
    let result = run("ADD").succeeds(&config);
    assert_eq!((&result["interfaces"][2]["name"], &result["interfaces"][3]["name"]), (&"net1".into(), &"net2".into()));
    run("CHECK").succeeds(&config);
    run("DEL").succeeds(&config);
    assert!(!pods.devices(0).contains("net"), "{}", pods.devices(0));
    assert_eq!(agent.detached(), ["c1"]);
}
