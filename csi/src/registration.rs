//! The driver registers itself with kubelet, without a sidecar: kubelet watches a folder, connects to each socket it
//! finds there, asks who it is and says how it went.

use proto::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse, registration_server::Registration,
};
use std::path::PathBuf;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

#[derive(Debug, Clone)]
pub struct RegistrationService {
    pub driver: &'static str,
    /// The driver's socket as kubelet sees it.
    pub endpoint: PathBuf,
    /// Receives kubelet's word when it refuses the driver. kubelet does not ask again while the socket stays, so the
    /// process has to end and be started anew; no volume depends on it.
    pub refused: mpsc::Sender<String>,
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: self.driver.into(),
            endpoint: self.endpoint.to_string_lossy().into_owned(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!("kubelet registered {}", self.driver);
        } else {
            // A full channel means that the process is ending already.
            let _ = self.refused.try_send(status.error);
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
