//! What the programs log, to whoever listens in a run.

use std::fmt::{Debug, Write};
use tests::sim::secrets;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// What of Metalplane runs in the simulation.
const PROGRAMS: [&str; 7] = ["controller", "boot", "dpu_agent", "installer", "executor", "planner", "runtime"];

pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let ours = Targets::new().with_targets(PROGRAMS.map(|program| (program, LevelFilter::DEBUG)));
    Lines.with_filter(ours)
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        secrets::logged(|log| event.record(&mut Line(log)));
    }
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // A String takes whatever is written to it.
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
