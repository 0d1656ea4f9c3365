//! The Lease by which the controller knows that the agent lives. A task of its own: no reconcile delays it.

use crate::cluster::{Cluster, bounded};
use crate::metrics::Metrics;
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
const EVERY: Duration = Duration::from_secs(1);
/// Shorter than for other calls: a lost request must not make us look dead.
const LIMIT: Duration = Duration::from_secs(3);
/// The controller counts five seconds of an unchanged renewTime as silence.
const DURATION_SECONDS: i32 = 5;

/// Renews for ever. `refused` is told when the API server does not accept our token. `joined` gets the cluster with the first renewal:
/// nothing is claimed before it, so a controller that reads an old renewal knows that nothing was (docs/design/fencing.md, step 12).
pub(crate) async fn beat(
    cluster: &Cluster,
    holder: &str,
    refused: &Notify,
    joined: &watch::Sender<Option<Cluster>>,
    metrics: &Metrics,
) {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        tick.tick().await;
        let renewed = tokio::time::timeout(LIMIT, renew(&leases, holder)).await;
        let late = |_| Err(PortError::new(ErrorClass::Unreachable, "Lease agent: no answer from the API server"));
        let renewed = renewed.unwrap_or_else(late);
        metrics.renewed(&renewed);
        match renewed {
            Ok(()) => {
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

async fn renew(leases: &Api<Lease>, holder: &str) -> Result<(), PortError> {
    let spec = json!({
        "holderIdentity": holder,
        "leaseDurationSeconds": DURATION_SECONDS,
        "renewTime": MicroTime(crate::clock::now()),
    });
    let patch = json!({ "spec": spec });
    let renewed = bounded("Lease agent", leases.patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))).await;
    match renewed {
        Err(error) if error.class == ErrorClass::NotFound => {
            let lease = json!({"metadata": {"name": NAME}, "spec": spec});
            let lease =
                serde_json::from_value(lease).map_err(|e| PortError::new(ErrorClass::Invalid, e.to_string()))?;
            bounded("Lease agent", leases.create(&PostParams::default(), &lease)).await.map(drop)
        }
        result => result.map(drop),
    }
}
