//! The network of the kernel's arguments, on a NIC of a network namespace: its MTU, and that of a VLAN on it.

use installer::network::{self, Lease};
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

/// Set for the test inside the namespace.
const INSIDE: &str = "METALPLANE_INSTALLER_TEST_NETWORK";
const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0x26, 1];
const NIC: &str = "nic0";

/// Removed with all that is in it.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may be that it was never made.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if done.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {said}")) }
}

/// A NIC with a link.
fn namespace(name: &str) -> Result<Namespace, String> {
    let namespace = Namespace(format!("mp-installer-{name}-{}", std::process::id()));
    let name = &namespace.0;
    ip(&format!("netns add {name}"))?;
    ip(&format!("-n {name} link add {NIC} address 52:54:00:00:26:01 type veth peer name peer0"))?;
    ip(&format!("-n {name} link set peer0 mtu 9000 up"))?;
    Ok(namespace)
}

/// Runs this test again inside; what it said there, with what the installer says on its console.
fn again(test: &str, namespace: &Namespace) -> String {
    let own = std::env::current_exe().expect("a path");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace.0]).arg(own).args(["--exact", test, "--nocapture"]).env(INSIDE, "yes");
    let done = command.output().expect("ip starts");
    let (said, failed) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("1 passed"), "{said}\n{failed}");
    said.into_owned()
}

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// What the network says of itself.
fn lease(mtu: u16) -> Option<Lease> {
    let address = Ipv4Addr::new(10, 26, 0, 5);
    Some(Lease { address, prefix: 24, router: None, names: Vec::new(), mtu: Some(mtu) })
}

fn mtu(link: &str) -> String {
    fs::read_to_string(format!("/sys/class/net/{link}/mtu")).expect("a link").trim().to_owned()
}

#[tokio::test]
async fn the_mtu_is_that_of_the_network() {
    let name = "mtu::the_mtu_is_that_of_the_network";
    if is_inside() {
        network::up(Some(MAC), None, lease(1400), None).await.expect("up");
        return assert_eq!(mtu(NIC), "1400");
    }
    match namespace("mtu") {
        Ok(namespace) => {
            let said = again(name, &namespace);
            assert!(said.contains("installer: nic0 has the MTU 1400"), "{said}");
        }
        Err(missing) => eprintln!("SKIP {name}: {missing}"),
    }
}

#[tokio::test]
async fn an_mtu_that_the_nic_does_not_take_is_said_and_ends_nothing() {
    let name = "mtu::an_mtu_that_the_nic_does_not_take_is_said_and_ends_nothing";
    if is_inside() {
        // Of an Ethernet that carries IPv4, the kernel takes none below 68.
        network::up(Some(MAC), None, lease(9000), Some(60)).await.expect("up");
        return assert_eq!(mtu(NIC), "1500");
    }
    match namespace("no-mtu") {
        Ok(namespace) => {
            let said = again(name, &namespace);
            assert!(said.contains("installer: nic0 does not take the MTU 60: "), "{said}");
        }
        Err(missing) => eprintln!("SKIP {name}: {missing}"),
    }
}

#[tokio::test]
async fn the_mtu_of_the_arguments_is_that_of_the_nic_and_of_its_vlan() {
    let name = "mtu::the_mtu_of_the_arguments_is_that_of_the_nic_and_of_its_vlan";
    if is_inside() {
        network::up(Some(MAC), Some(7), lease(1400), Some(8000)).await.expect("up");
        return assert_eq!([mtu(NIC), mtu(&format!("{NIC}.7"))], ["8000", "8000"]);
    }
    // Not every kernel that tests run on has VLANs.
    let with_vlans = namespace("vlan").and_then(|namespace| {
        ip(&format!("-n {} link add link peer0 name probe0 type vlan id 5", namespace.0))?;
        Ok(namespace)
    });
    match with_vlans {
        Ok(namespace) => {
            let said = again(name, &namespace);
            assert!(said.contains("installer: nic0.7 has the MTU 8000"), "{said}");
        }
        Err(missing) => eprintln!("SKIP {name}: {missing}"),
    }
}
