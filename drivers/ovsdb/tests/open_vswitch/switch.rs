//! [`ports::Switch`].

use crate::lab::{Guest, OpenVSwitchLab, config, eventually, in_namespace, run};
use crate::proxy::Proxy;
use async_trait::async_trait;
use ovsdb::OpenVSwitch;
use ovsdb::switch::monitored;
use planner::exposure::ExposureId;
use ports::conformance::switch::{Bench, suite};
use ports::switch::{GuestObserved, PortObserved, SwitchPort};
use ports::{ErrorClass, Switch};
use std::net::IpAddr;
use std::time::Duration;

struct Real {
    lab: OpenVSwitchLab,
    guests: Vec<Guest>,
}

impl Real {
    async fn new() -> Self {
        let lab = OpenVSwitchLab::switch().await;
        let guests = (0..4).map(|number| Guest::behind(&device(number))).collect();
        run("ip", &["link", "add", "foreign", "type", "veth", "peer", "name", "foreign-peer"]);
        lab.vsctl(&["add-port", "br-int", "foreign"]);
        Self { lab, guests }
    }

    fn handle(&self) -> OpenVSwitch {
        OpenVSwitch::new(self.lab.config(monitored()), "br-int")
    }
}

fn device(number: u8) -> String {
    format!("vf{number}")
}

fn port(uid: &str, number: u8) -> SwitchPort {
    SwitchPort {
        id: ExposureId { uid: uid.to_owned(), epoch: 1 },
        version: format!("{uid}.1"),
        device: device(number),
        mac: "02:00:00:00:20:01".to_owned(),
        logical_port: format!("lsp-{uid}"),
    }
}

#[async_trait]
impl Bench for Real {
    type Switch = OpenVSwitch;

    async fn open(&self) -> OpenVSwitch {
        self.handle()
    }

    async fn device(&self, number: u8) -> String {
        device(number)
    }

    async fn foreign_device(&self) -> String {
        "foreign".to_owned()
    }

    async fn start_guest(&self, number: u8, mac: &str, address: IpAddr) {
        self.guests[usize::from(number)].start(mac, address);
    }

    async fn stop_guest(&self, number: u8) {
        self.guests[usize::from(number)].stop();
    }

    async fn join_ovn(&self, chassis: &str) {
        self.lab.vsctl(&["set", "open_vswitch", ".", &format!("external_ids:system-id={chassis}")]);
    }

    /// In this test's database there is no `ovn-controller`: what it would write, the test writes.
    async fn ovn_installs(&self, number: u8, installed: bool) {
        let device = device(number);
        match installed {
            true => self.lab.vsctl(&["set", "interface", &device, "external_ids:ovn-installed=true"]),
            false => self.lab.vsctl(&["remove", "interface", &device, "external_ids", "ovn-installed"]),
        };
    }

    async fn ovn_reaches(&self, number: u64) {
        self.lab.vsctl(&["set", "bridge", "br-int", &format!("external_ids:ovn-nb-cfg={number}")]);
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn conforms() {
    in_namespace("conforms", || async { suite(&Real::new().await).await });
}

#[test]
fn a_plugged_port_is_what_others_expect_to_find() {
    in_namespace("a_plugged_port_is_what_others_expect_to_find", || async {
        let real = Real::new().await;
        let port = port("a", 0);
        real.handle().plug(&port).await.expect("plug");
        assert_eq!(real.lab.vsctl(&["port-to-br", "vf0"]), "br-int");
        let id = |key: &str| real.lab.vsctl(&["get", "interface", "vf0", &format!("external_ids:{key}")]);
        assert_eq!(id("metalplane-uid"), "a");
        assert_eq!(id("metalplane-epoch"), "\"1\"");
        assert_eq!(id("iface-id"), "lsp-a");
        assert_eq!(id("iface-id-ver"), "a.1");
        assert_eq!(id("attached-mac"), format!("\"{}\"", port.mac));
        real.handle().unplug(&port.id).await.expect("unplug");
        assert!(!real.lab.vsctl(&["list-ports", "br-int"]).contains("vf0"));
        assert!(!real.lab.vsctl(&["--columns=name", "list", "interface"]).contains("vf0"), "no row is left behind");
    });
}

/// As agents plugged it before there were versions: it is not in the way of the guest that runs on it.
#[test]
fn a_port_without_a_version_gets_it() {
    in_namespace("a_port_without_a_version_gets_it", || async {
        let lab = OpenVSwitchLab::database().await;
        lab.vsctl(&["--no-wait", "init"]);
        lab.vsctl(&["--no-wait", "add-br", "br-int"]);
        let switch = OpenVSwitch::new(lab.config(monitored()), "br-int");
        let port = port("a", 0);
        switch.plug(&port).await.expect("plug");
        lab.vsctl(&["--no-wait", "remove", "interface", "vf0", "external_ids", "iface-id-ver"]);
        assert_eq!(switch.list().await.expect("list")[0].port.version, "");
        let row = lab.vsctl(&["get", "interface", "vf0", "_uuid"]);
        switch.plug(&port).await.expect("plug again");
        assert_eq!(switch.list().await.expect("list")[0].port, port);
        assert_eq!(lab.vsctl(&["get", "interface", "vf0", "_uuid"]), row, "it was never unplugged");
        let another = SwitchPort { version: "a.2".to_owned(), ..port };
        assert_eq!(switch.plug(&another).await.map_err(|error| error.class), Err(ErrorClass::Conflict));
    });
}

/// All ports are so, which is told without being asked for.
async fn told(switch: &OpenVSwitch, change: &str, ready: &dyn Fn(&PortObserved) -> bool) {
    while !switch.list().await.expect("list").iter().all(ready) {
        tokio::time::timeout(Duration::from_secs(90), switch.changed()).await.expect(change);
    }
}

/// The agent takes the link up by it, and looks at the switch by itself every ten seconds only.
#[test]
fn a_change_is_told_at_once() {
    in_namespace("a_change_is_told_at_once", || async {
        let real = Real::new().await;
        let (switch, port) = (real.handle(), port("a", 0));
        switch.plug(&port).await.expect("plug");
        let told = async |change: &str, ready: &dyn Fn(&PortObserved) -> bool| told(&switch, change, ready).await;
        told("it forwards", &|seen| seen.forwarding).await;
        real.ovn_installs(0, true).await;
        told("it is installed", &|seen| seen.installed).await;
        let memory =
            || real.lab.vsctl(&["--if-exists", "get", "interface", "vf0", "external_ids:metalplane-installed-at"]);
        eventually("the number is remembered", || memory() == "\"0@\"").await;
        real.ovn_reaches(1).await;
        told("it is in force", &|seen| seen.in_force).await;
        real.ovn_installs(0, false).await;
        told("it is installed no longer", &|seen| !seen.installed).await;
        eventually("the number is forgotten", || memory().is_empty()).await;
    });
}

#[test]
fn a_missing_bridge_is_named() {
    in_namespace("a_missing_bridge_is_named", || async {
        let lab = OpenVSwitchLab::database().await;
        let switch = OpenVSwitch::new(lab.config(monitored()), "br-int");
        let error = switch.plug(&port("a", 0)).await.expect_err("no bridge");
        assert_eq!(error.class, ErrorClass::NotFound);
        assert!(error.message.contains("no bridge br-int"), "{error}");
    });
}

#[test]
fn of_many_at_once_one_plugs() {
    in_namespace("of_many_at_once_one_plugs", || async {
        let real = Real::new().await;
        let attempts: Vec<_> = (0..8)
            .map(|number| {
                let switch = real.handle();
                tokio::spawn(async move { switch.plug(&port(&format!("u{number}"), 0)).await })
            })
            .collect();
        let mut winners = 0;
        for attempt in attempts {
            match attempt.await.expect("no panic") {
                Ok(()) => winners += 1,
                Err(error) => assert!(matches!(error.class, ErrorClass::Conflict | ErrorClass::Busy), "{error}"),
            }
        }
        assert_eq!(winners, 1);
        assert_eq!(real.handle().list().await.expect("list").len(), 1);
    });
}

/// Whatever byte a connection breaks at, the caller is told `Unreachable`, and the same verb again leads to the same end.
#[test]
fn a_cut_at_any_byte_leaves_nothing_half_done() {
    in_namespace("a_cut_at_any_byte_leaves_nothing_half_done", || async {
        let lab = OpenVSwitchLab::database().await;
        lab.vsctl(&["--no-wait", "init"]);
        lab.vsctl(&["--no-wait", "add-br", "br-int"]);
        let proxy = Proxy::before(lab.path("db.sock"), lab.path("cut.sock"), &[]);
        let switch = OpenVSwitch::new(config(&proxy.address, monitored()), "br-int");
        let port = port("a", 0);
        switch.plug(&port).await.expect("plug");
        let mut cuts = 0;
        for step in 0..120 {
            // Enough to reach from the refresh over the transaction to the update that comes with its answer.
            let bytes = step / 4 * 40;
            let cut = || if step % 2 == 0 { proxy.cut_after_requests(bytes) } else { proxy.cut_after_answers(bytes) };
            let plugged = step % 4 < 2;
            cut();
            let first = if plugged { switch.unplug(&port.id).await } else { switch.plug(&port).await };
            if let Err(error) = &first {
                assert_eq!(error.class, ErrorClass::Unreachable, "step {step}: {error}");
            }
            cuts += usize::from(proxy.has_cut());
            proxy.cut_no_more();
            let again = if plugged { switch.unplug(&port.id).await } else { switch.plug(&port).await };
            again.unwrap_or_else(|error| panic!("step {step}: {error}"));
            let listed = switch.list().await.expect("list");
            assert_eq!(
                listed.iter().map(|seen| &seen.port).collect::<Vec<_>>(),
                if plugged { vec![] } else { vec![&port] }
            );
        }
        assert!(cuts > 40, "only {cuts} connections were cut");
    });
}

/// The guest that answers, when it has.
async fn answered(switch: &OpenVSwitch, port: &SwitchPort, address: IpAddr) -> GuestObserved {
    for _ in 0..10_000 {
        let seen = switch.observe_guest(port, &[address]).await.expect("observe");
        if seen.answered_at.is_some() {
            assert_eq!(seen.answered_address, Some(address));
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the guest never answered for {address}");
}

#[test]
fn an_ipv6_guest_answers() {
    in_namespace("an_ipv6_guest_answers", || async {
        let real = Real::new().await;
        let (switch, port) = (real.handle(), port("a", 0));
        let address: IpAddr = "fd00:9::9".parse().expect("a literal address");
        switch.plug(&port).await.expect("plug");
        assert_eq!(switch.observe_guest(&port, &[address]).await, Ok(GuestObserved::default()));
        real.guests[0].start(&port.mac, address);
        answered(&switch, &port, address).await;
    });
}

/// Reverse-path filtering drops the ordinary request, whose sender this guest has no route to; the probe gets through.
#[test]
fn a_guest_without_a_default_route_answers() {
    in_namespace("a_guest_without_a_default_route_answers", || async {
        let real = Real::new().await;
        let (switch, port) = (real.handle(), port("a", 0));
        let address: IpAddr = "10.9.0.9".parse().expect("a literal address");
        switch.plug(&port).await.expect("plug");
        switch.observe_guest(&port, &[address]).await.expect("observe");
        let guest = &real.guests[0];
        guest.run(&["sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.all.arp_announce=0"]);
        guest.start(&port.mac, address);
        // Its network comes up: it looks for a neighbour, which tells that it uses the address.
        guest.run(&["ip", "neighbour", "replace", "10.9.0.1", "dev", "eth0", "nud", "none"]);
        guest.run(&["sh", "-c", "ping -c 1 -W 1 10.9.0.1 >/dev/null 2>&1 || true"]);
        answered(&switch, &port, address).await;
    });
}

#[test]
fn a_device_that_vanishes_and_returns_is_watched_again() {
    in_namespace("a_device_that_vanishes_and_returns_is_watched_again", || async {
        let mut real = Real::new().await;
        let (switch, port) = (real.handle(), port("a", 0));
        let address: IpAddr = "10.9.0.9".parse().expect("a literal address");
        switch.plug(&port).await.expect("plug");
        real.guests[0].start(&port.mac, address);
        let first = answered(&switch, &port, address).await;

        run("ip", &["link", "delete", &port.device]);
        let lost = format!("network device {} no longer exists", port.device);
        told(&switch, "its loss is told", &|seen| !seen.forwarding && seen.error.as_ref() == Some(&lost)).await;
        for _ in 0..10_000 {
            if switch.observe_guest(&port, &[address]).await.expect("observe") == GuestObserved::default() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        real.guests[0] = Guest::behind(&port.device);
        real.guests[0].start(&port.mac, address);
        let second = answered(&switch, &port, address).await;
        assert!(second.first_packet_at > first.answered_at, "{first:?} {second:?}");
    });
}

#[test]
fn an_interface_has_the_type_that_its_datapath_needs() {
    in_namespace("an_interface_has_the_type_that_its_datapath_needs", || async {
        let lab = OpenVSwitchLab::database().await;
        lab.vsctl(&["--no-wait", "init"]);
        lab.vsctl(&["--no-wait", "add-br", "br-int"]);
        let switch = OpenVSwitch::new(lab.config(monitored()), "br-int");
        let cases = [
            ("system", "true", "\"\""),
            ("netdev", "false", "\"\""),
            ("netdev", "true", "dpdk"),
            ("netdev", "True", "dpdk"),
        ];
        for (number, (datapath, doca, type_)) in (0..).zip(cases) {
            lab.vsctl(&["--no-wait", "set", "bridge", "br-int", &format!("datapath_type={datapath}")]);
            lab.vsctl(&["--no-wait", "set", "open_vswitch", ".", &format!("other_config:doca-init={doca}")]);
            switch.plug(&port(&format!("u{number}"), number)).await.expect("plug");
            let said = lab.vsctl(&["get", "interface", &device(number), "type"]);
            assert_eq!(said, type_, "{datapath}, doca-init={doca}");
        }
    });
}
