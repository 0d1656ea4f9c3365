//! Whether the guests behind our NICs have spoken and answer. The switch asks them in the background; this task looks at
//! what it knows, often while something is waited for, and wakes the reconciler when that changes.

use crate::act::switch_port;
use planner::agent::{Function, Guest, Observed};
use ports::Switch;
use ports::switch::{GuestObserved, SwitchPort};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

const WAITING: Duration = Duration::from_millis(100);
const SETTLED: Duration = Duration::from_secs(5);

type Watched = BTreeMap<String, (SwitchPort, Vec<IpAddr>)>;

#[derive(Default)]
pub(crate) struct Guests {
    watched: Mutex<Watched>,
    /// Only what was seen in this life of the agent: before that, the status knows more.
    seen: Mutex<BTreeMap<String, Guest>>,
    changed: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guests {
    pub(crate) fn seen(&self) -> BTreeMap<String, Guest> {
        lock(&self.seen).clone()
    }

    /// Watch behind every NIC of the record that is plugged now.
    pub(crate) fn watch(&self, observed: &Observed) {
        let ports = observed.ports.last().map(Vec::as_slice).unwrap_or_default();
        let plugged = ports.iter().filter_map(|port| {
            let entry = observed.record.get(&port.id.uid).filter(|entry| entry.id == port.id)?;
            let Function::Nic(nic) = &entry.function else { return None };
            Some((port.id.uid.clone(), (switch_port(&port.id, nic, &port.device), nic.addresses.clone())))
        });
        let wanted: Watched = plugged.collect();
        let mut watched = lock(&self.watched);
        if *watched != wanted {
            lock(&self.seen).retain(|uid, _| wanted.contains_key(uid));
            *watched = wanted;
            self.changed.notify_one();
        }
    }

    /// Looks for ever.
    pub(crate) async fn run(&self, switch: Arc<dyn Switch>, wake: &Notify) {
        loop {
            let watched = lock(&self.watched).clone();
            let mut pause = SETTLED;
            for (uid, (port, addresses)) in &watched {
                let observed = switch.observe_guest(port, addresses).await.unwrap_or_else(|error| {
                    tracing::debug!(%error, "observing the guest");
                    GuestObserved::default()
                });
                if observed.first_packet_at.is_none() || (observed.answered_at.is_none() && !addresses.is_empty()) {
                    pause = WAITING;
                }
                if self.note(uid, observed) {
                    wake.notify_one();
                }
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Whether there is news.
    fn note(&self, uid: &str, observed: GuestObserved) -> bool {
        let GuestObserved { first_packet_at, answered_at, answered_address } = observed;
        let now = Guest { first_packet_at, answered_at, answered_address };
        let mut seen = lock(&self.seen);
        let same = match seen.get(uid) {
            Some(known) => *known == now,
            None => now == Guest::default(),
        };
        if !same {
            seen.insert(uid.to_owned(), now);
        }
        !same
    }
}
