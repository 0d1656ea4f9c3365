//! The agent of this node, by its socket.

use crate::error::Error;
use crate::request::Pod;
use proto::interfaces::v1alpha1::interfaces_client::InterfacesClient;
use proto::interfaces::v1alpha1::{AttachRequest, DetachRequest, Interface, StateRequest};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// For NICs to be in force: more than what the agent waits for them.
const ATTACH: Duration = Duration::from_secs(60);
/// For what the agent answers at once.
const PROMPT: Duration = Duration::from_secs(2);

async fn connect(socket: &Path, limit: Duration) -> Result<InterfacesClient<Channel>, String> {
    let said = |error: &dyn std::fmt::Display| {
        format!("AgentUnresponsive: Metalplane's agent does not answer on {}: {error}", socket.display())
    };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(|error| said(&error))?;
    let channel = endpoint.connect_timeout(PROMPT).timeout(limit).connect().await.map_err(|error| {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        said(&cause)
    })?;
    Ok(InterfacesClient::new(channel))
}

/// The NICs that the pod asks for, in force.
pub(crate) async fn attach(
    socket: &Path,
    pod: &Pod,
    container_id: &str,
    annotations: BTreeMap<String, String>,
) -> Result<Vec<Interface>, Error> {
    let next = ". Next: look at the pod of DaemonSet metalplane-node-agent on this node";
    let mut agent = connect(socket, ATTACH).await.map_err(|said| Error::again(said + next))?;
    let request = AttachRequest {
        pod_namespace: pod.namespace.clone(),
        pod_name: pod.name.clone(),
        pod_uid: pod.uid.clone(),
        container_id: container_id.to_owned(),
        annotations: annotations.into_iter().collect(),
    };
    let told = |status: Status| {
        let said = format!("Pod '{}/{}': {}", pod.namespace, pod.name, status.message());
        match status.code() {
            Code::InvalidArgument => Error::invalid(said),
            Code::Unimplemented => Error::again(format!(
                "Pod '{}/{}': the agent of this node gives no NICs to pods: it runs without --pods",
                pod.namespace, pod.name
            )),
            Code::Unavailable | Code::DeadlineExceeded => {
                Error::again(format!("{said}. Next: kubectl describe pod {} -n {}", pod.name, pod.namespace))
            }
            _ => Error::again(said),
        }
    };
    Ok(agent.attach(request).await.map_err(told)?.into_inner().interfaces)
}

/// Tells; an agent that does not answer finds out by itself.
pub(crate) async fn detach(socket: &Path, pod_uid: &str, container_id: &str) {
    if let Ok(mut agent) = connect(socket, PROMPT).await {
        let request = DetachRequest { pod_uid: pod_uid.to_owned(), container_id: container_id.to_owned() };
        let _told = agent.detach(request).await;
    }
}

pub(crate) async fn answers(socket: &Path) -> Result<(), String> {
    let mut agent = connect(socket, PROMPT).await?;
    agent.state(StateRequest {}).await.map(drop).map_err(|status| status.message().to_owned())
}
