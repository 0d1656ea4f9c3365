//! The Lease by which the controller knows that the agent lives. A task of its own: no reconcile delays it.

use crate::beats::{Beat, Beats};
use crate::cluster::{Cluster, bounded};
use crate::metrics::Metrics;
use api::labels;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use ports::{ErrorClass, PortError};
use serde_json::json;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

const NAME: &str = "agent";
const WHAT: &str = "Lease agent";
const EVERY: Duration = Duration::from_secs(1);
/// Shorter than for other calls: a lost request must not make us look dead.
const LIMIT: Duration = Duration::from_secs(3);
/// The controller counts five seconds of an unchanged renewTime as silence.
const DURATION_SECONDS: i32 = 5;

/// Renews until the API server is found to have gone back: then the session begins anew, for nothing that it was told before holds.
/// `refused` is told when the API server does not accept our token. `joined` gets the cluster with the first renewal: nothing is
/// claimed before it, so a controller that reads an old renewal knows that nothing was (docs/design/fencing.md, *LeaseIsUnchanged*).
pub(crate) async fn beat(
    cluster: &Cluster,
    as_whom: AsWhom<'_>,
    refused: &Notify,
    joined: &watch::Sender<Option<Cluster>>,
    metrics: &Metrics,
) {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let mut heart = Heart { leases, as_whom, version: None };
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        tick.tick().await;
        as_whom.beats.renewing.begin();
        let renewed = tokio::time::timeout(LIMIT, heart.renew()).await;
        let late = |_| Err(PortError::new(ErrorClass::Unreachable, "Lease agent: no answer from the API server"));
        let renewed = renewed.unwrap_or_else(late);
        metrics.renewed(&renewed);
        match renewed {
            Ok(Renewed::WentBack) => {
                tracing::warn!("the API server has forgotten a renewal that it had confirmed: its state went back");
                return;
            }
            Ok(Renewed::Yes) => {
                as_whom.beats.renewing.acknowledge();
                if joined.send_if_modified(|it| it.is_none() && it.replace(cluster.clone()).is_none()) {
                    tracing::info!(namespace = cluster.namespace, "joined");
                }
                if std::mem::take(&mut failing) {
                    tracing::info!("the Lease is renewed again");
                }
            }
            Err(error) => {
                if error.class == ErrorClass::Unauthorized {
                    refused.notify_one();
                }
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "renewing the Lease");
                }
            }
        }
    }
}

/// Who renews.
#[derive(Clone, Copy)]
pub(crate) struct AsWhom<'a> {
    pub node: &'a str,
    pub dpu_uid: &'a str,
    pub beats: &'a Beats,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    /// And that is told with this renewal.
    WentBack,
}

struct Heart<'a> {
    leases: Api<Lease>,
    as_whom: AsWhom<'a>,
    /// Of the Lease as we last wrote or read it.
    version: Option<String>,
}

impl Heart<'_> {
    async fn renew(&mut self) -> Result<Renewed, PortError> {
        let AsWhom { dpu_uid, beats, .. } = self.as_whom;
        if let (Some(version), Some(beat)) = (self.version.take(), beats.next(dpu_uid)) {
            // Whoever else has written to the Lease, or put it back, makes this a conflict.
            match self.write(Some(&version), beat).await {
                Err(error) if matches!(error.class, ErrorClass::Conflict | ErrorClass::NotFound) => {}
                result => return result.map(|()| Renewed::Yes),
            }
        }
        let there = bounded(WHAT, self.leases.get_opt(NAME)).await?;
        let (beat, went_back) = beats.after(dpu_uid, there.as_ref().map(told));
        let version = there.and_then(|lease| lease.metadata.resource_version);
        self.write(version.as_deref(), beat).await?;
        Ok(if went_back { Renewed::WentBack } else { Renewed::Yes })
    }

    /// `version`: the Lease that this renews; nothing: there is none.
    async fn write(&mut self, version: Option<&str>, beat: Beat) -> Result<(), PortError> {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": NAME,
                "resourceVersion": version,
                "annotations": {
                    labels::BEAT: beat.number.to_string(),
                    labels::WENT_BACK: beat.went_back.to_string(),
                    labels::BOOT_DISK_READS: self.as_whom.beats.boot_disk.told(),
                },
            },
            "spec": {
                "holderIdentity": self.as_whom.node,
                "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": MicroTime(crate::clock::now()),
            },
        });
        let written = match version {
            Some(_) => bounded(WHAT, self.leases.patch(NAME, &PatchParams::default(), &Patch::Merge(&lease))).await?,
            None => {
                // A patch takes it away; here it is none.
                if let Some(annotations) = lease["metadata"]["annotations"].as_object_mut() {
                    annotations.retain(|_, value| !value.is_null());
                }
                let invalid = |error: serde_json::Error| PortError::new(ErrorClass::Invalid, error.to_string());
                let lease = serde_json::from_value(lease).map_err(invalid)?;
                bounded(WHAT, self.leases.create(&PostParams::default(), &lease)).await?
            }
        };
        self.version = written.metadata.resource_version;
        let noted = self.as_whom.beats.confirmed(self.as_whom.dpu_uid, beat);
        noted.map_err(|error| PortError::new(ErrorClass::Invalid, format!("noting a renewal: {error}")))
    }
}

fn told(lease: &Lease) -> Beat {
    let number = |name: &str| {
        let text = lease.metadata.annotations.as_ref().and_then(|all| all.get(name));
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    Beat { number: number(labels::BEAT), went_back: number(labels::WENT_BACK) }
}
