//! Who starts processes again, and what happens to servers and DPUs beside the processes.

use super::agent::Agent;
use super::leader::Leader;
use super::rules::Rule;
use super::time::{Ms, NEVER, Notify, Process};
use super::world::{Watch, World};
use api::dpu::PowerDomain;
use planner::exposure::{ExposureId, Presence};
use planner::host::PowerState;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Until a DPU that got power has an agent again.
const BOOT: Ms = 4_000;

/// One process after the other under one name.
pub struct Lives {
    pub name: String,
    pub current: RefCell<Option<Rc<Process>>>,
    /// Nobody starts it before.
    pub held_until: Cell<Ms>,
    pub wake: Notify,
}

impl Lives {
    fn new(name: &str) -> Rc<Self> {
        Rc::new(Self {
            name: name.to_owned(),
            current: RefCell::default(),
            held_until: Cell::new(0),
            wake: Notify::default(),
        })
    }

    pub fn kill(&self, world: &World, until: Ms) {
        self.held_until.set(until);
        if let Some(process) = self.current.borrow().as_ref() {
            world.note(|| format!("{} is killed", self.name));
            process.die(&world.time);
        }
    }

    fn begin(&self, world: &World) -> Rc<Process> {
        world.note(|| format!("{} starts", self.name));
        let process = Process::new(&self.name);
        *self.current.borrow_mut() = Some(process.clone());
        process
    }

    /// How it is until it may start again: dead for a moment at least.
    async fn rest(&self, world: &World, process: &Process) {
        process.died.wait(&world.time, NEVER).await;
        let rest = 300 + world.dice.below(2_000);
        world.time.sleep(rest.max(self.held_until.get().saturating_sub(world.now()))).await;
    }
}

/// Agents live while their DPU has power.
pub fn agent(world: &Rc<World>, dpu: &str) -> Rc<Lives> {
    let (lives, keeper) = (Lives::new(dpu), Process::new("keeper"));
    let (own, world_of_it, dpu) = (lives.clone(), world.clone(), dpu.to_owned());
    world.time.spawn(&keeper, async move {
        let world = world_of_it;
        loop {
            while !world.server(&dpu).dpu_on {
                own.wake.wait(&world.time, NEVER).await;
            }
            let process = own.begin(&world);
            process.cut_until.set(world.server(&dpu).cut_until);
            Agent::start(&world, &process, &dpu);
            own.rest(&world, &process).await;
        }
    });
    lives
}

/// `now`: the leader that lives, for whoever looks at its plans.
pub fn leader(
    world: &Rc<World>,
    name: &str,
    machines: Vec<String>,
    lag: Ms,
    now: Rc<RefCell<Option<Rc<Leader>>>>,
) -> Rc<Lives> {
    let (lives, keeper) = (Lives::new(name), Process::new("keeper"));
    let (own, world_of_it) = (lives.clone(), world.clone());
    world.time.spawn(&keeper, async move {
        loop {
            let process = own.begin(&world_of_it);
            *now.borrow_mut() = Some(Leader::start(&world_of_it, &process, &machines, lag));
            own.rest(&world_of_it, &process).await;
            *now.borrow_mut() = None;
        }
    });
    lives
}

impl World {
    /// The first list of a watch; it is told of all that comes later.
    pub async fn list(self: &Rc<Self>, watch: &Rc<Watch>) {
        loop {
            let extent = |world: &World| world.objects().extent();
            let via = super::world::Via::ApiServer;
            if let Some(extent) = self.ask((&watch.process, via), || "lists all".to_owned(), extent).await {
                for (kind, upto) in extent.into_iter().enumerate() {
                    watch.caches.borrow_mut().follow(&self.objects(), kind, upto, &[], &self.time);
                }
                return self.watch(watch.clone());
            }
        }
    }

    fn lives_of(&self, dpu: &str) -> Option<Rc<Lives>> {
        self.agents.borrow().get(dpu).cloned()
    }

    /// The DPU loses all it had; its agent ends with it.
    pub fn dpu_goes(&self, dpu: &str) {
        let now = self.now();
        self.note(|| format!("{dpu} goes down"));
        self.server(dpu).dpu_goes(now, self.keeps(Rule::RebootForgets));
        self.lives_of(dpu).into_iter().for_each(|lives| lives.kill(self, 0));
    }

    /// It has power again, and after a while an agent.
    pub fn dpu_comes(&self, dpu: &str) {
        let (server, Some(this)) = (self.server(dpu), self.this()) else { return };
        let has_power = server.domain == PowerDomain::Standby || server.power == PowerState::On;
        let (boot, dark) = (server.boot, !server.dpu_on && !server.unplugged && has_power);
        drop(server);
        if !dark {
            return;
        }
        let dpu = dpu.to_owned();
        self.time.call(BOOT, move || {
            let now = this.now();
            let mut server = this.server(&dpu);
            let has_power = server.domain == PowerDomain::Standby || server.power == PowerState::On;
            if server.boot == boot && !server.dpu_on && !server.unplugged && has_power {
                server.dpu_comes(now);
                drop(server);
                this.note(|| format!("{dpu} is up"));
                this.lives_of(&dpu).into_iter().for_each(|lives| lives.wake.notify(&this.time));
            }
        });
    }

    pub fn host_goes(&self, dpu: &str) {
        let mut server = self.server(dpu);
        server.turn += 1;
        server.power = PowerState::Off;
        server.shown.retain(|exposure| exposure.presence != Presence::Leaving);
        let with_it = server.domain == PowerDomain::Host && server.dpu_on;
        drop(server);
        self.note(|| format!("the host of {dpu} is off"));
        if with_it {
            self.dpu_goes(dpu);
        }
    }

    /// The host is asked to let go of it.
    pub fn hide(&self, dpu: &str, boot: u32, id: &ExposureId, after: Ms) {
        let mut server = self.server(dpu);
        if server.power == PowerState::Off {
            return server.shown.retain(|exposure| exposure.id != *id);
        }
        let shown = server.shown.iter_mut().filter(|exposure| exposure.id == *id);
        shown.for_each(|exposure| exposure.presence = Presence::Leaving);
        let Some(this) = self.this() else { return };
        let (dpu, id) = (dpu.to_owned(), id.clone());
        self.time.call(after, move || {
            let mut server = this.server(&dpu);
            if server.boot == boot {
                server.shown.retain(|e| e.id != id || e.presence != Presence::Leaving);
            }
        });
    }
}
