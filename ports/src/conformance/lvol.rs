//! What every [`LogicalVolumes`] promises, run on an empty store with room for a few volumes.

use crate::lvol::{Export, Limits, LogicalVolumes, Lvol};
use crate::{ErrorClass, PortError};

pub async fn suite(store: &impl LogicalVolumes) {
    let room = store.room().await.expect("room");
    assert!(room.step > 0 && room.total % room.step == 0 && room.free <= room.total, "{room:?}");
    creates_once(store, room.step).await;
    snapshots_have_clones(store, room.step).await;
    nothing_is_larger_than_what_is_behind_it(store, room.step).await;
    only_what_nobody_can_reach_is_shrunk(store, room.step).await;
    keeps_limits(store, room.step).await;
    deletes_what_nothing_needs(store, room.step).await;
}

async fn get(store: &impl LogicalVolumes, name: &str) -> Option<Lvol> {
    store.list().await.expect("list").into_iter().find(|lvol| lvol.name == name)
}

async fn there(store: &impl LogicalVolumes, name: &str) -> Lvol {
    get(store, name).await.unwrap_or_else(|| panic!("{name} is not there"))
}

fn refused(result: Result<(), PortError>, class: ErrorClass, what: &str) {
    let error = result.expect_err(what);
    assert_eq!(error.class, class, "{what}: {error}");
}

async fn creates_once(store: &impl LogicalVolumes, step: u64) {
    for _ in 0..2 {
        store.create("a", 4 * step).await.expect("create");
    }
    refused(store.create("a", 5 * step).await, ErrorClass::Conflict, "another size");
    let made = there(store, "a").await;
    assert_eq!((made.size_bytes, made.is_snapshot, made.export), (4 * step, false, Export::None));
    for _ in 0..2 {
        store.rename("a", "b").await.expect("rename");
    }
    assert_eq!(there(store, "b").await.uuid, made.uuid);
    assert_eq!(get(store, "a").await, None);
    store.create("a", step).await.expect("create");
    refused(store.rename("a", "b").await, ErrorClass::Conflict, "the name is taken");
    refused(store.grow("none", step).await, ErrorClass::NotFound, "a volume that is not there");
}

/// After it: `snap` is behind `b` and `clone`.
async fn snapshots_have_clones(store: &impl LogicalVolumes, step: u64) {
    for _ in 0..2 {
        store.snapshot("b", "snap").await.expect("snapshot");
        store.copy("snap", "clone").await.expect("copy");
    }
    let snapshot = there(store, "snap").await;
    let mut clones = snapshot.clones.clone();
    clones.sort();
    assert_eq!((snapshot.is_snapshot, clones), (true, vec!["b".to_owned(), "clone".to_owned()]));
    let clone = there(store, "clone").await;
    assert_eq!((clone.parent.as_deref(), clone.size_bytes), (Some("snap"), 4 * step));
    refused(store.copy("b", "other").await, ErrorClass::Invalid, "a copy of what is no snapshot");
    refused(store.snapshot("a", "snap").await, ErrorClass::Conflict, "a snapshot of another volume has the name");
    refused(store.copy("snap", "a").await, ErrorClass::Conflict, "another volume has the name");
    refused(store.rename("snap", "other").await, ErrorClass::Invalid, "a snapshot keeps its name");
}

async fn nothing_is_larger_than_what_is_behind_it(store: &impl LogicalVolumes, step: u64) {
    refused(store.grow("clone", 5 * step).await, ErrorClass::Invalid, "beyond its parent");
    refused(store.grow("clone", 3 * step).await, ErrorClass::Invalid, "smaller");
    for _ in 0..2 {
        store.decouple("clone").await.expect("decouple");
    }
    assert_eq!(there(store, "clone").await.parent, None);
    for _ in 0..2 {
        store.grow("clone", 5 * step).await.expect("grow");
    }
    assert_eq!(there(store, "clone").await.size_bytes, 5 * step);
}

async fn only_what_nobody_can_reach_is_shrunk(store: &impl LogicalVolumes, step: u64) {
    for _ in 0..2 {
        store.export("clone").await.expect("export");
    }
    assert_eq!(there(store, "clone").await.export, Export::Offered);
    refused(store.shrink("clone", 3 * step).await, ErrorClass::Conflict, "it is exported");
    refused(store.delete("clone").await, ErrorClass::Conflict, "it is exported");
    for _ in 0..2 {
        store.withdraw("clone").await.expect("withdraw");
    }
    refused(store.shrink("clone", 6 * step).await, ErrorClass::Invalid, "larger");
    for _ in 0..2 {
        store.shrink("clone", 3 * step).await.expect("shrink");
    }
    let now = there(store, "clone").await;
    assert_eq!((now.size_bytes, now.export), (3 * step, Export::None));
}

async fn keeps_limits(store: &impl LogicalVolumes, _: u64) {
    let limits = Limits { operations: 5000, mib: 0, read_mib: 100, write_mib: 0 };
    for _ in 0..2 {
        store.limit("clone", limits).await.expect("limit");
    }
    assert_eq!(there(store, "clone").await.limits, limits);
    match store.limit("clone", Limits::default()).await {
        Ok(()) => assert_eq!(there(store, "clone").await.limits, Limits::default()),
        Err(error) => {
            assert_eq!(error.class, ErrorClass::Busy, "{error}");
            assert_eq!(there(store, "clone").await.limits, limits);
        }
    }
}

async fn deletes_what_nothing_needs(store: &impl LogicalVolumes, step: u64) {
    for name in ["x", "y"] {
        store.copy("snap", name).await.expect("copy");
    }
    refused(store.delete("snap").await, ErrorClass::Conflict, "it has clones");
    for name in ["y", "b"] {
        store.delete(name).await.expect("delete");
    }
    store.shrink("x", 2 * step).await.expect("shrink");
    refused(store.delete("snap").await, ErrorClass::Conflict, "its only clone is of another size");
    store.grow("x", 4 * step).await.expect("grow");
    store.delete("snap").await.expect("its only clone takes over what it has");
    assert_eq!(there(store, "x").await.parent, None);
    for name in ["x", "x", "a", "clone", "none"] {
        store.delete(name).await.expect("delete");
    }
    assert_eq!(store.list().await.expect("list"), []);
}
