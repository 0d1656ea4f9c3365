//! BMCs, of hosts and of DPUs: read in the background, one task per bmc.tinkerbell.org Machine, for whoever refers to it: the
//! Hardware of a machine's server, a Dpu, a Job, the Machine's own status. They share its readings and its session, and it gets one request at a time. A
//! host's BMC is commanded; a DPU's own is only read.
//!
//! A reconcile never waits for a reading. It says how urgently it needs one ([`Hosts::needs`]) and is called again when
//! there is news. Readings are fast only while an action is awaited; a BMC that fails is asked with a back-off, and so is
//! one whose driver panics. A Machine that is made anew under the same name, or gets another connection, is another BMC:
//! what was read before says nothing of it, and no command rests on that.

mod endpoint;
mod host;
mod session;

pub use endpoint::{BmcFactory, Password, RedfishEndpoint};
pub use host::Host;
use host::Source;

use crate::cache::Cache;
use crate::index::IndexKey;
use crate::objects::Objects;
use crate::work::Work;
use crate::world::World;
use api::tinkerbell::{Hardware, Machine};
use kube::Resource;
use kube::runtime::watcher;
use planner::machine::BmcNeed;
use planner::machine::observed::{BmcProblem, BmcSeen, name};
use runtime::patience::Patience;
use runtime::queue::Key;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Who wants to know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Machine(Key),
    /// The UID of a machine or an image that no longer exists, and has left something.
    Gone(Key),
    Image(Key),
    Dpu(Key),
    Job(Key),
    /// A bmc.tinkerbell.org Machine, which says whether its BMC answers.
    Contact(Key),
}

/// Which BMC.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// A server's, by the name of its Hardware.
    Server(String),
    /// A DPU's own, by the name of its bmc.tinkerbell.org Machine.
    Dpu(String),
    /// Whosever, by the same name.
    Machine(String),
}

struct Task {
    host: Arc<Host>,
    /// What is under way ends with the last need, so that there is never a second session.
    _reads: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Tasks {
    /// By the name of the bmc.tinkerbell.org Machine, of which the inventory namespace has one.
    all: BTreeMap<String, Task>,
    /// Which of them somebody needs.
    needed: HashMap<Owner, BTreeSet<String>>,
}

impl Tasks {
    fn needed_no_more(&mut self, machine: &str, owner: &Owner) {
        let Some(task) = self.all.get(machine) else { return };
        task.host.need(owner, BmcNeed::None);
        if !task.host.is_needed() {
            self.all.remove(machine);
        }
    }
}

pub struct Hosts {
    tasks: Mutex<Tasks>,
    context: Arc<host::Context>,
}

/// The bmc.tinkerbell.org Machine of a server.
pub(crate) fn of_server(hardware: &Hardware) -> Option<&str> {
    hardware.spec.bmc_ref.as_ref().map(|reference| reference.name.as_str())
}

impl Hosts {
    pub(crate) fn new(
        factory: Arc<dyn BmcFactory>,
        objects: Objects,
        inventory: &str,
        world: Arc<World>,
        metrics: Arc<crate::metrics::Metrics>,
        limit: usize,
    ) -> Arc<Self> {
        let context = Arc::new(host::Context {
            factory,
            objects,
            inventory: inventory.to_owned(),
            world,
            machines: Cache::new(|_| Vec::new()),
            metrics,
            permits: Semaphore::new(limit),
            token: std::sync::atomic::AtomicU64::new(0),
        });
        Arc::new(Self { tasks: Mutex::default(), context })
    }

    /// Follows the bmc.tinkerbell.org Machines until the set is dropped.
    pub(crate) fn watch(self: &Arc<Self>, nonce: u64, set: &mut JoinSet<()>) {
        let (hosts, context) = (self.clone(), &self.context);
        let (machines, api) = (context.machines.clone(), context.objects.namespaced::<Machine>(&context.inventory));
        let patience = Patience::new(nonce, &Machine::kind(&()));
        set.spawn(machines.watch(api, watcher::Config::default(), patience, move |machine| {
            hosts.changed(name(&machine.metadata));
        }));
    }

    fn changed(&self, machine: &str) {
        // It may stand for another BMC than the one that was verified as a DPU's own.
        let world = &self.context.world;
        world.look_at_each(Work::Dpu, &world.dpus, &IndexKey::names::<Machine>("", machine));
        world.jobs_of(machine);
        world.look(Work::Contact, (self.context.inventory.clone(), machine.to_owned()));
        if let Some(host) = self.named(machine) {
            host.look(self.context.machines.get(&self.context.inventory, machine).as_deref());
        }
    }

    /// The fencing token that every command carries from now on.
    pub fn lead(&self, token: u64) {
        self.context.token.store(token, std::sync::atomic::Ordering::SeqCst);
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn machine_of(&self, which: &Which) -> Result<String, BmcProblem> {
        let hardware = match which {
            Which::Dpu(machine) | Which::Machine(machine) => return Ok(machine.clone()),
            Which::Server(hardware) => hardware,
        };
        let there = self.context.world.hardware.get(&self.context.inventory, hardware);
        let there = there.ok_or_else(|| BmcProblem::Missing(format!("there is no Hardware '{hardware}'")))?;
        let named = of_server(&there).map(str::to_owned);
        named.ok_or_else(|| BmcProblem::Missing(format!("Hardware '{hardware}' has no spec.bmcRef")))
    }

    /// `owner` needs these, and none of the others any more. The task that reads a BMC lives as long as somebody needs it.
    pub fn needs(&self, owner: &Owner, needs: &[(Which, BmcNeed)]) {
        let mut wanted: BTreeMap<String, BmcNeed> = BTreeMap::new();
        for (which, need) in needs.iter().filter(|(_, need)| *need != BmcNeed::None) {
            if let Ok(machine) = self.machine_of(which) {
                let most = wanted.entry(machine).or_default();
                *most = (*most).max(*need);
            }
        }
        let mut tasks = self.tasks();
        let names: BTreeSet<String> = wanted.keys().cloned().collect();
        let before = match names.is_empty() {
            true => tasks.needed.remove(owner),
            false => tasks.needed.insert(owner.clone(), names),
        };
        for machine in before.iter().flatten().filter(|machine| !wanted.contains_key(*machine)) {
            tasks.needed_no_more(machine, owner);
        }
        for (machine, need) in wanted {
            match tasks.all.get(&machine) {
                Some(task) => task.host.need(owner, need),
                None => {
                    let host = Host::new(&machine, self.context.clone());
                    host.need(owner, need);
                    let reads = AbortOnDropHandle::new(tokio::spawn(host.clone().run()));
                    tasks.all.insert(machine, Task { host, _reads: reads });
                }
            }
        }
    }

    pub fn seen(&self, which: &Which) -> BmcSeen {
        match self.machine_of(which) {
            Ok(machine) => self.named(&machine).map_or_else(|| self.unread(&machine), |host| host.seen()),
            Err(problem) => BmcSeen { problem: Some(problem), ..BmcSeen::default() },
        }
    }

    /// Nobody reads it; what its name stands for is known all the same.
    fn unread(&self, machine: &str) -> BmcSeen {
        let there = self.context.machines.get(&self.context.inventory, machine);
        BmcSeen { identity: there.map(|there| Source::of(&there).identity()), ..BmcSeen::default() }
    }

    /// The bmc.tinkerbell.org Machines of the inventory.
    pub(crate) fn machines(&self) -> &Arc<Cache<Machine>> {
        &self.context.machines
    }

    /// By its bmc.tinkerbell.org Machine; to command it.
    pub fn named(&self, machine: &str) -> Option<Arc<Host>> {
        self.tasks().all.get(machine).map(|task| task.host.clone())
    }

    pub fn count(&self) -> usize {
        self.tasks().all.len()
    }
}

fn enqueue(world: &World, owner: &Owner) {
    match owner {
        Owner::Machine(key) => world.look(Work::Machine, key.clone()),
        Owner::Gone(key) => world.look(Work::Leftovers, key.clone()),
        Owner::Image(key) => world.look(Work::Image, key.clone()),
        Owner::Dpu(key) => world.look(Work::Dpu, key.clone()),
        Owner::Job(key) => world.look(Work::Job, key.clone()),
        Owner::Contact(key) => world.look(Work::Contact, key.clone()),
    }
}
