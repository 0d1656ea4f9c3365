//! The API server as tests of `executor` know it: preconditions, merge patches (RFC 7386), finalizers, and what changed in which
//! order. `executor/tests/schedules` puts caches that lag around it, `executor/tests/machines` a world that stands still between
//! two rounds. For tests only: no program depends on it.

mod objects;
mod table;

pub use objects::{Error, Objects, Rests, version};
pub use table::{Kind, Named, Sorted, Table, names};

#[doc(hidden)]
pub use {api, executor, k8s_openapi};
