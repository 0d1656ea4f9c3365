//! The calls of `installer.proto`.

use super::callers::Callers;
use super::connection::Caller;
use planner::netboot::session::HEARTBEAT;
use proto::installer::v1::sessions_server::Sessions;
use proto::installer::v1::{
    EndRequest, EndResponse, HeartbeatRequest, HeartbeatResponse, RedeemRequest, RedeemResponse,
};
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub struct Service(pub Callers);

#[tonic::async_trait]
impl Sessions for Service {
    async fn redeem(&self, request: Request<RedeemRequest>) -> Result<Response<RedeemResponse>, Status> {
        self.0.redeem(&Caller::of(&request), &request.get_ref().worker_id).await?;
        let heartbeat_seconds = u32::try_from(HEARTBEAT.as_secs()).unwrap_or(u32::MAX);
        Ok(Response::new(RedeemResponse { heartbeat_seconds }))
    }

    async fn heartbeat(&self, request: Request<HeartbeatRequest>) -> Result<Response<HeartbeatResponse>, Status> {
        let HeartbeatRequest { worker_id, doing } = request.get_ref();
        self.0.heartbeat(&Caller::of(&request), worker_id, doing).await?;
        Ok(Response::new(HeartbeatResponse {}))
    }

    async fn end(&self, request: Request<EndRequest>) -> Result<Response<EndResponse>, Status> {
        self.0.end(&Caller::of(&request), &request.get_ref().worker_id).await?;
        Ok(Response::new(EndResponse {}))
    }
}
