//! What the agents of many DPUs write. Each renews its own Lease by its own clock; attachments of all are watched at once.
//!
//! An attachment goes through the statuses that a real agent writes: waiting for its grant, claimed, attached; released.

use super::{AT_ONCE, Size};
use anyhow::{Context, Result};
use api::{DiskAttachment, Dpu, NicAttachment, conditions, labels, names};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

const BOOT: &str = "boot-1";
/// As a real agent's.
const LIMIT: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub struct Agents {
    client: Client,
    permits: Arc<Semaphore>,
    /// How far each attachment is, by UID. An agent looks at one thing at a time: an event of before never takes an attachment back.
    stages: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<Stage>>>>>,
    /// The NIC that a DPU presents: its name and the guest's address.
    nics: Arc<Mutex<HashMap<String, (String, String)>>>,
    /// Renewals that failed or came too late.
    missed: Arc<AtomicUsize>,
}

impl Agents {
    pub fn start(client: &Client, size: Size, tasks: &mut JoinSet<()>) -> Self {
        let agents = Self {
            client: client.clone(),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            stages: Arc::default(),
            nics: Arc::default(),
            missed: Arc::default(),
        };
        for number in 1..=size.machines {
            let (agents, first) = (agents.clone(), size.beat.mul_f64(number as f64 / size.machines as f64));
            tasks.spawn(async move { agents.live(format!("dpu-{number}"), first, size.beat).await });
        }
        let (disks, nics) = (agents.clone(), agents.clone());
        tasks.spawn(async move { disks.watch::<DiskAttachment>(of_disk).await });
        tasks.spawn(async move { nics.watch::<NicAttachment>(of_nic).await });
        let dpus = agents.clone();
        tasks.spawn(async move { dpus.speak_up().await });
        agents
    }

    pub fn missed(&self) -> usize {
        self.missed.load(Ordering::Relaxed)
    }

    /// One agent: waits for its namespace, then renews its Lease for ever.
    async fn live(&self, dpu: String, first: Duration, beat: Duration) {
        let namespace = names::dpu_namespace(&dpu);
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        while !matches!(namespaces.get_opt(&namespace).await, Ok(Some(_))) {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &namespace);
        let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + first, beat);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = false;
        loop {
            tick.tick().await;
            let renewed = tokio::time::timeout(LIMIT, renew(&leases, &dpu)).await;
            if !matches!(renewed, Ok(Ok(()))) {
                self.missed.fetch_add(1, Ordering::Relaxed);
            } else if !told {
                told = report("status of the Dpu", self.tell_dpu(&dpu).await);
            }
        }
    }

    /// An agent that is called silent says that it is not, as a real one does.
    async fn speak_up(self) {
        let dpus: Api<Dpu> = Api::all(self.client.clone());
        let mut dpus = watcher(dpus, watcher::Config::default()).default_backoff().applied_objects().boxed();
        while let Some(dpu) = dpus.next().await {
            let Ok(dpu) = dpu else { continue };
            let status = dpu.status.clone().unwrap_or_default();
            let ready = conditions::get(&status.conditions, conditions::READY);
            if ready.is_some_and(|ready| ready.reason == "AgentSilent") {
                let _permit = self.permits.acquire().await;
                report("status of the Dpu", self.tell_dpu(&dpu.name_any()).await);
            }
        }
    }

    async fn tell_dpu(&self, dpu: &str) -> Result<()> {
        let capacity = json!({"disks": 8, "nics": 8, "hotPlugPorts": 14});
        let status = json!({
            "type": "DPU", "bootID": BOOT, "agentVersion": "simulated", "capacity": capacity, "allocatable": capacity,
            "buses": ["NVMe", "VirtioBlk"], "onlineResizeBuses": ["VirtioBlk"],
            "connectors": [{"driver": csi::DRIVER, "fence": "None"}],
            "network": {"chassis": dpu},
            "conditions": [condition("Ready", true, "AgentRunning")],
        });
        apply(&Api::<Dpu>::all(self.client.clone()), dpu, status).await
    }

    async fn watch<K>(self, seen: fn(&K) -> Attachment)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
        K: Send + Sync + 'static,
    {
        let all: Api<K> = Api::all(self.client.clone());
        let mut objects = watcher(all, watcher::Config::default()).default_backoff().applied_objects().boxed();
        let mut work = JoinSet::new();
        while let Some(object) = objects.next().await {
            while work.try_join_next().is_some() {}
            let Ok(object) = object else { continue };
            let (agents, attachment) = (self.clone(), seen(&object));
            work.spawn(async move {
                let _permit = agents.permits.acquire().await;
                report(&attachment.name, agents.attend::<K>(&attachment).await);
            });
        }
    }

    async fn attend<K>(&self, a: &Attachment) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let next = match (a.leaving, a.epoch, a.phase.as_str()) {
            (true, ..) if a.released => Stage::Left,
            (false, None, "Pending") => Stage::Waiting,
            (false, Some(_), "Pending" | "Waiting") => Stage::Attached,
            _ => return Ok(()),
        };
        let stage =
            self.stages.lock().unwrap_or_else(PoisonError::into_inner).entry(a.uid.clone()).or_default().clone();
        let mut stage = stage.lock().await;
        if *stage >= next {
            return Ok(());
        }
        let api: Api<K> = Api::namespaced(self.client.clone(), &a.namespace);
        match next {
            Stage::New => {}
            Stage::Waiting => apply(&api, &a.name, a.status("Waiting", false)).await?,
            Stage::Attached => {
                apply(&api, &a.name, a.status("Attaching", false)).await?;
                apply(&api, &a.name, a.status("Attached", true)).await?;
                if let Some(address) = &a.address {
                    let mut nics = self.nics.lock().unwrap_or_else(PoisonError::into_inner);
                    nics.insert(a.dpu.clone(), (a.name.clone(), address.clone()));
                }
            }
            Stage::Left => {
                apply(&api, &a.name, a.status("Detaching", false)).await?;
                let free = json!({"metadata": {"uid": a.uid, "finalizers": null}});
                api.patch(&a.name, &PatchParams::default(), &Patch::Merge(&free)).await?;
            }
        }
        *stage = next;
        Ok(())
    }

    /// The guest behind a DPU has sent its first packet, and answers.
    pub async fn guest_speaks(&self, dpu: &str) {
        let nic = self.nics.lock().unwrap_or_else(PoisonError::into_inner).get(dpu).cloned();
        let Some((name, address)) = nic else { return };
        let now = MicroTime(Timestamp::now());
        let api: Api<NicAttachment> = Api::namespaced(self.client.clone(), &names::dpu_namespace(dpu));
        let _permit = self.permits.acquire().await;
        let told = async {
            let there = api.get(&name).await?;
            let mut status = of_nic(&there).status("Attached", true);
            status["guest"] = json!({"firstPacketAt": now, "answeredAt": now, "answeredAddress": address});
            apply(&api, &name, status).await
        };
        report(&name, told.await);
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    New,
    Waiting,
    Attached,
    Left,
}

/// Whether it went well; what did not is said.
fn report(what: &str, result: Result<()>) -> bool {
    if let Err(error) = &result {
        eprintln!("bench: {what}: {error:#}");
    }
    result.is_ok()
}

async fn renew(leases: &Api<Lease>, dpu: &str) -> Result<()> {
    let spec = json!({"holderIdentity": dpu, "leaseDurationSeconds": 5, "renewTime": MicroTime(Timestamp::now())});
    let renewed = leases.patch("agent", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await;
    match renewed {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let lease = serde_json::from_value(json!({"metadata": {"name": "agent"}, "spec": spec}))?;
            leases.create(&PostParams::default(), &lease).await?;
        }
        renewed => drop(renewed?),
    }
    Ok(())
}

async fn apply<K>(api: &Api<K>, name: &str, status: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let object = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "status": status,
    });
    let params = PatchParams::apply(labels::AGENT).force();
    api.patch_status(name, &params, &Patch::Apply(&object)).await.context("apply its status").map(drop)
}

fn condition(type_: &str, good: bool, reason: &str) -> Value {
    let status = if good { "True" } else { "False" };
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": now})
}

/// What an agent looks at, of either kind.
struct Attachment {
    name: String,
    namespace: String,
    uid: String,
    dpu: String,
    epoch: Option<u64>,
    phase: String,
    leaving: bool,
    released: bool,
    /// A disk's size.
    size: Option<Value>,
    /// A NIC's address.
    address: Option<String>,
}

impl Attachment {
    fn status(&self, phase: &str, exposed: bool) -> Value {
        let reason = if exposed { "Exposed" } else { "InProgress" };
        let mut status = json!({
            "phase": phase,
            "conditions": [condition("Connected", exposed, reason), condition("Exposed", exposed, reason)],
        });
        if let Some(epoch) = self.epoch {
            let identity = format!("simulated.{}.{epoch}", self.uid);
            status["fence"] = json!({"bootID": BOOT, "identity": identity, "epoch": epoch});
        }
        if exposed {
            status["exposedBootID"] = json!(BOOT);
            if let Some(size) = &self.size {
                status["capacity"] = size.clone();
            }
        }
        status
    }
}

fn of_disk(disk: &DiskAttachment) -> Attachment {
    Attachment {
        name: disk.name_any(),
        namespace: disk.namespace().unwrap_or_default(),
        uid: disk.uid().unwrap_or_default(),
        dpu: disk.spec.dpu_name.clone(),
        epoch: disk.spec.grant.map(|grant| grant.epoch),
        phase: format!("{:?}", disk.status.as_ref().map(|status| status.phase).unwrap_or_default()),
        leaving: disk.metadata.deletion_timestamp.is_some(),
        released: disk.spec.release,
        size: disk.spec.size.as_ref().map(|size| json!(size)),
        address: None,
    }
}

fn of_nic(nic: &NicAttachment) -> Attachment {
    Attachment {
        name: nic.name_any(),
        namespace: nic.namespace().unwrap_or_default(),
        uid: nic.uid().unwrap_or_default(),
        dpu: nic.spec.dpu_name.clone(),
        epoch: nic.spec.grant.map(|grant| grant.epoch),
        phase: format!("{:?}", nic.status.as_ref().map(|status| status.phase).unwrap_or_default()),
        leaving: nic.metadata.deletion_timestamp.is_some(),
        released: nic.spec.release,
        size: None,
        address: nic.spec.addresses.first().cloned(),
    }
}
