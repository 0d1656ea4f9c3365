//! BMCs, of hosts and of DPUs: read in the background, one task per BMC. A host's is commanded, one request at a time; a
//! DPU's own is only read.
//!
//! A reconcile never waits for a reading. It says how urgently it needs one ([`Hosts::needs`]) and is called again when
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
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Who wants to know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    Machine(Key),
    /// The UID of a machine that is no more, and has left something.
    Gone(Key),
    Dpu(Key),
}

/// Which BMC.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// A server's, by the name of its Hardware.
    Server(String),
    /// A DPU's own, by the name of its bmc.tinkerbell.org Machine.
    Dpu(String),
}

pub struct Hosts {
    hosts: Mutex<BTreeMap<Which, Arc<Host>>>,
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

    fn hosts(&self) -> std::sync::MutexGuard<'_, BTreeMap<Which, Arc<Host>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How urgently `owner` needs a reading of this BMC. The task that reads it lives as long as somebody needs it.
    fn need(&self, which: &Which, owner: Owner, need: BmcNeed) {
        let mut hosts = self.hosts();
        match hosts.get(which) {
            Some(host) => {
                host.need(owner, need);
                if !host.is_needed() {
                    hosts.remove(which);
                }
            }
            None if need == BmcNeed::None => {}
            None => {
                let host = Host::new(which.clone(), self.context.clone());
                host.need(owner, need);
                host.clone().start();
                hosts.insert(which.clone(), host);
            }
        }
    }

    /// `owner` needs these, and none of the others any more.
    pub fn needs(&self, owner: &Owner, needs: &[(Which, BmcNeed)]) {
        let others: Vec<Which> = {
            let hosts = self.hosts();
            let needed = |which: &Which| needs.iter().any(|(needed, _)| needed == which);
            let owned = hosts.iter().filter(|(which, host)| !needed(which) && host.is_owned_by(owner));
            owned.map(|(which, _)| which.clone()).collect()
        };
        for other in others {
            self.need(&other, owner.clone(), BmcNeed::None);
        }
        for (which, need) in needs {
            self.need(which, owner.clone(), *need);
        }
    }

    pub fn seen(&self, which: &Which) -> BmcSeen {
        self.hosts().get(which).map(|host| host.seen()).unwrap_or_default()
    }

    /// To command it.
    pub fn server(&self, hardware: &str) -> Option<Arc<Host>> {
        self.hosts().get(&Which::Server(hardware.to_owned())).cloned()
    }

    pub fn count(&self) -> usize {
        self.hosts().len()
    }
}

fn enqueue(queues: &Queues, owner: &Owner) {
    match owner {
        Owner::Machine(key) => queues.machines.add(key.clone()),
        Owner::Gone(key) => queues.leftovers.add(key.clone()),
        Owner::Dpu(key) => queues.dpus.add(key.clone()),
    }
}
