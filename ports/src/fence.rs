//! How a storage system is made to refuse a holder that has fallen silent (docs/design/fencing.md, *StorageRefuses*).
//!
//! The identity is the one under which the attachment's connector connected, and no other: it is made from UID and epoch,
//! stands in `status.fence` before the first write, and is never used again. So a fence that comes late hits nobody.

use crate::PortError;
use crate::volume::{Fence, Volume};
use async_trait::async_trait;
use planner::exposure::ExposureId;

/// Who was let in to what.
#[derive(Debug, Clone)]
pub struct Admission {
    pub volume: Volume,
    pub identity: String,
}

#[async_trait]
pub trait StorageFence: Send + Sync {
    /// The CSI driver whose volumes it fences.
    fn driver(&self) -> &str;

    fn kind(&self) -> Fence;

    /// What the connector of that driver calls this grant: [`crate::VolumeConnector::identity`].
    fn fence_identity(&self, id: &ExposureId) -> String;

    /// Before a grant, by whoever gives it: the storage lets this identity in, and no other. Admitted already: success. A
    /// later identity has been admitted, or this one was fenced: `Conflict`, for as long as the storage remembers. Storage that
    /// lets in whom it does not refuse has nothing to do.
    async fn admit(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let _ = (volume, identity);
        Ok(())
    }

    /// Which of those that were admitted, by their number, the storage has forgotten: it was started anew. Not whom it refuses;
    /// but it may have forgotten that it refused, so whoever admits them again knows better.
    async fn forgotten(&self, admitted: &[Admission]) -> Result<Vec<usize>, PortError> {
        let _ = admitted;
        Ok(Vec::new())
    }

    /// The holder has let go, or is proven down, and is gone: the storage need not let it in any more, nor remember it. Nothing
    /// rests on it: who fails here is not let in again either, for an identity is used once.
    async fn dismiss(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let _ = (volume, identity);
        Ok(())
    }

    /// From now on the storage accepts nothing under this identity: no connection, and no write through one that is there.
    /// Fenced already, or never seen: success. A later identity of the same volume is not touched.
    async fn fence(&self, volume: &Volume, identity: &str) -> Result<(), PortError>;

    /// Looks at the storage itself. `true`: it refuses, and nothing of this identity reaches the volume any more.
    async fn verify_fenced(&self, volume: &Volume, identity: &str) -> Result<bool, PortError>;
}
