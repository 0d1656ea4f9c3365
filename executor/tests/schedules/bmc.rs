//! A leader's readings of the BMCs: as often as its plans need them, and no older than they say (controller/src/bmc/host.rs).

use super::site::SLOT;
use super::time::{Ms, NEVER, Notify, Process};
use super::world::{Via, World, timestamp};
use planner::host::{BootChange, BootConfiguration, BootOption, HostObserved, PowerAction, PowerState};
use planner::machine::BmcNeed;
use planner::machine::observed::{BmcProblem, BmcSeen};
use planner::seen::Seen;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const FRESH: Ms = 2_000;
const AWAITING: Ms = 1_000;
const SLOW: Ms = 30_000;
const AGAIN: Ms = 2_000;
/// How old a DPU's own BMC's knowledge of its DPU may be.
const LAG: Ms = 30_000;
/// A host comes on so long after its BMC has accepted that, at most; the planner waits for 30 s.
const RISE: Ms = 25_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Host,
    Dpu,
}

/// One BMC, as one leader knows it.
pub struct Bmc {
    pub dpu: String,
    pub whose: Whose,
    needs: RefCell<BTreeMap<String, BmcNeed>>,
    asked: Cell<bool>,
    host: RefCell<Option<HostObserved>>,
    began: Cell<Option<Ms>>,
    answered: Cell<Option<Ms>>,
    failures: Cell<u32>,
    problem: RefCell<Option<BmcProblem>>,
    accepted_at: Cell<Option<Ms>>,
    boot_sent_at: Cell<Option<Ms>>,
    boot_attempts: Cell<u32>,
    wake: Notify,
}

fn observed(dpu: &str, power: PowerState, order: Vec<String>) -> HostObserved {
    let option = |reference: &str, name: String, path: &str| BootOption {
        reference: reference.to_owned(),
        display_name: name,
        uefi_device_path: Some(path.to_owned()),
        enabled: true,
        present: true,
    };
    let disk = format!("UEFI QEMU NVMe Ctrl {} 1", api::names::boot_serial(dpu));
    let options = vec![
        option("Boot0001", "UEFI PXEv4".to_owned(), "PciRoot(0x0)/Pci(0x4,0x0)/MAC(525400000001,0x1)"),
        option(SLOT, disk, "PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)"),
    ];
    let boot = BootConfiguration { order, options, ..BootConfiguration::default() };
    HostObserved { boot, ..HostObserved::with_power(power) }
}

impl Bmc {
    pub fn new(dpu: &str, whose: Whose) -> Rc<Self> {
        Rc::new(Self {
            dpu: dpu.to_owned(),
            whose,
            needs: RefCell::default(),
            asked: Cell::new(false),
            host: RefCell::default(),
            began: Cell::new(None),
            answered: Cell::new(None),
            failures: Cell::new(0),
            problem: RefCell::default(),
            accepted_at: Cell::new(None),
            boot_sent_at: Cell::new(None),
            boot_attempts: Cell::new(0),
            wake: Notify::default(),
        })
    }

    pub fn need(&self, world: &World, owner: &str, need: BmcNeed) {
        let mut needs = self.needs.borrow_mut();
        let before = match needs.get_mut(owner) {
            Some(before) => Some(std::mem::replace(before, need)),
            None => needs.insert(owner.to_owned(), need),
        };
        drop(needs);
        if need == BmcNeed::Now || (need > BmcNeed::Now && before < Some(need)) {
            self.asked.set(true);
        }
        if before != Some(need) || need == BmcNeed::Now {
            self.wake.notify(&world.time);
        }
    }

    fn most(&self) -> BmcNeed {
        self.needs.borrow().values().max().copied().unwrap_or_default()
    }

    pub fn seen(&self, now: Ms) -> BmcSeen {
        let problem = self.problem.borrow().clone();
        let fresh = problem.is_none() && self.answered.get().is_some_and(|at| now - at <= FRESH);
        BmcSeen {
            host: match (self.host.borrow().clone(), self.began.get()) {
                (Some(host), _) if fresh => Seen::Fresh(host),
                (Some(value), Some(since)) => Seen::Stale { value, since: timestamp(since) },
                _ => Seen::Unknown,
            },
            read_at: self.began.get().map(timestamp),
            listing_since: None,
            post_since: None,
            problem,
            accepted_at: self.accepted_at.get().map(timestamp),
            boot_sent_at: self.boot_sent_at.get().map(timestamp),
            boot_attempts: self.boot_attempts.get(),
            boot_refused: None,
            identity: Some("own".to_owned()),
        }
    }

    fn due(&self) -> Ms {
        let need = self.most();
        let Some(answered) = self.answered.get().filter(|_| need > BmcNeed::None) else {
            return if need == BmcNeed::None { NEVER } else { 0 };
        };
        let every = match (need, self.failures.get()) {
            (BmcNeed::Awaiting | BmcNeed::Now, 0) if self.asked.get() => return 0,
            (BmcNeed::Awaiting, 0) => AWAITING,
            (_, 0) => SLOW,
            (_, failures) => (AGAIN << failures.min(5)).min(SLOW),
        };
        answered + every
    }

    /// Reads for ever; whoever is told plans anew.
    pub async fn run(self: Rc<Self>, world: Rc<World>, by: Rc<Process>, told: Vec<Rc<Notify>>) {
        loop {
            while world.now() < self.due() {
                self.wake.wait(&world.time, self.due()).await;
            }
            if self.read(&world, &by).await {
                told.iter().for_each(|told| told.notify(&world.time));
            }
        }
    }

    async fn read(&self, world: &Rc<World>, by: &Rc<Process>) -> bool {
        let began = world.now();
        self.asked.set(false);
        let (dpu, whose) = (self.dpu.clone(), self.whose);
        let read = move |world: &World| match whose {
            _ if world.now() < world.server(&dpu).bmcs_down_until => None,
            Whose::Host => {
                let server = world.server(&dpu);
                Some(observed(&dpu, server.power, server.order.clone()))
            }
            Whose::Dpu => {
                let then = world.now().saturating_sub(world.dice.below(LAG));
                let on = world.server(&dpu).dpu_was_on(then);
                Some(observed(&dpu, if on { PowerState::On } else { PowerState::Off }, Vec::new()))
            }
        };
        world.time.sleep(20).await;
        let answer = world.ask((by, Via::Outside), || format!("read the {:?}'s BMC of {}", self.whose, self.dpu), read);
        let answer = answer.await.flatten();
        self.answered.set(Some(world.now()));
        let urgent = self.needs.borrow().values().any(|need| *need >= BmcNeed::Now);
        let before = self.problem.borrow().clone();
        let Some(host) = answer else {
            self.failures.set(self.failures.get() + 1);
            *self.problem.borrow_mut() = Some(BmcProblem::Unreachable("no answer".to_owned()));
            return urgent || before.is_none();
        };
        let news = urgent || before.is_some() || self.host.borrow().as_ref() != Some(&host);
        if self.boot_sent_at.get().is_some_and(|sent| began > sent) {
            self.boot_attempts.set(0);
        }
        (*self.host.borrow_mut(), *self.problem.borrow_mut()) = (Some(host), None);
        self.began.set(Some(began));
        self.failures.set(0);
        news
    }

    /// True: it is accepted.
    pub async fn power(&self, world: &Rc<World>, by: &Rc<Process>, action: PowerAction) -> bool {
        let dpu = self.dpu.clone();
        let what = || format!("{action:?} {}", self.dpu);
        let sent = world.ask((by, Via::Outside), what, move |world| act(world, &dpu, action)).await;
        self.asked.set(true);
        if sent.is_some() {
            self.accepted_at.set(Some(world.now()));
        }
        self.wake.notify(&world.time);
        sent.is_some()
    }

    pub async fn configure_boot(&self, world: &Rc<World>, by: &Rc<Process>, change: BootChange) {
        self.boot_sent_at.set(Some(world.now()));
        self.boot_attempts.set(self.boot_attempts.get() + 1);
        let dpu = self.dpu.clone();
        let send = move |world: &World| match change {
            BootChange::First { reference } => {
                let order = &mut world.server(&dpu).order;
                order.retain(|other| *other != reference);
                order.insert(0, reference);
            }
            BootChange::Restore { order } => world.server(&dpu).order = order,
            other => panic!("{other:?} was planned"),
        };
        world.ask((by, Via::Outside), || format!("boot order of {}", self.dpu), send).await;
        self.asked.set(true);
        self.wake.notify(&world.time);
    }
}

/// What is planned for later, in the world as it is then.
fn later(world: &World, dpu: &str, after: Ms, turn: u64, act: impl FnOnce(&World, &str) + 'static) {
    let Some(this) = world.this() else { return };
    let dpu = dpu.to_owned();
    world.time.call(after, move || {
        if this.server(&dpu).turn == turn {
            act(&this, &dpu);
        }
    });
}

fn act(world: &World, dpu: &str, action: PowerAction) {
    let mut server = world.server(dpu);
    let turn = server.turn + 1;
    match (action, server.power) {
        (PowerAction::On, PowerState::Off) => {
            server.turn = turn;
            let rise = if world.dice.one_in(6) { RISE } else { 1_500 };
            let after = 500 + world.dice.below(rise);
            drop(server);
            later(world, dpu, after, turn, |world, dpu| {
                world.server(dpu).power = PowerState::On;
                world.dpu_comes(dpu);
            });
        }
        (PowerAction::SoftOff | PowerAction::ForceOff, PowerState::On | PowerState::PoweringOn) => {
            (server.turn, server.power) = (turn, PowerState::PoweringOff);
            let after = if action == PowerAction::SoftOff { 2_000 } else { 800 };
            drop(server);
            later(world, dpu, after, turn, |world, dpu| world.host_goes(dpu));
        }
        _ => {}
    }
}
