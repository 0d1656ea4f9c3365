//! One pod that asks for NICs: gather → plan → act, until there is nothing to do but wait.

use crate::Controller;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use crate::kinds::{NetworkAttachmentDefinition, NetworkedPod, is_pod};
use crate::machine::gather as machine;
use crate::objects;
use crate::work::Work;
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, NicAttachment, VNic, labels};
use executor::nics;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use planner::machine::observed::{DpuSeen, annotation, label, name, uid};
use planner::network::admission;
use planner::network::pods::{self, Action, Observed, Plan, Workers};
use planner::reason::{Blocked, Reason};
use runtime::queue::{Key, Next};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A pod that is not settled after so many rounds lets others go first.
const ROUNDS: usize = 16;
/// How often a pod is looked at that is not watched any more, for it has lost its label, and that has NICs.
const LOOK: Duration = Duration::from_secs(10);

/// In place of a condition: a pod has none of ours.
const TOLD: &str = "Event";

/// Nodes are not watched: how often one is looked at that does not say which machine it is.
const LOOK_AT_NODE: Duration = Duration::from_secs(2);

/// `key`: no namespace, and the UID of a pod.
pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    for _ in 0..ROUNDS {
        let (o, is_watched) = gather(c, &key.1).await?;
        let plan = pods::plan(&o);
        if plan.actions.is_empty() {
            let told = tell(c, &key.1, &o, &plan);
            let is_told = is_watched || o.pod.is_none();
            let next = match &plan.reason {
                Some(Reason::Blocked(Blocked::NodeNotOfMachine { .. })) => Next::After(LOOK_AT_NODE),
                _ if is_told => Next::Wait,
                _ => Next::After(LOOK),
            };
            return Ok(next.sooner(told));
        }
        for action in &plan.actions {
            let done = act(c, (&key.1, o.pod.as_deref()), action).await;
            // What the API server refuses, the pod's author has asked for.
            if let (Err(error @ Error::Refused { .. }), Some(pod)) = (&done, &o.pod)
                && c.told_pods.is_news(&key.1, Some(&error.to_string()))
            {
                c.events.warn(pod.as_ref(), "Refused", &error.to_string());
            }
            done?;
        }
    }
    c.world.look(Work::Pod, key.clone());
    Ok(Next::Wait)
}

/// Also whether the pod is among those that are watched.
async fn gather(c: &Controller, pod_uid: &str) -> Result<(Observed, bool), Error> {
    let (world, of_it) = (&c.world, IndexKey::owner(pod_uid));
    let watched = world.pods.by(&IndexKey::uid(pod_uid)).pop().map(|pod| Arc::new(pod.0.clone()));
    let vnics: Vec<_> = world.vnics.by(&of_it).iter().map(|vnic| c.network.as_written(vnic)).collect();
    let mut attachments = world.nics.by(&of_it);
    attachments.retain(|attachment| is_pod(&attachment.spec.owner));
    let is_watched = watched.is_some();
    let pod = match watched {
        Some(pod) => Some(pod),
        // Nothing is taken from a pod because our copy does not have it.
        None => read(c, pod_uid, &vnics, &attachments).await?,
    };
    let namespace = pod.as_ref().and_then(|pod| pod.metadata.namespace.clone()).unwrap_or_default();
    let definitions = match &pod {
        Some(pod) => definitions(c, pod).await?,
        None => pods::Definitions::default(),
    };
    let asked = pod.iter().filter_map(|pod| pods::all_requests(&pod.metadata, &definitions).ok());
    let asked: Vec<pods::Request> = asked.flatten().collect();
    let named: BTreeMap<_, _> = asked
        .iter()
        .filter_map(|request| request.vnic.clone())
        .filter_map(|vnic| Some((vnic.clone(), c.network.as_written(&world.vnics.get(&namespace, &vnic)?))))
        .collect();
    let of_named = named.values().map(|vnic| vnic.spec.subnet.clone());
    let subnets: BTreeSet<String> = asked.into_iter().map(|request| request.subnet).chain(of_named).collect();
    let subnets: BTreeMap<_, _> = subnets
        .into_iter()
        .filter_map(|subnet| Some((subnet.clone(), world.subnets.get(&namespace, &subnet)?)))
        .collect();
    let vpc = |subnet: &Arc<api::Subnet>| {
        let vpc = admission::vpc_of(subnet);
        Some((vpc.to_owned(), world.vpcs.get(&namespace, vpc)?))
    };
    let vpcs = subnets.values().filter_map(vpc).collect();
    let workers = workers(c, pod.as_deref(), &attachments).await?;
    let dpus = dpus(c, pod.as_deref(), &attachments, &workers).await?;
    let uid = pod_uid.to_owned();
    Ok((Observed { uid, pod, definitions, vnics, named, attachments, subnets, vpcs, dpus, workers }, is_watched))
}

/// The machine that is the pod's node, and those that its attachments are on, with their servers.
async fn workers(c: &Controller, pod: Option<&Pod>, attachments: &[Arc<NicAttachment>]) -> Result<Workers, Error> {
    let mut workers = Workers::default();
    if let Some(node) = pod.and_then(pods::node) {
        workers.of_node = c.world.machines.by(&IndexKey::names::<Node>("", node));
        if !workers.of_node.is_empty() {
            let there = found(call(&format!("get Node '{node}'"), c.objects.cluster::<Node>().get(node)).await)?;
            workers.provider_id = there.and_then(|node| node.spec?.provider_id);
        }
    }
    for attachment in attachments {
        let Some(worker) = pods::worker::of(attachment) else { continue };
        workers.of_attachments.extend(worker_of(c, worker, attachment).await?);
    }
    let machines = workers.of_node.iter().chain(&workers.of_attachments);
    let uids: BTreeSet<&str> = machines.map(|machine| uid(&machine.metadata)).collect();
    workers.hardware = uids.iter().flat_map(|uid| c.world.hardware.by(&IndexKey::owner(uid))).collect();
    Ok(workers)
}

/// Nothing is taken from a pod because our copy does not have its machine.
async fn worker_of(
    c: &Controller,
    worker: &str,
    attachment: &NicAttachment,
) -> Result<Option<Arc<BareMetalMachine>>, Error> {
    if let Some(machine) = c.world.machines.by(&IndexKey::uid(worker)).pop() {
        return Ok(Some(machine));
    }
    let named = annotation(&attachment.metadata, labels::WORKER).and_then(|named| named.split_once('/'));
    let Some((namespace, machine)) = named else { return Ok(None) };
    let api = c.objects.namespaced::<BareMetalMachine>(namespace);
    let there = found(call(&format!("get BareMetalMachine '{machine}'"), api.get(machine)).await)?;
    Ok(there.filter(|machine| uid(&machine.metadata) == worker).map(Arc::new))
}

/// Those that the pod names, as they are now. What cannot be read from the annotation, the plan says.
async fn definitions(c: &Controller, pod: &Pod) -> Result<pods::Definitions, Error> {
    let mut all = pods::Definitions::new();
    for (namespace, definition) in pods::selections(&pod.metadata).unwrap_or_default() {
        let what = format!("get NetworkAttachmentDefinition '{namespace}/{definition}'");
        let api = c.objects.namespaced::<NetworkAttachmentDefinition>(&namespace);
        let there = found(call(&what, api.get(&definition)).await)?;
        let config = there.map(|definition| definition.config().to_owned());
        all.insert((namespace, definition), config);
    }
    Ok(all)
}

/// From quorum: the pod for which something is there.
async fn read(
    c: &Controller,
    pod_uid: &str,
    vnics: &[Arc<VNic>],
    attachments: &[Arc<NicAttachment>],
) -> Result<Option<Arc<Pod>>, Error> {
    let of_attachment = attachments.first().map(|attachment| &attachment.spec.owner);
    let of_attachment = of_attachment.and_then(|owner| Some((owner.namespace.clone()?, owner.name.clone())));
    let of_vnic = || {
        let meta = &vnics.first()?.metadata;
        let owner = meta.owner_references.iter().flatten().find(|owner| owner.uid == pod_uid);
        let name = owner.map(|owner| owner.name.as_str()).or_else(|| label(meta, labels::POD));
        let name = name.or_else(|| pods::marked_pod(vnics.first()?, pod_uid))?;
        Some((meta.namespace.clone()?, name.to_owned()))
    };
    let Some((namespace, pod_name)) = of_attachment.or_else(of_vnic) else { return Ok(None) };
    let api = c.objects.namespaced::<Pod>(&namespace);
    let pod = found(call(&format!("get Pod '{pod_name}'"), api.get(&pod_name)).await)?;
    Ok(pod.filter(|pod| uid(&pod.metadata) == pod_uid).map(Arc::new))
}

async fn dpus(
    c: &Controller,
    pod: Option<&Pod>,
    attachments: &[Arc<NicAttachment>],
    workers: &Workers,
) -> Result<Vec<DpuSeen>, Error> {
    let of_attachments = attachments.iter().map(|attachment| attachment.spec.dpu_name.clone());
    let in_server = |hardware: &Arc<Hardware>| {
        let dpus = c.world.dpus.by(&IndexKey::names::<Hardware>("", name(&hardware.metadata)));
        dpus.into_iter().map(|dpu| name(&dpu.metadata).to_owned()).collect::<Vec<_>>()
    };
    let node = pod.and_then(pods::node).map(str::to_owned);
    let names = node.into_iter().chain(of_attachments).chain(workers.hardware.iter().flat_map(in_server));
    let names: BTreeSet<String> = names.collect();
    let dpus = names.iter().filter_map(|dpu| c.world.dpus.get("", dpu)).collect();
    machine::dpus(c, dpus).await
}

async fn act(c: &Controller, (pod_uid, pod): (&str, Option<&Pod>), action: &Action) -> Result<(), Error> {
    match action {
        Action::CreateVNic(vnic) => {
            let (meta, own) = (&vnic.metadata, label(&vnic.metadata, labels::POD_UID));
            let ours = |there: &VNic| label(&there.metadata, labels::POD_UID) == own;
            let api = c.objects.namespaced(meta.namespace.as_deref().unwrap_or_default());
            objects::create(&api, &c.world.vnics, vnic.as_ref(), ours).await.map(drop)
        }
        Action::CreateAttachment(attachment) => nics::create(c, attachment).await,
        Action::TakeVNic { target, holder, mac_address } => nics::take(c, target, holder, mac_address).await,
        Action::Grant { target, epoch } => nics::grant(c, target, *epoch, None).await,
        Action::GrantWorker { target, epoch, worker } => nics::grant_worker(c, target, *epoch, worker).await,
        Action::Tell { networks } => annotate(c, pod, networks).await,
        Action::Release { target } => nics::release(c, target).await,
        Action::Abandon { target } => nics::abandon(c, target).await,
        Action::FreeVNic { target, holder } => nics::free(c, target, holder).await,
        Action::DeleteVNic { target } => nics::delete_vnic(c, target).await,
        Action::ProtectVNic { target, mark } => nics::protect(c, pod_uid, target, mark).await,
        Action::UnprotectVNic { target } => nics::unprotect(c, pod_uid, target).await,
    }
}

/// By the pod's status, as its node's own agent would: so nothing else of a pod can be written.
async fn annotate(c: &Controller, pod: Option<&Pod>, networks: &str) -> Result<(), Error> {
    let Some(meta) = pod.map(|pod| &pod.metadata) else { return Ok(()) };
    let change = json!({"metadata": {"uid": meta.uid, "annotations": {labels::NETWORK_STATUS: networks}}});
    let api = c.objects.namespaced::<Pod>(meta.namespace.as_deref().unwrap_or_default());
    let what = format!("patch status of Pod '{}'", name(meta));
    let (params, patch) = (PatchParams::default(), Patch::Merge(&change));
    let patched = call(&what, api.patch_status(name(meta), &params, &patch)).await;
    // Its own event may come after the next plan.
    if let Some(patched) = found(patched)?
        && !c.world.pods.by(&IndexKey::uid(uid(meta))).is_empty()
    {
        c.world.pods.put(NetworkedPod(patched));
    }
    Ok(())
}

/// A pod has no status of ours: its Events say what its NICs wait for, if not for a moment alone, and that they are granted.
fn tell(c: &Controller, pod_uid: &str, o: &Observed, plan: &Plan) -> Next {
    let passing = plan.reason.as_ref().filter(|reason| o.pod.is_some() && pods::passes(reason));
    match passing.and_then(|reason| c.passing.rest(pod_uid, TOLD, reason.name())) {
        Some(rest) => return Next::Unless(rest),
        None if passing.is_none() => c.passing.forget(pod_uid, TOLD),
        None => {}
    }
    let granted = |attachment: &&Arc<NicAttachment>| attachment.spec.grant.is_some();
    let note = match &plan.reason {
        _ if o.pod.is_none() => None,
        Some(reason) => Some(reason.told()),
        None => {
            let nics: Vec<String> = o.attachments.iter().filter(granted).map(|a| granted_nic(a)).collect();
            (!nics.is_empty()).then(|| nics.join("; "))
        }
    };
    let is_news = c.told_pods.is_news(pod_uid, note.as_ref());
    match (&o.pod, note, &plan.reason) {
        (Some(pod), Some(_), Some(reason)) if is_news => c.events.warn_why(pod.as_ref(), reason),
        (Some(pod), Some(note), None) if is_news => c.events.tell(pod.as_ref(), "NicGranted", &note),
        _ => {}
    }
    Next::Wait
}

fn granted_nic(attachment: &NicAttachment) -> String {
    let spec = &attachment.spec;
    let name = name(&attachment.metadata);
    format!(
        "{}: {} by NicAttachment '{name}' of Dpu '{}'",
        spec.interface_name,
        spec.addresses.join(", "),
        spec.dpu_name
    )
}
