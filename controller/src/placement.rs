//! Who looks for a server, which one each of them is about to claim, and what of the inventory they were woken for.
//!
//! Of a thousand machines that come at once, each changes the inventory several times, and nearly all of it concerns servers that
//! others have: a machine without a server is looked at again for what may give it one.

use api::HardwareReport;
use api::tinkerbell::Hardware;
use api::tinkerbell::attributes::BlockDevice;
use runtime::queue::Key;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct Placement {
    /// Machines without a server, in one order: a run of the simulation depends on its seed alone.
    waiting: Mutex<BTreeSet<Key>>,
    /// By the name of the Hardware: who is about to claim it.
    taken: Mutex<HashMap<String, Taker>>,
    /// By name: the block devices that each HardwareReport told of when those who look for a server were last woken for it.
    disks: Mutex<HashMap<String, Vec<BlockDevice>>>,
    /// By name: the MAC addresses that each Hardware had then.
    macs: Mutex<HashMap<String, Vec<String>>>,
}

struct Taker {
    machine: Key,
    /// Another machine would have tried this server.
    stands_in_the_way: bool,
}

impl Placement {
    /// This machine has no server. Said before the inventory is read: what changes from then on wakes it.
    pub(crate) fn looks(&self, machine: &Key) {
        lock(&self.waiting).insert(machine.clone());
    }

    /// It has one, or no longer exists.
    pub(crate) fn ended(&self, machine: &Key) {
        lock(&self.waiting).remove(machine);
    }

    /// Which other machine is about to claim this server. The claim decides; by this no two try the same one.
    pub(crate) fn taken_by_other(&self, hardware: &str, machine: &Key) -> Option<Key> {
        let mut taken = lock(&self.taken);
        let taker = taken.get_mut(hardware).filter(|taker| taker.machine != *machine)?;
        taker.stands_in_the_way = true;
        Some(taker.machine.clone())
    }

    /// This machine is about to claim that server. `false`: another one is.
    pub(crate) fn take(&self, hardware: &str, machine: &Key) -> bool {
        let mut taken = lock(&self.taken);
        if let Some(taker) = taken.get_mut(hardware) {
            taker.stands_in_the_way = true;
            return false;
        }
        taken.insert(hardware.to_owned(), Taker { machine: machine.clone(), stands_in_the_way: false });
        true
    }

    /// It has claimed the server, or does not. `true`: another machine would have tried it.
    pub(crate) fn give_up(&self, hardware: &str) -> bool {
        lock(&self.taken).remove(hardware).is_some_and(|taker| taker.stands_in_the_way)
    }

    pub(crate) fn waiting(&self) -> Vec<Key> {
        lock(&self.waiting).iter().cloned().collect()
    }

    /// The local disks of this server are others than they were, to those who look for one: its report changes with every stage of a boot,
    /// and what it tells of them hardly ever.
    pub(crate) fn are_news_of_disks(&self, name: &str, report: Option<&HardwareReport>) -> bool {
        let attributes = report.and_then(|report| report.status.as_ref()?.attributes.as_ref());
        let told = attributes.map(|attributes| attributes.block_devices.clone());
        news(&self.disks, name, told.filter(|disks| !disks.is_empty()))
    }

    /// The same of the MAC addresses of a Hardware: a server that nobody has claimed cannot be installed while another one has its.
    pub(crate) fn are_news_of_macs(&self, name: &str, hardware: Option<&Hardware>) -> bool {
        let interfaces = hardware.into_iter().flat_map(|hardware| &hardware.spec.interfaces);
        let macs = interfaces.filter_map(|interface| interface.dhcp.as_ref()?.mac.as_ref());
        let macs: Vec<String> = macs.map(|mac| mac.to_ascii_lowercase()).collect();
        news(&self.macs, name, (!macs.is_empty()).then_some(macs))
    }
}

/// What the object of this name says differs from what it said before. `None`: nothing, or there is no such object.
fn news<T: PartialEq>(all: &Mutex<HashMap<String, T>>, name: &str, said: Option<T>) -> bool {
    let mut all = lock(all);
    match said {
        Some(said) if all.get(name) == Some(&said) => false,
        Some(said) => {
            all.insert(name.to_owned(), said);
            true
        }
        None => all.remove(name).is_some(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::report::{HardwareReportSpec, HardwareReportStatus};

    #[test]
    fn a_stage_of_a_boot_is_no_news_to_those_who_look_for_a_server_and_a_disk_is() {
        let placement = Placement::default();
        let report = |change: &dyn Fn(&mut HardwareReportStatus)| {
            let mut report = HardwareReport::new("server-1", HardwareReportSpec::default());
            change(report.status.insert(HardwareReportStatus::default()));
            report
        };
        let are_news = |report: &HardwareReport| placement.are_news_of_disks("server-1", Some(report));
        let size = |size: &str| {
            let disk = BlockDevice { size: Some(size.to_owned()), ..BlockDevice::default() };
            report(&|status| status.attributes.get_or_insert_default().block_devices = vec![disk.clone()])
        };
        assert!(!are_news(&report(&|status| status.agent_id = Some("a".to_owned()))));
        assert!(are_news(&size("1")));
        assert!(!are_news(&size("1")));
        assert!(are_news(&size("2")));
        assert!(placement.are_news_of_disks("server-1", None), "it was deleted");
        assert!(!placement.are_news_of_disks("server-1", None));
    }

    #[test]
    fn a_mac_address_is_news_to_those_who_look_for_a_server_in_whatever_case_it_is_written() {
        let placement = Placement::default();
        let hardware = |macs: &[&str]| {
            let interfaces: Vec<_> = macs.iter().map(|mac| serde_json::json!({"dhcp": {"mac": mac}})).collect();
            let object = serde_json::json!({"metadata": {"name": "server-1"}, "spec": {"interfaces": interfaces}});
            serde_json::from_value::<Hardware>(object).expect("a Hardware")
        };
        let are_news = |macs: &[&str]| placement.are_news_of_macs("server-1", Some(&hardware(macs)));
        assert!(!are_news(&[]));
        assert!(are_news(&["02:00:00:00:00:0a"]));
        assert!(!are_news(&["02:00:00:00:00:0A"]));
        assert!(are_news(&["02:00:00:00:00:0a", "02:00:00:00:00:0b"]));
        assert!(placement.are_news_of_macs("server-1", None), "it was deleted");
        assert!(!placement.are_news_of_macs("server-1", None));
    }

    #[test]
    fn who_waits_is_woken_until_that_has_ended() {
        let (placement, machine) = (Placement::default(), ("team-a".to_owned(), "bm-01".to_owned()));
        placement.looks(&machine);
        assert_eq!(placement.waiting(), std::slice::from_ref(&machine));
        placement.ended(&machine);
        assert!(placement.waiting().is_empty());
    }
}
