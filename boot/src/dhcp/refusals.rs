//! Which refusals are news: a server that gets no answer asks again and again, and the log has each reason once in a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const AGAIN: Duration = Duration::from_secs(600);
/// MAC addresses cost nothing.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    told: BTreeMap<String, (String, Instant)>,
}

impl Refusals {
    /// Another reason than before, or ten minutes after it was told.
    pub(crate) fn is_news(&mut self, mac: &str, why: &str, now: Instant) -> bool {
        if let Some((told, at)) = self.told.get(mac)
            && told == why
            && now.duration_since(*at) < AGAIN
        {
            return false;
        }
        if self.told.len() >= MOST {
            self.told.clear();
        }
        self.told.insert(mac.to_owned(), (why.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_news_once_in_ten_minutes_and_another_one_at_once() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(refusals.is_news("a", "no netmask", after(0)));
        assert!(!refusals.is_news("a", "no netmask", after(599)));
        assert!(refusals.is_news("b", "no netmask", after(599)));
        assert!(refusals.is_news("a", "no address", after(599)));
        assert!(!refusals.is_news("a", "no address", after(1198)));
        assert!(refusals.is_news("a", "no address", after(1199)));
    }
}
