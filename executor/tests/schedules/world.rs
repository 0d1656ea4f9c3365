//! Objects, site and time in one, and the way from a process to the outside and back: it takes a moment, and under a storm a
//! request is refused, its answer lost, it comes late, or its sender dies of it.

use super::caches::{Caches, KINDS, Listener};
use super::dice::Dice;
use super::lives::Lives;
use super::rules::Rule;
use super::site::{Server, Site};
use super::time::{Ms, Process, Time};
use jiff::{SignedDuration, Timestamp};
use model::{Error, Kind, Objects, Rests};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// After that nobody waits for an answer.
const PATIENCE: Ms = 8_000;
/// What comes late comes within this.
pub const LATEST: Ms = 30_000;

/// How often something goes wrong with a request, in a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Storm {
    pub until: Ms,
    pub late: u64,
    pub lost: u64,
    pub refused: u64,
    pub deadly: u64,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kind,
    Refused,
    /// It arrives long after its sender has given up.
    Late,
    /// It is done, and its sender is not told.
    Lost,
    /// Its sender dies; it arrives, or arrives late.
    Deadly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    ApiServer,
    /// The storage's own network, or a BMC's.
    Outside,
}

/// The next request of this sender whose name begins so arrives then.
pub struct HeldUp {
    pub by: String,
    pub what: String,
    pub at: Ms,
}

/// What one process is told of the objects. It lags, and may stand still.
pub struct Watch {
    pub process: Rc<Process>,
    pub caches: RefCell<Caches>,
    pub frozen_until: Cell<Ms>,
    pub lag: Ms,
    pub listeners: Vec<Listener>,
}

pub struct World {
    this: Weak<World>,
    pub time: Time,
    pub dice: Dice,
    objects: RefCell<Objects>,
    site: RefCell<Site>,
    touched: Cell<bool>,
    watches: RefCell<Vec<Rc<Watch>>>,
    changes: Cell<u64>,
    named: Cell<u64>,
    extent: RefCell<Vec<usize>>,
    /// By the name of the DPU.
    pub agents: RefCell<BTreeMap<String, Rc<Lives>>>,
    pub storm: Cell<Storm>,
    pub wrong: RefCell<Option<String>>,
    /// The rule that does not hold here.
    without: Option<Rule>,
    pub held_up: RefCell<Vec<HeldUp>>,
    /// What happened, if somebody wants to know.
    journal: Option<RefCell<Vec<String>>>,
}

/// A part of the site. Whoever changes it, or could, has touched the site, which is checked then; who reads it has not.
pub struct Touch<'a, T> {
    it: RefMut<'a, T>,
    touched: &'a Cell<bool>,
}

impl<T> Deref for Touch<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.it
    }
}

impl<T> DerefMut for Touch<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.touched.set(true);
        &mut self.it
    }
}

pub fn timestamp(at: Ms) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1) + SignedDuration::from_millis(at as i64)
}

/// The first moment that is not before it.
pub fn moment(at: Timestamp) -> Ms {
    let since = at.duration_since(timestamp(0)).as_nanos();
    u64::try_from(since.max(0) as u128 / 1_000_000 + u128::from(since % 1_000_000 > 0)).unwrap_or(Ms::MAX)
}

impl World {
    pub fn new(dice: Dice, site: Site, without: Option<Rule>, tells: bool) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            this: this.clone(),
            agents: RefCell::default(),
            time: Time::default(),
            dice,
            objects: RefCell::default(),
            site: RefCell::new(site),
            touched: Cell::new(true),
            watches: RefCell::default(),
            changes: Cell::new(0),
            named: Cell::new(0),
            extent: RefCell::default(),
            storm: Cell::default(),
            wrong: RefCell::default(),
            without,
            held_up: RefCell::default(),
            journal: tells.then(RefCell::default),
        })
    }

    /// A name that nothing had before.
    pub fn another(&self) -> u64 {
        self.named.set(self.named.get() + 1);
        self.named.get()
    }

    pub fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    pub fn this(&self) -> Option<Rc<Self>> {
        self.this.upgrade()
    }

    /// What refers to itself is let go of.
    pub fn end(&self) {
        self.time.end();
        self.watches.take();
        self.agents.take();
    }

    /// Differs if anything went another way: how long it took, what was written, and how often the dice were asked.
    pub fn digest(&self) -> u64 {
        self.now() ^ self.objects.borrow().changes().rotate_left(32) ^ self.dice.below(u64::MAX)
    }

    pub fn now(&self) -> Ms {
        self.time.now()
    }

    pub fn objects(&self) -> RefMut<'_, Objects> {
        self.objects.borrow_mut()
    }

    pub fn site(&self) -> Touch<'_, Site> {
        Touch { it: self.site.borrow_mut(), touched: &self.touched }
    }

    pub fn server(&self, dpu: &str) -> Touch<'_, Server> {
        let it = RefMut::map(self.site.borrow_mut(), |site| site.server(dpu));
        Touch { it, touched: &self.touched }
    }

    pub fn note(&self, what: impl FnOnce() -> String) {
        if let Some(journal) = &self.journal {
            journal.borrow_mut().push(format!("{:>8} {}", self.now(), what()));
        }
    }

    pub fn story(&self) -> Vec<String> {
        self.journal.as_ref().map(|journal| journal.borrow().clone()).unwrap_or_default()
    }

    /// From here on; what came since the list is under way, too.
    pub fn watch(self: &Rc<Self>, watch: Rc<Watch>) {
        let extent = self.objects.borrow().extent();
        for (kind, upto) in extent.into_iter().enumerate() {
            self.deliver(&watch, kind, upto, 1 + self.dice.below(watch.lag));
        }
        self.watches.borrow_mut().retain(|old| old.process.alive.get());
        self.watches.borrow_mut().push(watch);
    }

    /// Watches stand still for so long.
    pub fn freeze(&self, process: &str, duration: Ms) {
        for watch in self.watches.borrow().iter().filter(|watch| watch.process.name == process) {
            watch.frozen_until.set(self.now() + duration);
        }
    }

    /// One event; after it all must be well. False: something is wrong.
    pub fn step(self: &Rc<Self>) -> bool {
        if !self.time.step() {
            *self.wrong.borrow_mut() = Some("nothing happens any more".to_owned());
        }
        if self.touched.take()
            && let Err(what) = self.site.borrow().check()
        {
            self.note(|| what.clone());
            self.wrong.borrow_mut().get_or_insert(what);
        }
        self.tell();
        self.wrong.borrow().is_none()
    }

    /// Every change is under way to those who watch.
    fn tell(self: &Rc<Self>) {
        let changes = self.objects.borrow().changes();
        if self.changes.replace(changes) == changes {
            return;
        }
        let extent = self.objects.borrow().extent();
        let before = self.extent.replace(extent.clone());
        for (kind, upto) in extent.into_iter().enumerate() {
            if before.get(kind) == Some(&upto) {
                continue;
            }
            let hears = |watch: &&Rc<Watch>| {
                watch.process.alive.get() && watch.listeners.iter().any(|l| l.kinds.contains(&KINDS[kind]))
            };
            for watch in self.watches.borrow().iter().filter(hears) {
                self.deliver(watch, kind, upto, 1 + self.dice.below(watch.lag));
            }
        }
    }

    fn deliver(self: &Rc<Self>, watch: &Rc<Watch>, kind: usize, upto: usize, after: Ms) {
        let (world, to) = (self.clone(), watch.clone());
        self.time.call(after, move || {
            let process = &to.process;
            let until = to.frozen_until.get().max(process.cut_until.get()).max(process.paused_until.get());
            if !process.alive.get() {
                return;
            }
            if world.now() < until {
                return world.deliver(&to, kind, upto, until - world.now());
            }
            to.caches.borrow_mut().follow(&world.objects.borrow(), kind, upto, &to.listeners, &world.time);
        });
    }

    fn fate(&self) -> Fate {
        let storm = self.storm.get();
        let mut roll = if self.now() < storm.until { self.dice.below(1000) } else { 1000 };
        for (share, fate) in [
            (storm.refused, Fate::Refused),
            (storm.late, Fate::Late),
            (storm.lost, Fate::Lost),
            (storm.deadly, Fate::Deadly),
        ] {
            match roll.checked_sub(share) {
                Some(rest) => roll = rest,
                None => return fate,
            }
        }
        Fate::Kind
    }

    /// A request and its answer. `None`: no answer; it may be done, now or later.
    pub async fn ask<T: 'static>(
        self: &Rc<Self>,
        (by, via): (&Rc<Process>, Via),
        what: impl FnOnce() -> String,
        act: impl FnOnce(&World) -> T + 'static,
    ) -> Option<T> {
        if via == Via::ApiServer && self.now() < by.cut_until.get() {
            self.time.sleep(500).await;
            return None;
        }
        let fate = self.fate();
        if fate == Fate::Refused {
            self.time.sleep(3).await;
            return None;
        }
        let late = fate == Fate::Late || (fate == Fate::Deadly && self.dice.one_in(2));
        let what = (self.journal.is_some() || !self.held_up.borrow().is_empty()).then(what).unwrap_or_default();
        let is_it = |held: &mut HeldUp| held.by == by.name && what.starts_with(&held.what);
        let held_up = self.held_up.borrow_mut().extract_if(.., is_it).next();
        let there = match held_up {
            Some(held) => held.at.saturating_sub(self.now()),
            None if late => self.dice.between(500, LATEST),
            None => 1 + self.dice.below(4),
        };
        let answer = Rc::new(RefCell::new(None));
        let (world, slot, sender) = (self.clone(), answer.clone(), by.clone());
        self.time.call(there, move || {
            world.note(|| format!("{}: {what}", sender.name));
            *slot.borrow_mut() = Some(act(&world));
        });
        if fate == Fate::Deadly {
            self.note(|| format!("{} dies", by.name));
            by.die(&self.time);
        }
        self.time.sleep((there + 1 + self.dice.below(4)).min(PATIENCE)).await;
        let answer = answer.borrow_mut().take();
        // What came while it was cut off did not come.
        answer.filter(|_| fate != Fate::Lost && (via == Via::Outside || self.now() >= by.cut_until.get()))
    }

    /// From quorum. `None` inside: it is not there.
    pub async fn get<K: Kind>(
        self: &Rc<Self>,
        by: &Rc<Process>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<K>>, Error> {
        let (of, called) = (namespace.to_owned(), name.to_owned());
        let read = move |world: &World| world.objects.borrow().get::<K>(&of, &called).ok();
        self.ask((by, Via::ApiServer), || format!("get {name}"), read).await.ok_or(Error::NoAnswer)
    }

    pub async fn change<K: Kind>(
        self: &Rc<Self>,
        by: &Rc<Process>,
        (namespace, name): (&str, &str),
        rests: Rests,
        change: impl FnOnce(&mut K) + 'static,
    ) -> Result<Arc<K>, Error> {
        let (of, called) = (namespace.to_owned(), name.to_owned());
        let write = move |world: &World| {
            let done = world.objects().change((&of, &called), &rests, change);
            world.note(|| format!("    {called}: {:?}", done.as_ref().map(|object| &object.meta().resource_version)));
            done
        };
        self.ask((by, Via::ApiServer), || format!("change {name}"), write).await.unwrap_or(Err(Error::NoAnswer))
    }
}
