//! What a leader sends for each action of a plan: the requests of controller/src/machine/{disks,claims,hosts}.rs,
//! controller/src/{fences,holder_pods}.rs, one after the other, each of which may be the last one.

use super::leader::{Leader, volume};
use super::objects::{Error, Kind, Rests};
use super::rules::Rule;
use super::world::{Via, World, timestamp};
use super::{INVENTORY, USER};
use api::attachment::{Connector, Grant};
use api::hold::VolumeHoldSpec;
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, DiskAttachment, VolumeHold, labels};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use planner::exposure::ExposureId;
use planner::machine::observed::{Observed, annotation, label, name, uid};
use planner::machine::plan::{Action, CreateVolumeAttachment, TakeHold, Target};
use planner::machine::{asks_for, needs_fresh_machine};
use std::collections::BTreeMap;
use std::sync::Arc;

pub type Done = Result<(), Error>;

fn own_labels(o: &Observed) -> BTreeMap<String, String> {
    [(labels::MACHINE, o.name()), (labels::MACHINE_UID, o.uid())].map(|(key, value)| (key.into(), value.into())).into()
}

pub fn finalizers(meta: &mut ObjectMeta, finalizer: &str, present: bool) {
    let all = meta.finalizers.get_or_insert_default();
    all.retain(|there| there != finalizer);
    all.extend(present.then(|| finalizer.to_owned()));
    if all.is_empty() {
        meta.finalizers = None;
    }
}

impl Leader {
    pub async fn act(&self, o: &Observed, action: &Action) -> Done {
        if needs_fresh_machine(action) {
            let there = self.get::<BareMetalMachine>(o.namespace(), o.name()).await?.ok_or(Error::NotFound)?;
            asks_for(&o.machine, &there, action).map_err(|_| Error::NotConfirmed)?;
        }
        let machine = &o.machine;
        match action {
            Action::AddMachineFinalizer => self.machine_finalizer(machine, true).await,
            Action::RemoveMachineFinalizer => self.machine_finalizer(machine, false).await,
            Action::ClaimHardware { name, uid, resource_version, .. } => {
                let rests = Rests { uid: Some(uid.clone()), version: Some(resource_version.clone()) };
                let own = o.uid().to_owned();
                let claim = move |hardware: &mut Hardware| {
                    let annotations = hardware.metadata.annotations.get_or_insert_default();
                    annotations.insert(labels::CLAIMED_BY.into(), own);
                };
                self.change((INVENTORY, name), rests, claim).await.map(drop)
            }
            Action::RememberBootOrder { name, order } => {
                let (hardware, order) = (self.cached::<Hardware>(INVENTORY, name)?, order.clone());
                let remember = move |hardware: &mut Hardware| {
                    let annotations = hardware.metadata.annotations.get_or_insert_default();
                    annotations.entry(labels::BOOT_ORDER_BEFORE.into()).or_insert(order);
                };
                self.change((INVENTORY, name), Rests::on(&hardware.metadata), remember).await.map(drop)
            }
            Action::RememberBootPath { name, path } => {
                let (hardware, path) = (self.cached::<Hardware>(INVENTORY, name)?, path.clone());
                let remember = move |hardware: &mut Hardware| {
                    let annotations = hardware.metadata.annotations.get_or_insert_default();
                    match path {
                        Some(path) => drop(annotations.insert(labels::BOOT_PATH.into(), path)),
                        None => drop(annotations.remove(labels::BOOT_PATH)),
                    }
                };
                self.change((INVENTORY, name), Rests::on(&hardware.metadata), remember).await.map(drop)
            }
            Action::UnclaimHardware { name } => {
                let hardware = self.cached::<Hardware>(INVENTORY, name)?;
                if annotation(&hardware.metadata, labels::CLAIMED_BY) != Some(o.uid()) {
                    return Ok(());
                }
                let free = |hardware: &mut Hardware| hardware.metadata.annotations = None;
                self.change((INVENTORY, name), Rests::on(&hardware.metadata), free).await.map(drop)
            }
            Action::ProtectClaim { target } => self.mark_claim(target, o.uid(), true).await,
            Action::UnprotectClaim { target, hold } => self.unprotect(o, target, hold.as_deref()).await,
            Action::CreateDiskAttachment(attachment) => {
                let owner = attachment.spec.owner.uid.clone();
                let ours = move |there: &DiskAttachment| {
                    there.spec.owner.uid == owner && there.metadata.deletion_timestamp.is_none()
                };
                Box::pin(self.create(DiskAttachment::clone(attachment), ours)).await
            }
            Action::TakeHold(take) => self.take_hold(o, take).await,
            Action::CreateVolumeAttachment(create) => self.create_volume_attachment(o, create).await,
            Action::CreateHolderPod(pod) => {
                let own = label(&pod.metadata, labels::ATTACHMENT_UID).map(str::to_owned);
                let ours = move |there: &Pod| {
                    label(&there.metadata, labels::ATTACHMENT_UID) == own.as_deref()
                        && there.metadata.deletion_timestamp.is_none()
                };
                self.create(Pod::clone(pod), ours).await
            }
            Action::DeleteHolderPod { target, node_is_down } => self.delete_pod(target, *node_is_down).await,
            Action::GrantDisk { target, epoch, holder_pod_uid, .. } => {
                self.grant(target, *epoch, holder_pod_uid.clone()).await
            }
            Action::ReleaseDisk { target } => {
                self.confirm_spec(o).await?;
                self.release(target).await
            }
            Action::AbandonDisk { target, hold, fence } => self.abandon(target, hold.as_deref(), fence.as_ref()).await,
            Action::FenceDisk { target, hold, order } => self.fence(target, hold, order).await,
            Action::FreeVolume { hold, holder, volume_attachment, holder_pod, fence } => {
                self.free(hold, holder, volume_attachment, holder_pod.as_deref(), fence.as_ref()).await
            }
            Action::DeleteVolumeAttachment { name } => {
                let there = self.get::<VolumeAttachment>("", name).await?;
                if let Some(volume) = there.and_then(|there| there.spec.source.persistent_volume_name.clone()) {
                    self.confirm_unused(o.uid(), &volume).await?;
                }
                self.delete_volume_attachment(name, Some(o.uid())).await
            }
            other => panic!("the model has no {other:?}"),
        }
    }

    pub fn cached<K: Kind>(&self, namespace: &str, name: &str) -> Result<Arc<K>, Error> {
        K::cache(&self.watch.caches.borrow()).get(namespace, name).ok_or(Error::NotFound)
    }

    pub fn seen<K: Kind>(&self, target: &Target) -> Result<Arc<K>, Error> {
        let there = self.cached::<K>(&target.namespace, &target.name)?;
        Some(there).filter(|there| there.meta().uid.as_ref() == Some(&target.uid)).ok_or(Error::NotFound)
    }

    pub fn put<K: Kind>(&self, object: Arc<K>) {
        K::cache_mut(&mut self.watch.caches.borrow_mut()).put(object);
    }

    pub fn forget<K: Kind>(&self, meta: &ObjectMeta) {
        K::cache_mut(&mut self.watch.caches.borrow_mut()).forget(meta);
    }

    /// Creates, or adopts what is ours under that name.
    async fn create<K: Kind>(&self, object: K, ours: impl Fn(&K) -> bool) -> Done {
        let (namespace, name) = super::objects::key(object.meta());
        let called = name.clone();
        let create = move |world: &World| world.objects().create(object);
        let sent = self.world.ask((&self.process, Via::ApiServer), || format!("create {called}"), create).await;
        let created = match sent.unwrap_or(Err(Error::NoAnswer)) {
            Err(Error::Conflict) => {
                let there = self.get::<K>(&namespace, &name).await?.ok_or(Error::NotFound)?;
                if !ours(&there) {
                    return Err(Error::Conflict);
                }
                there
            }
            result => result?,
        };
        self.put(created);
        Ok(())
    }

    /// Exactly the object with this UID.
    pub async fn delete<K: Kind>(&self, meta: &ObjectMeta, lingers: bool) -> Done {
        let (namespace, name) = super::objects::key(meta);
        let (rests, called) = (Rests::on_uid(uid(meta)), name.clone());
        let delete = move |world: &World| {
            let at = Time(timestamp(world.now()));
            world.objects().delete::<K>((&namespace, &name), &rests, at, lingers)
        };
        let sent = self.world.ask((&self.process, Via::ApiServer), || format!("delete {called}"), delete).await;
        match sent.unwrap_or(Err(Error::NoAnswer)) {
            Ok(there) if lingers || there.meta().finalizers.iter().flatten().count() > 0 => self.put(there),
            Ok(_) | Err(Error::NotFound | Error::Conflict) => self.forget::<K>(meta),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn machine_finalizer(&self, machine: &BareMetalMachine, present: bool) -> Done {
        let change = move |machine: &mut BareMetalMachine| {
            finalizers(&mut machine.metadata, labels::FINALIZER_MACHINE, present);
        };
        match self.change((USER, name(&machine.metadata)), Rests::on(&machine.metadata), change).await {
            Ok(_) | Err(Error::NotFound) if !present => self.forget::<BareMetalMachine>(&machine.metadata),
            result => drop(result?),
        }
        Ok(())
    }

    pub async fn confirm_claim(&self, machine: &BareMetalMachine, hardware: &str) -> Done {
        let there = self.get::<Hardware>(INVENTORY, hardware).await?.ok_or(Error::NotFound)?;
        if annotation(&there.metadata, labels::CLAIMED_BY) == machine.metadata.uid.as_deref() {
            return Ok(());
        }
        self.put(there);
        Err(Error::NotConfirmed)
    }

    async fn confirm_spec(&self, o: &Observed) -> Done {
        if o.gone {
            return Ok(());
        }
        let meta = &o.machine.metadata;
        let there = self.get::<BareMetalMachine>(USER, name(meta)).await?.ok_or(Error::NotFound)?;
        let now = &there.metadata;
        let deleting = now.deletion_timestamp.is_some() == meta.deletion_timestamp.is_some();
        if now.uid == meta.uid && now.generation == meta.generation && deleting {
            return Ok(());
        }
        self.put(there);
        Err(Error::NotConfirmed)
    }

    async fn mark_claim(&self, target: &Target, owner: &str, present: bool) -> Done {
        let claim = self.seen::<PersistentVolumeClaim>(target)?;
        let mark = format!("{}{owner}", labels::IN_USE_BY);
        let change = move |claim: &mut PersistentVolumeClaim| {
            let annotations = claim.metadata.annotations.get_or_insert_default();
            match present {
                true => drop(annotations.insert(mark, String::new())),
                false => drop(annotations.remove(&mark)),
            }
            let used = annotations.keys().any(|key| key.starts_with(labels::IN_USE_BY));
            if !used {
                claim.metadata.annotations = None;
            }
            finalizers(&mut claim.metadata, labels::FINALIZER_IN_USE, used);
        };
        self.change((&target.namespace, &target.name), Rests::on(&claim.metadata), change).await.map(drop)
    }

    async fn unprotect(&self, o: &Observed, target: &Target, hold: Option<&str>) -> Done {
        if let Some(hold) = hold {
            let ours = |hold: &VolumeHold| {
                hold.spec.holder.is_some() && label(&hold.metadata, labels::MACHINE_UID) == Some(o.uid())
            };
            if let Some(there) = self.get::<VolumeHold>("", hold).await?.filter(|hold| ours(hold)) {
                self.put(there);
                return Err(Error::NotConfirmed);
            }
        }
        self.confirm_unused(o.uid(), &volume(&self.world, &target.name).name).await?;
        self.mark_claim(target, o.uid(), false).await
    }

    /// Step 5.
    async fn take_hold(&self, o: &Observed, take: &TakeHold) -> Done {
        let spec = VolumeHoldSpec {
            driver: take.driver.clone(),
            volume_handle: take.volume_handle.clone(),
            persistent_volume_name: Some(take.persistent_volume_name.clone()),
            holder: Some(take.holder.clone()),
            epoch: take.epoch,
            fences: take.fences.clone(),
        };
        let mut hold = VolumeHold::new(&take.name, spec);
        hold.metadata.labels = Some(own_labels(o));
        let attachment = (labels::VOLUME_ATTACHMENT.to_owned(), take.volume_attachment.clone());
        let pod = take.holder_pod.clone().map(|pod| (labels::HOLDER_POD.to_owned(), pod));
        hold.metadata.annotations = Some([attachment].into_iter().chain(pod).collect());
        let Some(version) = &take.resource_version else {
            let holder = take.holder.clone();
            return self.create(hold, move |there| there.spec.holder.as_ref() == Some(&holder)).await;
        };
        let version = Some(version.clone()).filter(|_| self.world.keeps(Rule::HoldIsTakenBySwap));
        let rests = Rests { uid: None, version };
        let replace = move |there: &mut VolumeHold| {
            there.spec = hold.spec;
            (there.metadata.labels, there.metadata.annotations) = (hold.metadata.labels, hold.metadata.annotations);
        };
        let taken = self.change(("", &take.name), rests, replace).await;
        if matches!(taken, Err(Error::Conflict)) {
            self.refresh(&take.name).await?;
        }
        taken.map(drop)
    }

    pub async fn refresh(&self, hold: &str) -> Result<Option<Arc<VolumeHold>>, Error> {
        let there = self.get::<VolumeHold>("", hold).await?;
        there.iter().cloned().for_each(|there| self.put(there));
        Ok(there)
    }

    async fn create_volume_attachment(&self, o: &Observed, create: &CreateVolumeAttachment) -> Done {
        let source = VolumeAttachmentSource {
            persistent_volume_name: Some(create.persistent_volume_name.clone()),
            ..VolumeAttachmentSource::default()
        };
        let attacher = labels::NATIVE_ATTACHER.to_owned();
        let attachment = VolumeAttachment {
            metadata: ObjectMeta {
                name: Some(create.name.clone()),
                labels: Some(own_labels(o)),
                ..ObjectMeta::default()
            },
            spec: VolumeAttachmentSpec { attacher, node_name: create.node.clone(), source },
            status: None,
        };
        let (spec, labels) = (attachment.spec.clone(), attachment.metadata.labels.clone());
        let ours = move |there: &VolumeAttachment| there.spec == spec && there.metadata.labels == labels;
        Box::pin(self.create(attachment, ours)).await
    }

    pub async fn delete_volume_attachment(&self, called: &str, machine_uid: Option<&str>) -> Done {
        // Read before the answer: one that is made meanwhile has the same name, and must not be forgotten.
        let old = self.cached::<VolumeAttachment>("", called);
        let Some(there) = self.get::<VolumeAttachment>("", called).await? else {
            if let Ok(old) = old {
                self.forget::<VolumeAttachment>(&old.metadata);
            }
            return Ok(());
        };
        let ours = label(&there.metadata, labels::MACHINE_UID) == machine_uid;
        if !ours || there.spec.attacher != labels::NATIVE_ATTACHER {
            return Ok(());
        }
        self.delete::<VolumeAttachment>(&there.metadata, false).await?;
        let still = self.get::<VolumeAttachment>("", called).await?;
        match still.is_some_and(|still| still.metadata.uid == there.metadata.uid) {
            true => Err(Error::NotConfirmed),
            false => Ok(()),
        }
    }

    /// Step 6: admitted at the storage, then granted.
    async fn grant(&self, target: &Target, epoch: u64, holder_pod_uid: Option<String>) -> Done {
        let attachment = self.seen::<DiskAttachment>(target)?;
        let native = |volume: &&api::attachment::VolumeSource| volume.connector == Connector::Native;
        if let Some(volume) = attachment.spec.volume.as_ref().filter(native) {
            let (handle, id) = (volume.volume_handle.clone(), ExposureId { uid: target.uid.clone(), epoch });
            let admit = move |site: &mut super::site::Volume| site.admit(&id);
            if !self.storage("admit", &handle, admit).await? {
                return Err(Error::Conflict);
            }
        }
        let change = move |disk: &mut DiskAttachment| {
            disk.spec.grant.get_or_insert(Grant { epoch });
            disk.spec.holder_pod_uid = disk.spec.holder_pod_uid.take().or(holder_pod_uid);
        };
        let names = (target.namespace.as_str(), target.name.as_str());
        let rests = match self.world.keeps(Rule::GrantIsForOneAttachment) {
            true => Rests::on(&attachment.metadata),
            false => Rests::default(),
        };
        self.change(names, rests, change).await.map(drop)
    }

    pub async fn storage<T: 'static>(
        &self,
        what: &str,
        handle: &str,
        act: impl FnOnce(&mut super::site::Volume) -> T + 'static,
    ) -> Result<T, Error> {
        let of = handle.to_owned();
        let act = move |world: &World| act(world.site().volumes.get_mut(&of).expect("a volume of this site"));
        let sent = self.world.ask((&self.process, Via::Outside), || format!("{what} {handle}"), act).await;
        sent.ok_or(Error::NoAnswer)
    }
}
