//! Why a pattern is not read.

pub(super) enum Fault {
    /// Go refuses it too.
    Invalid,
    /// Go has it: what it is.
    NotServed(String),
}
