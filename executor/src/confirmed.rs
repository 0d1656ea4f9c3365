//! Which machines were read from quorum, and how much a process had seen the end of by then.
//!
//! A plan creates what it does not find. A copy of machines that is behind the others must not make it create anew what a user
//! has just deleted, so the machine is read from quorum after that was not found ([`crate::act`]). That reading holds on for as
//! long as no copy of the process has told of an end since it was asked for: what is not found now was not there at that time
//! either. And a machine with a later generation than that which was read is known from an even later time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::meta::uid;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct Confirmed {
    /// By the machine's UID.
    read: Mutex<HashMap<String, Reading>>,
}

#[derive(Debug)]
struct Reading {
    generation: Option<i64>,
    ended: u64,
}

impl Confirmed {
    /// `ended`: how many ends the process's copies had told of before the machine was asked for.
    pub fn note(&self, machine: &ObjectMeta, ended: u64) {
        let mut all = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Ends only become more: the others never hold again.
        all.retain(|_, reading| reading.ended == ended);
        all.insert(uid(machine).to_owned(), Reading { generation: machine.generation, ended });
    }

    /// What is planned for this machine may be carried out; `ended`: now, after all that the plan rests on was looked up.
    pub fn holds(&self, planned: &ObjectMeta, ended: u64) -> bool {
        let all = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |reading: &Reading| reading.ended == ended && planned.generation >= reading.generation;
        all.get(uid(planned)).is_some_and(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_owned()), generation: Some(generation), ..ObjectMeta::default() }
    }

    #[test]
    fn a_reading_holds_until_something_ends() {
        let confirmed = Confirmed::default();
        assert!(!confirmed.holds(&machine("m", 1), 0), "it was never read");
        confirmed.note(&machine("m", 2), 7);
        assert!(confirmed.holds(&machine("m", 2), 7) && confirmed.holds(&machine("m", 3), 7));
        assert!(!confirmed.holds(&machine("m", 1), 7), "what is planned is older than what was read");
        assert!(!confirmed.holds(&machine("m", 2), 8), "something has ended since");
        assert!(!confirmed.holds(&machine("n", 2), 7), "another machine under its name");
        confirmed.note(&machine("n", 1), 8);
        assert!(confirmed.holds(&machine("n", 1), 8) && confirmed.read.lock().expect("whole").len() == 1);
    }
}
