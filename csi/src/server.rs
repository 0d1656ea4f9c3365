//! Sockets and services.

use crate::{
    args::{Args, Half},
    authority,
    controller::{ControllerService, GroupControllerService},
    identity::IdentityService,
    node_service::NodeService,
    pools::Pools,
    proxy::{Disks, Machines, ProxyControllerService, ProxyNodeService},
    registration::RegistrationService,
    tend, wire_up,
};
use anyhow::{Context, bail};
use kube::Client;
use proto::{
    csi::v1::{
        controller_server::ControllerServer, group_controller_server::GroupControllerServer,
        identity_server::IdentityServer, node_server::NodeServer, plugin_capability::service::Type as Kind,
    },
    pluginregistration::registration_server::RegistrationServer,
};
use runtime::{cluster, process};
use std::{future::Future, io::ErrorKind, path::Path, sync::Arc, time::Duration};
use tokio::{net::UnixListener, sync::mpsc};
use tokio_stream::{StreamExt, wrappers::UnixListenerStream};
use tonic::transport::{Server, server::Router};

/// For one request to the API server.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Opens the pools, serves until `shutdown` ends, and takes the sockets away again.
pub async fn serve(args: &Args, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    let mut server = Server::builder();
    let mut tending = None;
    let router = match args.proxy {
        None => {
            let pools = Arc::new(wire_up::pools(args)?);
            let serves_lvols = args.serves_controller() && !args.lvol_pools.is_empty();
            tending = serves_lvols.then(|| tokio::spawn(tend::tend(pools.clone())));
            of_pools(&mut server, args, pools)?
        }
        Some(half) => of_machines(&mut server, args, half).await?,
    };
    let driver = router.serve_with_incoming(listen(&args.csi_address)?);
    tracing::info!(socket = %args.csi_address.display(), driver = args.driver(), "serving");

    let (refused, mut refusal) = mpsc::channel(1);
    let mut sockets = vec![args.csi_address.clone()];
    let mut registration = None;
    if let Some(endpoint) = args.kubelet_registration_path.clone().filter(|_| args.node().is_some()) {
        let socket = args.registration_socket();
        let service =
            RegistrationServer::new(RegistrationService { driver: args.driver(), endpoint, refused: refused.clone() });
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
    if let Some(tending) = tending {
        tending.abort();
    }
    // A call that was cut off is made again, and finds what it began; its blocking half ends before the process does.
    sockets.iter().try_for_each(|path| remove_socket(path))?;
    end
}

/// The pools' driver.
fn of_pools(server: &mut Server, args: &Args, pools: Arc<Pools>) -> anyhow::Result<Router> {
    if let Some(node) = args.node() {
        pools.iter().filter(|pool| pool.are_files()).try_for_each(|pool| pool.register_node(node))?;
    }
    // The same from every process of the driver, but that a node's has no controller services to offer.
    let mut services = vec![Kind::VolumeAccessibilityConstraints];
    if args.serves_controller() {
        services.extend([Kind::ControllerService, Kind::GroupControllerService]);
    }
    let controller = args.serves_controller().then(|| ControllerServer::new(ControllerService::new(pools.clone())));
    let groups =
        args.serves_controller().then(|| GroupControllerServer::new(GroupControllerService::new(pools.clone())));
    Ok(server
        .add_service(IdentityServer::new(IdentityService { driver: args.driver(), services }))
        .add_optional_service(controller)
        .add_optional_service(groups)
        .add_optional_service(args.node().map(|node| NodeServer::new(NodeService::new(pools, node)))))
}

/// Proxy mode.
async fn of_machines(server: &mut Server, args: &Args, half: Half) -> anyhow::Result<Router> {
    let services = if half == Half::Controller { vec![Kind::ControllerService] } else { Vec::new() };
    let controller = match (half, &args.machine_namespace) {
        (Half::Controller, Some(namespace)) => {
            let machines = Machines::new(client(args.machine_kubeconfig.as_deref()).await?, namespace);
            Some(ControllerServer::new(ProxyControllerService::new(machines)))
        }
        _ => None,
    };
    Ok(server
        .add_service(IdentityServer::new(IdentityService { driver: args.driver(), services }))
        .add_optional_service(controller)
        .add_optional_service(args.node().map(|node| NodeServer::new(ProxyNodeService::new(node, Disks::default())))))
}

/// The API server of the cluster with the machines. A call's own time limit is the sidecars'.
async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    process::provide_tls();
    let mut config = cluster::config(kubeconfig, "--machine-kubeconfig").await?;
    // A write that was done behind a lost answer is found by the next try: it looks first.
    config.default_retry = true;
    config.connect_timeout = Some(TIME_LIMIT);
    config.read_timeout = Some(TIME_LIMIT);
    Client::try_from(config).context("make a client")
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
