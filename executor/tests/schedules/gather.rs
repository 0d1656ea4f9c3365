//! What a plan of a machine rests on, out of a leader's caches (controller/src/machine/gather.rs).

use super::leader::{Leader, pod_seen, volume};
use super::rules::Rule;
use api::{BareMetalMachine, Dpu, VolumeHold, labels};
use planner::machine::OrphanOn;
use planner::machine::observed::{Belongings, ClaimSeen, Observed, annotation, label, name, uid};
use std::collections::BTreeSet;
use std::sync::Arc;

/// As if nobody had it.
fn empty(hold: &VolumeHold) -> Arc<VolumeHold> {
    let mut hold = hold.clone();
    hold.spec.holder = None;
    Arc::new(hold)
}

impl Leader {
    pub fn gather(&self, machine: Arc<BareMetalMachine>) -> Observed {
        let spec = &machine.spec;
        let asked = spec.disks.iter().map(|disk| planner::machine::claim_name(&machine, disk)).collect();
        let own = self.belongings(uid(&machine.metadata), &asked);
        let mut o = Observed { machine, own, ..Observed::default() };
        o.bmc = self.bmc(planner::machine::claim::current(&o));
        o
    }

    /// Of the machine with this UID. `asked`: the claims that it names.
    pub fn belongings(&self, own: &str, asked: &BTreeSet<String>) -> Belongings {
        let caches = self.watch.caches.borrow();
        let is_own = |meta| label(meta, labels::MACHINE_UID) == Some(own);
        let held = caches.hardware.all().filter(|h| annotation(&h.metadata, labels::CLAIMED_BY) == Some(own));
        let mut o = Belongings {
            hardware: held.cloned().collect(),
            disk_attachments: caches.disks.all().filter(|d| d.spec.owner.uid == own).cloned().collect(),
            ..Belongings::default()
        };
        let claimed: Vec<String> = o.hardware.iter().map(|h| name(&h.metadata).to_owned()).collect();
        if o.hardware.is_empty() {
            o.hardware = caches.hardware.all().cloned().collect();
            o.policies = vec![self.policy()];
        }
        let near = |dpu: &&Arc<Dpu>| {
            let of_it = dpu.spec.hardware_ref.as_ref().map(|reference| &reference.name);
            claimed.is_empty()
                || of_it.is_some_and(|hardware| claimed.contains(hardware))
                || o.disk_attachments.iter().any(|disk| disk.spec.dpu_name == name(&dpu.metadata))
        };
        o.dpus = caches.dpus.all().filter(near).map(|dpu| self.dpu_seen(dpu)).collect();
        for dpu in caches.dpus.all() {
            let reported = dpu.status.iter().flat_map(|status| status.orphans.clone());
            o.orphans.extend(reported.map(|orphan| OrphanOn { dpu: self.dpu_seen(dpu), orphan }));
        }
        for claim in caches.claims.all() {
            let claim_name = name(&claim.metadata);
            if !asked.contains(claim_name) && !planner::machine::observed::in_use_by(&claim.metadata, own) {
                continue;
            }
            let volume = volume(&self.world, claim_name);
            let of_it = |hold: &&Arc<VolumeHold>| {
                (&hold.spec.driver, &hold.spec.volume_handle) == (&volume.driver, &volume.handle)
            };
            let hold = caches.holds.all().find(of_it);
            o.holds.extend(hold.map(|hold| (name(&hold.metadata).to_owned(), hold.clone())));
            let of_it = |va: &&Arc<k8s_openapi::api::storage::v1::VolumeAttachment>| {
                va.spec.source.persistent_volume_name.as_deref() == Some(&volume.name)
            };
            o.volume_attachments.extend(caches.volume_attachments.all().filter(of_it).cloned());
            let seen = ClaimSeen { claim: claim.clone(), volume: Some(volume), ..ClaimSeen::default() };
            o.claims.insert(claim_name.to_owned(), seen);
        }
        for va in caches.volume_attachments.all().filter(|va| is_own(&va.metadata)) {
            if !o.volume_attachments.iter().any(|known| known.metadata.uid == va.metadata.uid) {
                o.volume_attachments.push(va.clone());
            }
        }
        let held = caches.holds.all().filter(|hold| is_own(&hold.metadata));
        o.holds.extend(held.map(|hold| (name(&hold.metadata).to_owned(), hold.clone())));
        if !self.world.keeps(Rule::HoldIsRespected) {
            let others = o.holds.values_mut().filter(|hold| label(&hold.metadata, labels::MACHINE_UID) != Some(own));
            others.for_each(|hold| *hold = empty(hold));
        }
        o.holder_pods = caches.pods.all().filter(|pod| is_own(&pod.metadata)).map(|pod| pod_seen(pod)).collect();
        o.fences = self.fences.clone();
        o.fence_problems = self.problems.borrow().clone();
        o
    }
}
