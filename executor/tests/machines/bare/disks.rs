//! The server's own disks: whose data are on them, and what an installer tells of them.

use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::erase::{Disk, Outcome, Report};
use planner::machine::observed::annotation;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// It is there whatever happens; others may be hidden.
pub const FIRST: &str = "DISK-1";

/// By their serial numbers.
#[derive(Clone)]
pub struct Disks {
    pub all: Vec<&'static str>,
    /// What an installer does not find.
    pub hidden: BTreeSet<&'static str>,
    /// The UID of the machine that has data there.
    pub dirty: BTreeMap<&'static str, String>,
    /// Who has claimed the server last.
    claimed_by: RefCell<String>,
    /// Nobody has claimed the Hardware since it was registered anew: nothing was given back.
    anew: Cell<bool>,
}

impl Disks {
    pub fn new() -> Self {
        Self {
            all: vec![FIRST, "DISK-2"],
            hidden: BTreeSet::new(),
            dirty: BTreeMap::new(),
            claimed_by: RefCell::default(),
            anew: Cell::new(false),
        }
    }

    fn there(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().copied().filter(|disk| !self.hidden.contains(disk))
    }

    pub fn written_by(&mut self, machine: &str) {
        let there: Vec<_> = self.there().collect();
        self.dirty.extend(there.into_iter().map(|disk| (disk, machine.to_owned())));
    }

    pub fn erased(&mut self) {
        self.dirty.retain(|disk, _| self.hidden.contains(disk));
    }

    pub fn registered_anew(&self) {
        self.anew.set(true);
    }

    /// As the installer reports each disk that it finds.
    pub fn told(&self, result: Outcome) -> String {
        let erased = result == Outcome::Erased;
        let line = |serial: &str| {
            Disk {
                name: serial.to_lowercase(),
                serial: serial.to_owned(),
                wwid: String::new(),
                bytes: 1 << 30,
                result,
                method: erased.then(|| "Overwrite".to_owned()),
                read: erased.then(|| "all of it is zero".to_owned()),
                seconds: None,
                why: (result == Outcome::Failed).then(|| "medium error".to_owned()),
            }
            .line()
        };
        self.there().map(line).collect::<Vec<_>>().join("\n")
    }

    /// After each request, while the policy says Erase: nothing of the machine that had the server last is on a server that is free,
    /// unless an administrator took it so.
    pub fn check(&self, hardware: &ObjectMeta) {
        if let Some(by) = annotation(hardware, labels::CLAIMED_BY) {
            self.claimed_by.replace(by.to_owned());
            return self.anew.set(false);
        }
        let with_data = Report::of(hardware).is_some_and(|report| report.result == "WithData");
        let left: Vec<_> = self.dirty.iter().filter(|(_, by)| **by == *self.claimed_by.borrow()).collect();
        assert!(self.anew.get() || with_data || left.is_empty(), "given back with data: {left:?}");
    }
}
