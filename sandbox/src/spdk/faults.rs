//! What goes wrong with a target, and when.

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The target is killed when the request arrives; a new, empty one answers the next connection.
    KilledBefore,
    /// It is killed after the request took effect.
    KilledAfter,
    /// The connection ends, and the request had no effect.
    LostBefore,
    /// The connection ends after the request took effect.
    LostAfter,
    Refused {
        code: i64,
        message: String,
    },
}

impl Fault {
    /// One of each kind.
    pub fn all() -> Vec<Fault> {
        let refused = |code, message: &str| Fault::Refused { code, message: message.to_owned() };
        vec![
            Fault::KilledBefore,
            Fault::KilledAfter,
            Fault::LostBefore,
            Fault::LostAfter,
            refused(-12, "Cannot allocate memory"),
            refused(-16, "Device or resource busy"),
            refused(-28, "No space left on device"),
            refused(super::INVALID_PARAMS, "Invalid parameters"),
            refused(super::INTERNAL_ERROR, "Internal error"),
        ]
    }
}

/// By the number of the call, and what lasts.
#[derive(Debug, Default)]
pub struct Faults {
    calls: Vec<String>,
    at: BTreeMap<usize, Fault>,
    /// By the method.
    lasting: BTreeMap<String, Fault>,
}

impl Faults {
    pub fn inject(&mut self, call: usize, fault: Fault) {
        self.at.insert(self.calls.len() + call, fault);
    }

    /// Every call of that method, until all is forgotten.
    pub fn inject_for(&mut self, method: &str, fault: Fault) {
        self.lasting.insert(method.to_owned(), fault);
    }

    pub fn is_empty(&self) -> bool {
        self.at.is_empty() && self.lasting.is_empty()
    }

    pub fn clear(&mut self) {
        self.at.clear();
        self.lasting.clear();
    }

    pub fn calls(&self) -> &[String] {
        &self.calls
    }

    /// Counts a call; what befalls it.
    pub fn next(&mut self, method: &str) -> Option<Fault> {
        let number = self.calls.len();
        self.calls.push(method.to_owned());
        self.at.remove(&number).or_else(|| self.lasting.get(method).cloned())
    }
}
