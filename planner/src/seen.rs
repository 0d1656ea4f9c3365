//! Unreachable is an observation, never an early return that skips the status.

use jiff::Timestamp;

/// What we know of something outside, and how well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Seen<T> {
    /// Read in this round.
    Fresh(T),
    /// Read earlier; `since` is when it was last read.
    Stale { value: T, since: Timestamp },
    /// Never read, or the read failed and nothing is remembered.
    #[default]
    Unknown,
}

impl<T> Seen<T> {
    /// The value, only if it was read in this round: what a disruptive action may rest on.
    pub fn fresh(&self) -> Option<&T> {
        match self {
            Self::Fresh(value) => Some(value),
            Self::Stale { .. } | Self::Unknown => None,
        }
    }

    /// The value however old: what may be shown to a user.
    pub fn last(&self) -> Option<&T> {
        match self {
            Self::Fresh(value) | Self::Stale { value, .. } => Some(value),
            Self::Unknown => None,
        }
    }
}
