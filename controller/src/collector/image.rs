//! What an image that was deleted has left of its import.

use crate::Controller;
use crate::clock;
use crate::error::Error;
use crate::image::act;
use crate::index::IndexKey;
use crate::kinds::is_image;
use crate::machine::gather as machine_gather;
use api::conditions;
use api::image::{ImageImport, ImageSource};
use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use planner::image::{Observed, Plan};
use planner::machine::observed::label;
use runtime::queue::Next;

pub(super) struct Left {
    o: Observed,
    pub plan: Plan,
}

impl Left {
    pub async fn of(c: &Controller, uid: &str) -> Result<Self, Error> {
        let o = observed(c, uid).await?;
        let plan = planner::image::leftovers(&o, clock::now());
        Ok(Self { o, plan })
    }

    pub async fn act(&self, c: &Controller) -> Result<(), Error> {
        for action in &self.plan.actions {
            act(c, &self.o, action).await?;
        }
        Ok(())
    }

    pub fn wait(&self, c: &Controller) -> Next {
        tell(c, &self.o, &self.plan);
        Next::at(self.plan.wake_at)
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

/// All that carries its UID. What it was to import is not known any more.
async fn observed(c: &Controller, image: &str) -> Result<Observed, Error> {
    let (world, owner) = (&c.world, &IndexKey::owner(image));
    let made_for_it = |meta: &ObjectMeta| label(meta, labels::IMAGE_UID) == Some(image);
    let mut claim = None;
    if let Some(there) = world.claims.by(owner).into_iter().find(|claim| made_for_it(&claim.metadata)) {
        let namespace = there.metadata.namespace.clone().unwrap_or_default();
        claim = Some(machine_gather::claim_seen(c, &namespace, &[], false, there, &mut Default::default()).await?);
    }
    Ok(Observed {
        meta: ObjectMeta {
            uid: Some(image.to_owned()),
            deletion_timestamp: Some(Time(clock::now())),
            ..ObjectMeta::default()
        },
        kind: "MachineImage",
        import: ImageImport {
            source: ImageSource::default(),
            size: None,
            storage_class_name: None,
            volume_snapshot_class_name: None,
        },
        status: Default::default(),
        namespace: String::new(),
        claim,
        snapshot: None,
        dpus: machine_gather::dpus(c, world.dpus.all()).await?,
        attachments: world.disks.by(owner),
        hold: world.holds.by(owner).into_iter().find(|hold| hold.spec.holder.is_some()),
        volume_attachments: world.volume_attachments.by(owner),
        imported_elsewhere: false,
        no_grants: None,
        fences: c.fences.kinds(),
        fence_problems: c.fences.problems(),
    })
}

/// There is no image to say it of: what is left on a DPU does.
fn tell(c: &Controller, o: &Observed, plan: &Plan) {
    let ready = conditions::get(&plan.status.conditions, conditions::READY);
    if let (Some(ready), Some(attachment)) = (ready, o.attachments.first()) {
        c.events.warn(attachment.as_ref(), &ready.reason, &ready.message);
    }
}
