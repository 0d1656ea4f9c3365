//! The rows compiled by a real `ovn-northd`, judged by `ovn-trace`: what a packet may do.

use crate::lab::{Daemon, OpenVSwitchLab, in_namespace, missing_of_ovn};
use crate::rows::leader;
use ovsdb::OvnNorthBound;
use planner::network::rows::{
    Binding, Dhcp, Direction, Family, Group, Peer, Port, Row, Rule, Subnet, Vpc, diff, metadata_port,
};
use ports::NorthBound;
use std::process::Command;

pub struct Ovn {
    north: OpenVSwitchLab,
    pub south: OpenVSwitchLab,
    pub north_bound: OvnNorthBound,
    _northd: Daemon,
}

pub const SITE: &str = "site";

impl Ovn {
    pub async fn start() -> Self {
        let north = OpenVSwitchLab::ovn(ovsdb::north_bound::DATABASE).await;
        let south = OpenVSwitchLab::ovn(ovsdb::chassis::DATABASE).await;
        let mut arguments = north.own_files("ovn-northd");
        arguments.push(format!("--ovnnb-db=unix:{}", north.path("db.sock")));
        arguments.push(format!("--ovnsb-db=unix:{}", south.path("db.sock")));
        let northd = Daemon::start(north.directory(), "ovn-northd", &arguments);
        let north_bound = leader(&north, SITE).await;
        Self { north, south, north_bound, _northd: northd }
    }

    pub async fn put(&self, uid: &str, wanted: Vec<Row>) {
        let change = diff(&wanted, &self.north_bound.rows(uid).expect("in step"));
        self.north_bound.apply(&change).await.expect("a change of what was just read");
    }

    /// Until `ovn-northd` has compiled everything.
    pub fn sync(&self) {
        self.north.tool("ovn-nbctl", &["--timeout=60", "--wait=sb", "sync"]);
    }

    /// What becomes of a packet. `ovn-trace` reads every flow of the datapath and complains of those that it cannot.
    pub fn trace(&self, switch: &str, packet: &str) -> String {
        let database = format!("--db=unix:{}", self.south.path("db.sock"));
        let output = Command::new("ovn-trace")
            .args([database.as_str(), "--ct=new", "--ct=new", "--ct=new", "--ct=new", switch, packet])
            .output()
            .expect("ovn-trace");
        let (text, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && complaints.is_empty(), "{packet}: {complaints}\n{text}");
        text.into_owned()
    }

    pub fn passes(&self, from: &Nic, packet: &str, to: &str) -> bool {
        let packet = format!("inport == \"mp-{}\" && eth.src == {} && {packet}", from.uid, from.mac);
        let trace = self.trace(&format!("mp-{}", from.subnet), &packet);
        trace.contains(&format!("output to \"mp-{to}\""))
    }

    /// As a chassis binds virtual ports when one of their parents has announced the address.
    pub fn announce(&self, ports: &[&str], parent: &str, chassis: &str) {
        for port in ports {
            let (parent, chassis) = (format!("virtual_parent=mp-{parent}"), format!("chassis={chassis}"));
            self.south.tool("ovn-sbctl", &["set", "Port_Binding", port, &parent, &chassis]);
        }
    }

    /// By the name that the database itself gives it.
    pub fn add_chassis(&self, name: &str) -> String {
        self.south.tool("ovn-sbctl", &["chassis-add", name, "geneve", "127.0.0.1"]);
        let named = format!("name={name}");
        self.south.tool("ovn-sbctl", &["--bare", "--columns=_uuid", "find", "Chassis", &named])
    }

    fn reaches_the_router(&self, from: &Nic) -> bool {
        let gateway = "ip4.dst == 10.1.0.1 && ip.ttl == 64 && icmp4.type == 8";
        let mac = router_mac(from.subnet);
        let packet = format!("eth.src == {} && eth.dst == {mac} && ip4.src == {} && {gateway}", from.mac, from.v4);
        let trace = self.trace(&format!("mp-{}", from.subnet), &format!("inport == \"mp-{}\" && {packet}", from.uid));
        trace.contains(&format!("inport=\"mp-{}.gateway\"", from.subnet))
    }

    pub fn ping(&self, from: &Nic, to: &Nic) -> bool {
        let hop = if from.subnet == to.subnet { to.mac } else { router_mac(from.subnet) };
        let v4 = format!(
            "eth.dst == {hop} && ip4.src == {} && ip4.dst == {} && ip.ttl == 64 && icmp4.type == 8",
            from.v4, to.v4
        );
        let v6 = format!(
            "eth.dst == {hop} && ip6.src == {} && ip6.dst == {} && ip.ttl == 64 && icmp6.type == 128",
            from.v6, to.v6
        );
        let [v4, v6] = [v4, v6].map(|packet| self.passes(from, &packet, to.uid));
        assert_eq!(v4, v6, "{} to {}: both families have the same rules", from.uid, to.uid);
        v4
    }
}

#[derive(Clone, Copy)]
pub struct Nic {
    pub uid: &'static str,
    pub subnet: &'static str,
    pub mac: &'static str,
    pub v4: &'static str,
    pub v6: &'static str,
}

pub const A: Nic = Nic { uid: "a-1", subnet: "s1", mac: "02:00:00:00:01:07", v4: "10.1.0.7", v6: "fd00:1::7" };
pub const B: Nic = Nic { uid: "b-1", subnet: "s1", mac: "02:00:00:00:01:08", v4: "10.1.0.8", v6: "fd00:1::8" };
pub const C: Nic = Nic { uid: "c-1", subnet: "s2", mac: "02:00:00:00:02:07", v4: "10.2.0.7", v6: "fd00:2::7" };

/// Of another Vpc, and with what B has.
pub const RED: Nic = Nic { uid: "r-1", subnet: "s3", ..B };

pub fn router_mac(subnet: &str) -> &'static str {
    match subnet {
        "s1" => "02:00:00:00:01:01",
        "s2" => "02:00:00:00:02:01",
        _ => "02:00:00:00:03:01",
    }
}

pub fn subnet(uid: &'static str) -> Vec<Row> {
    let number = if uid == "s2" { 2 } else { 1 };
    let family = |network: String, gateway: String| Family {
        network: network.parse().expect("a network"),
        gateway: Some(gateway.parse().expect("an address")),
    };
    let subnet = Subnet {
        uid: uid.to_owned(),
        vpc_uid: if uid == "s3" { "w" } else { "v" }.to_owned(),
        families: vec![
            family(format!("10.{number}.0.0/24"), format!("10.{number}.0.1")),
            family(format!("fd00:{number}::/64"), format!("fd00:{number}::1")),
        ],
        router_mac: router_mac(uid).to_owned(),
        mtu: 1442,
        dhcp: Some(Dhcp { lease_seconds: 3600, ntp_servers: vec!["10.1.0.123".parse().expect("an address")] }),
        // The second one's guests make their addresses from its prefix.
        slaac: uid == "s2",
        dns_servers: vec!["10.1.0.53".parse().expect("an address"), "fd00:1::53".parse().expect("an address")],
        domain: Some("blue.example".to_owned()),
        metadata: uid != "s3",
        vlan: None,
    };
    subnet.rows(SITE)
}

pub fn port(nic: &Nic, groups: &[&str]) -> Vec<Row> {
    port_of(nic, groups).rows(SITE)
}

pub fn port_of(nic: &Nic, groups: &[&str]) -> Port {
    Port {
        uid: nic.uid.to_owned(),
        name: format!("mp-{}", nic.uid),
        subnet_uid: nic.subnet.to_owned(),
        mac: nic.mac.to_owned(),
        addresses: [nic.v4, nic.v6].map(|address| address.parse().expect("an address")).into(),
        dhcp: (true, nic.subnet != "s2"),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        binding: Some(Binding { chassis: "dpu-1".to_owned(), attachment_uid: "a".to_owned(), epoch: 1 }),
        ..Port::default()
    }
}

/// Members reach each other, and may send anywhere.
fn group(uid: &str) -> Vec<Row> {
    let rule = |direction, peers| Rule { direction, peers, ports: Vec::new(), icmp: None };
    let members = Some(vec![Peer::Group(uid.to_owned())]);
    Group { uid: uid.to_owned(), rules: vec![rule(Direction::Ingress, members), rule(Direction::Egress, None)] }
        .rows(SITE)
}

#[test]
fn ovn_compiles_the_rows_to_what_the_groups_say() {
    let name = "ovn_compiles_the_rows_to_what_the_groups_say";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        let ovn = Ovn::start().await;
        ovn.put("v", Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows(SITE)).await;
        for uid in ["s1", "s2"] {
            ovn.put(uid, subnet(uid)).await;
        }
        ovn.put("g-1", group("g-1")).await;
        for nic in [&A, &B, &C] {
            ovn.put(nic.uid, port(nic, &[])).await;
        }
        ovn.sync();
        in_no_group_nothing_passes(&ovn);
        addresses_are_given(&ovn);
        metadata_is_asked_for(&ovn);

        for nic in [&A, &C] {
            ovn.put(nic.uid, port(nic, &["g-1"])).await;
        }
        ovn.sync();
        assert!(ovn.reaches_the_router(&A), "a member may send");
        assert!(ovn.ping(&A, &C) && ovn.ping(&C, &A), "members of a group, by the router");
        assert!(!ovn.ping(&A, &B) && !ovn.ping(&B, &A), "who is in no group, on the same switch");
        ovn.put(B.uid, port(&B, &["g-1"])).await;
        ovn.sync();
        assert!(ovn.ping(&A, &B) && ovn.ping(&B, &C), "joining a group");
        two_vpcs_do_not_meet(&ovn).await;
        assert!(!ovn.ping(&Nic { v4: "10.1.0.9", v6: "fd00:1::9", ..A }, &B), "a foreign source address");
        assert!(!ovn.ping(&Nic { mac: "02:00:00:00:01:99", ..A }, &B), "a foreign MAC address");

        let wanted = [
            ("v", Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows(SITE)),
            ("s1", subnet("s1")),
            ("a-1", port(&A, &["g-1"])),
        ];
        let number = ovn.north_bound.raise(500).await.expect("in step after it");
        ovn.sync();
        let told = ovn.south.tool("ovn-sbctl", &["get", "SB_Global", ".", "nb_cfg"]);
        let told: u64 = told.trim().parse().expect("a number");
        assert!(
            number > 500 && told > number,
            "ovn-northd passes a number on that is not the next one: {number}, {told}"
        );
        for (uid, wanted) in wanted {
            let left = diff(&wanted, &ovn.north_bound.rows(uid).expect("in step"));
            assert!(left.is_empty(), "ovn-northd writes nothing into our columns: {left:#?}");
        }
        ovn.put("g-1", Group { uid: "g-1".to_owned(), rules: Vec::new() }.rows(SITE)).await;
        ovn.sync();
        assert!(!ovn.ping(&A, &B) && !ovn.ping(&A, &C), "a group without rules is closed");
    });
}

/// The same addresses in another Vpc, whose group lets in and out whatever comes.
async fn two_vpcs_do_not_meet(ovn: &Ovn) {
    let rule = |direction| Rule { direction, peers: None, ports: Vec::new(), icmp: None };
    let open = Group { uid: "g-2".to_owned(), rules: vec![rule(Direction::Ingress), rule(Direction::Egress)] };
    ovn.put("w", Vpc { uid: "w".to_owned(), hops: Vec::new() }.rows(SITE)).await;
    ovn.put("s3", subnet("s3")).await;
    ovn.put("g-2", open.rows(SITE)).await;
    ovn.put(RED.uid, port(&RED, &["g-2"])).await;
    ovn.sync();
    let echo = |to: &Nic| format!("ip4.dst == {} && ip.ttl == 64 && icmp4.type == 8", to.v4);
    for (from, hop) in [(&A, B.mac), (&A, router_mac("s1")), (&C, router_mac("s2"))] {
        let packet = format!("eth.dst == {hop} && ip4.src == {} && {}", from.v4, echo(&B));
        assert!(ovn.passes(from, &packet, B.uid) && !ovn.passes(from, &packet, RED.uid), "{} by {hop}", from.uid);
    }
    for (to, hop) in [(&A, A.mac), (&A, router_mac("s3")), (&C, router_mac("s3"))] {
        let packet = format!("eth.dst == {hop} && ip4.src == {} && {}", RED.v4, echo(to));
        assert!(!ovn.passes(&RED, &packet, to.uid), "{} by {hop}", to.uid);
    }
    nobody_is_asked_for_metadata(ovn);
}

/// Where the Subnet says so, though the guest's group lets everything out: it has no port for it, and tells no route to it.
fn nobody_is_asked_for_metadata(ovn: &Ovn) {
    let (port, mac) = metadata_port("s3");
    let asked = format!("eth.src == {} && eth.dst == {mac} && ip4.src == {}", RED.mac, RED.v4);
    let asked = format!("{asked} && ip4.dst == 169.254.169.254 && ip.ttl == 64 && tcp.src == 4000 && tcp.dst == 80");
    let trace = ovn.trace("mp-s3", &format!("inport == \"mp-{}\" && {asked}", RED.uid));
    assert!(!trace.contains(&format!("output to \"{port}\"")), "{trace}");
    let flows = ovn.south.tool("ovn-sbctl", &["lflow-list", "mp-s3"]);
    let with = ovn.south.tool("ovn-sbctl", &["lflow-list", "mp-s1"]);
    assert!(with.contains("169.254.169.254") && !flows.contains("169.254.169.254"), "{flows}");
    assert!(flows.contains("classless_static_route = {0.0.0.0/0,10.1.0.1}"), "{flows}");
}

fn in_no_group_nothing_passes(ovn: &Ovn) {
    assert!(!ovn.ping(&A, &B) && !ovn.ping(&A, &C), "a port in no group reaches nobody");
    assert!(!ovn.reaches_the_router(&A), "not even the router");
    let to_b = format!("eth.dst == {} && ip4.src == {} && ip4.dst == {} && ip.ttl == 64", B.mac, A.v4, B.v4);
    assert!(!ovn.passes(&A, &format!("{to_b} && udp.src == 68 && udp.dst == 67"), B.uid), "nor as if it were DHCP");
    assert!(!ovn.passes(&A, &format!("{to_b} && tcp.dst == 80"), B.uid));
}

/// Whatever groups say: from each guest to the Subnet's own port, and back; to nothing else there.
fn metadata_is_asked_for(ovn: &Ovn) {
    let (port, mac) = metadata_port("s1");
    for (from, to, version) in [(A.v4, "169.254.169.254", "ip4"), ("fe80::ff:fe00:107", "fe80::a9fe:a9fe", "ip6")] {
        let addresses =
            |from: &str, to: &str| format!("{version}.src == {from} && {version}.dst == {to} && ip.ttl == 64");
        let ask = |tcp: u16| {
            let packet = format!("eth.src == {} && eth.dst == {mac} && {}", A.mac, addresses(from, to));
            ovn.trace("mp-s1", &format!("inport == \"mp-a-1\" && {packet} && tcp.src == 4000 && tcp.dst == {tcp}"))
        };
        let output = format!("output to \"{port}\"");
        assert!(ask(80).contains(&output), "{version}: asked: {}", ask(80));
        assert!(!ask(22).contains(&output), "{version}: another port");
        let packet = format!("eth.src == {mac} && eth.dst == {} && {}", A.mac, addresses(to, from));
        let answer =
            ovn.trace("mp-s1", &format!("inport == \"{port}\" && {packet} && tcp.src == 80 && tcp.dst == 4000"));
        assert!(answer.contains("output to \"mp-a-1\""), "{version}: told: {answer}");
    }
    let forged =
        format!("eth.src == {} && eth.dst == {} && ip4.src == 169.254.169.254 && ip4.dst == {}", A.mac, B.mac, B.v4);
    let forged = ovn.trace("mp-s1", &format!("inport == \"mp-a-1\" && {forged} && ip.ttl == 64 && tcp.src == 80"));
    assert!(!forged.contains("output to \"mp-b-1\""), "a guest that answers in its place: {forged}");
}

fn addresses_are_given(ovn: &Ovn) {
    let discover = "eth.dst == ff:ff:ff:ff:ff:ff && ip4.src == 0.0.0.0 && ip4.dst == 255.255.255.255 && ip.ttl == 64 \
                    && udp.src == 68 && udp.dst == 67";
    let packet = format!("inport == \"mp-a-1\" && eth.src == {} && {discover}", A.mac);
    let trace = ovn.trace("mp-s1", &packet);
    let options =
        trace.lines().find(|line| line.contains("put_dhcp_opts(")).unwrap_or_else(|| panic!("no answer: {trace}"));
    for wanted in [
        "offerip = 10.1.0.7",
        "router = 10.1.0.1",
        "classless_static_route = {169.254.169.254/32, 0.0.0.0, 0.0.0.0/0, 10.1.0.1}",
        "dns_server = {10.1.0.53}",
        "ntp_server = {10.1.0.123}",
        "domain_name = \"blue.example\"",
        "lease_time = 3600",
        "mtu = 1442",
        "netmask = 255.255.255.0",
        "server_id = 10.1.0.1",
    ] {
        assert!(options.contains(wanted), "{wanted} in {options}");
    }
    assert!(trace.contains("output to \"mp-a-1\""), "the answer comes back: {trace}");

    let solicit = "eth.dst == 33:33:00:01:00:02 && ip6.src == fe80::ff:fe00:107 && ip6.dst == ff02::1:2 && ip.ttl == 1 \
                   && udp.src == 546 && udp.dst == 547";
    let trace = ovn.trace("mp-s1", &format!("inport == \"mp-a-1\" && eth.src == {} && {solicit}", A.mac));
    let options =
        trace.lines().find(|line| line.contains("put_dhcpv6_opts(")).unwrap_or_else(|| panic!("no answer: {trace}"));
    for wanted in ["ia_addr = fd00:1::7", "dns_server = {fd00:1::53}", "domain_search = \"blue.example\""] {
        assert!(options.contains(wanted), "{wanted} in {options}");
    }
    assert!(trace.contains("output to \"mp-a-1\""), "the answer comes back: {trace}");
    advertised(ovn);
}

/// By DHCPv6 in the one Subnet, which flag M says (RFC 4861 section 4.2), from the prefix in the other. `ovn-trace` ends at such a
/// flow (OVN 23.03), so the flow itself is read.
fn advertised(ovn: &Ovn) {
    let flows = ovn.south.tool("ovn-sbctl", &["lflow-list", "mp-v"]);
    for (subnet, mode, prefix) in [("s1", "dhcpv6_stateful", "fd00:1::/64"), ("s2", "slaac", "fd00:2::/64")] {
        let of_port = format!("inport == \"mp-{subnet}.gateway\"");
        let is_it = |line: &&str| line.contains("put_nd_ra_opts(") && line.contains(&of_port);
        let flow = flows.lines().find(is_it).unwrap_or_else(|| panic!("no answer in {subnet}: {flows}"));
        for wanted in [
            format!("addr_mode = \"{mode}\""),
            format!("prefix = {prefix}"),
            "mtu = 1442".to_owned(),
            "rdnss = fd00:1::53".to_owned(),
            "dnssl = \"blue.example\"".to_owned(),
        ] {
            assert!(flow.contains(&wanted), "{wanted} in {flow}");
        }
        // What `ovn-controller` says to all from time to time (RFC 4861 section 6.2.4).
        let of_port = format!("logical_port=mp-{subnet}.gateway");
        let said = ovn.south.tool("ovn-sbctl", &["--bare", "--columns=options", "find", "port_binding", &of_port]);
        for wanted in ["rdnss=fd00:1::53", "dnssl=blue.example", "mtu=1442", "send_periodic=true"] {
            assert!(said.contains(&format!("ipv6_ra_{wanted}")), "{wanted} in {said}");
        }
    }
}
