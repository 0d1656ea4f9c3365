//! What an owner that was deleted has left, found by the owner's UID: a machine's or an image's attachments, holds,
//! VolumeAttachments, holder pods, protected claims, and its claim on a server.
//!
//! An owner goes when nothing of it is there any more. But a controller that does not know yet that it was deposed, or a request of
//! one that arrives late, may make something for it afterwards, and a finalizer may be taken away by force: an attachment, by which
//! its Dpu could never be deleted, a hold, without which nobody may have the volume.

mod image;
mod machine;

use crate::Controller;
use crate::bmc::Owner;
use crate::error::{Error, call};
use crate::machine::gather::Memo;
use crate::work::Work;
use api::{BareMetalMachine, ClusterMachineImage, MachineImage};
use kube::Api;
use kube::api::ListParams;
use runtime::queue::{Key, Next};

const ROUNDS: usize = 16;

/// What was found, and what is to be done with it.
enum Left {
    Machine(Box<machine::Left>),
    Image(Box<image::Left>),
}

impl Left {
    async fn of(c: &Controller, uid: &str, memo: &mut Memo) -> Result<Self, Error> {
        Ok(match image::is_one(c, uid) {
            true => Self::Image(Box::new(image::Left::of(c, uid).await?)),
            false => Self::Machine(Box::new(machine::Left::of(c, uid, memo).await?)),
        })
    }

    fn actions(&self) -> usize {
        match self {
            Self::Machine(left) => left.plan.actions.len() + usize::from(left.plan.disruptive.is_some()),
            Self::Image(left) => left.plan.actions.len(),
        }
    }

    fn is_discovery(&self) -> bool {
        matches!(self, Self::Machine(left) if left.is_discovery())
    }

    async fn act(&self, c: &Controller) -> Result<(), Error> {
        match self {
            Self::Machine(left) => left.act(c).await,
            Self::Image(left) => left.act(c).await,
        }
    }

    /// Nothing can be done now: what is waited for is said, and looked at again.
    fn wait(&self, c: &Controller) -> Next {
        match self {
            Self::Machine(left) => left.wait(c),
            Self::Image(left) => left.wait(c),
        }
    }
}

/// `key`: no namespace, and the UID of the owner.
pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let (uid, reader) = (&key.1, Owner::Gone(key.clone()));
    let (mut memo, mut confirmed) = (Memo::default(), false);
    for _ in 0..ROUNDS {
        if c.world.has_machine(uid) || c.world.has_image(uid) {
            break;
        }
        let left = Left::of(c, uid, &mut memo).await?;
        match &left {
            Left::Machine(left) => left.want_bmc(c, &reader),
            Left::Image(left) => left.want_bmc(c, &reader),
        }
        if left.actions() == 0 {
            return Ok(left.wait(c));
        }
        if !confirmed && is_there(c, uid).await? {
            break;
        }
        if !std::mem::replace(&mut confirmed, true) && !left.is_discovery() {
            tracing::warn!(owner = %uid, actions = left.actions(), "an owner that was deleted has left something");
        }
        left.act(c).await?;
    }
    // The owner exists, or others go first.
    c.hosts.needs(&reader, &[]);
    if confirmed {
        c.world.look(Work::Leftovers, key.clone());
    }
    Ok(Next::Wait)
}

/// From quorum. A UID that was deleted never comes back.
async fn is_there(c: &Controller, uid: &str) -> Result<bool, Error> {
    let has = |uids: Vec<Option<String>>| uids.iter().any(|there| there.as_deref() == Some(uid));
    Ok(has(uids::<BareMetalMachine>(Api::all(c.objects.client.clone())).await?)
        || has(uids::<MachineImage>(Api::all(c.objects.client.clone())).await?)
        || has(uids::<ClusterMachineImage>(c.objects.cluster()).await?))
}

async fn uids<K: crate::cache::Object>(api: Api<K>) -> Result<Vec<Option<String>>, Error> {
    let all = call(&format!("list {}", K::plural(&())), api.list_metadata(&ListParams::default())).await?;
    Ok(all.items.into_iter().map(|object| object.metadata.uid).collect())
}
