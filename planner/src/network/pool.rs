//! Which addresses of one Subnet are taken, as far as the caches tell, and which one a VNic that asks for none is offered.
//!
//! It decides nothing: an address belongs to whoever has its AddressHold. One that is taken and is not known to be costs a second
//! attempt; one that is not taken and is thought to be is found when the holds are listed, before anybody is told that a Subnet is
//! full. It costs what has gaps, not what the Subnet is large.

use super::cidr;
use api::AddressHold;
use api::network::SubnetSpec;
use ipnet::IpNet;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Default)]
pub struct Pool {
    v4: Taken,
    v6: Taken,
}

impl Pool {
    /// Of these, all of one Subnet.
    pub fn of<'a>(holds: impl IntoIterator<Item = &'a AddressHold>) -> Self {
        let mut pool = Self::default();
        holds.into_iter().for_each(|hold| pool.take(hold));
        pool
    }

    fn family(&mut self, address: IpAddr) -> &mut Taken {
        if address.is_ipv4() { &mut self.v4 } else { &mut self.v6 }
    }

    /// The hold exists, or is about to.
    pub fn take(&mut self, hold: &AddressHold) {
        let Some(address) = address(hold) else { return };
        let family = self.family(address);
        family.insert(number(address));
        let created = hold.metadata.creation_timestamp.as_ref().map(|at| at.0);
        if let Some(created) = created.filter(|created| family.last.is_none_or(|(last, _)| last <= *created)) {
            family.last = Some((created, number(address)));
        }
    }

    /// The hold was deleted.
    pub fn release(&mut self, hold: &AddressHold) {
        if let Some(address) = address(hold) {
            self.family(address).remove(number(address));
        }
    }

    /// How many addresses of the family are taken.
    pub fn used(&self, v4: bool) -> u64 {
        if v4 { self.v4.count } else { self.v6.count }
    }

    /// How many of the network can be offered.
    pub fn free(&self, subnet: &SubnetSpec, network: IpNet) -> u128 {
        let taken = if network.network().is_ipv4() { &self.v4 } else { &self.v6 };
        let mut closed: Vec<_> = cidr::not_chosen(subnet, network).into_iter().map(numbers).collect();
        closed.sort_unstable();
        let (first, last) = numbers((network.network(), network.broadcast()));
        let (mut free, mut next) = (0, first);
        for (from, to) in closed {
            // What is closed may overlap.
            if from > next {
                free += taken.gaps(next, from - 1);
            }
            next = next.max(to.saturating_add(1));
        }
        if next <= last { free + taken.gaps(next, last) } else { free }
    }

    /// `None`: all of it is taken. The first free one of `preferred`, else the one behind what was given last, so that an address
    /// that was released rests. `closed`: taken although no hold says so.
    pub(super) fn offer(
        &self,
        subnet: &SubnetSpec,
        network: IpNet,
        preferred: &[IpAddr],
        closed: &[IpAddr],
    ) -> Option<IpAddr> {
        let v4 = network.network().is_ipv4();
        let taken = if v4 { &self.v4 } else { &self.v6 };
        let one = |address: &IpAddr| (number(*address), number(*address));
        let same = closed.iter().filter(|address| address.is_ipv4() == v4).map(one);
        let ranges = cidr::not_chosen(subnet, network).into_iter().map(numbers);
        let closed: Vec<(u128, u128)> = same.chain(ranges).collect();
        let is_free = |address: &&IpAddr| {
            let at = number(**address);
            network.contains(*address) && taken.free(at, at, &closed).is_some()
        };
        if let Some(address) = preferred.iter().find(is_free) {
            return Some(*address);
        }
        let (first, last) = (number(network.network()), number(network.broadcast()));
        let next = taken.last.map_or(first, |(_, given)| given.saturating_add(1)).clamp(first, last);
        let behind = taken.free(next, last, &closed);
        behind.or_else(|| taken.free(first, next, &closed)).map(|number| at(number, v4))
    }
}

fn address(hold: &AddressHold) -> Option<IpAddr> {
    hold.spec.address.as_deref()?.parse().ok()
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn numbers((first, last): (IpAddr, IpAddr)) -> (u128, u128) {
    (number(first), number(last))
}

fn at(number: u128, v4: bool) -> IpAddr {
    match u32::try_from(number) {
        Ok(number) if v4 => Ipv4Addr::from(number).into(),
        _ => Ipv6Addr::from(number).into(),
    }
}

/// A set of numbers as ranges.
#[derive(Debug, Clone, Default)]
struct Taken {
    /// First to last. No two overlap or touch.
    ranges: BTreeMap<u128, u128>,
    count: u64,
    /// What was given last, and when.
    last: Option<(Timestamp, u128)>,
}

impl Taken {
    fn around(&self, number: u128) -> Option<(u128, u128)> {
        let (first, last) = self.ranges.range(..=number).next_back()?;
        (*last >= number).then_some((*first, *last))
    }

    fn insert(&mut self, number: u128) {
        if self.around(number).is_some() {
            return;
        }
        self.count += 1;
        let before = number.checked_sub(1).and_then(|before| self.around(before));
        let after = number.checked_add(1).and_then(|after| self.around(after));
        for (first, _) in before.iter().chain(&after) {
            self.ranges.remove(first);
        }
        let first = before.map_or(number, |(first, _)| first);
        self.ranges.insert(first, after.map_or(number, |(_, last)| last));
    }

    fn remove(&mut self, number: u128) {
        let Some((first, last)) = self.around(number) else { return };
        self.count -= 1;
        self.ranges.remove(&first);
        if first < number {
            self.ranges.insert(first, number - 1);
        }
        if number < last {
            self.ranges.insert(number + 1, last);
        }
    }

    /// How many numbers from `from` to `to` are not in it.
    fn gaps(&self, from: u128, to: u128) -> u128 {
        let before = self.ranges.range(..from).next_back();
        let inside = before.into_iter().chain(self.ranges.range(from..=to));
        let taken = inside.map(|(first, last)| ((*last).min(to) + 1).saturating_sub((*first).max(from)));
        to - from + 1 - taken.sum::<u128>()
    }

    /// The first number from `from` to `to` that is in neither.
    fn free(&self, from: u128, to: u128, closed: &[(u128, u128)]) -> Option<u128> {
        let mut at = from;
        while at <= to {
            let shut = || closed.iter().find(|(first, last)| (*first..=*last).contains(&at)).copied();
            match self.around(at).or_else(shut) {
                None => return Some(at),
                Some((_, last)) => at = last.checked_add(1)?,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::network::AddressHoldSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn hold(address: &str, second: i64) -> AddressHold {
        let mut hold =
            AddressHold::new("", AddressHoldSpec { address: Some(address.to_owned()), ..Default::default() });
        hold.metadata.creation_timestamp = Timestamp::from_second(second).ok().map(Time);
        hold
    }

    fn subnet(cidr: &str) -> SubnetSpec {
        serde_json::from_value(serde_json::json!({"cidr": cidr, "gateway": "10.20.0.1"})).expect("a spec")
    }

    fn offer(pool: &Pool, subnet: &SubnetSpec) -> Option<String> {
        pool.offer(subnet, subnet.cidr.parse().expect("a network"), &[], &[]).map(|address| address.to_string())
    }

    #[test]
    fn all_that_can_be_given_is_given_and_what_was_released_rests() {
        let blue = subnet("10.20.0.0/29");
        let mut pool = Pool::default();
        let mut given = Vec::new();
        for second in 0.. {
            let Some(address) = offer(&pool, &blue) else { break };
            pool.take(&hold(&address, second));
            given.push(address);
        }
        assert_eq!(given, ["10.20.0.2", "10.20.0.3", "10.20.0.4", "10.20.0.5", "10.20.0.6"]);
        assert_eq!(pool.used(true), 5);
        pool.release(&hold("10.20.0.3", 1));
        assert_eq!(offer(&pool, &blue).as_deref(), Some("10.20.0.3"), "the only one");

        let mut pool = Pool::of(&[hold("10.20.0.2", 1), hold("10.20.0.3", 2)]);
        pool.release(&hold("10.20.0.3", 2));
        assert_eq!(offer(&pool, &blue).as_deref(), Some("10.20.0.4"), "10.20.0.3 rests");
    }

    #[test]
    fn reserved_addresses_are_not_chosen() {
        let mut blue = subnet("10.20.0.0/29");
        blue.reserved = vec!["10.20.0.2-10.20.0.4".to_owned(), "10.20.0.6".to_owned()];
        assert_eq!(offer(&Pool::default(), &blue).as_deref(), Some("10.20.0.5"));
        assert_eq!(offer(&Pool::of(&[hold("10.20.0.5", 1)]), &blue), None);
    }

    #[test]
    fn what_can_be_chosen_is_counted() {
        let free = |subnet: &SubnetSpec, held: &[&str]| {
            let holds: Vec<AddressHold> = held.iter().map(|address| hold(address, 1)).collect();
            Pool::of(&holds).free(subnet, subnet.cidr.parse().expect("a network"))
        };
        let mut blue = subnet("10.20.0.0/29");
        assert_eq!(free(&blue, &[]), 5, "neither network, router nor broadcast");
        assert_eq!(free(&blue, &["10.20.0.1", "10.20.0.2", "10.20.0.3", "10.20.0.6"]), 2, "the router's is held too");
        blue.reserved = vec!["10.20.0.2-10.20.0.4".to_owned(), "10.20.0.4".to_owned()];
        assert_eq!(free(&blue, &[]), 2);
        assert_eq!(
            free(&blue, &["10.20.0.3", "10.20.0.5"]),
            1,
            "who has asked for a reserved one takes none of the others"
        );
        assert_eq!(free(&blue, &["10.20.0.5", "10.20.0.6"]), 0);
        let wide: SubnetSpec = serde_json::from_value(serde_json::json!({"cidr": "fd00:20::/64"})).expect("a spec");
        assert_eq!(
            free(&wide, &["fd00:20::1", "fd00:20::7"]),
            (1 << 64) - 3,
            "without the network's own, the router's, the held one"
        );
    }

    #[test]
    fn what_is_preferred_is_offered_where_it_can_be_had() {
        let blue = subnet("10.20.0.0/29");
        let network = blue.cidr.parse().expect("a network");
        let offered = |pool: &Pool, closed: &[IpAddr]| {
            let preferred = ["10.20.0.1", "10.21.0.4", "10.20.0.4"].map(|text| text.parse().expect("an address"));
            pool.offer(&blue, network, &preferred, closed).map(|address| address.to_string())
        };
        assert_eq!(offered(&Pool::default(), &[]).as_deref(), Some("10.20.0.4"), "neither the gateway nor one outside");
        assert_eq!(offered(&Pool::of(&[hold("10.20.0.4", 1)]), &[]).as_deref(), Some("10.20.0.5"));
        let shown = ["10.20.0.4", "10.20.0.2"].map(|text| text.parse().expect("an address"));
        assert_eq!(offered(&Pool::default(), &shown).as_deref(), Some("10.20.0.3"));
    }

    proptest! {
        /// As a set of numbers does.
        #[test]
        fn ranges_are_a_set(steps in prop::collection::vec((any::<bool>(), 0..24u128), 0..80), from in 0..24u128) {
            let (mut taken, mut set) = (Taken::default(), BTreeSet::new());
            for (insert, number) in steps {
                if insert {
                    taken.insert(number);
                    set.insert(number);
                } else {
                    taken.remove(number);
                    set.remove(&number);
                }
            }
            prop_assert_eq!(taken.count, set.len() as u64);
            let free = (from..24).find(|number| !set.contains(number) && *number != 5);
            prop_assert_eq!(taken.free(from, 23, &[(5, 5)]), free);
            prop_assert_eq!(taken.gaps(from, 23), (from..24).filter(|number| !set.contains(number)).count() as u128);
            let ranges: Vec<_> = taken.ranges.iter().collect();
            prop_assert!(ranges.windows(2).all(|two| two[0].1 + 1 < *two[1].0), "{:?}", ranges);
        }
    }
}
