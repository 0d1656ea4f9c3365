//! `CephBlocklist`: the sessions of a grant are refused by every OSD.
//!
//! The monitors answer when the new map is theirs. An OSD that has not got it yet may take one more write of the fenced
//! session, but no longer once the next holder has touched that object, whose requests name the map that they know: so
//! whatever comes late is ordered before all that the next holder reads or writes.

use crate::DRIVER;
use crate::clusters::Clusters;
use crate::notes;
use async_trait::async_trait;
use planner::exposure::ExposureId;
use ports::volume::{Fence, Volume};
use ports::{ErrorClass, PortError, StorageFence};
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
pub struct CephFence {
    clusters: Clusters,
}

impl CephFence {
    /// The user of each cluster needs the monitors' `profile rbd`, and that of each pool.
    pub fn new(clusters: Clusters) -> Self {
        Self { clusters }
    }
}

fn epoch(identity: &str, what: &str) -> Result<u64, PortError> {
    let none = || PortError::new(ErrorClass::Invalid, format!("{what}: it is no identity of a session with Ceph"));
    notes::parse_identity(identity).map(|id| id.epoch).ok_or_else(none)
}

#[async_trait]
impl StorageFence for CephFence {
    fn driver(&self) -> &str {
        DRIVER
    }

    fn kind(&self) -> Fence {
        Fence::CephBlocklist
    }

    fn fence_identity(&self, id: &ExposureId) -> String {
        notes::identity(id)
    }

    async fn fence(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let what = format!("fencing {identity} of volume {}", volume.handle);
        let epoch = epoch(identity, &what)?;
        let header = self.clusters.header(volume, &what).await?;
        header.note(&notes::fenced(epoch)).await?;
        let noted = header.notes().await?;
        let sessions: BTreeSet<&str> = noted.until(epoch).collect();
        for session in &sessions {
            header.refuse(session).await?;
        }
        if sessions.is_empty() { Ok(()) } else { header.break_lock_of(&sessions).await }
    }

    async fn verify_fenced(&self, volume: &Volume, identity: &str) -> Result<bool, PortError> {
        let what = format!("looking whether {identity} of volume {} is fenced", volume.handle);
        let epoch = epoch(identity, &what)?;
        let header = self.clusters.header(volume, &what).await?;
        let noted = header.notes().await?;
        if !noted.refuse(epoch) {
            return Ok(false);
        }
        let sessions: BTreeSet<&str> = noted.until(epoch).collect();
        if sessions.is_empty() {
            return Ok(true);
        }
        let (refused, watchers) = (header.refused().await?, header.watchers().await?);
        let is_out = |session: &&str| refused.contains(*session) && !watchers.contains(*session);
        Ok(sessions.iter().all(is_out) && !header.is_locked_by(&sessions).await?)
    }
}
