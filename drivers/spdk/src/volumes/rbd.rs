//! Ceph RBD: one client of the cluster per attachment, so that each can be put on the cluster's blocklist alone.
//!
//! User and key of a cluster are in a configuration file on the DPU, not in the volume's attributes.

use super::{BLOCK_SIZE, Claim, Held, Storage};
use crate::names;
use crate::rpc::methods::bdev::Bdev;
use crate::rpc::methods::rbd::{GetClusters, RbdCreate, RbdDelete, RegisterCluster, UnregisterCluster};
use crate::rpc::{Rpc, RpcError};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use planner::target::{RbdImage, Target};
use ports::{ErrorClass, PortError};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub const DRIVER: &str = "rbd.csi.ceph.com";

/// How a cluster is reached from this DPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Without `client.`.
    pub user: String,
    /// Names the monitors and the key ring, as Ceph's own tools read it. The target sees it under the same path.
    pub config_file: PathBuf,
}

#[derive(Debug, Clone, Default)]
pub struct Rbd {
    clusters: BTreeMap<String, Cluster>,
}

impl Rbd {
    /// `clusters`: by what ceph-csi calls `clusterID`.
    pub fn new(clusters: BTreeMap<String, Cluster>) -> Self {
        Self { clusters }
    }
}

#[async_trait]
impl Storage for Rbd {
    type Place = RbdImage;

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn identity(&self, id: &ExposureId) -> String {
        names::client(id)
    }

    fn place(&self, target: Target) -> Option<Result<RbdImage, PortError>> {
        let Target::Rbd(place) = target else { return None };
        if let Some(namespace) = &place.namespace {
            let cause = format!("SPDK reaches no RADOS namespace, and `radosNamespace` is {namespace}");
            return Some(Err(PortError::new(ErrorClass::Unsupported, cause)));
        }
        if !self.clusters.contains_key(&place.cluster_id) {
            let known: Vec<_> = self.clusters.keys().map(String::as_str).collect();
            let cause = format!("this DPU knows no cluster {} (it knows: {})", place.cluster_id, known.join(", "));
            return Some(Err(PortError::new(ErrorClass::NotFound, cause)));
        }
        Some(Ok(place))
    }

    fn key(&self, place: &RbdImage, _: &[Bdev]) -> String {
        format!("{}/{}", place.pool, place.image)
    }

    async fn held(&self, rpc: &Rpc, bdevs: &[Bdev]) -> Result<Vec<Held>, RpcError> {
        let clusters = match rpc.call(&GetClusters {}).await {
            Err(error) if error.is_gone() => Vec::new(),
            clusters => clusters?,
        };
        let held = clusters.iter().filter_map(|cluster| {
            let id = names::parse_connection(&cluster.cluster_name)?;
            let bdev = bdevs.iter().find(|bdev| bdev.name == cluster.cluster_name).cloned();
            let key = bdev.as_ref().and_then(|bdev| {
                let rbd = &bdev.driver_specific["rbd"];
                Some(format!("{}/{}", rbd["pool_name"].as_str()?, rbd["rbd_name"].as_str()?))
            });
            Some(Held { id, name: cluster.cluster_name.clone(), key, bdev, up: true })
        });
        Ok(held.collect())
    }

    async fn attach(&self, rpc: &Rpc, claim: &Claim<'_>, place: &RbdImage, _: &[Bdev]) -> Result<(), PortError> {
        let Some(cluster) = self.clusters.get(&place.cluster_id) else {
            return Err(PortError::new(ErrorClass::NotFound, format!("no cluster {}", place.cluster_id)));
        };
        let register = RegisterCluster { name: claim.name, user_id: &cluster.user, config_file: &cluster.config_file };
        rpc.call(&register).await.map_err(|error| error.at(&format!("cluster {}", place.cluster_id)))?;
        let create = RbdCreate {
            name: claim.name,
            pool_name: &place.pool,
            rbd_name: &place.image,
            block_size: BLOCK_SIZE,
            cluster_name: claim.name,
        };
        rpc.call(&create).await.map(drop).map_err(|error| error.at(&format!("{}/{}", place.pool, place.image)))
    }

    async fn detach(&self, rpc: &Rpc, held: &Held) -> Result<(), RpcError> {
        let name = held.name.as_str();
        match rpc.call(&RbdDelete { name }).await {
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
        rpc.call(&UnregisterCluster { name }).await.map(drop)
    }
}
