//! Who this driver is.

use proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
    identity_server::Identity,
    plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion},
};
use tonic::{Request, Response, Status};

#[derive(Debug, Clone)]
pub struct IdentityService {
    pub driver: &'static str,
    /// What the driver has besides its node service and online expansion.
    pub services: Vec<service::Type>,
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.driver.into(),
            vendor_version: runtime::version::VERSION.into(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let services = self.services.iter().map(|kind| Type::Service(Service { r#type: (*kind).into() }));
        let online = Type::VolumeExpansion(VolumeExpansion { r#type: volume_expansion::Type::Online.into() });
        let types = services.chain([online]);
        let capabilities = types.map(|r#type| PluginCapability { r#type: Some(r#type) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// The pools were opened before the socket was: whoever can ask has a driver that is ready.
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
