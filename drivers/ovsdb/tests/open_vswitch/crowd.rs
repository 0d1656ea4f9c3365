//! A SecurityGroup with ten thousand members that rules name as a peer: one more is one row and the bytes that it was in an empty group, and the
//! sets that northd makes of the group (`$mp_…_ip4`, `$mp_…_ip6`) are what packets are matched by, in both families.

use crate::lab::{in_namespace, missing_of_ovn};
use crate::northd::{Nic, Ovn, SITE, port};
use planner::network::rows::{Dhcp, Direction, Family, Group, Peer, Port, Row, Rule, Subnet, Vpc, diff};
use ports::NorthBound;
use std::net::{Ipv4Addr, Ipv6Addr};

const LONG: &str = "LONG_TESTS";
const MEMBERS: u32 = 10_000;
/// Of rows in one transaction.
const BATCH: usize = 500;

const JOINER: Nic =
    Nic { uid: "joiner", subnet: "s9", mac: "02:00:00:00:ff:01", v4: "10.64.250.1", v6: "fd00:64::fa01" };
/// Who lets in whoever is in the group, and nobody else.
const SERVER: Nic =
    Nic { uid: "server", subnet: "s9", mac: "02:00:00:00:ff:02", v4: "10.64.250.2", v6: "fd00:64::fa02" };

fn subnet() -> Vec<Row> {
    let family = |network: &str, gateway: &str| Family {
        network: network.parse().expect("a network"),
        gateway: Some(gateway.parse().expect("an address")),
    };
    let subnet = Subnet {
        uid: "s9".to_owned(),
        vpc_uid: "v".to_owned(),
        families: vec![family("10.64.0.0/16", "10.64.0.1"), family("fd00:64::/64", "fd00:64::1")],
        router_mac: "02:00:00:00:ff:00".to_owned(),
        mtu: 1442,
        dhcp: Some(Dhcp { lease_seconds: 3600, ntp_servers: Vec::new() }),
        slaac: false,
        dns_servers: Vec::new(),
        domain: None,
        metadata: true,
        vlan: None,
    };
    subnet.rows(SITE)
}

fn group(uid: &str, rules: &[(Direction, Option<&str>)]) -> Vec<Row> {
    let rule = |(direction, peer): &(Direction, Option<&str>)| Rule {
        direction: *direction,
        peers: peer.map(|peer| vec![Peer::Group(peer.to_owned())]),
        ports: Vec::new(),
        icmp: None,
    };
    Group { uid: uid.to_owned(), rules: rules.iter().map(rule).collect() }.rows(SITE)
}

fn member(number: u32) -> Vec<Row> {
    let v4 = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 1, 0)) + number);
    let v6 = Ipv6Addr::from(u128::from(Ipv6Addr::new(0xfd00, 0x64, 0, 0, 0, 0, 1, 0)) + u128::from(number));
    let port = Port {
        uid: format!("member-{number:05}"),
        name: format!("mp-member-{number:05}"),
        subnet_uid: "s9".to_owned(),
        mac: format!("02:00:00:01:{:02x}:{:02x}", number / 256, number % 256),
        addresses: vec![v4.into(), v6.into()],
        groups: vec!["many".to_owned()],
        ..Port::default()
    };
    port.rows(SITE)
}

/// The rows that a change of the joiner's groups touches, and its bytes.
async fn cost(ovn: &Ovn, groups: &[&str]) -> (usize, u64) {
    let change = diff(&port(&JOINER, groups), &ovn.north_bound.rows(JOINER.uid).expect("in step"));
    let before = ovn.north_bound.sent();
    ovn.north_bound.apply(&change).await.expect("a change of what was just read");
    (change.rows(), ovn.north_bound.sent() - before)
}

/// How many addresses a rule that names the group is matched by: IPv4, IPv6.
fn addresses(ovn: &Ovn) -> [usize; 2] {
    ["name=mp_many_ip4", "name=mp_many_ip6"].map(|set| {
        let all = ovn.south.tool("ovn-sbctl", &["--bare", "--columns=addresses", "find", "Address_Set", set]);
        all.split_whitespace().count()
    })
}

#[test]
fn a_member_more_of_ten_thousand_is_one_row() {
    let name = "a_member_more_of_ten_thousand_is_one_row";
    if std::env::var_os(LONG).is_none() {
        eprintln!("SKIP {name}: it takes minutes: `make judges JUDGE=ovn` runs it ({LONG}=1)");
        return;
    }
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        let ovn = Ovn::start().await;
        ovn.put("v", Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows(SITE)).await;
        ovn.put("s9", subnet()).await;
        ovn.put("many", group("many", &[])).await;
        ovn.put("lets-in", group("lets-in", &[(Direction::Ingress, Some("many"))])).await;
        ovn.put("sends", group("sends", &[(Direction::Egress, None)])).await;
        ovn.put(SERVER.uid, port(&SERVER, &["lets-in"])).await;
        ovn.put(JOINER.uid, port(&JOINER, &["sends"])).await;
        let joined = cost(&ovn, &["many", "sends"]).await;
        let left = cost(&ovn, &["sends"]).await;
        assert_eq!((joined.0, left.0), (1, 1));

        let members: Vec<Row> = (0..MEMBERS).flat_map(member).collect();
        for batch in members.chunks(BATCH) {
            ovn.north_bound.apply(&diff(batch, &[])).await.expect("written");
        }
        ovn.sync();
        let many = usize::try_from(MEMBERS).expect("a small number");
        assert_eq!(addresses(&ovn), [many, many]);
        assert!(!ovn.ping(&JOINER, &SERVER), "who is not in the group");
        assert_eq!(cost(&ovn, &["many", "sends"]).await, joined, "as it was in an empty group");
        ovn.sync();
        assert_eq!(addresses(&ovn), [many + 1, many + 1]);
        assert!(ovn.ping(&JOINER, &SERVER), "who is in it, in both families");
        assert_eq!(cost(&ovn, &["sends"]).await, left, "as it was in an empty group");
        ovn.sync();
        assert_eq!(addresses(&ovn), [many, many]);
        assert!(!ovn.ping(&JOINER, &SERVER), "who has left it");
    });
}
