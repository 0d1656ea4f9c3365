//! `bmctl dpu forget`: an administrator's word that a disk or NIC which no attachment explains is taken from its host.

use crate::cluster::Cluster;
use crate::dpus::confirm;
use crate::failure::Failure;
use crate::output::name_of;
use api::Dpu;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeSet;

/// Adds the UIDs to `spec.forget`, and takes out those that the Dpu does not report any more.
///
/// The write carries UID and resourceVersion of the Dpu that was looked at: one that changes meanwhile makes it a conflict,
/// and everything is looked at again.
pub async fn run(
    cluster: &Cluster,
    dpu_name: &str,
    orphans: &[String],
    yes: bool,
    dry_run: bool,
) -> Result<String, Failure> {
    let dpus = Api::<Dpu>::all(cluster.client.clone());
    let params = PatchParams { dry_run, field_manager: Some("bmctl".to_owned()), ..PatchParams::default() };
    let object = format!("Dpu '{dpu_name}'");
    let mut confirmed = yes;
    loop {
        let found = dpus.list(&ListParams::default()).await;
        let found = found.map_err(|error| Failure::from_kube(error, "the list of DPUs", cluster.program))?;
        let Some(dpu) = found.items.into_iter().find(|dpu| dpu.name_any() == dpu_name) else {
            return Err(Failure::NotFound { object, next: format!("{} dpu get", cluster.program) });
        };
        let forget = forgotten(&dpu, orphans)?;
        if !confirmed {
            confirm(
                "Dpu",
                dpu_name,
                &format!(
                    "The host of {dpu_name} loses {} now, whatever runs on it. Type {dpu_name} to confirm: ",
                    orphans.join(", ")
                ),
            )?;
            confirmed = true;
        }
        let metadata = json!({"uid": dpu.uid(), "resourceVersion": dpu.resource_version()});
        let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"forget": forget}}));
        match dpus.patch(dpu_name, &params, &patch).await {
            Ok(changed) => {
                let dry = if dry_run { " (server dry run)" } else { "" };
                return Ok(format!("{} forgets {}{dry}\n", name_of(&changed), orphans.join(", ")));
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Failure::from_kube(error, &object, cluster.program)),
        }
    }
}

/// `spec.forget` as it is to be.
fn forgotten(dpu: &Dpu, asked: &[String]) -> Result<BTreeSet<String>, Failure> {
    let reported = dpu.status.as_ref().map(|status| status.orphans.as_slice()).unwrap_or_default();
    let reported: BTreeSet<&str> = reported.iter().map(|orphan| orphan.uid.as_str()).collect();
    if let Some(unknown) = asked.iter().find(|uid| !reported.contains(uid.as_str())) {
        let there = match reported.is_empty() {
            true => "it reports none".to_owned(),
            false => format!("it reports {}", reported.into_iter().collect::<Vec<_>>().join(", ")),
        };
        return Err(Failure::Told {
            object: format!("Dpu '{}'", dpu.name_any()),
            cause: format!("'{unknown}' is not the UID of one of its orphans: {there}"),
            next: format!("kubectl get dpu {} -o jsonpath='{{.status.orphans}}'", dpu.name_any()),
        });
    }
    let before = dpu.spec.forget.iter().filter(|uid| reported.contains(uid.as_str()));
    Ok(before.chain(asked).cloned().collect())
}
