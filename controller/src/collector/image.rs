//! What an image that was deleted has left of its import.

use crate::Controller;
use crate::bmc::Owner;
use crate::clock;
use crate::error::Error;
use crate::image::{own_labels, want_bmc};
use crate::index::IndexKey;
use crate::kinds::is_image;
use crate::machine::gather as machine_gather;
use api::labels;
use executor::volumes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::image::{GiveBack, Leftovers, Lent};
use planner::machine::observed::label;
use runtime::queue::Next;

pub(super) struct Left {
    left: Leftovers,
    pub plan: GiveBack,
}

impl Left {
    pub async fn of(c: &Controller, uid: &str) -> Result<Self, Error> {
        let left = observed(c, uid).await?;
        let plan = planner::image::leftovers(&left, clock::now());
        Ok(Self { left, plan })
    }

    pub fn want_bmc(&self, c: &Controller, reader: &Owner) {
        want_bmc(c, reader, &self.plan.dpu_bmcs);
    }

    pub async fn act(&self, c: &Controller) -> Result<(), Error> {
        let uid = &self.left.uid;
        let owner = volumes::Owner { label: labels::IMAGE_UID, uid, labels: own_labels(uid) };
        for action in &self.plan.actions {
            volumes::act(c, &owner, action).await?;
        }
        Ok(())
    }

    pub fn wait(&self, c: &Controller) -> Next {
        self.tell(c);
        Next::at(self.plan.wake_at)
    }

    /// There is no image to say it of: what is left on a DPU does.
    fn tell(&self, c: &Controller) {
        if let (Some(reason), Some(attachment)) = (&self.plan.waits_for, self.left.lent.attachments.first()) {
            c.events.warn(attachment.as_ref(), reason.name(), &reason.message());
        }
    }
}

/// Something was made for an image with this UID.
pub(super) fn is_one(c: &Controller, uid: &str) -> bool {
    let (world, owner) = (&c.world, &IndexKey::owner(uid));
    let made_for_it = |meta: &ObjectMeta| label(meta, labels::IMAGE_UID) == Some(uid);
    world.disks.by(owner).iter().any(|disk| disk.spec.owner.uid == uid && is_image(&disk.spec.owner))
        || world.holds.by(owner).iter().any(|hold| made_for_it(&hold.metadata))
        || world.volume_attachments.by(owner).iter().any(|va| made_for_it(&va.metadata))
        || world.claims.by(owner).iter().any(|claim| made_for_it(&claim.metadata))
}

/// All that carries its UID.
async fn observed(c: &Controller, image: &str) -> Result<Leftovers, Error> {
    let (world, owner) = (&c.world, &IndexKey::owner(image));
    let made_for_it = |meta: &ObjectMeta| label(meta, labels::IMAGE_UID) == Some(image);
    let mut claim = None;
    if let Some(there) = world.claims.by(owner).into_iter().find(|claim| made_for_it(&claim.metadata)) {
        let namespace = there.metadata.namespace.clone().unwrap_or_default();
        claim = Some(machine_gather::claim_seen(c, &namespace, &[], false, there, &mut Default::default()).await?);
    }
    let lent = Lent {
        claim,
        dpus: machine_gather::dpus(c, world.dpus.all()).await?,
        attachments: world.disks.by(owner),
        hold: world.holds.by(owner).into_iter().find(|hold| hold.spec.holder.is_some()),
        volume_attachments: world.volume_attachments.by(owner),
        fences: c.fences.kinds(),
        fence_problems: c.fences.problems(),
    };
    Ok(Leftovers { uid: image.to_owned(), lent })
}
