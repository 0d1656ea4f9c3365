//! Lvstores: thin volumes, snapshots and clones. They are on a disk that outlives the target, which has them again when it
//! starts anew.

use super::bdevs::BLOCK_SIZE;
use super::{Bdev, Kind, Outcome, World, errno, text};
use crate::spdk::{INTERNAL_ERROR, INVALID_PARAMS};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
pub struct Lvols {
    stores: BTreeMap<String, Store>,
    /// By the bdev's name, which is the UUID.
    all: BTreeMap<String, Lvol>,
    /// What the process knows to be a snapshot: what it made one, cloned, or found behind a clone when it started.
    snapshots: BTreeSet<String>,
}

#[derive(Debug)]
struct Store {
    cluster_size: u64,
    clusters: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lvol {
    store: String,
    name: String,
    pub clusters: u64,
    /// Of its own.
    pub allocated: u64,
    is_snapshot: bool,
    parent: Option<String>,
}

impl Lvol {
    fn full(&self) -> String {
        format!("{}/{}", self.store, self.name)
    }
}

impl World {
    pub fn add_lvstore(&mut self, name: &str, cluster_size: u64, clusters: u64) {
        self.lvols.stores.insert(name.to_owned(), Store { cluster_size, clusters });
    }

    /// What a host wrote, in clusters.
    pub fn fill_lvol(&mut self, full: &str, clusters: u64) {
        if let Some(lvol) = self.lvols.all.values_mut().find(|lvol| lvol.full() == full) {
            lvol.allocated = clusters;
        }
    }

    /// The disk is there, the process is new.
    pub(super) fn load_lvols(&mut self, lvols: Lvols) {
        self.lvols = lvols;
        let all: Vec<_> = self.lvols.all.iter().map(|(uuid, lvol)| (uuid.clone(), lvol.clone())).collect();
        self.lvols.snapshots = all.iter().filter_map(|(_, lvol)| lvol.parent.clone()).collect();
        for (uuid, lvol) in all {
            self.add_lvol_bdev(&uuid, &lvol);
        }
    }

    fn add_lvol_bdev(&mut self, uuid: &str, lvol: &Lvol) {
        let size = lvol.clusters * self.lvols.stores[&lvol.store].cluster_size;
        let mut bdev = Bdev::new(uuid, BLOCK_SIZE, size, Kind::Lvol);
        (bdev.uuid, bdev.aliases) = (uuid.to_owned(), vec![lvol.full()]);
        self.add_bdev(bdev);
    }

    fn lvol(&self, name: &str) -> Option<(String, Lvol)> {
        let uuid = self.bdev(name)?.name.clone();
        let lvol = self.lvols.all.get(&uuid)?.clone();
        Some((uuid, lvol))
    }

    fn clones(&self, uuid: &str) -> Vec<String> {
        let of = |(_, lvol): &(&String, &Lvol)| lvol.parent.as_deref() == Some(uuid);
        self.lvols.all.iter().filter(of).map(|(uuid, _)| uuid.clone()).collect()
    }

    fn has_lvol(&self, store: &str, name: &str) -> bool {
        self.lvols.all.values().any(|lvol| lvol.store == store && lvol.name == name)
    }

    fn put_lvol(&mut self, lvol: Lvol) -> Outcome {
        let uuid = uuid::Uuid::new_v4().to_string();
        self.add_lvol_bdev(&uuid, &lvol);
        self.lvols.all.insert(uuid.clone(), lvol);
        Ok(json!(uuid))
    }

    /// `driver_specific` of a bdev that is a logical volume.
    pub(super) fn lvol_details(&self, bdev: &str) -> Option<Value> {
        let lvol = self.lvols.all.get(bdev)?;
        let name = |uuid: &String| self.lvols.all[uuid].name.clone();
        let mut details = json!({
            "base_bdev": "disk", "thin_provision": true, "num_allocated_clusters": lvol.allocated,
            "snapshot": self.lvols.snapshots.contains(bdev), "clone": lvol.parent.is_some(), "esnap_clone": false,
        });
        if let Some(parent) = &lvol.parent {
            details["base_snapshot"] = json!(name(parent));
        }
        if self.lvols.snapshots.contains(bdev) {
            details["clones"] = self.clones(bdev).iter().map(name).collect();
        }
        Some(json!({"lvol": details}))
    }

    /// Nobody writes to a snapshot.
    pub(super) fn is_read_only_lvol(&self, bdev: &str) -> bool {
        self.lvols.all.get(bdev).is_some_and(|lvol| lvol.is_snapshot)
    }
}

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    Some(match method {
        "bdev_lvol_get_lvstores" => stores(world, params),
        "bdev_lvol_create" => create(world, params),
        "bdev_lvol_snapshot" => snapshot(world, params),
        "bdev_lvol_clone" => clone(world, params),
        "bdev_lvol_rename" => rename(world, params),
        "bdev_lvol_resize" => resize(world, params),
        "bdev_lvol_decouple_parent" => decouple(world, params),
        "bdev_lvol_delete" => delete(world, params),
        _ => return None,
    })
}

fn exists() -> Outcome {
    Err((INVALID_PARAMS, "File exists".to_owned()))
}

fn stores(world: &World, params: &Value) -> Outcome {
    let dump = |(name, store): (&String, &Store)| {
        let used: u64 = world.lvols.all.values().filter(|lvol| lvol.store == *name).map(|lvol| lvol.allocated).sum();
        json!({
            "name": name, "cluster_size": store.cluster_size, "total_data_clusters": store.clusters,
            "free_clusters": store.clusters.saturating_sub(used), "block_size": BLOCK_SIZE,
        })
    };
    match params["lvs_name"].as_str() {
        None => Ok(world.lvols.stores.iter().map(dump).collect()),
        Some(name) => match world.lvols.stores.get_key_value(name) {
            Some(found) => Ok(json!([dump(found)])),
            None => errno(-19),
        },
    }
}

fn clusters(world: &World, store: &str, params: &Value) -> u64 {
    let size = params["size_in_mib"].as_u64().unwrap_or_default() * MIB;
    size.div_ceil(world.lvols.stores[store].cluster_size)
}

fn create(world: &mut World, params: &Value) -> Outcome {
    let (store, name) = (text(params, "lvs_name").to_owned(), text(params, "lvol_name").to_owned());
    if !world.lvols.stores.contains_key(&store) {
        return errno(-19);
    }
    if world.has_lvol(&store, &name) {
        return errno(-17);
    }
    let clusters = clusters(world, &store, params);
    world.put_lvol(Lvol { store, name, clusters, allocated: 0, is_snapshot: false, parent: None })
}

/// The volume becomes a clone of it.
fn snapshot(world: &mut World, params: &Value) -> Outcome {
    let name = text(params, "snapshot_name").to_owned();
    let Some((uuid, volume)) = world.lvol(text(params, "lvol_name")) else { return errno(-19) };
    if world.has_lvol(&volume.store, &name) {
        return exists();
    }
    let made = world.put_lvol(Lvol { name, is_snapshot: true, ..volume })?;
    world.lvols.snapshots.extend(made.as_str().map(str::to_owned));
    if let Some(volume) = world.lvols.all.get_mut(&uuid) {
        (volume.parent, volume.allocated) = (made.as_str().map(str::to_owned), 0);
    }
    Ok(made)
}

fn clone(world: &mut World, params: &Value) -> Outcome {
    let name = text(params, "clone_name").to_owned();
    let Some((uuid, from)) = world.lvol(text(params, "snapshot_name")) else { return errno(-19) };
    if world.has_lvol(&from.store, &name) {
        return exists();
    }
    if !from.is_snapshot {
        return errno(-22).map_err(|(_, message)| (INVALID_PARAMS, message));
    }
    world.lvols.snapshots.insert(uuid.clone());
    world.put_lvol(Lvol { name, is_snapshot: false, parent: Some(uuid), allocated: 0, ..from })
}

fn rename(world: &mut World, params: &Value) -> Outcome {
    let to = text(params, "new_name").to_owned();
    let Some((uuid, lvol)) = world.lvol(text(params, "old_name")) else { return errno(-19) };
    if world.has_lvol(&lvol.store, &to) {
        return exists();
    }
    if lvol.is_snapshot {
        return Err((INVALID_PARAMS, "Operation not permitted".to_owned()));
    }
    let lvol = Lvol { name: to, ..lvol };
    if let Some(bdev) = world.bdevs.get_mut(&uuid) {
        bdev.aliases = vec![lvol.full()];
    }
    world.lvols.all.insert(uuid, lvol);
    Ok(json!(true))
}

/// Asks nobody, whether it grows or shrinks.
fn resize(world: &mut World, params: &Value) -> Outcome {
    let Some((uuid, lvol)) = world.lvol(text(params, "name")) else { return errno(-19) };
    if lvol.is_snapshot {
        return Err((INVALID_PARAMS, "Operation not permitted".to_owned()));
    }
    let clusters = clusters(world, &lvol.store, params);
    let (full, claimed) = (lvol.full(), world.bdevs[&uuid].claimed.clone());
    if let Some(user) = claimed.filter(|_| clusters < lvol.clusters) {
        world.harmful(format!("{full} was shrunk under {user}"));
    }
    if let Some(parent) = lvol.parent.as_ref().map(|parent| world.lvols.all[parent].clone())
        && parent.clusters < clusters
    {
        world.harmful(format!("{full} was made larger than its parent {}: reads past its end harm", parent.full()));
    }
    let blocks = clusters * world.lvols.stores[&lvol.store].cluster_size / BLOCK_SIZE;
    world.lvols.all.insert(uuid.clone(), Lvol { clusters, ..lvol });
    world.resize_bdev(&uuid, blocks);
    Ok(json!(true))
}

fn decouple(world: &mut World, params: &Value) -> Outcome {
    let Some((uuid, lvol)) = world.lvol(text(params, "name")) else { return errno(-19) };
    let Some(parent) = lvol.parent.as_ref().map(|parent| world.lvols.all[parent].clone()) else {
        return errno(-22).map_err(|(_, message)| (INVALID_PARAMS, message));
    };
    if parent.clusters < lvol.clusters {
        world.harmful(format!("{} was decoupled from its smaller parent {}", lvol.full(), parent.full()));
    }
    let allocated = lvol.allocated + parent.allocated;
    world.lvols.all.insert(uuid, Lvol { allocated, parent: parent.parent, ..lvol });
    Ok(json!(true))
}

/// A snapshot's only clone takes over what it has.
fn delete(world: &mut World, params: &Value) -> Outcome {
    let Some((uuid, lvol)) = world.lvol(text(params, "name")) else { return errno(-19) };
    let clones = world.clones(&uuid);
    if clones.len() > 1 {
        return Err((INTERNAL_ERROR, "Operation not permitted".to_owned()));
    }
    if let Some(only) = clones.first().map(|only| world.lvols.all[only].clone()) {
        if only.clusters != lvol.clusters {
            world.harmful(format!("{} was deleted under {}, which is of another size", lvol.full(), only.full()));
        }
        let allocated = only.allocated + lvol.allocated;
        world.lvols.all.insert(clones[0].clone(), Lvol { allocated, parent: lvol.parent, ..only });
    }
    world.lvols.all.remove(&uuid);
    world.lvols.snapshots.remove(&uuid);
    world.unregister(&uuid)
}
