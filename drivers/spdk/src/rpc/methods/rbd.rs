//! Ceph RBD images.

use super::{Done, methods};
use serde::Deserialize;
use std::path::Path;

methods! {
    /// Without any cluster it is refused with ENOENT.
    "bdev_rbd_get_clusters_info" => Vec<Cluster>, GetClusters {}
    "bdev_rbd_register_cluster" => Done, RegisterCluster<'a> { name: &'a str, user_id: &'a str, config_file: &'a Path }
    "bdev_rbd_unregister_cluster" => Done, UnregisterCluster<'a> { name: &'a str }
    "bdev_rbd_create" => Done, RbdCreate<'a> {
        name: &'a str,
        pool_name: &'a str,
        rbd_name: &'a str,
        block_size: u32,
        cluster_name: &'a str,
    }
    "bdev_rbd_delete" => Done, RbdDelete<'a> { name: &'a str }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Cluster {
    pub cluster_name: String,
}
