//! What the rows say, and that a change makes of any rows those that are wanted.

use super::outside::Vlan;
use super::*;
use crate::network::rows::{
    Binding, Dhcp, Direction, Found, Group, Icmp, Peer, Port, Protocol, Rates, Rule, Subnet, Vpc, diff, metadata_port,
};
use proptest::prelude::*;

pub fn subnet() -> Subnet {
    let family = |network: &str, gateway: &str| Family {
        network: network.parse().expect("a network"),
        gateway: Some(gateway.parse().expect("an address")),
    };
    Subnet {
        uid: "s".into(),
        vpc_uid: "v".into(),
        families: vec![family("10.20.0.0/24", "10.20.0.1"), family("fd00:20::/64", "fd00:20::1")],
        router_mac: "02:00:00:00:00:01".into(),
        mtu: 1442,
        dhcp: Some(Dhcp { lease_seconds: 3600, ntp_servers: Vec::new() }),
        slaac: false,
        dns_servers: vec!["10.20.0.53".parse().expect("an address")],
        domain: None,
        metadata: true,
        vlan: None,
    }
}

fn port(groups: &[&str], binding: bool) -> Port {
    Port {
        uid: "p".into(),
        name: "mp-p".into(),
        subnet_uid: "s".into(),
        mac: "02:00:00:00:00:07".into(),
        addresses: vec!["10.20.0.7".parse().expect("an address"), "fd00:20::7".parse().expect("an address")],
        dhcp: (true, true),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        binding: binding.then(|| Binding { chassis: "dpu-1".into(), attachment_uid: "a".into(), epoch: 3 }),
        ..Port::default()
    }
}

fn rule(direction: Direction) -> Rule {
    Rule { direction, peers: None, ports: Vec::new(), icmp: None }
}

fn matches(rule: Rule) -> Vec<String> {
    let rows = Group { uid: "g-1".into(), rules: vec![rule] }.rows("site");
    rows[1..]
        .iter()
        .map(|row| match &row.columns["match"] {
            Cell::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_switch_denies_before_anything_is_in_a_group() {
    let rows = subnet().rows("site");
    let denied: Vec<_> = rows.iter().filter(|row| row.columns.get("action") == Some(&Cell::text("drop"))).collect();
    assert_eq!(denied.len(), 2);
    for deny in denied {
        assert_eq!(deny.columns["match"], Cell::text("ip"));
        assert!(deny.member_of.contains(&Membership::new(RowId::of("s"), Table::LogicalSwitch, "acls")));
    }
    assert!(rows.iter().all(|row| row.external_ids[SITE] == "site" && row.external_ids[UID] == "s"));
}

fn options(subnet: &Subnet, part: &str) -> Option<BTreeMap<String, String>> {
    let rows = subnet.rows("site");
    let row = rows.iter().find(|row| row.id.part == part)?;
    match row.columns.get("ipv6_ra_configs").unwrap_or(&row.columns["options"]) {
        Cell::Pairs(options) => Some(options.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_subnet_has_a_place_to_ask_on_each_chassis() {
    let rows = subnet().rows("site");
    let port = rows.iter().find(|row| row.columns.get("type") == Some(&Cell::text("localport"))).expect("a port");
    let (name, mac) = metadata_port("s");
    assert_eq!(port.columns["name"], Cell::Text(name));
    assert_eq!(port.columns["addresses"], Cell::Text(format!("{mac} 169.254.169.254 fe80::a9fe:a9fe")));
    assert_ne!(mac, subnet().router_mac);
    let mut unrouted = subnet();
    unrouted.families[0].gateway = None;
    let told = |subnet: &Subnet| options(subnet, DHCP4).expect("served")["classless_static_route"].clone();
    assert_eq!(told(&subnet()), "{169.254.169.254/32,0.0.0.0, 0.0.0.0/0,10.20.0.1}", "all routes stand in option 121");
    assert_eq!(told(&unrouted), "{169.254.169.254/32,0.0.0.0}");
}

#[test]
fn a_subnet_on_a_vlan_has_the_data_centres_router() {
    let vlan = Vlan { physical_network: "physnet1".to_owned(), tag: Some(100) };
    let hosts = Subnet { vlan: Some(vlan), mtu: 1500, ..subnet() };
    let rows = hosts.rows("site");
    let port = rows.iter().find(|row| row.columns.get("type") == Some(&Cell::text("localnet"))).expect("a port");
    assert_eq!(port.columns["tag"], Cell::Number(100));
    assert_eq!(port.columns["options"], Cell::pairs([("network_name", "physnet1".to_owned())]));
    assert!(rows.iter().all(|row| row.table != Table::LogicalRouterPort), "{rows:#?}");
    let told = options(&hosts, DHCP4).expect("served");
    assert_eq!((told["router"].as_str(), told["mtu"].as_str()), ("10.20.0.1", "1500"));
    let Cell::Text(beyond) = &port.columns["name"] else { panic!("{port:?}") };
    let names =
        |part: &str| rows.iter().any(|row| row.id.part == part && format!("{:?}", row.columns).contains(beyond));
    assert!(names("router-ingress") && names("router-egress"), "the two stateless rules are of this port: {rows:#?}");
}

#[test]
fn where_metadata_is_disabled_nothing_leads_to_it() {
    let without = Subnet { metadata: false, ..subnet() };
    let rows = without.rows("site");
    let says = |row: &Row| format!("{:?}", row.columns);
    let names = |row: &&Row| says(row).contains("169.254.169.254") || says(row).contains("metadata");
    assert!(rows.iter().find(names).is_none(), "{:?}", rows.iter().find(names));
    assert_eq!(subnet().rows("site").len(), rows.len() + 5, "its port and four rules");
    let told = |subnet: &Subnet| options(subnet, DHCP4).expect("served").get("classless_static_route").cloned();
    assert_eq!(told(&without), Some("{0.0.0.0/0,10.20.0.1}".to_owned()));
    let mut unrouted = without.clone();
    unrouted.families[0].gateway = None;
    assert_eq!(told(&unrouted), None, "OVN takes no empty list");
}

#[test]
fn guests_are_told_what_the_subnet_says() {
    let mut blue = subnet();
    blue.domain = Some("blue.example".to_owned());
    let time = "10.20.0.123".parse().expect("an address");
    blue.dhcp = Some(Dhcp { lease_seconds: 60, ntp_servers: vec![time] });
    let (v4, v6) = (options(&blue, DHCP4).expect("served"), options(&blue, DHCP6).expect("served"));
    assert_eq!((v4["lease_time"].as_str(), v4["ntp_server"].as_str()), ("60", "{10.20.0.123}"));
    assert_eq!((v4["domain_name"].as_str(), v6["domain_search"].as_str()), ("\"blue.example\"", "\"blue.example\""));
    let said = |subnet: &Subnet| options(subnet, "gateway").expect("routed")["address_mode"].clone();
    assert_eq!(said(&blue), "dhcpv6_stateful");
    blue.slaac = true;
    assert_eq!((said(&blue).as_str(), options(&blue, DHCP6)), ("slaac", None));
    blue.dhcp = None;
    assert_eq!(options(&blue, DHCP4), None);
}

/// RFC 8106: the first server of IPv6, for OVN takes one; an IPv4 server has no place there.
#[test]
fn the_routers_advertisement_names_mtu_resolver_and_domain() {
    let mut blue = subnet();
    let said = |subnet: &Subnet| options(subnet, "gateway").expect("routed");
    let servers = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
    blue.dns_servers = servers(&["10.20.0.53", "fd00:20::53", "fd00:20::54"]);
    blue.domain = Some("blue.example".to_owned());
    for (slaac, mode) in [(false, "dhcpv6_stateful"), (true, "slaac")] {
        blue.slaac = slaac;
        let wanted = [
            ("address_mode", mode),
            ("dnssl", "blue.example"),
            ("mtu", "1442"),
            ("rdnss", "fd00:20::53"),
            ("send_periodic", "true"),
        ];
        assert_eq!(said(&blue), wanted.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    }
    blue.dns_servers = servers(&["10.20.0.53"]);
    assert_eq!(said(&blue).get("rdnss"), None);
}

#[test]
fn a_port_without_a_grant_can_be_bound_by_nobody() {
    let of = |binding| match &port(&[], binding).rows("site")[0].columns["options"] {
        Cell::Pairs(options) => (options["requested-chassis"].clone(), options["iface-id-ver"].clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(false), ("none".to_owned(), "none".to_owned()));
    assert_eq!(of(true), ("dpu-1".to_owned(), "a.3".to_owned()));
}

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    match &row.columns[column] {
        Cell::Text(text) => text,
        other => panic!("{column}: {other:?}"),
    }
}

#[test]
fn what_a_guest_may_have_beside_its_own_is_in_port_security_alone() {
    let allowed = vec!["10.90.0.0/16".to_owned(), "fd00:20::200".to_owned()];
    let rows = Port { allowed, parents: vec!["mp-other".into()], ..port(&[], true) }.rows("site");
    assert_eq!(text(&rows[0], "addresses"), "02:00:00:00:00:07 10.20.0.7 fd00:20::7");
    assert_eq!(
        text(&rows[0], "port_security"),
        "02:00:00:00:00:07 10.20.0.7 fd00:20::7 10.90.0.0/16 fd00:20::200",
        "who holds it is asked first"
    );
    assert_eq!((rows.len(), &rows[0].columns["type"]), (1, &Cell::Empty));
}

#[test]
fn a_port_that_nobody_holds_is_virtual_for_those_that_share_its_addresses() {
    let parents = vec!["mp-a".to_owned(), "mp-b".to_owned()];
    let rows = Port { parents, ..port(&["g"], false) }.rows("site");
    let told: Vec<_> = rows.iter().map(|row| (text(row, "name"), text(row, "type"), &row.columns["options"])).collect();
    let options = |ip: &str| Cell::pairs([("virtual-ip", ip.to_owned()), ("virtual-parents", "mp-a,mp-b".to_owned())]);
    let (v4, v6) = (options("10.20.0.7"), options("fd00:20::7"));
    assert_eq!(told, [("mp-p", "virtual", &v4), ("mp-p.virtual-1", "virtual", &v6)]);
    assert_eq!(text(&rows[0], "addresses"), "02:00:00:00:00:07 10.20.0.7 fd00:20::7", "of a member of its groups");
    assert_eq!(rows.iter().filter(|row| row.member_of.iter().any(|set| set.table == Table::PortGroup)).count(), 1);
    assert_eq!(port(&[], false).rows("site").len(), 1, "nobody shares it");
}

#[test]
fn a_limit_is_a_rule_of_the_switch_for_one_direction() {
    let rates = Rates { ingress: Some(1_000_000), egress: Some(2_000) };
    let rows = Port { rates, ..port(&[], true) }.rows("site");
    let told: Vec<_> = rows[1..].iter().map(|row| (text(row, "direction"), text(row, "match"))).collect();
    assert_eq!(told, [("to-lport", "outport == \"mp-p\""), ("from-lport", "inport == \"mp-p\"")]);
    let limits = |row: &Row| match &row.columns["bandwidth"] {
        Cell::Numbers(limits) => (limits["rate"], limits["burst"]),
        other => panic!("{other:?}"),
    };
    assert_eq!((limits(&rows[1]), limits(&rows[2])), ((1_000_000, 100_000), (2_000, 1_000)));
    assert!(rows[1..].iter().all(|row| row.member_of.contains(&Membership::new(
        RowId::of("s"),
        Table::LogicalSwitch,
        "qos_rules"
    ))));
}

#[test]
fn a_rule_is_one_acl_for_each_family_that_it_can_match() {
    let network = |text: &str| text.parse().expect("a network");
    let open = ["outport == @mp_g_1 && ip4", "outport == @mp_g_1 && ip6"];
    assert_eq!(matches(rule(Direction::Ingress)), open);
    let peers = vec![
        Peer::Network { network: network("10.0.0.0/8"), except: vec![network("10.1.0.0/16")] },
        Peer::Group("h".into()),
    ];
    let ports = vec![(Protocol::Tcp, Some((443, 445))), (Protocol::Udp, Some((53, 53))), (Protocol::Sctp, None)];
    assert_eq!(
        matches(Rule { peers: Some(peers), ports, ..rule(Direction::Egress) }),
        [
            "inport == @mp_g_1 && ip4 && ((ip4.dst == 10.0.0.0/8 && ip4.dst != {10.1.0.0/16}) || ip4.dst == $mp_h_ip4) \
             && (443 <= tcp.dst <= 445 || udp.dst == 53 || sctp)",
            "inport == @mp_g_1 && ip6 && ip6.dst == $mp_h_ip6 && (443 <= tcp.dst <= 445 || udp.dst == 53 || sctp)",
        ]
    );
    let ping = Rule { icmp: Some(Icmp { v4: true, kind: Some(8) }), ..rule(Direction::Ingress) };
    assert_eq!(matches(ping), ["outport == @mp_g_1 && ip4 && icmp4.type == 8"]);
    assert!(matches(Rule { peers: Some(Vec::new()), ..rule(Direction::Ingress) }).is_empty(), "nobody is not anybody");
}

#[test]
fn rules_that_differ_in_their_peers_alone_are_one_acl() {
    let of = |peers: Option<Vec<Peer>>, port: u16| Rule {
        peers,
        ports: vec![(Protocol::Tcp, Some((port, port)))],
        ..rule(Direction::Ingress)
    };
    let group = |uid: &str| Peer::Group(uid.to_owned());
    let acls = |rules: Vec<Rule>| {
        let rows = Group { uid: "g".into(), rules }.rows("site");
        rows[1..].iter().map(|row| row.columns["match"].clone()).collect::<Vec<_>>()
    };
    let some = |all: &[&str]| Some(all.iter().map(|uid| group(uid)).collect::<Vec<_>>());
    let two = acls(vec![of(some(&["a"]), 80), of(some(&["c"]), 81), of(some(&["b", "a"]), 80)]);
    assert_eq!(two.len(), 4, "one for each family and port: {two:?}");
    let both = "outport == @mp_g && ip4 && (ip4.src == $mp_a_ip4 || ip4.src == $mp_b_ip4) && tcp.dst == 80";
    assert_eq!(two[0], Cell::text(both));
    let anybody = [
        Cell::text("outport == @mp_g && ip4 && tcp.dst == 80"),
        Cell::text("outport == @mp_g && ip6 && tcp.dst == 80"),
    ];
    assert_eq!(acls(vec![of(some(&["a"]), 80), of(None, 80)]), anybody);
    assert_eq!(acls(vec![of(None, 80), of(some(&["a"]), 80)]), anybody);
    assert_eq!(acls(vec![of(some(&[]), 80), of(some(&["a"]), 80)]).len(), 2, "nobody and somebody");
}

/// A database of one object's rows, as a change is carried out on it.
fn apply(found: &mut Vec<Found>, change: &Change, next: &mut u32) {
    for gone in &change.deletes {
        found.retain(|there| there.uuid != gone.uuid);
    }
    for update in &change.updates {
        let row = found.iter_mut().find(|there| there.uuid == update.before.uuid).expect("it is there");
        let changed: Vec<_> = update.columns().map(|(name, cell)| (name, cell.clone())).collect();
        row.row.columns.extend(changed);
        row.row.external_ids = update.after.external_ids.clone();
        let (joins, leaves): (Vec<_>, Vec<_>) = (update.joins().cloned().collect(), update.leaves().cloned().collect());
        row.row.member_of.extend(joins);
        row.row.member_of.retain(|member| !leaves.contains(member));
    }
    for row in &change.inserts {
        *next += 1;
        found.push(Found { uuid: next.to_string(), row: row.clone() });
    }
}

fn object() -> impl Strategy<Value = Vec<Row>> {
    let rules = prop::collection::vec((any::<bool>(), any::<bool>(), 0..3u16), 0..4);
    let group = rules.prop_map(|rules| {
        let of = |(ingress, ranged, port): (bool, bool, u16)| Rule {
            ports: if ranged { vec![(Protocol::Tcp, Some((port, port + 1)))] } else { Vec::new() },
            ..rule(if ingress { Direction::Ingress } else { Direction::Egress })
        };
        Group { uid: "p".into(), rules: rules.into_iter().map(of).collect() }.rows("site")
    });
    let in_groups = prop::sample::subsequence(vec!["g", "h", "i"], 0..=3);
    let shape = (in_groups, any::<bool>(), any::<bool>(), 0..3i64);
    let of_port = shape.prop_map(|(groups, bound, shared, rate)| {
        let parents = if shared { vec!["mp-a".to_owned()] } else { Vec::new() };
        let rates = Rates { ingress: (rate > 0).then_some(rate), egress: None };
        Port { parents, rates, ..port(&groups, bound) }.rows("site")
    });
    prop_oneof![group, of_port, Just(Vec::new()), Just(Vpc { uid: "p".into(), hops: Vec::new() }.rows("site"))]
}

proptest! {
    /// From any rows of an object, and whatever somebody has changed by hand, to any others; and then nothing is left to do.
    #[test]
    fn a_change_leads_from_any_rows_to_those_that_are_wanted(
        before in object(), wanted in object(), twice in any::<bool>(), by_hand in any::<bool>(),
    ) {
        let (mut found, mut next) = (Vec::new(), 0);
        apply(&mut found, &diff(&before, &[]), &mut next);
        if twice {
            // Two leaders made the same part in a table without unique names.
            apply(&mut found, &Change { inserts: before.clone(), ..Change::default() }, &mut next);
        }
        if by_hand && let Some(row) = found.first_mut() {
            row.row.columns.values_mut().for_each(|cell| *cell = Cell::Foreign);
            row.row.member_of.clear();
        }
        let change = diff(&wanted, &found);
        apply(&mut found, &change, &mut next);
        prop_assert!(diff(&wanted, &found).is_empty());
        prop_assert_eq!(found.len(), wanted.len());
        prop_assert!(found.iter().all(|there| wanted.contains(&there.row)));
    }
}
