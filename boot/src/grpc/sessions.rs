//! The calls of `installer.proto`.

use super::callers::Callers;
use super::connection::Caller;
use super::unavailable;
use crate::seeds::Seeds;
use planner::metadata::hardware::seed;
use planner::netboot::session::HEARTBEAT;
use proto::installer::v1::sessions_server::Sessions;
use proto::installer::v1::{
    EndRequest, EndResponse, HeartbeatRequest, HeartbeatResponse, RedeemRequest, RedeemResponse, SeedRequest,
    SeedResponse,
};
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub struct Service {
    pub callers: Callers,
    pub seeds: Arc<Seeds>,
}

#[tonic::async_trait]
impl Sessions for Service {
    async fn redeem(&self, request: Request<RedeemRequest>) -> Result<Response<RedeemResponse>, Status> {
        let RedeemRequest { worker_id, system_uuid } = request.get_ref();
        self.callers.redeem(&Caller::of(&request), worker_id, system_uuid).await?;
        let heartbeat_seconds = u32::try_from(HEARTBEAT.as_secs()).unwrap_or(u32::MAX);
        Ok(Response::new(RedeemResponse { heartbeat_seconds }))
    }

    async fn heartbeat(&self, request: Request<HeartbeatRequest>) -> Result<Response<HeartbeatResponse>, Status> {
        let HeartbeatRequest { worker_id, doing } = request.get_ref();
        self.callers.heartbeat(&Caller::of(&request), worker_id, doing).await?;
        Ok(Response::new(HeartbeatResponse {}))
    }

    async fn seed(&self, request: Request<SeedRequest>) -> Result<Response<SeedResponse>, Status> {
        let (agent, hardware) = self.callers.holder(&Caller::of(&request), &request.get_ref().worker_id).await?;
        let files = self.seeds.of(&hardware).await.map_err(|error| unavailable(&format!("{error:#}")))?;
        let directory = self.callers.world.directory().borrow().clone();
        let subject = directory.by_mac(&super::mac_of(&agent, Some(&hardware)));
        let told = subject.and_then(|subject| seed(&subject, files.as_deref()));
        let files = told.map_err(|why| Status::failed_precondition(why.to_string()))?;
        tracing::info!(agent, "told what its system reads");
        Ok(Response::new(SeedResponse { files: files.into_iter().collect() }))
    }

    async fn end(&self, request: Request<EndRequest>) -> Result<Response<EndResponse>, Status> {
        self.callers.end(&Caller::of(&request), &request.get_ref().worker_id).await?;
        Ok(Response::new(EndResponse {}))
    }
}
