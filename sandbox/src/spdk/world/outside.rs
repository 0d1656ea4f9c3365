//! Storage that a target reaches and that outlives it: other targets, iSCSI logical units, RBD images.

use super::{Bdev, Kind, Outcome, World, errno, text};
use crate::spdk::{INVALID_PARAMS, Peer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Outside {
    pub(in crate::spdk) peers: Vec<Peer>,
    /// Sizes in bytes, by URL.
    pub luns: BTreeMap<String, u64>,
    /// Sizes in bytes, by `pool/image`.
    pub images: BTreeMap<String, u64>,
    /// Static NVMe functions of a BlueField, by VUID; without any the target is plain SPDK.
    pub functions: Vec<String>,
    pub dpu: super::dpu::Dpu,
    /// SPDK 23.01, as SNAP has it: shorter answers, fewer methods.
    pub is_old: bool,
    /// Files that are not below this folder are not there, as in SNAP's container.
    pub sees_only: Option<std::path::PathBuf>,
    /// Registered Ceph clusters. They end with the target.
    clusters: BTreeSet<String>,
}

/// RBD tells of a new size; an iSCSI target does so only to who logs in.
pub(super) fn look(world: &mut World) {
    let size = |bdev: &Bdev| match &bdev.kind {
        Kind::Rbd { pool, image, .. } => {
            let size = world.outside.images.get(&format!("{pool}/{image}"))?;
            Some((bdev.name.clone(), size / bdev.block_size))
        }
        _ => None,
    };
    let sizes: Vec<_> = world.bdevs.values().filter_map(size).collect();
    for (name, num_blocks) in sizes {
        world.resize_bdev(&name, num_blocks);
    }
}

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    let name = text(params, "name").to_owned();
    let is = |world: &World, kind: fn(&Kind) -> bool| world.bdev(&name).is_some_and(|bdev| kind(&bdev.kind));
    Some(match method {
        "bdev_iscsi_create" => {
            let (initiator, url) = (text(params, "initiator_iqn").to_owned(), text(params, "url").to_owned());
            match world.outside.luns.get(&url).copied() {
                Some(size) => {
                    world.register(Bdev::new(&name, super::bdevs::BLOCK_SIZE, size, Kind::Iscsi { initiator, url }))
                }
                None => Err((INVALID_PARAMS, "iSCSI error (251658241).".to_owned())),
            }
        }
        "bdev_iscsi_delete" if is(world, |kind| matches!(kind, Kind::Iscsi { .. })) => world.unregister(&name),
        "bdev_rbd_get_clusters_info" if world.outside.clusters.is_empty() => errno(-2),
        "bdev_rbd_get_clusters_info" => {
            Ok(world.outside.clusters.iter().map(|name| json!({"cluster_name": name})).collect())
        }
        "bdev_rbd_register_cluster" => match world.outside.clusters.insert(name.clone()) {
            true => Ok(json!(name)),
            false => errno(-17),
        },
        "bdev_rbd_unregister_cluster" => unregister(world, &name),
        "bdev_rbd_create" => create(world, &name, params),
        "bdev_rbd_delete" if is(world, |kind| matches!(kind, Kind::Rbd { .. })) => world.unregister(&name),
        "bdev_iscsi_delete" | "bdev_rbd_delete" => errno(-19),
        _ => return None,
    })
}

fn create(world: &mut World, name: &str, params: &Value) -> Outcome {
    let cluster = text(params, "cluster_name").to_owned();
    let (pool, image) = (text(params, "pool_name").to_owned(), text(params, "rbd_name").to_owned());
    let block_size = params["block_size"].as_u64().unwrap_or_default();
    if !world.outside.clusters.contains(&cluster) || block_size == 0 {
        return errno(-22);
    }
    match world.outside.images.get(&format!("{pool}/{image}")).copied() {
        Some(size) => world.register(Bdev::new(name, block_size, size, Kind::Rbd { pool, image, cluster })),
        None => errno(-2),
    }
}

fn unregister(world: &mut World, name: &str) -> Outcome {
    let in_use = |bdev: &Bdev| matches!(&bdev.kind, Kind::Rbd { cluster, .. } if cluster == name);
    if world.bdevs.values().any(in_use) {
        return errno(-16);
    }
    if world.outside.clusters.remove(name) { Ok(json!(true)) } else { errno(-2) }
}

impl Outside {
    /// What of it is the target's own.
    pub(super) fn forget(&mut self) {
        self.clusters.clear();
    }
}
