//! What an image that no longer exists has left, as [`crate::machine::leftovers`] is of machines: attachment, hold and
//! VolumeAttachment of its import, without which the volume could never be deleted.

use super::{ROUNDS, act, want_bmc};
use crate::Controller;
use crate::bmc::Owner;
use crate::clock;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::machine::gather as machine_gather;
use crate::work::Work;
use api::conditions;
use api::image::{ImageImport, ImageSource};
use api::{ClusterMachineImage, MachineImage, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::ListParams;
use planner::image::{Observed, Plan};
use planner::machine::observed::label;
use runtime::queue::{Key, Next};

/// `key`: no namespace, and the UID of an image.
pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let (mut confirmed, owner) = (false, Owner::GoneImage(key.clone()));
    for _ in 0..ROUNDS {
        if c.world.has_image(&key.1) {
            c.hosts.needs(&owner, &[]);
            return Ok(Next::Wait);
        }
        let o = observed(c, &key.1).await?;
        let plan = planner::image::leftovers(&o, clock::now());
        want_bmc(c, &owner, &plan);
        if plan.actions.is_empty() {
            tell(c, &o, &plan);
            return Ok(Next::at(plan.wake_at));
        }
        if !confirmed && is_there(c, &key.1).await? {
            c.hosts.needs(&owner, &[]);
            return Ok(Next::Wait);
        }
        if !std::mem::replace(&mut confirmed, true) {
            tracing::warn!(image = %key.1, actions = plan.actions.len(), "an image that no longer exists has left something");
        }
        for action in &plan.actions {
            act(c, &o, action).await?;
        }
    }
    c.world.look(Work::ImageLeftovers, key.clone());
    Ok(Next::Wait)
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
        c.events.tell(attachment.as_ref(), &ready.reason, &ready.message);
    }
}

/// From quorum. A UID that was deleted never comes back.
async fn is_there(c: &Controller, image: &str) -> Result<bool, Error> {
    let (everywhere, params) = (Api::<MachineImage>::all(c.objects.client.clone()), ListParams::default());
    let images = call("list MachineImages", everywhere.list_metadata(&params)).await?;
    let of_cluster = c.objects.cluster::<ClusterMachineImage>();
    let of_cluster = call("list ClusterMachineImages", of_cluster.list_metadata(&params)).await?;
    let mut uids = images.items.iter().map(|i| &i.metadata.uid).chain(of_cluster.items.iter().map(|i| &i.metadata.uid));
    Ok(uids.any(|uid| uid.as_deref() == Some(image)))
}
