//! What the rules of a SecurityGroup cost: how many flows a chassis has of them for each member. An upper bound: where OVN can, it
//! shares flows among members and among ports (conjunctive matches, ovn-architecture(7)).

use super::rows::{Group, Peer, Protocol, Rule};
use crate::reason::{Blocked, Reason, Waiting};
use api::SecurityGroup;
use api::conditions::{self, READY};
use ipnet::IpNet;

/// A group that would cost more keeps the rules that it has.
pub const LIMIT: u64 = 100_000;

/// `members`: of the group with that UID.
pub fn per_member(group: &Group, members: impl Fn(&str) -> usize) -> u64 {
    let of = |rule: &Rule, v4: bool| {
        let peers = match &rule.peers {
            None => 1,
            Some(peers) => peers.iter().map(|peer| addresses(peer, v4, &members)).sum(),
        };
        let ports: u64 = match (rule.icmp, rule.ports.as_slice()) {
            (Some(icmp), _) => u64::from(icmp.v4 == v4),
            (None, []) => 1,
            (None, ports) => ports.iter().copied().map(masks).sum(),
        };
        peers.saturating_mul(ports)
    };
    let rules = group.merged();
    rules.iter().map(|rule| of(rule, true).saturating_add(of(rule, false))).fold(0, u64::saturating_add)
}

/// Why the rules are not written.
pub fn too_many(name: &str, flows: u64) -> Option<Reason> {
    (flows > LIMIT).then(|| Blocked::TooManyFlows { group: name.to_owned(), flows, limit: LIMIT }.into())
}

fn says(group: &SecurityGroup, reason: &str) -> bool {
    let said = group.status.as_ref().and_then(|status| conditions::get(&status.conditions, READY));
    said.is_some_and(|said| said.status == "False" && said.reason == reason)
}

/// It says that its rules would cost too much: it waits for fewer of them, or for fewer members of its peers.
pub fn is_held_back(group: &SecurityGroup) -> bool {
    says(group, Blocked::TooManyFlows { group: String::new(), flows: 0, limit: 0 }.name())
}

/// Its rules were counted, cost no more than they may, and are written: until they are counted anew that stands.
pub fn were_few(group: &SecurityGroup) -> bool {
    let programmed = group.status.as_ref().and_then(|status| status.programmed.as_ref());
    let is_written = programmed.is_some_and(|programmed| programmed.generation == group.metadata.generation);
    // While the database is away nobody is counted.
    let is_known = !says(group, Waiting::NorthBoundUnreachable { message: String::new() }.name());
    is_written && is_known && !is_held_back(group)
}

fn addresses(peer: &Peer, v4: bool, members: impl Fn(&str) -> usize) -> u64 {
    match peer {
        Peer::Group(uid) => u64::try_from(members(uid)).unwrap_or(u64::MAX),
        Peer::Network { network, .. } if network.network().is_ipv4() != v4 => 0,
        Peer::Network { network, except } => without(*network, except),
    }
}

/// How many networks are left of one.
fn without(network: IpNet, except: &[IpNet]) -> u64 {
    if except.iter().any(|except| except.contains(&network)) {
        return 0;
    }
    if !except.iter().any(|except| network.contains(except)) {
        return 1;
    }
    let halves = network.subnets(network.prefix_len() + 1).into_iter().flatten();
    halves.map(|half| without(half, except)).sum()
}

/// How many masks a range of ports is.
fn masks((_, range): (Protocol, Option<(u16, u16)>)) -> u64 {
    let Some((first, last)) = range else { return 1 };
    let (mut at, last, mut count) = (u32::from(first), u32::from(last), 0);
    while at <= last {
        // The largest aligned block that begins here and ends in the range.
        let mut size = if at == 0 { 1 << 16 } else { 1 << at.trailing_zeros() };
        while at + size - 1 > last {
            size >>= 1;
        }
        at += size;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::rows::{Direction, Icmp};
    use proptest::prelude::*;

    fn rule(peers: Option<Vec<Peer>>, ports: Vec<(Protocol, Option<(u16, u16)>)>) -> Rule {
        Rule { direction: Direction::Ingress, peers, ports, icmp: None }
    }

    fn cost(rules: Vec<Rule>) -> u64 {
        per_member(&Group { uid: "g".to_owned(), rules }, |group| if group == "big" { 10_000 } else { 1 })
    }

    fn net(network: &str, except: &[&str]) -> Peer {
        let parse = |text: &str| text.parse().expect("a network");
        Peer::Network { network: parse(network), except: except.iter().map(|text| parse(text)).collect() }
    }

    #[test]
    fn peers_times_ports() {
        let https = vec![(Protocol::Tcp, Some((443, 443)))];
        assert_eq!(cost(vec![rule(None, vec![])]), 2, "both families");
        assert_eq!(cost(vec![rule(None, https.clone())]), 2);
        assert_eq!(cost(vec![rule(Some(vec![net("10.0.0.0/8", &[])]), https.clone())]), 1);
        assert_eq!(cost(vec![rule(Some(vec![net("10.0.0.0/8", &["10.1.0.0/16"])]), https.clone())]), 8);
        assert_eq!(cost(vec![rule(Some(vec![net("10.0.0.0/8", &["10.0.0.0/8"])]), https.clone())]), 0);
        assert_eq!(cost(vec![rule(Some(vec![Peer::Group("big".to_owned())]), https)]), 20_000);
        let range = vec![(Protocol::Tcp, Some((1, 65535)))];
        assert_eq!(cost(vec![rule(Some(vec![Peer::Group("big".to_owned())]), range)]), 320_000, "16 masks");
        let ping = Rule { icmp: Some(Icmp { v4: false, kind: Some(128) }), ..rule(None, vec![]) };
        assert_eq!(cost(vec![ping]), 1);
        assert!(too_many("web", LIMIT).is_none() && too_many("web", LIMIT + 1).is_some());
    }

    #[test]
    fn what_was_counted_stands_while_it_is_few_and_written() {
        let group = |ready: (&str, &str), generation: i64| -> SecurityGroup {
            let said = serde_json::json!({"type": READY, "status": ready.0, "reason": ready.1, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "web", "generation": 2}, "spec": {"vpc": {"name": "blue"}},
                "status": {"programmed": {"generation": generation}, "conditions": [said]},
            }))
            .expect("a SecurityGroup")
        };
        assert!(were_few(&group(("True", "Programmed"), 2)) && !were_few(&group(("True", "Programmed"), 1)));
        assert!(were_few(&group(("False", "SecurityGroupMissing"), 2)), "its rules are written all the same");
        assert!(!were_few(&group(("False", "NorthBoundUnreachable"), 2)));
        let held = group(("False", "TooManyFlows"), 2);
        assert!(is_held_back(&held) && !were_few(&held), "its peers have grown since");
    }

    /// How many aligned blocks of this one are in a range.
    fn fewest(low: u32, size: u32, first: u32, last: u32) -> u64 {
        if low > last || low + size - 1 < first {
            return 0;
        }
        if first <= low && low + size - 1 <= last {
            return 1;
        }
        fewest(low, size / 2, first, last) + fewest(low + size / 2, size / 2, first, last)
    }

    proptest! {
        /// As many blocks as it takes, and no port twice or left out: counted bit by bit.
        #[test]
        fn a_range_is_the_fewest_masks(first in 0..=u16::MAX, length in 0..2_000u16) {
            let last = first.saturating_add(length);
            let counted = fewest(0, 1 << 16, u32::from(first), u32::from(last));
            prop_assert_eq!(masks((Protocol::Tcp, Some((first, last)))), counted);
        }
    }
}
