//! What a provisioner and the volume binder write for each claim: a volume, and the claim bound to it.

use super::AT_ONCE;
use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use tests::site::STORAGE_CLASS;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// For ever.
pub async fn run(client: Client) {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let mut claims = watcher(claims, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut binding = JoinSet::new();
    while let Some(claim) = claims.next().await {
        while binding.try_join_next().is_some() {}
        let Ok(claim) = claim else { continue };
        let is_new = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_none());
        if is_new && claim.metadata.deletion_timestamp.is_none() {
            let (client, permits) = (client.clone(), permits.clone());
            binding.spawn(async move {
                let _permit = permits.acquire().await;
                if let Err(error) = bind(&client, &claim).await {
                    eprintln!("bench: claim {}: {error:#}", claim.name_any());
                }
            });
        }
    }
}

async fn bind(client: &Client, claim: &PersistentVolumeClaim) -> Result<()> {
    let (name, namespace) = (claim.name_any(), claim.namespace().unwrap_or_default());
    let uid = claim.uid().context("it has a UID")?;
    let volume_name = format!("pvc-{uid}");
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).cloned().context("it asks for a size")?;
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": volume_name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Block",
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": STORAGE_CLASS,
            "csi": {"driver": csi::DRIVER, "volumeHandle": volume_name},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid},
        },
    }))?;
    Api::<PersistentVolume>::all(client.clone()).create(&PostParams::default(), &volume).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let bound = json!({
        "metadata": {"annotations": {
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        }},
        "spec": {"volumeName": volume_name},
    });
    claims.patch(&name, &PatchParams::default(), &Patch::Merge(&bound)).await?;
    let status = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}});
    claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}
