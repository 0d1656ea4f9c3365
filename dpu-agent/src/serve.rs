//! The agent's local interface (`agent.proto`): what it knows, read only.

use crate::interfaces::{self, Pods};
use anyhow::Context;
use api::machine::AttachPhase;
use planner::agent::{Kind, Observed, Plan};
use planner::exposure::{FunctionKind, Presence};
use proto::agent::v1alpha1::agent_server::{Agent, AgentServer};
use proto::agent::v1alpha1::{
    Attachment, Exposure, GetStatusRequest, GetStatusResponse, ListExposuresRequest, ListExposuresResponse, attachment,
    exposure,
};
use proto::interfaces::v1alpha1::interfaces_server::{Interfaces, InterfacesServer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What the last round saw.
pub(crate) struct View {
    status: Mutex<GetStatusResponse>,
    /// `None`: the emulator could not be read.
    exposures: Mutex<Option<Vec<Exposure>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl View {
    pub(crate) fn new(dpu_name: &str, boot_id: &str) -> Self {
        let status = GetStatusResponse {
            dpu_name: dpu_name.to_owned(),
            boot_id: boot_id.to_owned(),
            version: runtime::version::VERSION.to_owned(),
            attachments: Vec::new(),
        };
        Self { status: Mutex::new(status), exposures: Mutex::new(None) }
    }

    pub(crate) fn update(&self, observed: &Observed, plan: &Plan) {
        let mut attachments: Vec<_> = plan.items.iter().map(|item| attachment(observed, item)).collect();
        attachments.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        lock(&self.status).attachments = attachments;
        *lock(&self.exposures) = observed.exposures.fresh().map(|all| all.iter().map(exposure).collect());
    }

    /// Kind and phase of each attachment; none yet: `Pending`.
    pub(crate) fn phases(&self) -> Vec<(&'static str, String)> {
        let kind = |attachment: &Attachment| match attachment.kind() {
            attachment::Kind::Nic => "nic",
            _ => "disk",
        };
        let phase = |phase: &str| if phase.is_empty() { "Pending" } else { phase }.to_owned();
        lock(&self.status).attachments.iter().map(|a| (kind(a), phase(&a.phase))).collect()
    }
}

fn attachment(observed: &Observed, item: &planner::agent::Item) -> Attachment {
    let known = observed.attachments.last().into_iter().flatten().find(|a| a.key == item.key);
    let epoch = match known {
        Some(attachment) => attachment.epoch,
        None => observed.record.get(&item.key.uid).map(|entry| entry.id.epoch),
    };
    let stuck = item.report.as_ref().and_then(|report| report.stuck.as_ref());
    let phase = item.report.as_ref().and_then(|report| report.phase);
    Attachment {
        kind: match item.key.kind {
            Kind::Disk => attachment::Kind::Disk,
            Kind::Nic => attachment::Kind::Nic,
        }
        .into(),
        namespace: item.key.namespace.clone(),
        name: item.key.name.clone(),
        uid: item.key.uid.clone(),
        epoch: epoch.unwrap_or(0),
        phase: phase.map(word).unwrap_or_default().to_owned(),
        reason: stuck.map(|stuck| stuck.why.as_str()).unwrap_or_default().to_owned(),
        message: stuck.map(|stuck| stuck.message.clone()).unwrap_or_default(),
    }
}

fn word(phase: AttachPhase) -> &'static str {
    match phase {
        AttachPhase::Pending => "Pending",
        AttachPhase::Waiting => "Waiting",
        AttachPhase::Attaching => "Attaching",
        AttachPhase::Attached => "Attached",
        AttachPhase::Detaching => "Detaching",
        AttachPhase::Failed => "Failed",
    }
}

fn exposure(seen: &planner::exposure::Exposure) -> Exposure {
    Exposure {
        uid: seen.id.uid.clone(),
        epoch: seen.id.epoch,
        kind: match seen.kind {
            FunctionKind::Disk => exposure::Kind::Disk,
            FunctionKind::Nic => exposure::Kind::Nic,
        }
        .into(),
        presence: match seen.presence {
            Presence::Appearing => exposure::Presence::Appearing,
            Presence::Present => exposure::Presence::Present,
            Presence::Leaving => exposure::Presence::Leaving,
            Presence::Stranded => exposure::Presence::Stranded,
        }
        .into(),
        size_bytes: seen.size_bytes.unwrap_or(0),
        representor: seen.representor.clone().unwrap_or_default(),
    }
}

struct Service(Arc<View>);

#[tonic::async_trait]
impl Agent for Service {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        Ok(Response::new(lock(&self.0.status).clone()))
    }

    async fn list_exposures(
        &self,
        _: Request<ListExposuresRequest>,
    ) -> Result<Response<ListExposuresResponse>, Status> {
        let exposures = lock(&self.0.exposures).clone();
        let exposures = exposures.ok_or_else(|| Status::unavailable("the emulator cannot be read now"))?;
        Ok(Response::new(ListExposuresResponse { exposures }))
    }
}

/// Serves for ever.
pub(crate) async fn serve(socket: PathBuf, view: Arc<View>, pods: Option<Arc<Pods>>) -> anyhow::Result<()> {
    let pods = pods.map(|pods| InterfacesServer::new(interfaces::Service(pods)));
    let router = Server::builder().add_service(AgentServer::new(Service(view))).add_optional_service(pods);
    router.serve_with_incoming(listen(&socket)?).await.context("the server ended")
}

/// The NICs of pods alone, for ever.
pub(crate) async fn interfaces<I: Interfaces>(socket: PathBuf, service: InterfacesServer<I>) -> anyhow::Result<()> {
    let router = Server::builder().add_service(service);
    router.serve_with_incoming(listen(&socket)?).await.context("the server ended")
}

/// The socket is root's: the folder it is in is.
fn listen(socket: &Path) -> anyhow::Result<UnixListenerStream> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", socket.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(UnixListenerStream::new(listener))
}
