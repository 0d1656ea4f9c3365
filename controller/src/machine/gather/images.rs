//! The images and snapshots that a machine's disks are made from.

use crate::Controller;
use crate::error::{Error, call, found};
use crate::snapshots::{VolumeSnapshot, VolumeSnapshotContent};
use api::conditions::{self, is_true};
use api::image::{ImageImport, MachineImageStatus};
use api::machine::ImageKind;
use api::quantity::bytes;
use planner::machine::claim_name;
use planner::machine::observed::{ContentSeen, ImageSeen, Observed, SnapshotSeen};

pub(super) async fn gather(c: &Controller, namespace: &str, o: &mut Observed) -> Result<(), Error> {
    let machine = o.machine.clone();
    for disk in &machine.spec.disks {
        if o.claims.contains_key(&claim_name(&machine, disk)) {
            continue;
        }
        if let Some(snapshot) = &disk.source.snapshot {
            snapshot_seen(c, namespace, &snapshot.name, o);
        }
        let Some(reference) = &disk.source.image else { continue };
        let image = match reference.kind {
            ImageKind::MachineImage => {
                let image = c.world.images.get(namespace, &reference.name);
                image.map(|image| image_seen(image.metadata.uid.as_deref(), &image.spec.import, image.status.as_ref()))
            }
            ImageKind::ClusterMachineImage => {
                let image = c.world.cluster_images.get("", &reference.name);
                let seen = image
                    .map(|image| image_seen(image.metadata.uid.as_deref(), &image.spec.import, image.status.as_ref()));
                match seen {
                    Some(mut image) => {
                        let import = planner::machine::import_name(&reference.name, &image.uid);
                        snapshot_seen(c, namespace, &import, o);
                        if image.ready && !o.snapshots.contains_key(&import) {
                            image.content = content(c, &image).await?;
                        }
                        Some(image)
                    }
                    None => None,
                }
            }
        };
        if let Some(image) = image {
            o.images.insert((reference.kind, reference.name.clone()), image);
        }
    }
    Ok(())
}

fn image_seen(uid: Option<&str>, import: &ImageImport, status: Option<&MachineImageStatus>) -> ImageSeen {
    let ready = status.and_then(|status| conditions::get(&status.conditions, conditions::READY));
    ImageSeen {
        uid: uid.unwrap_or_default().to_owned(),
        ready: status.is_some_and(|status| is_true(&status.conditions, conditions::READY)),
        why: ready.map_or("the controller has not looked at the image yet".to_owned(), |c| c.reason.clone()),
        snapshot_name: status.and_then(|s| s.snapshot_name.clone()).unwrap_or_default(),
        snapshot_namespace: status.and_then(|s| s.snapshot_namespace.clone()).unwrap_or_default(),
        size_bytes: status.and_then(|s| s.virtual_size.as_ref()).and_then(bytes).unwrap_or_default(),
        storage_class: status.and_then(|s| s.storage_class_name.clone()),
        http: import.source.http.clone(),
        content: None,
    }
}

fn snapshot_seen(c: &Controller, namespace: &str, snapshot_name: &str, o: &mut Observed) {
    let Some(snapshot) = c.world.snapshots.get(namespace, snapshot_name) else { return };
    let status = snapshot.status.as_ref();
    let seen = SnapshotSeen {
        ready: status.and_then(|status| status.ready_to_use).unwrap_or_default(),
        restore_size_bytes: status.and_then(|status| status.restore_size.as_ref()).and_then(bytes),
        error: status.and_then(|status| status.error.as_ref()?.message.clone()),
    };
    o.snapshots.insert(snapshot_name.to_owned(), seen);
}

/// The content of a cluster image's snapshot.
async fn content(c: &Controller, image: &ImageSeen) -> Result<Option<ContentSeen>, Error> {
    let what = format!("get VolumeSnapshot '{}'", image.snapshot_name);
    let api = c.objects.namespaced::<VolumeSnapshot>(&image.snapshot_namespace);
    let snapshot = found(call(&what, api.get(&image.snapshot_name)).await)?;
    let bound = snapshot.and_then(|s| s.status).and_then(|status| status.bound_volume_snapshot_content_name);
    let Some(bound) = bound else { return Ok(None) };
    let what = format!("get VolumeSnapshotContent '{bound}'");
    let content = found(call(&what, c.objects.cluster::<VolumeSnapshotContent>().get(&bound)).await)?;
    Ok(content.and_then(|content| {
        let handle = content.status.and_then(|status| status.snapshot_handle)?;
        Some(ContentSeen { driver: content.spec.driver, handle, class: content.spec.volume_snapshot_class_name })
    }))
}
