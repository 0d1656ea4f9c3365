//! One DPU: its namespace and identity, and the word about an agent that has fallen silent.

use crate::Controller;
use crate::bmc::{Owner, Which};
use crate::cache::key;
use crate::clock;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use crate::objects;
use crate::work::Work;
use crate::{machine, went_back};
use api::conditions::{self, EXPOSURES_KNOWN, READY};
use api::tinkerbell::Hardware;
use api::{DiskAttachment, Dpu, NicAttachment, labels, names};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams};
use planner::dpu::ready::is_of_the_controller;
use planner::dpu::went_back::{is_asked, is_noticed};
use planner::dpu::{Action, DiscoverySeen, Observed, Plan, Status};
use planner::machine::observed::{label, name};
use planner::seen::Seen;
use runtime::queue::{Key, Next};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The agent's rights in its own namespace; the chart makes it.
const AGENT_ROLE: &str = "metalplane-dpu-agent";
const AGENT: &str = "agent";
/// How often the quiet ones are looked for.
const LISTEN: Duration = Duration::from_millis(200);

pub async fn reconcile(c: &Controller, (_, dpu_name): &Key) -> Result<Next, Error> {
    let owner = Owner::Dpu((String::new(), dpu_name.clone()));
    for _ in 0..4 {
        let Some(dpu) = c.world.dpus.get("", dpu_name) else {
            c.hosts.needs(&owner, &[]);
            return collect(c, dpu_name).await.map(|()| Next::Wait);
        };
        let o = gather(c, dpu).await?;
        let plan = planner::dpu::plan(&o, clock::now());
        want_bmc(c, &owner, &o, &plan);
        if let Some(hardware) = o.hardware.as_ref().filter(|_| plan.is_to_be_remembered) {
            executor::hosts::remember_dpu(c, hardware, dpu_name).await?;
            continue;
        }
        if !plan.raise.is_empty() {
            for raise in &plan.raise {
                crate::orphans::raise(c, raise).await?;
            }
            continue;
        }
        match plan.action {
            Some(Action::Protect) => {
                finalizer(c, &o.dpu, true).await?;
                continue;
            }
            Some(Action::LetGo) => {
                confirm_unused(c, dpu_name).await?;
                finalizer(c, &o.dpu, false).await?;
                continue;
            }
            Some(Action::Prepare) => prepare(c, &o.dpu).await?,
            Some(Action::Revoke) => revoke(c, &o.dpu).await?,
            None => {
                if let Some(status) = &plan.status {
                    write(c, &o.dpu, status).await?;
                }
                if let Some((hardware, record)) = o.hardware.as_ref().zip(plan.discover.as_ref()) {
                    executor::hosts::claim_for_discovery(c, dpu_name, hardware, record).await?;
                }
                return Ok(Next::at(plan.wake_at));
            }
        }
        c.prepared.put(o.dpu.metadata.uid.clone().unwrap_or_default(), o.dpu.metadata.generation);
    }
    Ok(Next::Wait)
}

async fn gather(c: &Controller, dpu: Arc<Dpu>) -> Result<Observed, Error> {
    let namespace = dpu.status.as_ref().and_then(|status| status.namespace.as_deref());
    let silent = match namespace {
        Some(namespace) => is_silent(c, &dpu, namespace).await?,
        None => true,
    };
    let seen = server(&dpu).map(|server| c.hosts.seen(&server)).unwrap_or_default();
    let own_bmc = own_bmc(&dpu).map(|bmc| c.hosts.seen(&bmc)).unwrap_or_default();
    let own = names::dpu_namespace(name(&dpu.metadata));
    let namespace = c.world.namespaces.get("", &own).filter(|n| n.metadata.deletion_timestamp.is_none());
    let uid = dpu.metadata.uid.clone().unwrap_or_default();
    let prepared = c.prepared.has(&uid, dpu.metadata.generation);
    let asked = match is_asked(&dpu) {
        true => machine::gather::dpus(c, vec![dpu.clone()]).await?.pop(),
        false => None,
    };
    let named = dpu.spec.hardware_ref.as_ref().map(|reference| IndexKey::Server(reference.name.clone()));
    let hardware = named.and_then(|server| c.world.hardware.by(&server).into_iter().next());
    Ok(Observed {
        silent,
        host: if seen.problem.is_some() { Seen::Unknown } else { seen.host },
        host_read_at: seen.read_at,
        problem: seen.problem,
        own_bmc,
        prepared: prepared && (namespace.is_some() || !dpu.spec.is_admitted()),
        used: dpu.metadata.deletion_timestamp.is_some() && is_used(c, &own),
        orphans: crate::orphans::seen(c, &dpu),
        heard: went_back::heard(c, &dpu),
        site: went_back::site(c),
        asked,
        discovery: c.discover_boot_options.then(|| discovery(c, &dpu, hardware.as_ref())),
        hardware,
        dpu,
    })
}

/// What finding its boot option rests on.
fn discovery(c: &Controller, dpu: &Dpu, hardware: Option<&Arc<Hardware>>) -> DiscoverySeen {
    let on = IndexKey::names::<Dpu>("", name(&dpu.metadata));
    let attached = !c.world.disks.by(&on).is_empty() || !c.world.nics.by(&on).is_empty();
    let busy = hardware.and_then(|hardware| machine::gather::servers::busy_with(c, hardware));
    let named = hardware.iter().map(|hardware| IndexKey::names::<Hardware>("", name(&hardware.metadata)));
    let dpus = named.flat_map(|server| c.world.dpus.by(&server)).collect();
    DiscoverySeen { busy, attached, dpus }
}

/// The word of silence is not written over a word of the agent before the Lease was read from quorum once more: the agent says that it
/// is there only after a renewal that was acknowledged, of which our watch may not have heard yet.
async fn is_silent(c: &Controller, dpu: &Dpu, namespace: &str) -> Result<bool, Error> {
    let liveness = &c.world.liveness;
    let status = dpu.status.as_ref().filter(|status| status.boot_id.is_some());
    let said = status.and_then(|status| conditions::get(&status.conditions, READY));
    if !liveness.is_silent(namespace) || said.is_none_or(is_of_the_controller) {
        return Ok(liveness.is_silent(namespace));
    }
    liveness.is_unchanged(&c.objects.namespaced(namespace), namespace).await
}

fn server(dpu: &Dpu) -> Option<Which> {
    dpu.spec.hardware_ref.as_ref().map(|reference| Which::Server(reference.name.clone()))
}

fn own_bmc(dpu: &Dpu) -> Option<Which> {
    planner::own_bmc::name(dpu).map(|name| Which::Dpu(name.to_owned()))
}

fn want_bmc(c: &Controller, owner: &Owner, o: &Observed, plan: &Plan) {
    let server = server(&o.dpu).map(|server| (server, plan.bmc));
    let own = own_bmc(&o.dpu).map(|own| (own, plan.own_bmc));
    c.hosts.needs(owner, &server.into_iter().chain(own).collect::<Vec<_>>());
}

async fn write(c: &Controller, dpu: &Dpu, status: &Status) -> Result<(), Error> {
    let dpu_name = name(&dpu.metadata);
    let mut object = json!({
        "apiVersion": "metalplane.io/v1alpha1",
        "kind": "Dpu",
        "metadata": {"name": dpu_name, "uid": dpu.metadata.uid},
        "status": {
            "namespace": status.namespace,
            "releasable": status.releasable,
            "verifiedBmc": status.verified_bmc,
            "verifiedHost": status.verified_host,
            "wentBackHandled": status.went_back_handled,
            "conditions": status.conditions,
        },
    });
    if !status.releasable.is_empty() || conditions::get(&status.conditions, EXPOSURES_KNOWN).is_some() {
        // The agent acts on it, or grants do: it rests on what was reported in this very version.
        object["metadata"]["resourceVersion"] = json!(dpu.metadata.resource_version);
    }
    let params = PatchParams::apply(labels::CONTROLLER).force();
    let what = format!("apply status of Dpu '{dpu_name}'");
    let applied =
        call(&what, c.objects.cluster::<Dpu>().patch_status(dpu_name, &params, &Patch::Apply(&object))).await?;
    c.world.dpus.put(applied);
    Ok(())
}

/// Everything that its agent needs to be somebody, and no more.
async fn prepare(c: &Controller, dpu: &Dpu) -> Result<(), Error> {
    let dpu_name = name(&dpu.metadata);
    let namespace = names::dpu_namespace(dpu_name);
    let own = cluster_role(dpu_name);
    let meta = |name: &str| {
        json!({"name": name, "labels": {
            labels::DPU: dpu_name,
            labels::MANAGED_BY: labels::MANAGED_BY_VALUE,
        }})
    };
    let subject = json!([{"kind": "ServiceAccount", "name": AGENT, "namespace": namespace}]);
    let bind = |role: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let cluster = &c.objects;
    let made = apply(&cluster.cluster::<Namespace>(), &namespace, json!({"metadata": meta(&namespace)})).await?;
    c.world.namespaces.put(made);
    let account = json!({"metadata": meta(AGENT)});
    apply(&cluster.namespaced::<ServiceAccount>(&namespace), AGENT, account).await?;
    let binding = json!({"metadata": meta(AGENT), "roleRef": bind(AGENT_ROLE), "subjects": subject});
    apply(&cluster.namespaced::<RoleBinding>(&namespace), AGENT, binding).await?;
    let rules = json!([
        {"apiGroups": ["metalplane.io"], "resources": ["dpus"], "resourceNames": [dpu_name], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["metalplane.io"], "resources": ["dpus/status"], "resourceNames": [dpu_name], "verbs": ["patch"]},
    ]);
    let role = json!({"metadata": meta(&own), "rules": rules});
    apply(&cluster.cluster::<ClusterRole>(), &own, role).await?;
    let binding = json!({"metadata": meta(&own), "roleRef": bind(&own), "subjects": subject});
    apply(&cluster.cluster::<ClusterRoleBinding>(), &own, binding).await?;
    Ok(())
}

fn cluster_role(dpu_name: &str) -> String {
    format!("metalplane-{dpu_name}")
}

async fn apply<K: crate::cache::Object>(api: &Api<K>, name: &str, mut object: Value) -> Result<K, Error> {
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    let params = PatchParams::apply(labels::CONTROLLER).force();
    call(&format!("apply {} '{name}'", K::kind(&())), api.patch(name, &params, &Patch::Apply(&object))).await
}

async fn revoke(c: &Controller, dpu: &Dpu) -> Result<(), Error> {
    let dpu_name = name(&dpu.metadata);
    let namespace = names::dpu_namespace(dpu_name);
    gone(&c.objects.namespaced::<RoleBinding>(&namespace), AGENT).await?;
    gone(&c.objects.cluster::<ClusterRoleBinding>(), &cluster_role(dpu_name)).await
}

async fn gone<K: crate::cache::Object>(api: &Api<K>, name: &str) -> Result<(), Error> {
    let what = format!("delete {} '{name}'", K::kind(&()));
    found(call(&what, api.delete(name, &DeleteParams::default())).await).map(drop)
}

/// The Dpu is gone: so is what was made for it, once nothing is attached there any more.
async fn collect(c: &Controller, dpu_name: &str) -> Result<(), Error> {
    let namespace_name = names::dpu_namespace(dpu_name);
    let Some(namespace) = c.world.namespaces.get("", &namespace_name) else { return Ok(()) };
    let ours = label(&namespace.metadata, labels::DPU) == Some(dpu_name);
    if !ours || is_used(c, &namespace_name) || namespace.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    gone(&c.objects.cluster::<ClusterRoleBinding>(), &cluster_role(dpu_name)).await?;
    gone(&c.objects.cluster::<ClusterRole>(), &cluster_role(dpu_name)).await?;
    objects::delete(&c.objects.cluster::<Namespace>(), &c.world.namespaces, &namespace.metadata, false).await
}

/// As far as our caches know.
fn is_used(c: &Controller, namespace: &str) -> bool {
    c.world.disks.all().iter().any(|a| a.metadata.namespace.as_deref() == Some(namespace))
        || c.world.nics.all().iter().any(|a| a.metadata.namespace.as_deref() == Some(namespace))
}

/// From quorum: nothing is attached in the DPU's namespace.
async fn confirm_unused(c: &Controller, dpu_name: &str) -> Result<(), Error> {
    let what = format!("list attachments on Dpu '{dpu_name}'");
    let namespace = names::dpu_namespace(dpu_name);
    let (disks, nics) = (c.objects.namespaced::<DiskAttachment>(&namespace), c.objects.namespaced(&namespace));
    let disks = call(&what, disks.list(&ListParams::default())).await?;
    let nics: ObjectList<NicAttachment> = call(&what, nics.list(&ListParams::default())).await?;
    let there = disks.items.iter().map(|a| &a.metadata).chain(nics.items.iter().map(|a| &a.metadata)).next();
    match there.map(name) {
        Some(attachment) => Err(Error::NotConfirmed { what, message: format!("'{attachment}' is there") }),
        None => Ok(()),
    }
}

async fn finalizer(c: &Controller, dpu: &Dpu, present: bool) -> Result<(), Error> {
    let api = c.objects.cluster::<Dpu>();
    objects::finalize(&api, &c.world.dpus, &dpu.metadata, labels::FINALIZER_IN_USE, present).await
}

/// Listens for silence. Before an agent is called silent its Lease is read from quorum: our own watch may be behind, and
/// an API server that cannot be read says nothing about an agent.
pub async fn listen(c: Arc<Controller>) {
    let liveness = c.world.liveness.clone();
    loop {
        for namespace in liveness.turned(LISTEN).await {
            turned(&c, &namespace);
        }
        for namespace in liveness.quiet() {
            match liveness.is_unchanged(&c.objects.namespaced(&namespace), &namespace).await {
                Ok(false) => {}
                Ok(true) => {
                    tracing::warn!(namespace, "the agent is silent");
                    liveness.confirm(&namespace);
                    turned(&c, &namespace);
                }
                Err(error) => tracing::debug!("{error}"),
            }
        }
    }
}

fn turned(c: &Controller, namespace: &str) {
    let there = c.world.namespaces.get("", namespace);
    let Some(dpu_name) = there.and_then(|namespace| label(&namespace.metadata, labels::DPU).map(str::to_owned)) else {
        return;
    };
    c.world.look(Work::Dpu, (String::new(), dpu_name.clone()));
    if let Some(dpu) = c.world.dpus.get("", &dpu_name) {
        c.world.machines_of_dpu(&dpu);
        if is_noticed(&dpu, went_back::heard(c, &dpu)) {
            let all = c.world.dpus.all();
            all.iter().for_each(|dpu| c.world.look(Work::Dpu, key(&dpu.metadata)));
        }
    }
}
