//! Simulated time: what happens next happens at once. Processes are futures without a runtime; one that is killed is never
//! heard of again, one that is paused goes on later with what it knew.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Milliseconds.
pub type Ms = u64;

pub const NEVER: Ms = Ms::MAX;

type Work = Pin<Box<dyn Future<Output = ()>>>;
/// What is done beside others.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What all tasks of one process have in common.
#[derive(Debug)]
pub struct Process {
    pub name: String,
    pub alive: Cell<bool>,
    pub paused_until: Cell<Ms>,
    /// Nothing goes to the API server or comes from it before.
    pub cut_until: Cell<Ms>,
    pub died: Notify,
}

impl Process {
    pub fn new(name: &str) -> Rc<Self> {
        let process = Self {
            name: name.to_owned(),
            alive: Cell::new(true),
            paused_until: Cell::new(0),
            cut_until: Cell::new(0),
            died: Notify::default(),
        };
        Rc::new(process)
    }

    pub fn die(&self, time: &Time) {
        if self.alive.replace(false) {
            self.died.notify(time);
        }
    }
}

struct Task {
    process: Rc<Process>,
    work: RefCell<Option<Work>>,
}

enum Event {
    Wake(usize),
    Call(Box<dyn FnOnce()>),
}

#[derive(Default)]
pub struct Time {
    now: Cell<Ms>,
    events: RefCell<BTreeMap<Reverse<(Ms, u64)>, Event>>,
    sequence: Cell<u64>,
    tasks: RefCell<BTreeMap<usize, Rc<Task>>>,
    current: Cell<usize>,
}

impl Time {
    pub fn now(&self) -> Ms {
        self.now.get()
    }

    fn push(&self, at: Ms, event: Event) {
        let number = self.sequence.replace(self.sequence.get() + 1);
        self.events.borrow_mut().insert(Reverse((at.max(self.now()), number)), event);
    }

    /// Nobody's, so nobody's death prevents it.
    pub fn call(&self, after: Ms, call: impl FnOnce() + 'static) {
        self.push(self.now() + after, Event::Call(Box::new(call)));
    }

    pub fn spawn(&self, process: &Rc<Process>, work: impl Future<Output = ()> + 'static) {
        let number = self.sequence.get() as usize;
        let task = Task { process: process.clone(), work: RefCell::new(Some(Box::pin(work))) };
        self.tasks.borrow_mut().insert(number, Rc::new(task));
        self.push(self.now(), Event::Wake(number));
    }

    pub async fn sleep(&self, duration: Ms) {
        let (until, mut asked) = (self.now() + duration, false);
        poll_fn(|_| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut asked, true) {
                self.push(until, Event::Wake(self.current.get()));
            }
            Poll::Pending
        })
        .await;
    }

    /// The next event; false: there is none.
    pub fn step(&self) -> bool {
        let Some((Reverse((at, _)), event)) = self.events.borrow_mut().pop_last() else { return false };
        self.now.set(at);
        match event {
            Event::Call(call) => call(),
            Event::Wake(number) => self.wake(number),
        }
        true
    }

    fn wake(&self, number: usize) {
        let Some(task) = self.tasks.borrow().get(&number).cloned() else { return };
        let paused = task.process.paused_until.get();
        if task.process.alive.get() && self.now() < paused {
            return self.push(paused, Event::Wake(number));
        }
        self.current.set(number);
        let work = task.work.borrow_mut().take();
        let pending = work.filter(|_| task.process.alive.get()).and_then(|mut work| {
            let pending = work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
            pending.then_some(work)
        });
        match pending {
            Some(work) => *task.work.borrow_mut() = Some(work),
            None => drop(self.tasks.borrow_mut().remove(&number)),
        }
    }

    /// Nothing happens any more; what tasks hold is let go of.
    pub fn end(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        let events = std::mem::take(&mut *self.events.borrow_mut());
        drop((tasks, events));
    }
}

/// Something is new; whoever waits for that is one task.
#[derive(Debug, Default)]
pub struct Notify {
    new: Cell<bool>,
    waiting: Cell<Option<usize>>,
}

impl Notify {
    pub fn notify(&self, time: &Time) {
        if !self.new.replace(true)
            && let Some(task) = self.waiting.take()
        {
            time.push(time.now(), Event::Wake(task));
        }
    }

    /// Until there is something new, or the moment has come.
    pub async fn wait(&self, time: &Time, until: Ms) {
        let mut asked = false;
        poll_fn(|_| {
            if self.new.take() || time.now() >= until {
                return Poll::Ready(());
            }
            self.waiting.set(Some(time.current.get()));
            if until < NEVER && !std::mem::replace(&mut asked, true) {
                time.push(until, Event::Wake(time.current.get()));
            }
            Poll::Pending
        })
        .await;
    }
}

/// All at the same time, in one task.
pub async fn all<T>(futures: Vec<Doing<'_, T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, result) in &mut futures {
            if let Some(running) = future {
                match running.as_mut().poll(context) {
                    Poll::Ready(value) => (*future, *result) = (None, Some(value)),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, result)| result).collect()
}
