//! Block devices: files, and RAID over others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use serde_json::{Value, json};
use uuid::Uuid;

use super::snap::Namespace;
use super::{Outcome, World, errno, text};
use crate::spdk::{INTERNAL_ERROR, INVALID_PARAMS};

/// What the host can address, when nothing else is said.
pub(super) const BLOCK_SIZE: u64 = 512;
/// With the end of the name.
const RAID_NAME_SIZE: usize = 64;
/// What `bdev_set_qos_limit` takes: operations, then MiB in a second.
const RATES: [&str; 4] = ["rw_ios_per_sec", "rw_mbytes_per_sec", "r_mbytes_per_sec", "w_mbytes_per_sec"];
/// In a second.
const TICKS: u64 = 1_000_000_000;

#[derive(Debug, Clone)]
pub struct Bdev {
    pub name: String,
    pub aliases: Vec<String>,
    pub uuid: String,
    pub block_size: u64,
    pub num_blocks: u64,
    /// Who has it for himself.
    pub claimed: Option<String>,
    /// In the order of [`RATES`]; 0: none.
    pub limits: [u64; RATES.len()],
    /// Writes of one block so far.
    pub writes: u64,
    pub has_histogram: bool,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Aio {
        file: PathBuf,
        readonly: bool,
    },
    Uring {
        file: PathBuf,
    },
    Malloc,
    Lvol,
    /// A namespace of a controller that the target connected to.
    Nvme {
        controller: String,
    },
    Iscsi {
        initiator: String,
        url: String,
    },
    Rbd {
        pool: String,
        image: String,
        cluster: String,
    },
    Raid {
        bases: Vec<String>,
    },
}

impl Bdev {
    pub fn new(name: &str, block_size: u64, size_bytes: u64, kind: Kind) -> Bdev {
        Bdev {
            name: name.to_owned(),
            aliases: Vec::new(),
            uuid: Uuid::new_v4().to_string(),
            block_size,
            num_blocks: size_bytes / block_size,
            claimed: None,
            limits: Default::default(),
            writes: 0,
            has_histogram: false,
            kind,
        }
    }

    fn traffic(&self) -> Value {
        json!({
            "name": self.name, "bytes_read": 0, "num_read_ops": 0, "read_latency_ticks": 0,
            "bytes_written": self.writes * self.block_size, "num_write_ops": self.writes,
            "write_latency_ticks": self.writes * TICKS / 1000,
        })
    }

    fn dump(&self) -> Value {
        let (product, specific) = match &self.kind {
            Kind::Aio { file, readonly } => {
                ("AIO disk", json!({"aio": {"filename": file, "readonly": readonly, "fallocate": false}}))
            }
            Kind::Uring { file } => ("URING bdev", json!({"uring": {"filename": file}})),
            Kind::Malloc => ("Malloc disk", json!({})),
            Kind::Lvol => {
                ("Logical Volume", json!({"lvol": {"thin_provision": true, "snapshot": false, "clone": false}}))
            }
            Kind::Nvme { .. } => ("NVMe disk", json!({"nvme": [{"ns_data": {"id": 1}}]})),
            Kind::Iscsi { initiator, url } => {
                ("iSCSI LUN", json!({"iscsi": {"initiator_name": initiator, "url": url}}))
            }
            Kind::Rbd { pool, image, .. } => ("Ceph Rbd Disk", json!({"rbd": {"pool_name": pool, "rbd_name": image}})),
            Kind::Raid { bases } => {
                let bases: Vec<_> = bases.iter().map(|name| json!({"name": name, "is_configured": true})).collect();
                ("Raid Volume", json!({"raid": {"state": "online", "raid_level": "raid0", "base_bdevs_list": bases}}))
            }
        };
        json!({
            "name": self.name, "aliases": self.aliases, "product_name": product, "uuid": self.uuid,
            "block_size": self.block_size, "num_blocks": self.num_blocks, "claimed": self.claimed.is_some(),
            "assigned_rate_limits": RATES.into_iter().zip(self.limits).collect::<BTreeMap<_, _>>(),
            "driver_specific": specific,
        })
    }
}

impl World {
    pub(super) fn bdev(&self, name: &str) -> Option<&Bdev> {
        self.bdevs.values().find(|bdev| bdev.name == name || bdev.aliases.iter().any(|alias| alias == name))
    }

    fn dump(&self, bdev: &Bdev) -> Value {
        let mut dump = bdev.dump();
        dump["supported_io_types"] = json!({"read": true, "write": !self.is_read_only_lvol(&bdev.name)});
        if let Some(details) = self.lvol_details(&bdev.name) {
            dump["driver_specific"] = details;
        }
        dump
    }

    pub fn add_bdev(&mut self, bdev: Bdev) {
        let name = bdev.name.clone();
        self.bdevs.insert(name.clone(), bdev);
        let waits = self.waiting_raids.iter().find(|(_, base)| **base == name).map(|(raid, _)| raid.clone());
        if let Some(raid) = waits {
            self.waiting_raids.remove(&raid);
            self.raid_over(raid, &name);
        }
    }

    fn raid_over(&mut self, name: String, base: &str) {
        let Some(below) = self.bdevs.get_mut(base) else { return };
        below.claimed = Some(name.clone());
        let size_bytes = below.block_size * below.num_blocks;
        let raid = Bdev::new(&name, below.block_size, size_bytes, Kind::Raid { bases: vec![base.to_owned()] });
        self.add_bdev(raid);
    }

    /// A bdev's UUID is a name of it, too.
    pub(super) fn register(&mut self, bdev: Bdev) -> Outcome {
        if self.bdev(&bdev.name).is_some() || self.bdevs.values().any(|there| there.uuid == bdev.uuid) {
            return errno(-17);
        }
        let name = json!(bdev.name);
        self.add_bdev(bdev);
        Ok(name)
    }

    /// Who stands on it feels the new size at once.
    pub fn resize_bdev(&mut self, name: &str, num_blocks: u64) {
        if let Some(bdev) = self.bdevs.get_mut(name) {
            bdev.num_blocks = num_blocks;
        }
        let above =
            self.bdevs.values().find(|b| matches!(&b.kind, Kind::Raid { bases } if bases == &[name.to_owned()]));
        if let Some(above) = above.map(|bdev| bdev.name.clone()) {
            self.resize_bdev(&above, num_blocks);
        }
    }

    pub(super) fn unregister(&mut self, name: &str) -> Outcome {
        if !self.bdevs.contains_key(name) {
            return errno(-19);
        }
        let above = self.vanish(name);
        if !above.is_empty() {
            self.harmful(format!("bdev {name} was deleted under {}", above.join(", ")));
        }
        Ok(json!(true))
    }

    /// It is no longer there, and with it what stands on it. Who had it.
    pub fn vanish(&mut self, name: &str) -> Vec<String> {
        self.bdevs.remove(name);
        for claimed in self.bdevs.values_mut().filter(|bdev| bdev.claimed.as_deref() == Some(name)) {
            claimed.claimed = None;
        }
        let mut had = self.nvmf.lose(name);
        had.extend(self.lose_behind_vhost(name));
        had.extend(self.snap.lose(name));
        let stands = |bdev: &Bdev| matches!(&bdev.kind, Kind::Raid { bases } if bases.iter().any(|base| base == name));
        let above: Vec<_> = self.bdevs.values().filter(|bdev| stands(bdev)).map(|bdev| bdev.name.clone()).collect();
        for raid in above {
            had.extend(self.vanish(&raid));
            had.push(raid);
        }
        had
    }
}

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    let name = text(params, "name");
    Some(match method {
        "bdev_get_bdevs" if name.is_empty() => Ok(world.bdevs.values().map(|bdev| world.dump(bdev)).collect()),
        "bdev_get_bdevs" => world.bdev(name).map(|bdev| json!([world.dump(bdev)])).map_or_else(|| errno(-19), Ok),
        "bdev_aio_create" => aio_create(world, params),
        "bdev_aio_rescan" | "bdev_uring_rescan" => rescan(world, name),
        "bdev_uring_create" => uring_create(world, params),
        "bdev_uring_delete" => match world.bdev(name).map(|bdev| &bdev.kind) {
            Some(Kind::Uring { .. }) => world.unregister(name),
            _ => errno(-19),
        },
        "bdev_aio_delete" => match world.bdev(name).map(|bdev| &bdev.kind) {
            Some(Kind::Aio { .. }) => world.unregister(name),
            _ => errno(-19),
        },
        "bdev_set_qos_limit" => set_limits(world, name, params),
        "bdev_enable_histogram" => match world.bdevs.get_mut(name) {
            Some(bdev) => {
                bdev.has_histogram = params["enable"] == true;
                Ok(json!(true))
            }
            None => errno(-19),
        },
        "bdev_get_histogram" => match world.bdev(name) {
            Some(bdev) if bdev.has_histogram => Ok(histogram(bdev.writes, world.outside.is_old)),
            Some(_) => errno(-14),
            None => errno(-19),
        },
        "bdev_get_iostat" => {
            let said = |bdevs: Vec<Value>| Ok(json!({"tick_rate": TICKS, "ticks": TICKS, "bdevs": bdevs}));
            let is_old = world.outside.is_old;
            let known = if is_old { "name" } else { "names" };
            let unknown = |given: &serde_json::Map<String, Value>| given.keys().any(|key| key != known);
            if params.as_object().is_some_and(unknown) {
                return Some(Err((INTERNAL_ERROR, "spdk_json_decode_object failed".to_owned())));
            }
            match params.get(known) {
                None => said(world.bdevs.values().map(Bdev::traffic).collect()),
                Some(named) => {
                    let name = if is_old { named.as_str() } else { named[0].as_str() };
                    let bdev = world.bdev(name.unwrap_or_default());
                    bdev.map_or_else(|| errno(-19), |bdev| said(vec![bdev.traffic()]))
                }
            }
        }
        "bdev_raid_create" => raid_create(world, params),
        "bdev_raid_delete" if world.waiting_raids.remove(name).is_some() => Ok(json!(true)),
        "bdev_raid_delete" => match world.bdev(name).map(|bdev| &bdev.kind) {
            Some(Kind::Raid { .. }) => world.unregister(name),
            _ => errno(-19),
        },
        _ => return None,
    })
}

/// What is not named stays.
fn set_limits(world: &mut World, name: &str, params: &Value) -> Outcome {
    let Some(own) = world.bdev(name).map(|bdev| bdev.name.clone()) else { return errno(-19) };
    if !params["rw_ios_per_sec"].as_u64().unwrap_or_default().is_multiple_of(1000) {
        return errno(-22);
    }
    // SNAP has I/O channels without a claim.
    let of_snap = |ns: &Namespace| world.bdev(&ns.bdev).is_some_and(|bdev| bdev.name == own);
    let by_snap = world.snap.subsystems.values().flat_map(|subsystem| subsystem.namespaces.values()).any(of_snap);
    // vhost has none of its own: a virtual machine does.
    let awaits_machine = world.vhost.values().any(|c| c.bdev.as_deref() == Some(&own) && !c.connected);
    if let Some(bdev) = world.bdevs.get_mut(&own) {
        let has_channel = bdev.claimed.is_some() && !awaits_machine || by_snap;
        // Opening it, to set them, begins to keep those that it has: without an I/O channel that does not end.
        if !has_channel && bdev.limits != <[u64; RATES.len()]>::default() {
            let message = "Failed to configure rate limit: Resource temporarily unavailable";
            return Err((INVALID_PARAMS, message.to_owned()));
        }
        for (name, limit) in RATES.into_iter().zip(&mut bdev.limits) {
            // What is not named stays as it is.
            *limit = params[name].as_u64().unwrap_or(*limit);
        }
    }
    Ok(json!(true))
}

/// All took the same time.
/// `old`: as SPDK 23.01, which counts from range 0 on and says so nowhere.
fn histogram(writes: u64, old: bool) -> Value {
    let (granularity, min_range, max_range) = (7, if old { 0 } else { 5 }, 27);
    let mut buckets = vec![0; (max_range - min_range + 1) << granularity];
    buckets[0] = writes;
    let bytes: Vec<u8> = buckets.iter().flat_map(|count| count.to_le_bytes()).collect();
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    if old {
        return json!({"histogram": text, "bucket_shift": granularity, "tsc_rate": TICKS});
    }
    json!({
        "histogram": text, "granularity": granularity, "min_range": min_range, "max_range": max_range, "tsc_rate": TICKS,
    })
}

fn over_file(world: &mut World, params: &Value, kind: impl FnOnce(PathBuf) -> Kind) -> Outcome {
    let file = PathBuf::from(text(params, "filename"));
    let is_seen = world.outside.sees_only.as_ref().is_none_or(|folder| file.starts_with(folder));
    let Some(meta) = std::fs::metadata(&file).ok().filter(|_| is_seen) else { return errno(-2) };
    let block_size = params["block_size"].as_u64().unwrap_or(BLOCK_SIZE);
    if meta.len() % block_size != 0 {
        return errno(-22);
    }
    world.register(Bdev::new(text(params, "name"), block_size, meta.len(), kind(file)))
}

fn aio_create(world: &mut World, params: &Value) -> Outcome {
    let readonly = params["readonly"] == true;
    over_file(world, params, |file| Kind::Aio { file, readonly })
}

fn uring_create(world: &mut World, params: &Value) -> Outcome {
    over_file(world, params, |file| Kind::Uring { file })
}

fn rescan(world: &mut World, name: &str) -> Outcome {
    let Some(Bdev { kind: Kind::Aio { file, .. } | Kind::Uring { file }, block_size, .. }) = world.bdev(name) else {
        return errno(-19);
    };
    let Ok(meta) = std::fs::metadata(file) else { return errno(-2) };
    let num_blocks = meta.len() / block_size;
    world.resize_bdev(name, num_blocks);
    Ok(json!(true))
}

fn raid_create(world: &mut World, params: &Value) -> Outcome {
    let name = text(params, "name").to_owned();
    if name.len() >= RAID_NAME_SIZE {
        return errno(-22);
    }
    let bases: Vec<String> =
        params["base_bdevs"].as_array().into_iter().flatten().filter_map(|b| Some(b.as_str()?.to_owned())).collect();
    if world.bdev(&name).is_some() || world.waiting_raids.contains_key(&name) {
        return errno(-17);
    }
    let [base] = bases.as_slice() else {
        return Err((INTERNAL_ERROR, "the fake knows RAID over one bdev only".to_owned()));
    };
    let Some(base) = world.bdev(base).map(|bdev| bdev.name.clone()) else {
        // A success: it is no bdev before the one under it comes.
        world.waiting_raids.insert(name, base.clone());
        return Ok(json!(true));
    };
    let below = &world.bdevs[&base];
    if below.claimed.is_some() {
        return Err((-1, format!("Failed to create RAID bdev {name}: Operation not permitted")));
    }
    world.raid_over(name, &base);
    Ok(json!(true))
}
