//! What `cni` asks on this node (`interfaces.proto`): the NICs of a pod, once they are in force.
//!
//! Nothing is made for a question: the controller grants a pod's NicAttachments as soon as the pod has a node, and the agent's rounds bring
//! them up as those of a host. A question waits for that, and answers with what a round has seen that began after it.

use crate::watch::Desired;
use api::NicAttachment;
use api::attachment::PodInterface;
use api::machine::AttachPhase;
use planner::agent::Plan;
use planner::exposure::ExposureId;
use planner::network::pods::{Request as Asked, requests};
use ports::PodDevices;
use proto::interfaces::v1alpha1 as wire;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};

/// Less than what the plugin waits for an answer.
const LIMIT: Duration = Duration::from_secs(55);

/// What the last round saw of pods' NICs.
#[derive(Default)]
struct Round {
    /// `None`: there was none yet.
    began: Option<Instant>,
    /// `None`: the API server has not told of them yet.
    nics: Option<Vec<PodNic>>,
}

struct PodNic {
    id: Option<ExposureId>,
    name: String,
    pod_uid: String,
    interface: String,
    mac: String,
    mtu: u16,
    configured: PodInterface,
    /// Why it is not in force.
    waits: Option<String>,
}

/// The NICs of this node's pods.
pub(crate) struct Pods {
    dpu_name: String,
    devices: Arc<dyn PodDevices>,
    rounds: watch::Sender<Round>,
    wake: Arc<Notify>,
}

impl Pods {
    pub(crate) fn new(dpu_name: &str, devices: Arc<dyn PodDevices>, wake: Arc<Notify>) -> Self {
        Self { dpu_name: dpu_name.to_owned(), devices, rounds: watch::Sender::default(), wake }
    }

    /// A round that began then has seen this.
    pub(crate) fn update(&self, began: Instant, desired: &Desired, plan: &Plan) {
        let seen = |object: &NicAttachment| pod_nic(object, plan);
        let nics = desired.nics.all(seen).map(|(nics, _)| nics.into_iter().flatten().collect());
        self.rounds.send_replace(Round { began: Some(began), nics });
    }

    /// A pod's end that is elsewhere belongs to another sandbox of this pod, and is made anew.
    async fn with_devices(
        &self,
        nics: Vec<(ExposureId, wire::Interface)>,
    ) -> Result<Result<Vec<wire::Interface>, String>, Status> {
        let unknown = |error: ports::PortError| Status::unavailable(format!("the node's devices: {error}"));
        let devices = self.devices.list().await.map_err(unknown)?;
        let mut interfaces = Vec::with_capacity(nics.len());
        for (id, mut interface) in nics {
            let device = devices.iter().find(|device| device.id == id);
            match device.map(|device| device.pod_end.clone()) {
                Some(Some(pod_end)) => {
                    interface.device = pod_end;
                    interface.function = self.devices.are_functions();
                    interfaces.push(interface);
                }
                // The plugin on this node has given it back from every sandbox that it knows: rounds go on as they do.
                Some(None) if self.devices.are_functions() => {
                    return Ok(Err(format!("interface '{}' is in another sandbox of the pod", interface.name)));
                }
                Some(None) => {
                    tracing::info!(uid = id.uid, interface = interface.name, "taken from another sandbox of its pod");
                    self.devices.remove(&id).await.map_err(unknown)?;
                    self.wake.notify_one();
                    return Ok(Err(format!("the agent creates the device of interface '{}' again", interface.name)));
                }
                None => {
                    self.wake.notify_one();
                    return Ok(Err(format!("the agent creates the device of interface '{}'", interface.name)));
                }
            }
        }
        Ok(Ok(interfaces))
    }
}

fn pod_nic(object: &NicAttachment, plan: &Plan) -> Option<PodNic> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let configured = spec.pod.clone()?;
    let uid = meta.uid.clone().unwrap_or_default();
    let name = meta.name.clone().unwrap_or_default();
    let report = plan.items.iter().find(|item| item.key.uid == uid).and_then(|item| item.report.as_ref());
    let stuck = report.and_then(|report| report.stuck.as_ref());
    let attached = report.is_some_and(|report| report.phase == Some(AttachPhase::Attached));
    let waits = match stuck {
        Some(stuck) => Some(format!("{}: {}", stuck.why.as_str(), stuck.message)),
        None if attached => None,
        None => Some(format!("NicAttachment '{name}' is being brought up")),
    };
    Some(PodNic {
        id: spec.grant.map(|grant| ExposureId { uid, epoch: grant.epoch }),
        name,
        pod_uid: spec.owner.uid.clone(),
        interface: spec.interface_name.clone(),
        mac: spec.mac_address.clone(),
        mtu: spec.mtu,
        configured,
        waits,
    })
}

/// Everything that is asked for, in force; or what is waited for.
fn find(
    round: &Round,
    since: Instant,
    pod_uid: &str,
    asked: &[Asked],
) -> Result<Vec<(ExposureId, wire::Interface)>, String> {
    let nics = round.nics.as_ref().ok_or("the agent has not heard of the API server yet")?;
    if round.began.is_none_or(|began| began < since) {
        return Err("the agent is looking at the node's devices".to_owned());
    }
    let one = |asked: &Asked| {
        let of_it = |nic: &&PodNic| nic.pod_uid == pod_uid && nic.interface == asked.name;
        let nic = nics.iter().find(of_it).ok_or_else(|| {
            format!(
                "interface '{}' has no NicAttachment yet: the controller makes it for a pod with the label {}, and \
                 says in the pod's Events what it waits for",
                asked.name,
                api::labels::NETWORKS
            )
        })?;
        if let Some(waits) = &nic.waits {
            return Err(waits.clone());
        }
        let id = nic.id.clone().ok_or_else(|| format!("NicAttachment '{}' is not granted yet", nic.name))?;
        let route = |route: &api::attachment::PodRoute| wire::Route {
            destination: route.destination.clone(),
            gateway: route.gateway.clone(),
        };
        let interface = wire::Interface {
            name: nic.interface.clone(),
            device: String::new(),
            mac_address: nic.mac.clone(),
            mtu: u32::from(nic.mtu),
            addresses: nic.configured.addresses.clone(),
            routes: nic.configured.routes.iter().map(route).collect(),
            configured_by_pod: !asked.configure,
            function: false,
        };
        Ok((id, interface))
    };
    asked.iter().map(one).collect()
}

#[tonic::async_trait]
impl Nics for Pods {
    fn node(&self) -> &str {
        &self.dpu_name
    }

    async fn ready(&self, pod_uid: &str, asked: &[Asked]) -> Result<Vec<wire::Interface>, Status> {
        let deadline = Instant::now() + LIMIT;
        let mut rounds = self.rounds.subscribe();
        let mut since = Instant::now();
        self.wake.notify_one();
        loop {
            let found = find(&rounds.borrow_and_update(), since, pod_uid, asked);
            let waits = match found {
                Ok(nics) => match self.with_devices(nics).await? {
                    Ok(interfaces) => return Ok(interfaces),
                    Err(waits) => {
                        since = Instant::now();
                        waits
                    }
                },
                Err(waits) => waits,
            };
            match timeout_at(deadline, rounds.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Status::unavailable("the agent is ending")),
                Err(_) => return Err(Status::unavailable(format!("not within {} s: {waits}", LIMIT.as_secs()))),
            }
        }
    }

    fn ended(&self) {
        self.wake.notify_one();
    }
}

/// Who knows the NICs of this node's pods.
#[tonic::async_trait]
pub(crate) trait Nics: Send + Sync + 'static {
    fn node(&self) -> &str;

    /// Everything that is asked for, once it is in force.
    async fn ready(&self, pod_uid: &str, asked: &[Asked]) -> Result<Vec<wire::Interface>, Status>;

    /// A sandbox of a pod has ended.
    fn ended(&self);
}

pub(crate) struct Service<N>(pub(crate) Arc<N>);

#[tonic::async_trait]
impl<N: Nics> wire::interfaces_server::Interfaces for Service<N> {
    async fn attach(&self, request: Request<wire::AttachRequest>) -> Result<Response<wire::AttachResponse>, Status> {
        let wire::AttachRequest { pod_namespace, pod_name, pod_uid, container_id, annotations } = request.into_inner();
        let asked = requests(&annotations.into_iter().collect()).map_err(Status::invalid_argument)?;
        let interfaces = self.0.ready(&pod_uid, &asked).await;
        match &interfaces {
            Ok(all) => tracing::info!(pod_namespace, pod_name, pod_uid, container_id, nics = all.len(), "attached"),
            Err(error) => tracing::warn!(pod_namespace, pod_name, pod_uid, container_id, "{}", error.message()),
        }
        Ok(Response::new(wire::AttachResponse { interfaces: interfaces? }))
    }

    async fn detach(&self, request: Request<wire::DetachRequest>) -> Result<Response<wire::DetachResponse>, Status> {
        let wire::DetachRequest { pod_uid, container_id } = request.into_inner();
        tracing::info!(pod_uid, container_id, "a sandbox has ended");
        self.0.ended();
        Ok(Response::new(wire::DetachResponse {}))
    }

    async fn state(&self, _: Request<wire::StateRequest>) -> Result<Response<wire::StateResponse>, Status> {
        let version = runtime::version::VERSION.to_owned();
        Ok(Response::new(wire::StateResponse { dpu_name: self.0.node().to_owned(), version }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use ports::conformance::memory::MemoryPodDevices;
    use ports::emulation::NicFunction;

    fn id() -> ExposureId {
        ExposureId { uid: "nic-1".to_owned(), epoch: 1 }
    }

    async fn make(devices: &MemoryPodDevices) -> String {
        let nic = NicFunction { id: id(), mac: "02:00:00:00:00:07".into(), mtu: 1442, device: "mp1".into() };
        devices.make(&nic).await.expect("make");
        devices.list().await.expect("list")[0].pod_end.clone().expect("on the node")
    }

    /// A round that begins now, and sees this.
    fn round(pods: &Pods, waits: Option<&str>) {
        let nic = PodNic {
            id: Some(id()),
            name: "web-net1".to_owned(),
            pod_uid: "pod-1".to_owned(),
            interface: "net1".to_owned(),
            mac: "02:00:00:00:00:07".to_owned(),
            mtu: 1442,
            configured: PodInterface { addresses: vec!["10.20.0.7/24".to_owned()], routes: vec![] },
            waits: waits.map(str::to_owned),
        };
        pods.rounds.send_replace(Round { began: Some(Instant::now()), nics: Some(vec![nic]) });
    }

    fn asked() -> Vec<Asked> {
        let annotations = [(api::labels::SUBNET.to_owned(), "blue".to_owned())];
        requests(&annotations.into()).expect("well formed")
    }

    fn pods(devices: &MemoryPodDevices) -> Pods {
        Pods::new("node-1", Arc::new(devices.clone()), Arc::new(Notify::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_rests_on_a_round_that_began_after_the_question() {
        let devices = MemoryPodDevices::default();
        let device = make(&devices).await;
        let pods = pods(&devices);
        round(&pods, None);
        tokio::time::advance(Duration::from_millis(1)).await;
        let asked = asked();
        let mut answer = std::pin::pin!(pods.ready("pod-1", &asked));
        assert!(answer.as_mut().now_or_never().is_none(), "what was seen before may be gone");
        round(&pods, Some("NotInForce: flows are missing"));
        assert!(answer.as_mut().now_or_never().is_none());
        round(&pods, None);
        let interfaces = answer.await.expect("in force");
        assert_eq!((interfaces.len(), interfaces[0].name.as_str()), (1, "net1"));
        assert_eq!(
            (&interfaces[0].device, interfaces[0].addresses.as_slice()),
            (&device, ["10.20.0.7/24".to_owned()].as_slice())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_of_another_sandbox_is_made_anew() {
        let devices = MemoryPodDevices::default();
        devices.move_away(&make(&devices).await);
        let (pods, asked) = (pods(&devices), asked());
        round(&pods, None);
        let mut answer = std::pin::pin!(pods.ready("pod-1", &asked));
        assert!(answer.as_mut().now_or_never().is_none());
        assert_eq!(devices.list().await.expect("list"), [], "it is taken from the other sandbox");
        let device = make(&devices).await;
        tokio::time::advance(Duration::from_millis(1)).await;
        round(&pods, None);
        assert_eq!(answer.await.expect("in force")[0].device, device);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_what_for() {
        let devices = MemoryPodDevices::default();
        let (pods, asked) = (pods(&devices), asked());
        let told =
            async |pods: &Pods| pods.ready("pod-1", &asked).await.expect_err("nothing is there").message().to_owned();
        assert!(told(&pods).await.contains("has not heard of the API server"));
        tokio::time::advance(Duration::from_millis(1)).await;
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            round(&pods, Some("NotBound: OVN has not bound it"));
        };
        let (message, ()) = tokio::join!(told(&pods), later);
        assert!(message.contains("not within 55 s: NotBound"), "{message}");
        let other = pods.ready("pod-2", &asked);
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            round(&pods, None);
        };
        let (answer, ()) = tokio::join!(other, later);
        let message = answer.expect_err("another pod's").message().to_owned();
        assert!(message.contains("interface 'net1' has no NicAttachment yet"), "{message}");
    }
}
