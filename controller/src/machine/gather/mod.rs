//! Everything that a plan for one machine rests on: from the caches, and by a read where a cache would be too much.

mod images;
pub(crate) mod servers;

use crate::Controller;
use crate::bmc::Which;
use crate::cache::key;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use crate::kinds::{is_image, is_machine};
use crate::machine::taking::Taking;
use crate::{clock, holder_pods, volumes, went_back};
use api::attachment::{NicConsumer, OwnerReference};
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, Dpu, HardwareReport, Subnet, VNic, labels};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::api::ListParams;
use planner::machine::observed::{
    Belongings, BmcSeen, ClaimSeen, ClassSeen, CloudInitSeen, DpuSeen, Observed, name, uid,
};
use planner::machine::{claim_name, vnic_name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A claim that is pending for longer gets its last event looked up.
const PENDING: jiff::SignedDuration = jiff::SignedDuration::from_secs(3);

/// Reads that are done at most once in one reconcile, and the server that the machine is about to claim in it.
#[derive(Default)]
pub(crate) struct Memo {
    pods: Option<Vec<Pod>>,
    events: BTreeMap<String, Option<String>>,
    taking: Option<Taking>,
}

pub(crate) async fn gather(c: &Controller, machine: Arc<BareMetalMachine>, memo: &mut Memo) -> Result<Observed, Error> {
    let (uid, namespace) = (uid(&machine.metadata), machine.metadata.namespace.clone().unwrap_or_default());
    let world = &c.world;
    let own = belongings(c, (uid, &namespace), &Asked::by(&machine), memo).await?;
    let mut o = Observed { machine: machine.clone(), own, ..Observed::default() };
    o.bmc = bmc(c, planner::machine::claim::current(&o));
    o.report = report(c, planner::machine::claim::current(&o));
    o.holder_image = c.holder_image.clone();
    o.holder_pull_secrets = c.holder_pull_secrets.clone();
    o.subnets = subnets(c, &namespace, &o);
    o.no_grants = went_back::forbids_grant(c);
    let workflow = o.machine.spec.boot.workflow.as_ref();
    o.template = workflow.and_then(|workflow| world.templates.get(&namespace, &workflow.template_name));
    images::gather(c, &namespace, &mut o).await?;
    cloud_init(c, &namespace, &mut o).await?;
    o.migrations = world.migrations.by(&IndexKey::names::<BareMetalMachine>(&namespace, o.name()));
    o.lock_is_void = crate::verbs::lock_is_void(c, &o.machine).await?;
    memo.taking = None;
    match o.hardware.is_empty() {
        true => {
            world.placement.looks(&key(&machine.metadata));
            servers::for_choice(c, &mut o, &mut memo.taking).await?;
        }
        false => world.placement.ended(&key(&machine.metadata)),
    }
    Ok(o)
}

/// What a machine asks for by name, beside what was made for it.
#[derive(Default)]
pub(crate) struct Asked {
    claims: BTreeSet<String>,
    vnics: BTreeSet<String>,
    /// It matters who else uses a claim.
    needs_claims: bool,
}

impl Asked {
    fn by(machine: &BareMetalMachine) -> Self {
        let spec = &machine.spec;
        Self {
            claims: spec.disks.iter().map(|disk| claim_name(machine, disk)).collect(),
            vnics: spec.interfaces.iter().map(|interface| vnic_name(machine, interface)).collect(),
            needs_claims: machine.metadata.deletion_timestamp.is_none(),
        }
    }
}

/// What belongs to the machine with this UID, whether it exists or not.
pub(crate) async fn belongings(
    c: &Controller,
    (uid, namespace): (&str, &str),
    asked: &Asked,
    memo: &mut Memo,
) -> Result<Belongings, Error> {
    let (world, owner) = (&c.world, &IndexKey::owner(uid));
    let mut own = Belongings {
        namespace_labels: namespace_labels(c, namespace),
        hardware: world.hardware.by(owner),
        policies: world.policies.all(),
        disk_attachments: world.disks.by(owner),
        nic_attachments: world.nics.by(owner),
        pod_nics: world.nics.by(&IndexKey::Worker(uid.to_owned())),
        templates: world.templates.by(owner),
        workflows: world.workflows.by(owner),
        install_seeds: world.install_seeds.by(owner).iter().map(|secret| secret.metadata.clone()).collect(),
        fences: c.fences.kinds(),
        fence_problems: c.fences.problems(),
        installer_iso: c.installer_iso.clone(),
        vnics: vnics(c, owner, namespace, &asked.vnics),
        ..Belongings::default()
    };
    own.same_mac = servers::same_mac(c, &own.hardware);
    own.dpus = dpus(c, own_dpus(c, &own)).await?;
    for pod in world.holder_pods.by(owner) {
        let event = pod_event(c, &pod, memo).await?;
        own.holder_pods.push(holder_pods::seen(&pod, event));
    }
    claims(c, (owner, namespace), asked, &mut own, memo).await?;
    own.orphans = crate::orphans::concerning(c, &own).await?;
    Ok(own)
}

fn namespace_labels(c: &Controller, namespace: &str) -> BTreeMap<String, String> {
    c.world.namespaces.get("", namespace).and_then(|n| n.metadata.labels.clone()).unwrap_or_default()
}

/// The DPUs of the claimed Hardware, and those that attachments are on.
fn own_dpus(c: &Controller, o: &Belongings) -> Vec<Arc<Dpu>> {
    let mut all: Vec<Arc<Dpu>> =
        o.hardware.iter().flat_map(|h| c.world.dpus.by(&IndexKey::names::<Hardware>("", name(&h.metadata)))).collect();
    let disks = o.disk_attachments.iter().map(|a| &a.spec.dpu_name);
    for attached in disks.chain(o.nic_attachments.iter().map(|a| &a.spec.dpu_name)) {
        if !all.iter().any(|dpu| name(&dpu.metadata) == attached) {
            all.extend(c.world.dpus.get("", attached));
        }
    }
    all
}

pub(crate) async fn dpus(c: &Controller, dpus: Vec<Arc<Dpu>>) -> Result<Vec<DpuSeen>, Error> {
    let mut all = Vec::with_capacity(dpus.len());
    for dpu in dpus {
        let namespace = dpu.status.as_ref().and_then(|status| status.namespace.as_deref());
        let silent = namespace.is_none_or(|namespace| c.world.liveness.is_silent(namespace));
        let asked = silent && dpu.spec.confirmed_down.is_some();
        let out_of_service = asked && is_out_of_service(c, name(&dpu.metadata)).await?;
        let bmc = planner::own_bmc::name(&dpu).map(|bmc| c.hosts.seen(&Which::Dpu(bmc.to_owned()))).unwrap_or_default();
        let heard_at = namespace.and_then(|namespace| c.world.liveness.heard_at(namespace));
        let boot_disk_reads = namespace.and_then(|namespace| c.world.liveness.boot_disk_reads(namespace));
        let attached = attached(c, name(&dpu.metadata));
        all.push(DpuSeen { dpu, silent, heard_at, boot_disk_reads, out_of_service, bmc, attached });
    }
    Ok(all)
}

/// Who has something attached to this DPU's host.
fn attached(c: &Controller, dpu: &str) -> BTreeMap<String, String> {
    let on = IndexKey::names::<Dpu>("", dpu);
    let disks = c.world.disks.by(&on).into_iter().map(|disk| disk.spec.owner.clone());
    let nics = c.world.nics.by(&on).into_iter().filter(|nic| nic.spec.consumer == NicConsumer::Host);
    let owners = disks.chain(nics.map(|nic| nic.spec.owner.clone())).filter(|owner| !is_image(owner));
    let told = |owner: &OwnerReference| match is_machine(owner) {
        true => format!("machine '{}'", owner.name),
        false => format!("{} '{}'", owner.kind, owner.name),
    };
    owners.map(|owner| (owner.uid.clone(), told(&owner))).collect()
}

/// The taint by which an administrator says that a node is shut down; a Node that is gone is out of service too.
async fn is_out_of_service(c: &Controller, node: &str) -> Result<bool, Error> {
    let node = found(call(&format!("get Node '{node}'"), c.objects.cluster::<Node>().get(node)).await)?;
    let tainted = |node: Node| {
        node.spec.and_then(|spec| spec.taints).into_iter().flatten().any(|t| t.key == labels::OUT_OF_SERVICE)
    };
    Ok(node.is_none_or(tainted))
}

/// Of an owner's server.
pub(crate) fn bmc(c: &Controller, server: Option<&Hardware>) -> BmcSeen {
    server.map(|hardware| c.hosts.seen(&Which::Server(name(&hardware.metadata).to_owned()))).unwrap_or_default()
}

/// What network boot has seen of an owner's server.
pub(crate) fn report(c: &Controller, server: Option<&Hardware>) -> Option<Arc<HardwareReport>> {
    let meta = &server?.metadata;
    c.world.reports.get(meta.namespace.as_deref().unwrap_or_default(), name(meta))
}

/// Those that are the owner's, and those that are named.
fn vnics(c: &Controller, owner: &IndexKey, namespace: &str, named: &BTreeSet<String>) -> BTreeMap<String, Arc<VNic>> {
    let mut vnics = c.world.vnics.by(owner);
    vnics.extend(named.iter().filter_map(|name| c.world.vnics.get(namespace, name)));
    vnics.retain(|vnic| vnic.metadata.namespace.as_deref() == Some(namespace));
    vnics.into_iter().map(|vnic| (name(&vnic.metadata).to_owned(), c.network.as_written(&vnic))).collect()
}

/// Those that the machine names, and those of its VNics.
fn subnets(c: &Controller, namespace: &str, o: &Observed) -> BTreeMap<String, Arc<Subnet>> {
    let named = o.machine.spec.interfaces.iter().filter_map(|interface| interface.subnet.clone());
    let names: BTreeSet<String> = named.chain(o.vnics.values().map(|vnic| vnic.spec.subnet.clone())).collect();
    names.into_iter().filter_map(|name| Some((name.clone(), c.world.subnets.get(namespace, &name)?))).collect()
}

async fn claims(
    c: &Controller,
    (owner, namespace): (&IndexKey, &str),
    asked: &Asked,
    o: &mut Belongings,
    memo: &mut Memo,
) -> Result<(), Error> {
    let world = &c.world;
    let mut all: BTreeMap<String, Arc<PersistentVolumeClaim>> = world
        .claims
        .by(owner)
        .into_iter()
        .filter(|claim| claim.metadata.namespace.as_deref() == Some(namespace))
        .map(|claim| (name(&claim.metadata).to_owned(), claim))
        .collect();
    for claim_name in &asked.claims {
        if let Some(claim) = world.claims.get(namespace, claim_name) {
            all.insert(claim_name.clone(), claim);
        }
    }
    // Of many claims at once: one after the other is the time of as many requests.
    let sources = join_all(all.values().map(|claim| source(c, claim))).await;
    for ((claim_name, claim), source) in all.into_iter().zip(sources) {
        let seen = seen(c, namespace, (&o.disk_attachments, asked.needs_claims), (claim, source?), memo).await?;
        if let Some(volume) = &seen.volume {
            o.volume_attachments
                .extend(world.volume_attachments.by(&IndexKey::names::<PersistentVolume>("", &volume.name)));
            let hold = world.holds.get("", &volume.hold_name());
            o.holds.extend(hold.map(|hold| (name(&hold.metadata).to_owned(), hold)));
        }
        o.claims.insert(claim_name, seen);
    }
    for va in world.volume_attachments.by(owner) {
        if !o.volume_attachments.iter().any(|known| known.metadata.uid == va.metadata.uid) {
            o.volume_attachments.push(va);
        }
    }
    let held = world.holds.by(owner).into_iter().map(|hold| (name(&hold.metadata).to_owned(), hold));
    o.holds.extend(held);
    Ok(())
}

/// `attachments` and `asks`: whether it matters who else uses the claim.
pub(crate) async fn claim_seen(
    c: &Controller,
    namespace: &str,
    attachments: &[Arc<api::DiskAttachment>],
    asks: bool,
    claim: Arc<PersistentVolumeClaim>,
    memo: &mut Memo,
) -> Result<ClaimSeen, Error> {
    let source = source(c, &claim).await?;
    seen(c, namespace, (attachments, asks), (claim, source), memo).await
}

/// What a bound claim's volume is; `None`: it is not bound.
async fn source(c: &Controller, claim: &PersistentVolumeClaim) -> Result<Option<volumes::Source>, Error> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    match phase == Some("Bound") {
        true => c.volumes.of_claim(&c.objects, claim).await.map(Some),
        false => Ok(None),
    }
}

async fn seen(
    c: &Controller,
    namespace: &str,
    (attachments, asks): (&[Arc<api::DiskAttachment>], bool),
    (claim, source): (Arc<PersistentVolumeClaim>, Option<volumes::Source>),
    memo: &mut Memo,
) -> Result<ClaimSeen, Error> {
    let mut seen = ClaimSeen { claim: claim.clone(), ..ClaimSeen::default() };
    if let Some(source) = source {
        match source {
            volumes::Source::Csi(volume) => seen.volume = Some(volume),
            volumes::Source::Other => seen.not_csi = true,
            volumes::Source::Unknown => {}
        }
        seen.class = class(c, &claim);
        let granted = attachments.iter().any(|attachment| {
            let volume = attachment.spec.volume.as_ref();
            attachment.spec.grant.is_some() && volume.map(|v| &v.claim.uid) == claim.metadata.uid.as_ref()
        });
        if !granted && asks {
            seen.pods = pods(c, namespace, name(&claim.metadata), memo).await?;
        }
        return Ok(seen);
    }
    seen.binds_late = binds_late(c, &claim);
    let created = claim.metadata.creation_timestamp.as_ref().map(|at| at.0);
    if created.is_some_and(|created| clock::now().duration_since(created) > PENDING) {
        seen.event = last_event(c, namespace, claim.metadata.uid.as_deref().unwrap_or_default(), memo).await?;
    }
    Ok(seen)
}

/// The class that the volume of a bound claim has now.
fn class(c: &Controller, claim: &PersistentVolumeClaim) -> Option<ClassSeen> {
    let name = claim.status.as_ref()?.current_volume_attributes_class_name.clone()?;
    let found = c.world.attributes_classes.get("", &name);
    let found = found.map(|class| (class.driver_name.clone(), class.parameters.clone().unwrap_or_default()));
    Some(ClassSeen { name, found })
}

/// The provisioner of the claim's StorageClass, if that waits for a consumer.
fn binds_late(c: &Controller, claim: &PersistentVolumeClaim) -> Option<String> {
    let class = c.world.storage_classes.get("", claim.spec.as_ref()?.storage_class_name.as_deref()?)?;
    (class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")).then(|| class.provisioner.clone())
}

/// Pods that may be using the claim now.
async fn pods(c: &Controller, namespace: &str, claim: &str, memo: &mut Memo) -> Result<Vec<String>, Error> {
    if memo.pods.is_none() {
        let api = c.objects.namespaced::<Pod>(namespace);
        memo.pods = Some(call("list Pods", api.list(&ListParams::default())).await?.items);
    }
    let uses = |pod: &&Pod| {
        let ended =
            pod.status.as_ref().and_then(|s| s.phase.as_deref()).is_some_and(|p| p == "Succeeded" || p == "Failed");
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
        // Ours: what they are for is told by the hold.
        let other = !holder_pods::is_one(&pod.metadata);
        other
            && !ended
            && volumes.filter_map(|v| v.persistent_volume_claim.as_ref()).any(|source| source.claim_name == claim)
    };
    Ok(memo.pods.iter().flatten().filter(uses).map(|pod| name(&pod.metadata).to_owned()).collect())
}

/// What kubelet said last of a holder pod that does not run.
async fn pod_event(c: &Controller, pod: &Pod, memo: &mut Memo) -> Result<Option<String>, Error> {
    let meta = &pod.metadata;
    let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let created = meta.creation_timestamp.as_ref().map(|at| at.0);
    if runs || created.is_none_or(|created| clock::now().duration_since(created) <= PENDING) {
        return Ok(None);
    }
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    last_event(c, namespace, meta.uid.as_deref().unwrap_or_default(), memo).await
}

/// What was said last of the object with this UID.
async fn last_event(c: &Controller, namespace: &str, uid: &str, memo: &mut Memo) -> Result<Option<String>, Error> {
    if let Some(known) = memo.events.get(uid) {
        return Ok(known.clone());
    }
    let api = c.objects.namespaced::<Event>(namespace);
    let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let mut events = call("list Events", api.list(&params)).await?.items;
    events
        .sort_by_key(|event| event.last_timestamp.as_ref().map(|at| at.0).or(event.event_time.as_ref().map(|at| at.0)));
    let message = events.pop().and_then(|event| event.message);
    memo.events.insert(uid.to_owned(), message.clone());
    Ok(message)
}

async fn cloud_init(c: &Controller, namespace: &str, o: &mut Observed) -> Result<(), Error> {
    let Some(spec) = o.machine.spec.cloud_init.clone() else { return Ok(()) };
    if !planner::machine::reads_cloud_init(o) {
        return Ok(());
    }
    let mut seen = CloudInitSeen { user_data: spec.user_data.clone(), ..CloudInitSeen::default() };
    if let Some(reference) = &spec.user_data_secret_ref {
        seen.user_data = secret_value(c, namespace, &reference.name, "userData", &mut seen.missing).await?;
    }
    if let Some(reference) = &spec.network_data_secret_ref {
        seen.network_data = secret_value(c, namespace, &reference.name, "networkData", &mut seen.missing).await?;
    }
    o.cloud_init = seen;
    Ok(())
}

async fn secret_value(
    c: &Controller,
    namespace: &str,
    secret_name: &str,
    key: &str,
    missing: &mut Option<(String, String)>,
) -> Result<Option<String>, Error> {
    let what = format!("get Secret '{secret_name}'");
    let secret = found(call(&what, c.objects.namespaced::<Secret>(namespace).get(secret_name)).await)?;
    let value = secret.and_then(|secret| secret.data?.remove(key)).and_then(|bytes| String::from_utf8(bytes.0).ok());
    if value.is_none() {
        missing.get_or_insert((secret_name.to_owned(), key.to_owned()));
    }
    Ok(value)
}
