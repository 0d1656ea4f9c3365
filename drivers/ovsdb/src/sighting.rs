//! What is known of one guest, as a state without I/O: frames, ticks and link states go in, questions come out.
//!
//! **What counts as an end or a start of the host**: the carrier of the representor went or came. QEMU opens the tap when
//! it starts and closes it when it ends. A representor of mlx5 follows our own link steps and nothing of its host: such a host's end, as a reset of the
//! guest alone, shows in its silence: an answer after [`GAP`] begins anew.
//!
//! **How IPv4 is asked.** The RFC 5227 probe (sender 0.0.0.0) has a trap: a guest that is itself looking for duplicates of
//! that address (Windows, NetworkManager) takes a probe from another MAC for a competitor and gives its address up
//! (section 2.1.1). So the question is an ordinary request from RFC 7600's dummy address; the probe, which answers even
//! where reverse-path filtering drops that request, joins in when it can do no harm: once the guest has been seen to
//! use the address, or when [`QUIET`] has passed since it started or was last seen looking for duplicates.

use crate::frames::Heard;
use jiff::Timestamp;
use ports::switch::GuestObserved;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Between questions until the first answer.
const EAGER: Duration = Duration::from_millis(200);
/// Between questions after it.
const CALM: Duration = Duration::from_secs(5);
/// The longest that RFC 5227 section 1.1's constants let a detection last: 1 + 2 * 2 + 2 s.
const QUIET: Duration = Duration::from_secs(7);
/// A guest that answers is asked every [`CALM`]: one that has not answered for longer was away.
const GAP: Duration = Duration::from_secs(8);
/// Between probes to a guest that nothing has been heard of.
const BLIND_PROBE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// A neighbour solicitation for IPv6, an ordinary ARP request for IPv4.
    Request(IpAddr),
    /// An ARP probe.
    Probe(IpAddr),
}

#[derive(Debug)]
pub(crate) struct Sighting {
    pub observed: GuestObserved,
    addresses: Vec<IpAddr>,
    in_use: BTreeSet<IpAddr>,
    carrier_changes: Option<u32>,
    last_answer: Option<Instant>,
    quiet_since: Option<Instant>,
    asked_at: Option<Instant>,
    probed_at: Option<Instant>,
}

impl Sighting {
    pub(crate) fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            observed: GuestObserved::default(),
            addresses,
            in_use: BTreeSet::new(),
            carrier_changes: None,
            last_answer: None,
            quiet_since: None,
            asked_at: None,
            probed_at: None,
        }
    }

    /// The same questions to a device that is another one, though it may have the same name.
    pub(crate) fn elsewhere(&self) -> Self {
        Self::new(self.addresses.clone())
    }

    /// The addresses to ask for. An answer for one that is no longer among them is forgotten.
    pub(crate) fn set_addresses(&mut self, addresses: &[IpAddr]) {
        if self.addresses != addresses {
            self.addresses = addresses.to_vec();
            self.asked_at = None;
            if self.observed.answered_address.is_some_and(|address| !addresses.contains(&address)) {
                self.observed.answered_address = None;
                self.observed.answered_at = None;
            }
        }
    }

    /// A fresh look at the device; true if the host has ended or started since the last one, so that what was known is
    /// void.
    pub(crate) fn on_carrier(&mut self, changes: u32) -> bool {
        let restarted = self.carrier_changes.is_some_and(|known| known != changes);
        if restarted {
            *self = self.elsewhere();
        }
        self.carrier_changes = Some(changes);
        restarted
    }

    pub(crate) fn on_frame(&mut self, heard: Heard, at: Instant, clock: Timestamp) {
        if self.observed.first_packet_at.is_none() {
            self.observed.first_packet_at = Some(clock);
            self.quiet_since = Some(at);
        }
        match heard {
            Heard::Answers(address) if self.addresses.contains(&address) => {
                self.in_use.insert(address);
                let was_away = self.last_answer.is_none_or(|last| at - last > GAP);
                self.last_answer = Some(at);
                if was_away || !self.answered() {
                    self.observed.answered_at = Some(clock);
                    self.observed.answered_address = Some(address);
                }
            }
            Heard::Uses(address) if self.addresses.contains(&address) => {
                // Asks again at once: this is the moment when the guest's network came up.
                if self.in_use.insert(address) && !self.answered() {
                    self.asked_at = None;
                }
            }
            Heard::Detects(address) => {
                self.in_use.remove(&address);
                self.quiet_since = Some(at);
            }
            Heard::Answers(_) | Heard::Uses(_) | Heard::Something => {}
        }
    }

    pub(crate) fn answered(&self) -> bool {
        self.observed.answered_at.is_some()
    }

    /// What to ask now; to be called about every 200 ms.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Question> {
        let interval = if self.answered() { CALM } else { EAGER };
        if self.asked_at.is_some_and(|asked| now - asked < interval) {
            return Vec::new();
        }
        self.asked_at = Some(now);
        let quiet = now - *self.quiet_since.get_or_insert(now) >= QUIET;
        let blind = quiet && self.probed_at.is_none_or(|probed| now - probed >= BLIND_PROBE);
        let mut questions = Vec::new();
        for &address in &self.addresses {
            questions.push(Question::Request(address));
            if address.is_ipv4() && (blind || self.in_use.contains(&address)) {
                self.probed_at = Some(now);
                questions.push(Question::Probe(address));
            }
        }
        questions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 7));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 8));

    fn clock(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn probes(sighting: &mut Sighting, from: Instant, to: Instant) -> usize {
        let mut count = 0;
        let mut now = from;
        while now < to {
            count += sighting.due(now).iter().filter(|question| matches!(question, Question::Probe(_))).count();
            now += EAGER;
        }
        count
    }

    #[test]
    fn asks_eagerly_until_the_first_answer_and_calmly_after_it() {
        let start = Instant::now();
        let mut sighting = Sighting::new(vec![ADDRESS]);
        assert_eq!(sighting.due(start), [Question::Request(ADDRESS)]);
        assert_eq!(sighting.due(start + EAGER / 2), []);
        assert_eq!(sighting.due(start + EAGER), [Question::Request(ADDRESS)]);
        sighting.on_frame(Heard::Answers(ADDRESS), start + EAGER, clock(1));
        assert_eq!(sighting.due(start + EAGER * 2), []);
        assert!(!sighting.due(start + EAGER + CALM).is_empty());
        sighting.on_frame(Heard::Answers(ADDRESS), start + EAGER + CALM, clock(6));
        let expected = GuestObserved {
            first_packet_at: Some(clock(1)),
            answered_at: Some(clock(1)),
            answered_address: Some(ADDRESS),
        };
        assert_eq!(sighting.observed, expected, "it has answered ever since");
        let later = start + EAGER + CALM + GAP * 2;
        sighting.on_frame(Heard::Answers(ADDRESS), later, clock(22));
        assert_eq!(sighting.observed.answered_at, Some(clock(22)), "it was away, and began to answer again");
    }

    #[test]
    fn a_guest_that_looks_for_duplicates_is_not_probed() {
        let start = Instant::now();
        let mut sighting = Sighting::new(vec![ADDRESS]);
        sighting.on_frame(Heard::Something, start, clock(1));
        assert_eq!(probes(&mut sighting, start, start + Duration::from_secs(5)), 0);
        let detection = start + Duration::from_secs(5);
        sighting.on_frame(Heard::Detects(ADDRESS), detection, clock(6));
        assert_eq!(probes(&mut sighting, detection, detection + QUIET), 0, "a detection is under way");
        let after = detection + QUIET;
        assert_eq!(probes(&mut sighting, after, after + Duration::from_secs(3)), 3, "then one a second");
    }

    #[test]
    fn an_address_in_use_may_be_probed() {
        let start = Instant::now();
        let mut sighting = Sighting::new(vec![OTHER, ADDRESS]);
        sighting.due(start);
        sighting.on_frame(Heard::Uses(ADDRESS), start, clock(1));
        let expected = [Question::Request(OTHER), Question::Request(ADDRESS), Question::Probe(ADDRESS)];
        assert_eq!(sighting.due(start + EAGER / 4), expected, "and at once");
        assert!(!sighting.answered(), "use is no answer");
    }

    #[test]
    fn the_carrier_coming_back_is_a_new_start() {
        let now = Instant::now();
        let mut sighting = Sighting::new(vec![ADDRESS]);
        assert!(!sighting.on_carrier(3), "the first look is no restart");
        sighting.on_frame(Heard::Answers(ADDRESS), now, clock(1));
        assert!(!sighting.on_carrier(3));
        assert!(sighting.answered());
        assert!(sighting.on_carrier(4));
        assert_eq!(sighting.observed, GuestObserved::default());
        assert_eq!(sighting.due(now), [Question::Request(ADDRESS)], "the addresses stay");
    }

    #[test]
    fn answers_for_other_addresses_do_not_count() {
        let mut sighting = Sighting::new(vec![ADDRESS]);
        sighting.on_frame(Heard::Answers(OTHER), Instant::now(), clock(1));
        assert_eq!(sighting.observed.first_packet_at, Some(clock(1)));
        assert!(!sighting.answered());
        sighting.on_frame(Heard::Answers(ADDRESS), Instant::now(), clock(2));
        sighting.set_addresses(&[OTHER]);
        assert!(!sighting.answered(), "an answer for an address that is no longer asked for");
    }
}
