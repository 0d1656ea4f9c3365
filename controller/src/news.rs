//! What Dpus and Hardware said when those that rest on them were last woken: an event that changes nothing of it wakes nobody.

use api::dpu::DpuStatus;
use api::tinkerbell::Hardware;
use api::{Dpu, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Records that the controller keeps at a claimed Hardware, and no Dpu is planned by. Any other annotation counts.
const RECORDS: [&str; 11] = [
    labels::BOOT_ORDER_BEFORE,
    labels::DISKS_SEEN,
    labels::ERASE,
    labels::ERASE_POWER,
    labels::ERASE_REPORT,
    labels::ERASE_REQUESTED_AT,
    labels::INSTALL,
    labels::INSTALL_REQUEST,
    labels::LOCAL_DISKS,
    labels::NETBOOT_BY,
    labels::SYSTEM_UUID,
];

#[derive(Default)]
pub struct News {
    dpus: Told<Dpu>,
    hardware: Told<Hardware>,
}

/// What of a Dpu is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfDpu {
    /// At most what the host is given by the machine that has it, which that machine knows.
    Nothing,
    /// The same, but the agent presents nothing any more, or something again: fences rest on it.
    Presented,
    Anything,
}

impl News {
    /// `None`: there is no such Dpu any more.
    pub(crate) fn of_dpu(&self, name: &str, dpu: Option<Arc<Dpu>>) -> OfDpu {
        self.dpus
            .compare(name, dpu, |before, now| {
                if said(&before.metadata, &[]) != said(&now.metadata, &[])
                    || before.spec != now.spec
                    || without_allocatable(before) != without_allocatable(now)
                {
                    return OfDpu::Anything;
                }
                if presents_nothing(before) == presents_nothing(now) { OfDpu::Nothing } else { OfDpu::Presented }
            })
            .unwrap_or(OfDpu::Anything)
    }

    /// The Hardware says what Dpus in it are planned by.
    pub(crate) fn of_hardware(&self, name: &str, hardware: Option<Arc<Hardware>>) -> bool {
        let is_same = |before: &Hardware, now: &Hardware| {
            said(&before.metadata, &RECORDS) == said(&now.metadata, &RECORDS) && before.spec == now.spec
        };
        !self.hardware.compare(name, hardware, is_same).unwrap_or_default()
    }
}

fn without_allocatable(dpu: &Dpu) -> Option<DpuStatus> {
    dpu.status.clone().map(|status| DpuStatus { allocatable: None, ..status })
}

fn presents_nothing(dpu: &Dpu) -> bool {
    dpu.status.as_ref().is_some_and(|status| status.capacity.is_some() && status.capacity == status.allocatable)
}

/// All of the metadata but its version and these annotations.
fn said(meta: &ObjectMeta, without: &[&str]) -> (ObjectMeta, BTreeMap<String, String>) {
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !without.contains(&name.as_str()));
    let meta = ObjectMeta { annotations: None, managed_fields: None, resource_version: None, ..meta.clone() };
    (meta, annotations)
}

/// By name: the object as it was last told of. Shared with the cache.
struct Told<K>(Mutex<HashMap<String, Arc<K>>>);

impl<K> Default for Told<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K> Told<K> {
    /// Of what it said before and what it says now. `None`: it was not there before, or is not there now.
    fn compare<T>(&self, name: &str, now: Option<Arc<K>>, compare: impl FnOnce(&K, &K) -> T) -> Option<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(now) = now else {
            all.remove(name);
            return None;
        };
        let before = all.insert(name.to_owned(), now.clone())?;
        Some(compare(&before, &now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::{DpuCapacity, DpuSpec};

    fn dpu(change: impl FnOnce(&mut DpuStatus)) -> Dpu {
        let mut dpu = Dpu::new("dpu-1", DpuSpec::default());
        change(dpu.status.insert(DpuStatus::default()));
        dpu
    }

    fn capacity(ports: u32) -> Option<DpuCapacity> {
        Some(DpuCapacity { hot_plug_ports: ports, ..DpuCapacity::default() })
    }

    #[test]
    fn a_disk_that_comes_is_no_news_of_a_dpu_and_all_else_is() {
        let news = News::default();
        let of = |dpu: &Dpu| news.of_dpu("dpu-1", Some(Arc::new(dpu.clone())));
        assert_eq!(of(&dpu(|_| {})), OfDpu::Anything, "it is new");
        assert_eq!(of(&dpu(|_| {})), OfDpu::Nothing);
        let with = |allocatable: Option<DpuCapacity>| {
            dpu(|status| (status.capacity, status.allocatable) = (capacity(8), allocatable))
        };
        assert_eq!(of(&with(capacity(8))), OfDpu::Anything, "its capacity");
        assert_eq!(of(&with(capacity(7))), OfDpu::Presented, "its first disk");
        assert_eq!(of(&with(capacity(6))), OfDpu::Nothing, "its second");
        assert_eq!(of(&with(None)), OfDpu::Nothing);
        assert_eq!(of(&with(capacity(8))), OfDpu::Presented, "none any more");
        let mut changed = with(capacity(8));
        changed.metadata.resource_version = Some("7".to_owned());
        assert_eq!(of(&changed), OfDpu::Nothing);
        changed.spec.approved = true;
        assert_eq!(of(&changed), OfDpu::Anything);
        changed.metadata.generation = Some(2);
        assert_eq!(of(&changed), OfDpu::Anything);
        changed.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
        assert_eq!(of(&changed), OfDpu::Anything);
        changed.metadata.annotations = Some([(labels::PAUSED.to_owned(), "true".to_owned())].into());
        assert_eq!(of(&changed), OfDpu::Anything);
        changed.metadata.uid = Some("another".to_owned());
        assert_eq!(of(&changed), OfDpu::Anything, "one that was created anew");
        assert_eq!(news.of_dpu("dpu-1", None), OfDpu::Anything);
        assert_eq!(of(&changed), OfDpu::Anything, "it is there again");
    }

    #[test]
    fn a_record_at_a_hardware_is_no_news_to_dpus_and_a_claim_is() {
        let news = News::default();
        let annotated = |annotations: &[&str]| {
            let mut hardware = Hardware::default();
            let annotations = annotations.iter().map(|name| ((*name).to_owned(), "x".to_owned()));
            hardware.metadata.annotations = Some(annotations.collect());
            hardware
        };
        let is_news = |hardware: Hardware| news.of_hardware("server-1", Some(Arc::new(hardware)));
        assert!(is_news(annotated(&[])));
        assert!(!is_news(annotated(&[])));
        for record in RECORDS {
            assert!(!is_news(annotated(&[record])), "{record}");
        }
        for told in [
            labels::CLAIMED_BY,
            labels::BOOT_STRATEGY,
            labels::BOOT_DISCOVERY,
            labels::BOOT_OPTION,
            labels::BOOT_PATH,
            labels::JOB,
            "of.somebody/else",
        ] {
            assert!(is_news(annotated(&[told])), "{told}");
        }
        let mut mended = annotated(&[labels::CLAIMED_BY]);
        assert!(is_news(mended.clone()));
        mended.spec.agent_id = Some("02:00:00:00:00:0a".to_owned());
        assert!(is_news(mended.clone()));
        mended.metadata.labels = Some([(labels::UNAPPROVED.to_owned(), String::new())].into());
        assert!(is_news(mended.clone()));
        assert!(news.of_hardware("server-1", None), "it was deleted");
        assert!(is_news(mended), "it is there again");
    }
}
