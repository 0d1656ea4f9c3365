//! Carries plans out in the model, with the preconditions that the controller's writes have: what an action was planned on
//! (`seen`) must still be so.

use super::world::{World, server_of};
use crate::host::{BootChange, PowerAction, PowerState};
use crate::machine::observed::{Observed, annotation, name, uid};
use crate::machine::plan::{Action, CreateVolumeAttachment, PowerOrder, Target};
use crate::machine::{Disruptive, Plan};
use api::attachment::Grant;
use api::conditions::{self, ConditionStatus};
use api::hold::VolumeHoldSpec;
use api::network::Programmed;
use api::{MachineMigration, VolumeHold, labels};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

#[derive(Debug)]
pub struct Conflict;

type Done = Result<(), Conflict>;

fn same(meta: &ObjectMeta, target: &Target) -> Done {
    if uid(meta) == target.uid { Ok(()) } else { Err(Conflict) }
}

fn version(seen: Option<&ObjectMeta>, there: &ObjectMeta) -> Done {
    let seen = seen.ok_or(Conflict)?;
    if seen.uid == there.uid && seen.resource_version == there.resource_version { Ok(()) } else { Err(Conflict) }
}

impl World {
    /// Everything of a plan, or the first `limit` actions of it: a crash. Power only after the status was written.
    pub fn carry_out(&mut self, machine: &str, seen: &Observed, plan: &Plan, limit: usize) {
        for action in plan.actions.iter().take(limit) {
            // A conflict is no error: the next round looks again.
            let _ = self.act(machine, seen, action);
        }
        if limit <= plan.actions.len() {
            return;
        }
        let written = self.write_status(machine, seen, plan).is_ok();
        if let (true, true, Some(disruptive)) = (written, plan.actions.is_empty(), &plan.disruptive) {
            self.disrupt(seen, disruptive);
        }
    }

    fn write_status(&mut self, machine: &str, seen: &Observed, plan: &Plan) -> Done {
        let mut there = self.machines.get(machine).cloned().ok_or(Conflict)?;
        version(Some(&seen.machine.metadata), &there.metadata)?;
        if there.status.as_ref() != Some(&plan.status) {
            there.status = Some(plan.status.clone());
            self.touch(&mut there.metadata);
            self.machines.insert(machine.to_owned(), there);
        }
        Ok(())
    }

    fn disrupt(&mut self, seen: &Observed, disruptive: &Disruptive) {
        let own = seen.uid();
        // Right before a command the claim is read again.
        let held = crate::machine::claim::current(seen).and_then(|h| self.hardware.get(name(&h.metadata)));
        let held = held.filter(|h| annotation(&h.metadata, labels::CLAIMED_BY) == Some(own));
        let Some(hardware) = held.map(|h| name(&h.metadata).to_owned()) else { return };
        let now = self.now;
        let server = self.server(&server_of(&hardware));
        if !server.bmc_answers {
            return;
        }
        match disruptive {
            Disruptive::ConfigureBoot(BootChange::First { reference }) => {
                server.boot.retain(|other| other != reference);
                server.boot.insert(0, reference.clone());
            }
            Disruptive::ConfigureBoot(BootChange::Restore { order }) => server.boot.clone_from(order),
            Disruptive::ConfigureBoot(change) => panic!("{change:?} was planned"),
            Disruptive::Power(PowerOrder { action, .. }) => {
                server.accepted_at = Some(now);
                match (action, server.power) {
                    (PowerAction::On, PowerState::Off) => {
                        server.pending = Some(PowerState::On);
                        server.power_ons += 1;
                    }
                    (PowerAction::SoftOff | PowerAction::ForceOff, PowerState::On) => {
                        server.pending = Some(PowerState::Off)
                    }
                    (PowerAction::WarmReset, PowerState::On) => {
                        server.resets += 1;
                        server.guest_since = Some(now);
                    }
                    _ => {}
                }
            }
        }
    }

    fn finalizer(&mut self, machine: &str, seen: &Observed, present: bool) -> Done {
        let mut there = self.machines.get(machine).cloned().ok_or(Conflict)?;
        version(Some(&seen.machine.metadata), &there.metadata)?;
        there.metadata.finalizers = present.then(|| vec![labels::FINALIZER_MACHINE.to_owned()]);
        if !present {
            self.machines.remove(machine);
            return Ok(());
        }
        self.touch(&mut there.metadata);
        self.machines.insert(machine.to_owned(), there);
        Ok(())
    }

    fn hardware(&mut self, hardware: &str, change: impl Fn(&mut std::collections::BTreeMap<String, String>)) -> Done {
        let mut there = self.hardware.get(hardware).cloned().ok_or(Conflict)?;
        change(there.metadata.annotations.get_or_insert_default());
        self.touch(&mut there.metadata);
        self.hardware.insert(hardware.to_owned(), there);
        Ok(())
    }

    fn mark(&mut self, meta: &mut ObjectMeta, machine: &str, present: Option<&str>) {
        let mark = format!("{}{machine}", labels::IN_USE_BY);
        let annotations = meta.annotations.get_or_insert_default();
        match present {
            Some(value) => annotations.insert(mark, value.to_owned()),
            None => annotations.remove(&mark),
        };
        let used = annotations.keys().any(|key| key.starts_with(labels::IN_USE_BY));
        meta.finalizers = used.then(|| vec![labels::FINALIZER_IN_USE.to_owned()]);
        self.touch(meta);
    }

    fn claim(&mut self, seen: &Observed, target: &Target, present: bool) -> Done {
        let mut claim = self.claims.get(&target.name).cloned().ok_or(Conflict)?;
        version(seen.claims.get(&target.name).map(|seen| &seen.claim.metadata), &claim.metadata)?;
        self.mark(&mut claim.metadata, seen.uid(), present.then_some(""));
        self.claims.insert(target.name.clone(), claim);
        Ok(())
    }

    fn disk(&mut self, target: &Target, change: impl Fn(&mut api::DiskAttachment)) -> Done {
        let key = (target.namespace.clone(), target.name.clone());
        let mut disk = self.disks.get(&key).cloned().ok_or(Conflict)?;
        same(&disk.metadata, target)?;
        change(&mut disk);
        self.touch(&mut disk.metadata);
        self.disks.insert(key, disk);
        Ok(())
    }

    fn nic(&mut self, target: &Target, change: impl Fn(&mut api::NicAttachment)) -> Done {
        let key = (target.namespace.clone(), target.name.clone());
        let mut nic = self.nics.get(&key).cloned().ok_or(Conflict)?;
        same(&nic.metadata, target)?;
        change(&mut nic);
        self.touch(&mut nic.metadata);
        self.nics.insert(key, nic);
        Ok(())
    }

    fn vnic(&mut self, seen: &Observed, target: &Target, change: impl Fn(&mut api::VNic)) -> Done {
        let mut vnic = self.vnics.get(&target.name).cloned().ok_or(Conflict)?;
        version(seen.vnics.get(&target.name).map(|seen| &seen.metadata), &vnic.metadata)?;
        change(&mut vnic);
        self.touch(&mut vnic.metadata);
        self.vnics.insert(target.name.clone(), vnic);
        Ok(())
    }

    pub fn act(&mut self, machine: &str, seen: &Observed, action: &Action) -> Done {
        if crate::machine::needs_fresh_machine(action) {
            let there = self.machines.get(machine).ok_or(Conflict)?;
            crate::machine::asks_for(&seen.machine, there, action).map_err(|_| Conflict)?;
        }
        match action {
            Action::AddMachineFinalizer => self.finalizer(machine, seen, true),
            Action::RemoveMachineFinalizer => self.finalizer(machine, seen, false),
            Action::ClaimHardware { name, resource_version, .. } => {
                if self.hardware[name].metadata.resource_version.as_ref() != Some(resource_version) {
                    return Err(Conflict);
                }
                let own = seen.uid().to_owned();
                self.hardware(name, |annotations| drop(annotations.insert(labels::CLAIMED_BY.into(), own.clone())))
            }
            Action::RememberBootPath { name, path } => self.hardware(name, |annotations| match path {
                Some(path) => drop(annotations.insert(labels::BOOT_PATH.into(), path.clone())),
                None => drop(annotations.remove(labels::BOOT_PATH)),
            }),
            Action::RememberBootOrder { name, order } => self.hardware(name, |annotations| {
                annotations.entry(labels::BOOT_ORDER_BEFORE.into()).or_insert_with(|| order.clone());
            }),
            Action::UnclaimHardware { name } => {
                if annotation(&self.hardware[name].metadata, labels::CLAIMED_BY) != Some(seen.uid()) {
                    return Err(Conflict);
                }
                self.hardware(name, |annotations| annotations.clear())
            }
            Action::MoveOn { from, to } => {
                if annotation(&self.hardware[to].metadata, labels::CLAIMED_BY) != Some(seen.uid()) {
                    return Err(Conflict);
                }
                self.hardware(from, |annotations| annotations.clear())
            }
            Action::CreateClaim(claim) => {
                let claim_name = name(&claim.metadata).to_owned();
                if self.claims.contains_key(&claim_name) {
                    return Err(Conflict);
                }
                let claim = self.new_claim(&claim_name, Some(claim));
                self.claims.insert(claim_name, claim);
                Ok(())
            }
            Action::SelectNode(select) => {
                let claim = self.claims.get_mut(&select.target.name).ok_or(Conflict)?;
                let annotations = claim.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::SELECTED_NODE.into(), select.node.clone());
                annotations.insert(labels::NODE_SELECTED_AT.into(), select.at.to_string());
                Ok(())
            }
            Action::ModifyClaim { target, class } => {
                let claim = self.claims.get_mut(&target.name).filter(|claim| uid(&claim.metadata) == target.uid);
                let spec = claim.ok_or(Conflict)?.spec.get_or_insert_default();
                spec.volume_attributes_class_name = Some(class.clone());
                Ok(())
            }
            Action::ProtectClaim { target } => self.claim(seen, target, true),
            Action::UnprotectClaim { target, .. } => self.claim(seen, target, false),
            Action::DeleteClaim { target } => {
                let claim = self.claims.get(&target.name).ok_or(Conflict)?;
                same(&claim.metadata, target)?;
                let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
                assert!(claim.metadata.finalizers.is_none(), "a claim in use is deleted");
                assert!(self.presented_by(&volume).is_empty(), "a claim that is presented is deleted");
                self.claims.remove(&target.name);
                Ok(())
            }
            _ => self.act_on_parts(seen, action),
        }
    }

    fn act_on_parts(&mut self, seen: &Observed, action: &Action) -> Done {
        match action {
            Action::CreateDiskAttachment(attachment) => {
                let mut attachment = (**attachment).clone();
                let own = self.meta(attachment.metadata.namespace.as_deref().unwrap_or(""), name(&attachment.metadata));
                let finalizers = attachment.metadata.finalizers.take();
                attachment.metadata = ObjectMeta { labels: attachment.metadata.labels.take(), finalizers, ..own };
                let namespace = attachment.metadata.namespace.clone().unwrap_or_default();
                let key = (namespace, name(&attachment.metadata).to_owned());
                if self.disks.contains_key(&key) {
                    return Err(Conflict);
                }
                self.disks.insert(key, attachment);
                Ok(())
            }
            Action::CreateNicAttachment(attachment) => {
                let mut attachment = (**attachment).clone();
                let own = self.meta(attachment.metadata.namespace.as_deref().unwrap_or(""), name(&attachment.metadata));
                attachment.metadata = ObjectMeta { labels: attachment.metadata.labels.take(), ..own };
                let namespace = attachment.metadata.namespace.clone().unwrap_or_default();
                let key = (namespace, name(&attachment.metadata).to_owned());
                if self.nics.contains_key(&key) {
                    return Err(Conflict);
                }
                self.nics.insert(key, attachment);
                Ok(())
            }
            Action::TakeHold(take) => self.take_hold(seen, take),
            Action::CreateVolumeAttachment(create) => self.create_volume_attachment(seen, create),
            Action::CreateHolderPod(pod) => self.create_holder_pod(pod),
            Action::DeleteHolderPod { target, node_is_down } => self.delete_holder_pod(target, *node_is_down),
            Action::GrantDisk { target, epoch, holder_pod_uid, .. } => self.disk(target, |disk| {
                if disk.metadata.deletion_timestamp.is_none() {
                    disk.spec.grant.get_or_insert(Grant { epoch: *epoch });
                    disk.spec.holder_pod_uid = disk.spec.holder_pod_uid.take().or_else(|| holder_pod_uid.clone());
                }
            }),
            Action::LimitDisk { target, limits } => self.disk(target, |disk| {
                disk.spec.qos = (!limits.is_empty()).then_some(*limits);
            }),
            Action::ReleaseDisk { target } => {
                let now = self.now;
                self.disk(target, |disk| {
                    disk.spec.release = true;
                    disk.metadata.deletion_timestamp.get_or_insert(Time(now));
                })
            }
            Action::AbandonDisk { target, hold, fence } => {
                self.disk(target, |_| {})?;
                if let (Some(hold), Some(fence)) = (hold.as_ref().and_then(|hold| self.holds.get_mut(hold)), fence) {
                    hold.spec.fences.push(fence.clone());
                }
                self.disks.remove(&(target.namespace.clone(), target.name.clone()));
                Ok(())
            }
            Action::FenceDisk { target, hold, order } => {
                self.disk(target, |_| {})?;
                self.fenced.insert(target.uid.clone());
                let hold = self.holds.get_mut(hold).ok_or(Conflict)?;
                hold.spec.fences.push(order.record.clone());
                self.disks.remove(&(target.namespace.clone(), target.name.clone()));
                Ok(())
            }
            Action::FreeVolume { hold, holder, volume_attachment, holder_pod, fence } => {
                let mut there = self.holds.get(hold).cloned().ok_or(Conflict)?;
                let key = (holder.attachment_namespace.clone(), holder.attachment_name.clone());
                let still = self.disks.get(&key).is_some_and(|d| uid(&d.metadata) == holder.attachment_uid);
                if still || there.spec.holder.as_ref() != Some(holder) {
                    return Err(Conflict);
                }
                self.volume_attachments.remove(volume_attachment);
                if let (Some(fence), Some(hold)) = (fence, self.holds.get_mut(hold)) {
                    hold.spec.fences.push(fence.clone());
                    there = hold.clone();
                }
                if let Some(pod) = holder_pod {
                    let fenced = there.spec.fences.iter().any(|f| f.attachment_uid == holder.attachment_uid);
                    self.end_holder_pod(pod, fenced)?;
                }
                there.spec.holder = None;
                self.touch(&mut there.metadata);
                self.holds.insert(hold.clone(), there);
                Ok(())
            }
            Action::DeleteVolumeAttachment { name } => {
                self.volume_attachments.remove(name);
                Ok(())
            }
            other => self.act_on_nics(seen, other),
        }
    }

    fn create_volume_attachment(&mut self, seen: &Observed, create: &CreateVolumeAttachment) -> Done {
        let metadata = ObjectMeta {
            labels: Some([(labels::MACHINE_UID.to_owned(), seen.uid().to_owned())].into()),
            ..self.meta("", &create.name)
        };
        let source = VolumeAttachmentSource {
            persistent_volume_name: Some(create.persistent_volume_name.clone()),
            ..VolumeAttachmentSource::default()
        };
        let spec =
            VolumeAttachmentSpec { attacher: labels::NATIVE_ATTACHER.into(), node_name: create.node.clone(), source };
        self.volume_attachments.insert(create.name.clone(), VolumeAttachment { metadata, spec, status: None });
        Ok(())
    }

    fn act_on_nics(&mut self, seen: &Observed, action: &Action) -> Done {
        match action {
            Action::CreateVNic(vnic) => {
                let mut vnic = (**vnic).clone();
                let own = self.meta("team", name(&vnic.metadata));
                vnic.metadata = ObjectMeta { labels: vnic.metadata.labels.take(), ..own };
                // What the controller does beside: `crate::network`.
                let status = vnic.status.get_or_insert_default();
                status.addresses = vnic.spec.addresses.clone();
                let (assigned, done) = (conditions::ADDRESSES_ASSIGNED, ConditionStatus::True);
                conditions::set(&mut status.conditions, assigned, done, "Assigned", "", None, self.now);
                self.vnics.insert(name(&vnic.metadata).to_owned(), vnic);
                Ok(())
            }
            Action::SetSecurityGroups { target, groups } => {
                self.vnic(seen, target, |vnic| vnic.spec.security_groups = groups.clone())
            }
            Action::ProtectVNic { target, interface } => self.mark_vnic(seen, target, Some(interface)),
            Action::UnprotectVNic { target } => self.mark_vnic(seen, target, None),
            Action::TakeVNic { target, holder, mac_address } => self.vnic(seen, target, |vnic| {
                let status = vnic.status.get_or_insert_default();
                status.holder = Some(holder.clone());
                status.grant.epoch += 1;
                status.mac_address = Some(mac_address.clone());
                // What the controller's network does of it in no time here.
                status.programmed = Some(Programmed { epoch: Some(status.grant.epoch), ..Programmed::default() });
            }),
            Action::GrantNic { target, epoch, .. } => self.nic(target, |nic| {
                nic.spec.grant.get_or_insert(Grant { epoch: *epoch });
            }),
            Action::ReleaseNic { target } => {
                let now = self.now;
                self.nic(target, |nic| {
                    nic.spec.release = true;
                    nic.metadata.deletion_timestamp.get_or_insert(Time(now));
                })
            }
            Action::AbandonNic { target } => {
                self.nic(target, |_| {})?;
                self.nics.remove(&(target.namespace.clone(), target.name.clone()));
                Ok(())
            }
            Action::FreeVNic { target, .. } => {
                self.vnic(seen, target, |vnic| vnic.status.get_or_insert_default().holder = None)
            }
            Action::DeleteVNic { target } => {
                self.vnics.remove(&target.name);
                Ok(())
            }
            Action::CreateMigration(migration) => {
                let name = name(&migration.metadata).to_owned();
                if !self.migrations.contains_key(&name) {
                    let mut made = MachineMigration::clone(migration);
                    let fresh = self.meta(seen.namespace(), &name);
                    (made.metadata.uid, made.metadata.resource_version) = (fresh.uid, fresh.resource_version);
                    self.migrations.insert(name, made);
                }
                Ok(())
            }
            Action::DeleteMigration { target } => {
                let now = self.now;
                let there = self.migrations.get_mut(&target.name).ok_or(Conflict)?;
                same(&there.metadata, target)?;
                if there.metadata.finalizers.is_none() {
                    self.migrations.remove(&target.name);
                } else {
                    there.metadata.deletion_timestamp.get_or_insert(Time(now));
                }
                Ok(())
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    fn mark_vnic(&mut self, seen: &Observed, target: &Target, present: Option<&str>) -> Done {
        let mut vnic = self.vnics.get(&target.name).cloned().ok_or(Conflict)?;
        version(seen.vnics.get(&target.name).map(|seen| &seen.metadata), &vnic.metadata)?;
        self.mark(&mut vnic.metadata, seen.uid(), present);
        self.vnics.insert(target.name.clone(), vnic);
        Ok(())
    }

    fn take_hold(&mut self, seen: &Observed, take: &crate::machine::plan::TakeHold) -> Done {
        let there = self.holds.get(&take.name).map(|hold| hold.metadata.resource_version.clone());
        if there.flatten() != take.resource_version {
            return Err(Conflict);
        }
        if let Some(old) = self.holds.get(&take.name) {
            assert!(old.spec.holder.is_none() && take.epoch > old.spec.epoch, "a hold passes through empty");
        }
        let spec = VolumeHoldSpec {
            driver: take.driver.clone(),
            volume_handle: take.volume_handle.clone(),
            persistent_volume_name: Some(take.persistent_volume_name.clone()),
            holder: Some(take.holder.clone()),
            epoch: take.epoch,
            fences: take.fences.clone(),
        };
        let mut hold = VolumeHold::new(&take.name, spec);
        hold.metadata = self.meta("", &take.name);
        hold.metadata.labels = Some([(labels::MACHINE_UID.to_owned(), seen.uid().to_owned())].into());
        let annotation = (labels::VOLUME_ATTACHMENT.to_owned(), take.volume_attachment.clone());
        let pod = take.holder_pod.clone().map(|pod| (labels::HOLDER_POD.to_owned(), pod));
        hold.metadata.annotations = Some([annotation].into_iter().chain(pod).collect());
        self.holds.insert(take.name.clone(), hold);
        Ok(())
    }
}
