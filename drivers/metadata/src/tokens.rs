//! IMDSv2's session tokens: random, for one guest, for as long as it asked for. They end with the agent; a guest asks for another then.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Of one guest at a time: the oldest goes for one more.
const PER_GUEST: usize = 64;

#[derive(Default)]
pub(crate) struct Tokens(BTreeMap<String, Vec<(String, Instant)>>);

impl Tokens {
    pub(crate) fn make(&mut self, mac: &str, lifetime: Duration, now: Instant) -> String {
        let own = self.0.entry(mac.to_owned()).or_default();
        own.retain(|(_, until)| *until > now);
        if own.len() >= PER_GUEST {
            own.remove(0);
        }
        let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        own.push((token.clone(), now + lifetime));
        token
    }

    /// How long it is still good for this guest.
    pub(crate) fn left(&self, mac: &str, token: &str, now: Instant) -> Option<Duration> {
        let own = self.0.get(mac)?;
        let (_, until) = own.iter().find(|(there, until)| there == token && *until > now)?;
        Some(*until - now)
    }

    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&str) -> bool) {
        self.0.retain(|mac, _| keeps(mac));
    }
}
