//! The host's own functions, and a node's virtual ones ([`vf`]): real network devices, rtnetlink as it is, and devlink as recordings of it have it, byte by byte.

mod dpu;
mod recorded;
mod vf;

use async_trait::async_trait;
use bluefield::devlink::{Devlink, Kernel};
use bluefield::fixed::FixedNics;
use dpu::{has_device, host_sees_link, ip, nic, on_a_dpu};
use planner::exposure::FunctionKind;
use ports::conformance::{Sleep, emulation};
use ports::emulation::Backend;
use ports::{Emulation, ErrorClass};
use recorded::{Recorded, port};
use std::time::Duration;

struct Bench(Recorded);

#[async_trait]
impl Sleep for Bench {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl emulation::Bench for Bench {
    async fn connect(&self) -> Box<dyn Emulation> {
        Box::new(FixedNics::new(self.0.clone()))
    }

    async fn backend(&self, _: u64) -> Backend {
        Backend::Path("/nonexistent/volume".into())
    }

    async fn grow(&self, _: &Backend, _: u64) {}

    async fn let_host_release(&self) {}

    fn device_stays(&self) -> bool {
        true
    }

    async fn has_device(&self, name: &str) -> Option<bool> {
        Some(has_device(name))
    }
}

/// As the kernel's documentation has it, and as other vendors and newer udev rules name it.
fn boards() -> Vec<Recorded> {
    let stock = Recorded::new(vec![
        port(0xffff).physical("p0"),
        port(0x0_0000).pf("local", 0, 0, false),
        port(0x3_0000).pf("pf0hpf", 1, 0, true),
        port(0x3_0001).vf("pf0vf0", 1, 0, 0, true),
        port(0x8000).sf("en3f0pf0sf0", 0, 0, 0),
    ]);
    let upstream = Recorded::new(vec![
        port(7).pf("c1pf1", 1, 1, true),
        port(2).pf("c1pf0", 1, 0, true),
        port(9).pf("c2pf0", 2, 0, true),
        // While its driver starts.
        port(12).pf("", 3, 0, true),
    ]);
    vec![stock, upstream]
}

#[test]
fn keeps_the_ports_promises() {
    on_a_dpu("keeps_the_ports_promises", || async {
        for board in boards() {
            board.add_devices();
            emulation::run(&Bench(board)).await;
        }
    });
}

#[test]
fn a_host_gets_its_address_and_its_link() {
    on_a_dpu("a_host_gets_its_address_and_its_link", || async {
        let board = boards().remove(1);
        board.add_devices();
        ip(&["link", "set", "c1pf0", "up"]);
        assert!(host_sees_link("c1pf0-h"));
        let nics = FixedNics::new(board.clone());
        assert_eq!(nics.list().await, Ok(Vec::new()));
        assert!(!host_sees_link("c1pf0-h"), "nobody was granted it: a stock image bridges it to the uplink");

        nics.expose_nic(&nic(1)).await.expect("expose");
        assert_eq!(board.mac("c1pf0").as_deref(), Some("02:00:00:00:00:01"), "the lowest of the host's functions");
        assert!(!host_sees_link("c1pf0-h"));
        assert!(ip(&["link", "show", "c1pf0"]).contains("mtu 8942"), "what the host may send fits");
        nics.set_link(&nic(1).id, true).await.expect("up");
        assert!(host_sees_link("c1pf0-h"));
        let again = FixedNics::new(board.clone());
        let listed = again.list().await.expect("list");
        assert_eq!((listed.len(), listed[0].representor.as_deref(), listed[0].link_up), (1, Some("c1pf0"), Some(true)));
        again.hide(&nic(1).id, FunctionKind::Nic).await.expect("hide");
        assert!(!host_sees_link("c1pf0-h"), "the fence");
        assert_eq!(board.mac("local"), None);
    });
}

/// As Open vSwitch does it when it takes a port out: behind our back, and after we have looked.
#[test]
fn a_link_that_somebody_sets_up_is_told_and_taken_down() {
    on_a_dpu("a_link_that_somebody_sets_up_is_told_and_taken_down", || async {
        let board = boards().remove(1);
        board.add_devices();
        ip(&["link", "add", "other", "type", "veth", "peer", "name", "other-h"]);
        let nics = FixedNics::new(board);
        nics.list().await.expect("list");
        nics.expose_nic(&nic(1)).await.expect("expose");
        nics.set_link(&nic(1).id, true).await.expect("up");
        nics.hide(&nic(1).id, FunctionKind::Nic).await.expect("hide");
        told_no_more(&nics).await;

        ip(&["link", "set", "other", "up"]);
        assert!(!is_told(&nics).await, "no function of the host's");
        ip(&["link", "set", "c1pf0", "mtu", "9000"]);
        assert!(!is_told(&nics).await, "the link is as it was");
        ip(&["link", "set", "c1pf0", "up"]);
        assert!(host_sees_link("c1pf0-h") && is_told(&nics).await);
        assert_eq!(nics.list().await, Ok(Vec::new()));
        assert!(!host_sees_link("c1pf0-h"), "it is nobody's");
    });
}

/// What the kernel has to say of a change it says at once; of a busy machine it is waited for.
async fn is_told(nics: &FixedNics) -> bool {
    tokio::time::timeout(Duration::from_secs(1), nics.changed()).await.is_ok()
}

/// Our own changes are told too.
async fn told_no_more(nics: &FixedNics) {
    let told = async { while is_told(nics).await {} };
    tokio::time::timeout(Duration::from_secs(20), told).await.expect("nobody changes anything");
}

#[test]
fn what_stands_in_the_way_is_named() {
    on_a_dpu("what_stands_in_the_way_is_named", || async {
        let nic_mode = Recorded::new(vec![port(0xffff).physical("p0")]);
        let refused = FixedNics::new(nic_mode).list().await.expect_err("no function of the host");
        assert!(refused.class == ErrorClass::Unsupported && refused.message.contains("DPU mode"), "{refused}");

        let board = Recorded::new(vec![port(3).pf("pf0hpf", 1, 0, true)]);
        board.add_devices();
        board.refuse(nix::libc::EOPNOTSUPP);
        let refused =
            FixedNics::new(board.clone()).expose_nic(&nic(1)).await.expect_err("the driver sets no addresses");
        assert!(refused.class == ErrorClass::Unsupported && refused.message.contains("02:00:00:00:00:01"), "{refused}");
        assert_eq!(FixedNics::new(board.clone()).list().await, Ok(Vec::new()), "and it is nobody's");
        board.refuse(0);
        FixedNics::new(board.clone()).expose_nic(&nic(1)).await.expect("expose");
        let full = FixedNics::new(board).expose_nic(&nic(2)).await.expect_err("one function, one NIC");
        assert_eq!(full.class, ErrorClass::Busy, "{full}");
    });
}

/// The kernel of this machine: it has devlink, or says that it has none. No port of it is a host's.
#[test]
fn the_kernel_is_asked_as_it_wants_to_be() {
    match Devlink::new(Kernel).host_functions() {
        Ok(functions) => assert_eq!(functions, [], "a machine with a host behind it"),
        Err(error) => assert_eq!(error.class, ErrorClass::Unsupported, "{error}"),
    }
}
