//! Sockets and services.

use crate::{
    args::Args,
    authority,
    controller::{ControllerService, GroupControllerService},
    identity::IdentityService,
    node_service::NodeService,
    pools::Pools,
    registration::RegistrationService,
};
use anyhow::{Context, bail};
use proto::{
    csi::v1::{
        controller_server::ControllerServer, group_controller_server::GroupControllerServer,
        identity_server::IdentityServer, node_server::NodeServer,
    },
    pluginregistration::registration_server::RegistrationServer,
};
use std::{future::Future, io::ErrorKind, path::Path, sync::Arc};
use tokio::{net::UnixListener, sync::mpsc};
use tokio_stream::{StreamExt, wrappers::UnixListenerStream};
use tonic::transport::Server;

/// Opens the pools, serves until `shutdown` ends, and takes the sockets away again.
pub async fn serve(args: &Args, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    let dirs = args.pools.iter().map(|(name, dir)| (name.as_str(), dir));
    let pools = Arc::new(Pools::open(dirs)?);
    if let Some(node) = args.node() {
        pools.iter().try_for_each(|pool| pool.register_node(node))?;
    }
    let driver = Server::builder()
        .add_service(IdentityServer::new(IdentityService { serves_controller: args.serves_controller() }))
        .add_optional_service(
            args.serves_controller().then(|| ControllerServer::new(ControllerService::new(pools.clone()))),
        )
        .add_optional_service(
            args.serves_controller().then(|| GroupControllerServer::new(GroupControllerService::new(pools.clone()))),
        )
        .add_optional_service(args.node().map(|node| NodeServer::new(NodeService::new(pools.clone(), node))))
        .serve_with_incoming(listen(&args.csi_address)?);
    tracing::info!(socket = %args.csi_address.display(), mode = ?args.mode, "serving");

    let (refused, mut refusal) = mpsc::channel(1);
    let mut sockets = vec![args.csi_address.clone()];
    let mut registration = None;
    if let Some(endpoint) = args.kubelet_registration_path.clone().filter(|_| args.node().is_some()) {
        let socket = args.registration_socket();
        let service = RegistrationServer::new(RegistrationService { endpoint, refused: refused.clone() });
        let kubelet = listen(&socket)?.map(|connection| connection.map(authority::corrected));
        registration = Some(Server::builder().add_service(service).serve_with_incoming(kubelet));
        sockets.push(socket);
    }
    let registration = async {
        match registration {
            Some(server) => server.await,
            None => std::future::pending().await,
        }
    };

    let end = tokio::select! {
        result = driver => result.context("serving the driver"),
        result = registration => result.context("serving the registration"),
        Some(error) = refusal.recv() => Err(anyhow::anyhow!("kubelet refused the driver: {error}")),
        () = shutdown => Ok(()),
    };
    // A call that was cut off is made again, and finds what it began; its blocking half ends before the process does.
    sockets.iter().try_for_each(|path| remove_socket(path))?;
    end
}

/// A socket that an earlier process left is replaced; anything else in its place is not ours to remove. Its folder is made:
/// kubelet has one for all plug-ins, and each makes its own below.
fn listen(path: &Path) -> anyhow::Result<UnixListenerStream> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    remove_socket(path)?;
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    Ok(UnixListenerStream::new(listener))
}

fn remove_socket(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
        Ok(meta) if !meta.file_type().is_socket() => bail!("{} is not a socket: choose another path", path.display()),
        Ok(_) => std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display())),
    }
}
