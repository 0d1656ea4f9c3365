//! What a leader sends to take a disk away and to give its volume back: steps 8 to 14.

use super::leader::{Leader, same};
use super::objects::{Error, Rests};
use super::rules::Rule;
use super::world::{Via, World};
use super::writes::{Done, finalizers};
use api::hold::{FenceProof, FenceRecord, Holder};
use api::{DiskAttachment, VolumeHold, labels};
use k8s_openapi::api::core::v1::Pod;
use planner::exposure::ExposureId;
use planner::machine::observed::{label, name, uid};
use planner::machine::plan::{FenceOrder, Target, rests_on_silence};
use std::sync::Arc;

impl Leader {
    /// Step 8.
    pub async fn release(&self, target: &Target) -> Done {
        let mut attachment = self.seen::<DiskAttachment>(target)?;
        if !attachment.spec.release {
            let release = |disk: &mut DiskAttachment| disk.spec.release = true;
            let names = (target.namespace.as_str(), target.name.as_str());
            attachment = self.change(names, Rests::on(&attachment.metadata), release).await?;
        }
        if attachment.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.delete::<DiskAttachment>(&attachment.metadata, false).await
    }

    /// Step 14.
    pub async fn abandon(&self, target: &Target, hold: Option<&str>, fence: Option<&FenceRecord>) -> Done {
        let attachment = self.seen::<DiskAttachment>(target)?;
        if rests_on_silence(attachment.spec.grant.is_some(), fence) {
            self.confirm_silent(&attachment.spec.dpu_name).await?;
        }
        if let (Some(hold), Some(fence)) = (hold, fence)
            && let Some(there) = self.refresh(hold).await?
            && there.spec.holder.as_ref().is_some_and(|holder| holder.attachment_uid == target.uid)
        {
            self.record(there, fence).await?;
        }
        let let_go = |disk: &mut DiskAttachment| finalizers(&mut disk.metadata, labels::FINALIZER_EXPOSED, false);
        let names = (target.namespace.as_str(), target.name.as_str());
        match self.change(names, Rests::on(&attachment.metadata), let_go).await {
            Ok(_) | Err(Error::NotFound) => self.forget::<DiskAttachment>(&attachment.metadata),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn record(&self, hold: Arc<VolumeHold>, fence: &FenceRecord) -> Result<Arc<VolumeHold>, Error> {
        if hold.spec.fences.iter().any(|old| same(old, fence)) {
            return Ok(hold);
        }
        let fence = fence.clone();
        let push = move |hold: &mut VolumeHold| hold.spec.fences.push(fence);
        self.change(("", name(&hold.metadata)), Rests::on(&hold.metadata), push).await
    }

    /// Steps 11 and 14: refused and seen refused, only then let go of.
    pub async fn fence(&self, target: &Target, hold: &str, order: &FenceOrder) -> Done {
        let (handle, id) = (order.volume.handle.clone(), order.id.clone());
        if order.identity != super::agent::identity(&id) {
            return Err(Error::Refused);
        }
        let fenced = self.storage("fence", &handle, move |volume| {
            let is_told = volume.fence.is_told();
            if is_told {
                volume.refuse(&id);
            }
            is_told
        });
        let id = order.id.clone();
        let refused =
            async { Ok(fenced.await? && self.storage("verify", &handle, move |volume| !volume.accepts(&id)).await?) };
        if self.world.keeps(Rule::StorageRefuses) && !refused.await? {
            self.problems.borrow_mut().insert(target.uid.clone(), "not fenced".to_owned());
            return Err(Error::Refused);
        }
        self.abandon(target, Some(hold), Some(&order.record)).await?;
        self.problems.borrow_mut().remove(&target.uid);
        Ok(())
    }

    /// Step 10.
    pub async fn free(
        &self,
        hold: &str,
        holder: &Holder,
        volume_attachment: &str,
        holder_pod: Option<&str>,
        fence: Option<&FenceRecord>,
    ) -> Done {
        let Some(mut there) = self.refresh(hold).await? else { return Ok(()) };
        if there.spec.holder.as_ref() != Some(holder) {
            return Ok(());
        }
        let still = self.get::<DiskAttachment>(&holder.attachment_namespace, &holder.attachment_name).await?;
        let still = still.filter(|_| self.world.keeps(Rule::GoneIsSeen));
        if let Some(still) = still.filter(|still| still.metadata.uid.as_ref() == Some(&holder.attachment_uid)) {
            self.put(still);
            return Err(Error::NotConfirmed);
        }
        if !volume_attachment.is_empty() {
            self.delete_volume_attachment(volume_attachment, label(&there.metadata, labels::MACHINE_UID)).await?;
        }
        if let Some(fence) = fence {
            self.confirm_silent(&holder.dpu_name).await?;
            there = self.record(there, fence).await?;
        }
        if let Some(pod) = holder_pod {
            let is_down = |fence: &FenceRecord| {
                fence.attachment_uid == holder.attachment_uid && fence.proof != FenceProof::StorageFenced
            };
            let proven = there.spec.fences.iter().any(is_down);
            self.see_gone(pod, &holder.attachment_uid, proven).await?;
        }
        let id = ExposureId { uid: holder.attachment_uid.clone(), epoch: there.spec.epoch };
        // Nothing rests on it.
        let _ = self.storage("dismiss", &there.spec.volume_handle, move |volume| volume.dismiss(&id)).await;
        let empty = |hold: &mut VolumeHold| hold.spec.holder = None;
        let rests = match self.world.keeps(Rule::HoldIsEmptiedBySwap) {
            true => Rests::on(&there.metadata),
            false => Rests::default(),
        };
        self.change(("", hold), rests, empty).await.map(drop)
    }

    async fn attachments_of(&self, machine_uid: &str) -> Result<Vec<Arc<DiskAttachment>>, Error> {
        let own = machine_uid.to_owned();
        let list = move |world: &World| -> Vec<Arc<DiskAttachment>> {
            let of_it = |disk: &&Arc<DiskAttachment>| label(&disk.metadata, labels::MACHINE_UID) == Some(&own);
            world.objects().all::<DiskAttachment>().filter(of_it).cloned().collect()
        };
        let sent = self.world.ask((&self.process, Via::ApiServer), || "list attachments".to_owned(), list).await;
        sent.ok_or(Error::NoAnswer)
    }

    async fn confirm_none(&self, machine_uid: &str, is_it: impl Fn(&DiskAttachment) -> bool) -> Done {
        match self.attachments_of(machine_uid).await?.into_iter().find(|disk| is_it(disk)) {
            Some(there) => {
                self.put(there);
                Err(Error::NotConfirmed)
            }
            None => Ok(()),
        }
    }

    pub async fn confirm_unused(&self, machine_uid: &str, volume: &str) -> Done {
        let of_it =
            |disk: &DiskAttachment| disk.spec.volume.as_ref().is_some_and(|of| of.persistent_volume_name == volume);
        self.confirm_none(machine_uid, of_it).await
    }

    pub async fn delete_pod(&self, target: &Target, node_is_down: bool) -> Done {
        let there = self.get::<Pod>(&target.namespace, &target.name).await?;
        let Some(pod) = there.filter(|pod| pod.metadata.uid.as_ref() == Some(&target.uid)) else {
            if let Ok(old) = self.seen::<Pod>(target) {
                self.forget::<Pod>(&old.metadata);
            }
            return Ok(());
        };
        if pod.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Failed") {
            let machine = label(&pod.metadata, labels::MACHINE_UID).unwrap_or_default();
            let attachment = label(&pod.metadata, labels::ATTACHMENT_UID).unwrap_or_default().to_owned();
            self.confirm_none(machine, |disk| uid(&disk.metadata) == attachment).await?;
        }
        self.delete::<Pod>(&pod.metadata, !node_is_down).await
    }

    async fn see_gone(&self, recorded: &str, attachment_uid: &str, node_is_down: bool) -> Done {
        let Some((namespace, called)) = recorded.split_once('/') else { return Ok(()) };
        let ours = |pod: &Arc<Pod>| label(&pod.metadata, labels::ATTACHMENT_UID) == Some(attachment_uid);
        let Some(pod) = self.get::<Pod>(namespace, called).await?.filter(ours) else { return Ok(()) };
        self.delete::<Pod>(&pod.metadata, !node_is_down).await?;
        if !self.world.keeps(Rule::PodEndIsSeen) {
            return Ok(());
        }
        match self.get::<Pod>(namespace, called).await?.filter(|still| still.metadata.uid == pod.metadata.uid) {
            Some(still) => {
                self.put(still);
                Err(Error::NotConfirmed)
            }
            None => {
                self.forget::<Pod>(&pod.metadata);
                Ok(())
            }
        }
    }
}
