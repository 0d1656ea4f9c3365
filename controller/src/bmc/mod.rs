//! The hosts' BMCs: read in the background, one task per host, and commanded one request at a time.
//!
//! A reconcile never waits for a reading. It says how urgently it needs one ([`Hosts::need`]) and is called again when
//! there is news. Readings are fast only while an action is awaited; a BMC that fails is asked with a back-off.

mod endpoint;
mod host;

pub use endpoint::{BmcFactory, Endpoint, Password};
pub use host::Host;

use crate::objects::Objects;
use crate::queue::Key;
use crate::world::Queues;
use planner::machine::BmcNeed;
use planner::machine::observed::BmcSeen;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Who wants to know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    Machine(Key),
    Dpu(Key),
}

pub struct Hosts {
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    context: Arc<host::Context>,
}

impl Hosts {
    pub(crate) fn new(
        factory: Arc<dyn BmcFactory>,
        objects: Objects,
        inventory: &str,
        world: Arc<crate::world::World>,
        metrics: Arc<crate::metrics::Metrics>,
        limit: usize,
    ) -> Arc<Self> {
        let context = Arc::new(host::Context {
            factory,
            objects,
            inventory: inventory.to_owned(),
            world,
            metrics,
            permits: Semaphore::new(limit),
            token: std::sync::atomic::AtomicU64::new(0),
        });
        Arc::new(Self { hosts: Mutex::default(), context })
    }

    /// The fencing token that every command carries from now on.
    pub fn lead(&self, token: u64) {
        self.context.token.store(token, std::sync::atomic::Ordering::SeqCst);
    }

    fn hosts(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Host>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How urgently `owner` needs a reading of this host. The task that reads it lives as long as somebody needs it.
    pub fn need(&self, hardware: &str, owner: Owner, need: BmcNeed) {
        let mut hosts = self.hosts();
        match hosts.get(hardware) {
            Some(host) => {
                host.need(owner, need);
                if !host.is_needed() {
                    hosts.remove(hardware);
                }
            }
            None if need == BmcNeed::None => {}
            None => {
                let host = Host::new(hardware, self.context.clone());
                host.need(owner, need);
                host.clone().start();
                hosts.insert(hardware.to_owned(), host);
            }
        }
    }

    /// `owner` needs none of the others any more.
    pub fn only(&self, owner: &Owner, hardware: Option<&str>) {
        let others: Vec<String> = {
            let hosts = self.hosts();
            let owned = hosts.iter().filter(|(name, host)| Some(name.as_str()) != hardware && host.is_owned_by(owner));
            owned.map(|(name, _)| name.clone()).collect()
        };
        for other in others {
            self.need(&other, owner.clone(), BmcNeed::None);
        }
    }

    pub fn seen(&self, hardware: &str) -> BmcSeen {
        self.hosts().get(hardware).map(|host| host.seen()).unwrap_or_default()
    }

    pub fn get(&self, hardware: &str) -> Option<Arc<Host>> {
        self.hosts().get(hardware).cloned()
    }

    pub fn count(&self) -> usize {
        self.hosts().len()
    }
}

fn enqueue(queues: &Queues, owner: &Owner) {
    match owner {
        Owner::Machine(key) => queues.machines.add(key.clone()),
        Owner::Dpu(key) => queues.dpus.add(key.clone()),
    }
}
