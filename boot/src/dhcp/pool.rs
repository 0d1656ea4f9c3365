//! Addresses for servers that have none in the inventory: those that no Hardware names, and Hardware without `dhcp.ip`. They boot from
//! the network with one of a range that the operator gives; nobody else has one of it.
//!
//! What is given is kept here alone. After a restart of this program an address that is asked for again is taken for that client's, and
//! those that agents report from are known by their HardwareReports; so no address is given away that is in use, but by a server that
//! is between two packets at that moment.

use super::Request;
use super::request::code;
use crate::replicas::Replicas;
use ipnet::Ipv4Net;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An installer keeps its address until it is restarted, and does not ask for it again.
const VALID: SignedDuration = SignedDuration::from_hours(24);
/// For a client to ask for what it was offered.
const OFFERED: SignedDuration = SignedDuration::from_secs(60);
/// An address that a client has declined, for somebody else has it (RFC 2131, 3.1.5).
const DECLINED: SignedDuration = SignedDuration::from_hours(1);

/// A range of addresses, and the network in which they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    first: Ipv4Addr,
    last: Ipv4Addr,
    net: Ipv4Net,
    pub(super) gateway: Option<Ipv4Addr>,
}

impl Pool {
    pub(super) fn netmask(&self) -> Ipv4Addr {
        self.net.netmask()
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    fn size(&self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// Each replica gives those whose turn is its own: no two give the same.
    fn is_given_by(&self, replicas: &Replicas, address: Ipv4Addr) -> bool {
        self.has(address) && replicas.has_turn(u32::from(address) - u32::from(self.first))
    }

    /// That one of it is another replica's to give, or to refuse.
    pub(super) fn is_of_other(&self, replicas: &Replicas, address: Ipv4Addr) -> bool {
        self.has(address) && !self.is_given_by(replicas, address)
    }

    pub fn is_enough_for(&self, replicas: &Replicas) -> Result<(), String> {
        let Self { first, last, .. } = self;
        match usize::try_from(self.size()).is_ok_and(|size| size < replicas.count()) {
            true => Err(format!("{first}-{last} has fewer addresses than there are replicas: write a longer range")),
            false => Ok(()),
        }
    }
}

impl FromStr for Pool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form =
            "write FIRST-LAST/PREFIX or FIRST-LAST/PREFIX@GATEWAY, for example 10.88.0.200-10.88.0.239/24@10.88.0.1";
        let read = || {
            let (range, gateway) = match text.split_once('@') {
                Some((range, gateway)) => (range, Some(gateway.parse::<Ipv4Addr>().ok()?)),
                None => (text, None),
            };
            let (range, prefix) = range.split_once('/')?;
            let (first, last) = range.split_once('-')?;
            let (first, last): (Ipv4Addr, Ipv4Addr) = (first.parse().ok()?, last.parse().ok()?);
            Some((first, last, Ipv4Net::new(first, prefix.parse().ok()?).ok()?.trunc(), gateway))
        };
        let (first, last, net, gateway) = read().ok_or_else(|| format!("{text:?} is no range: {form}"))?;
        let hosts = |address: &Ipv4Addr| {
            net.contains(address) && (net.prefix_len() > 30 || ![net.network(), net.broadcast()].contains(address))
        };
        if first > last || !hosts(&first) || !hosts(&last) || !gateway.iter().all(hosts) {
            return Err(format!("{text:?}: the addresses are not hosts of {net} in their order; {form}"));
        }
        Ok(Self { first, last, net, gateway })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Lease {
    /// Empty: nobody's, for it was declined.
    mac: String,
    until: Timestamp,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// What was given.
#[derive(Debug, Clone, Default)]
pub struct Leases(HashMap<Ipv4Addr, Lease>);

impl Leases {
    /// How many are kept.
    pub(crate) fn kept(&self) -> usize {
        self.0.len()
    }

    /// Of an agent that has reported from there.
    pub fn know(&mut self, mac: &str, address: Ipv4Addr, since: Timestamp) {
        self.keep(address, mac, since, VALID);
    }

    /// Whether this client has booted with an address of ours, so that its system asks for one too.
    pub(super) fn has(&self, mac: &str, now: Timestamp) -> bool {
        self.0.values().any(|lease| lease.mac == mac && lease.until > now)
    }

    /// The address for this client: what it has or asks for, if nobody else has it. `is_other`: the address is a Hardware's, or ours.
    /// `None`: all are taken.
    pub(super) fn offer(
        &mut self,
        (pool, replicas): (&Pool, &Replicas),
        request: &Request,
        mac: &str,
        is_other: impl Fn(Ipv4Addr) -> bool,
        now: Timestamp,
    ) -> Option<Ipv4Addr> {
        let may_have = |address: &Ipv4Addr| {
            pool.is_given_by(replicas, *address) && Some(*address) != pool.gateway && !is_other(*address)
        };
        let asked = request.address(code::REQUESTED_ADDRESS).unwrap_or(request.ciaddr);
        let own = self.0.iter().filter(|(address, lease)| lease.mac == mac && may_have(address));
        let own = own.max_by_key(|(_, lease)| lease.until).map(|(address, _)| *address);
        let address = own.or_else(|| Some(asked).filter(|asked| may_have(asked) && self.is_free(*asked, now)));
        let address = address.or_else(|| self.free(pool, mac, may_have, now))?;
        if self.0.get(&address).is_none_or(|lease| lease.until < now + OFFERED) {
            self.keep(address, mac, now, OFFERED);
        }
        Some(address)
    }

    pub(super) fn take(&mut self, address: Ipv4Addr, mac: &str, now: Timestamp) {
        self.keep(address, mac, now, VALID);
    }

    /// An address of a pool that a client of it has found in use.
    pub(super) fn decline(&mut self, address: Ipv4Addr, mac: &str, now: Timestamp) {
        if self.0.get(&address).is_some_and(|lease| lease.mac == mac) {
            self.keep(address, "", now, DECLINED);
        }
    }

    fn keep(&mut self, address: Ipv4Addr, mac: &str, since: Timestamp, valid: SignedDuration) {
        // No time of this program is so late.
        let until = since.checked_add(valid).unwrap_or(since);
        self.0.insert(address, Lease { mac: mac.to_owned(), until });
    }

    fn is_free(&self, address: Ipv4Addr, now: Timestamp) -> bool {
        self.0.get(&address).is_none_or(|lease| lease.until <= now)
    }

    /// Clients have places of their own, so that one that comes back finds its own.
    fn free(&self, pool: &Pool, mac: &str, may_have: impl Fn(&Ipv4Addr) -> bool, now: Timestamp) -> Option<Ipv4Addr> {
        let mut hasher = DefaultHasher::new();
        mac.hash(&mut hasher);
        let size = u64::from(pool.size());
        let begin = hasher.finish() % size;
        let place = |step: u64| u32::try_from((begin + step) % size).ok();
        let mut all = (0..size).filter_map(place).map(|place| Ipv4Addr::from(u32::from(pool.first) + place));
        all.find(|address| may_have(address) && self.is_free(*address, now))
    }
}

/// The seconds that a client is told.
pub(super) const LEASE_SECONDS: u32 = 24 * 3600;

/// The pool of the network in which the client is: the link that its relay names, else the relay's own address, else ours.
pub(super) fn pool_of<'a>(pools: &'a [Pool], request: &Request, own: Ipv4Addr) -> Option<&'a Pool> {
    let link = request.of_relay(super::RELAY_LINK).unwrap_or(request.giaddr);
    let link = if link.is_unspecified() { own } else { link };
    pools.iter().filter(|pool| pool.net.contains(&link)).max_by_key(|pool| pool.net.prefix_len())
}
