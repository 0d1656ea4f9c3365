//! How often the controller looks at objects, by kind: counted from what it traces. A run has a thread of its own, and so have its counts.

use controller::LOOKS;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

thread_local! {
    static COUNTS: RefCell<BTreeMap<String, usize>> = RefCell::default();
}

pub fn counted() -> BTreeMap<String, usize> {
    COUNTS.with_borrow(Clone::clone)
}

pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    Counter.with_filter(Targets::new().with_target(LOOKS, LevelFilter::TRACE))
}

struct Counter;

impl<S: Subscriber> Layer<S> for Counter {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Work);
    }
}

struct Work;

impl Visit for Work {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "work" {
            COUNTS.with_borrow_mut(|counts| *counts.entry(value.to_owned()).or_default() += 1);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
