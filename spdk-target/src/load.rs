//! Operations on one bdev: as many at once as was asked for, each replaced by the next when it is done.
//!
//! All of it is on SPDK's app thread. A poller looks at the clock and decides when it is over; the bdev is closed when the
//! last operation has come back.

use crate::args::{Io as Asked, Spdk};
use crate::report::Report;
use crate::serve;
use crate::work::Work;
use anyhow::{Context, Result};
use spdk_sys::{Access, App, Bdev, Buffer, Direction, Done, Io};
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Caches and queues fill up first.
const WARM_UP: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);
/// An operation that takes longer never comes back.
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome = Rc<RefCell<Option<Result<Report>>>>;

pub(crate) fn run(spdk: Spdk, asked: Asked) -> Result<()> {
    let outcome = Outcome::default();
    let told = Rc::clone(&outcome);
    let options = serve::options(spdk, "spdk-target-io");
    serve::start(&options, move |app| {
        if let Err(error) = Load::start(app, asked, &told) {
            *told.borrow_mut() = Some(Err(error));
            app.end();
        }
    })?;
    let report = outcome.take().context("it was ended before it was done")??;
    println!("{}", serde_json::to_string(&report)?);
    report.check()
}

struct Load {
    asked: Asked,
    bdev: Bdev,
    work: RefCell<Work>,
    on_their_way: Cell<u16>,
    done: Cell<u64>,
    /// When the last one was done that counts, and the longest time between two.
    last_done: Cell<Option<Instant>>,
    longest_pause: Cell<Duration>,
    failed: Cell<u64>,
    wrong: Cell<u64>,
    is_over: Cell<bool>,
}

impl Load {
    fn start(app: App, asked: Asked, told: &Outcome) -> Result<()> {
        let access = if asked.workload.writes() { Access::ReadWrite } else { Access::ReadOnly };
        let bdev = Bdev::open(app, &asked.bdev, access)?;
        let size = bdev.size_bytes();
        let work = Work::new(asked.workload, asked.io_size, size, asked.seed);
        let work = work.with_context(|| format!("the bdev {} has {size} bytes only", asked.bdev))?;
        let load = Rc::new(Self {
            work: RefCell::new(work),
            bdev,
            on_their_way: Cell::default(),
            done: Cell::default(),
            last_done: Cell::default(),
            longest_pause: Cell::default(),
            failed: Cell::default(),
            wrong: Cell::default(),
            is_over: Cell::default(),
            asked,
        });
        for _ in 0..load.asked.queue_depth {
            let alignment = load.bdev.alignment().max(4096);
            let buffer = Buffer::new(app, load.asked.io_size as usize, alignment)?;
            load.next(Io::new(buffer))?;
        }
        let mut clock = Clock::new(Instant::now());
        let told = Rc::clone(told);
        app.every(LOOK, move || {
            let Some(outcome) = clock.look(&load) else { return ControlFlow::Continue(()) };
            *told.borrow_mut() = Some(outcome);
            app.end();
            ControlFlow::Break(())
        })?;
        Ok(())
    }

    /// Does nothing when it is over.
    fn next(self: &Rc<Self>, mut io: Box<Io>) -> Result<(), spdk_sys::Error> {
        if self.is_over.get() || self.bdev.is_leaving() {
            return Ok(());
        }
        let mut work = self.work.borrow_mut();
        let Some(offset) = work.next_offset() else {
            self.is_over.set(true);
            return Ok(());
        };
        work.fill(offset, &mut io.buffer);
        io.direction = if self.asked.workload.writes() { Direction::Write } else { Direction::Read };
        io.offset = offset;
        drop(work);
        let then: Rc<dyn Done> = Rc::<Self>::clone(self);
        self.bdev.submit(io, then)?;
        self.on_their_way.set(self.on_their_way.get() + 1);
        Ok(())
    }

    fn fail(&self) {
        self.failed.set(self.failed.get() + 1);
        self.is_over.set(true);
    }
}

impl Done for Load {
    fn done(self: Rc<Self>, io: Box<Io>, succeeded: bool) {
        self.on_their_way.set(self.on_their_way.get() - 1);
        if !succeeded {
            return self.fail();
        }
        self.done.set(self.done.get() + 1);
        if let Some(before) = self.last_done.get() {
            let now = Instant::now();
            self.longest_pause.set(self.longest_pause.get().max(now - before));
            self.last_done.set(Some(now));
        }
        if !self.work.borrow().is_right(io.offset, &io.buffer) {
            self.wrong.set(self.wrong.get() + 1);
        }
        if let Err(error) = self.next(io) {
            eprintln!("spdk-target: {error}");
            self.fail();
        }
    }
}

/// When it is over, and what was measured until then.
struct Clock {
    began: Instant,
    /// Behind the warm-up: when, and how many were done by then.
    from: Option<(Instant, u64)>,
    measured: Option<(Duration, u64)>,
    moved: (Instant, u64),
}

impl Clock {
    fn new(now: Instant) -> Self {
        Self { began: now, from: None, measured: None, moved: (now, 0) }
    }

    /// `None`: it goes on.
    fn look(&mut self, load: &Load) -> Option<Result<Report>> {
        let (now, done) = (Instant::now(), load.done.get());
        let is_finite = load.work.borrow().is_finite();
        if self.from.is_none() && (is_finite || now - self.began >= WARM_UP) {
            // What is finite is measured from its start.
            self.from = Some(if is_finite { (self.began, 0) } else { (now, done) });
            load.last_done.set(Some(now));
        }
        let (from, before) = self.from?;
        let is_late = !is_finite && now - from >= Duration::from_secs(load.asked.seconds.into());
        if is_late || load.bdev.is_leaving() {
            load.is_over.set(true);
        }
        if load.is_over.get() && self.measured.is_none() && (!is_finite || load.on_their_way.get() == 0) {
            self.measured = Some((now - from, done - before));
            load.last_done.set(None);
        }
        if load.on_their_way.get() == 0 && load.is_over.get() {
            return self.measured.map(|measured| Ok(load.report(measured)));
        }
        if done != self.moved.1 {
            self.moved = (now, done);
        } else if now - self.moved.0 > PATIENCE {
            // The bdev cannot be closed, so SPDK cannot end.
            eprintln!("spdk-target: no operation was done in {PATIENCE:?}; {} are not back", load.on_their_way.get());
            std::process::exit(1);
        }
        None
    }
}

impl Load {
    fn report(&self, (time, operations): (Duration, u64)) -> Report {
        let seconds = time.as_secs_f64();
        Report {
            workload: self.asked.workload,
            io_size_bytes: self.asked.io_size,
            queue_depth: self.asked.queue_depth,
            seconds,
            operations,
            operations_per_second: operations as f64 / seconds.max(f64::MIN_POSITIVE),
            longest_pause_milliseconds: self.longest_pause.get().as_secs_f64() * 1000.0,
            failed: self.failed.get(),
            wrong: self.wrong.get(),
        }
    }
}
