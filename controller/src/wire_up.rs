//! The only place that names a concrete driver.

use crate::Fences;
use crate::args::Args;
use crate::bmc::{BmcFactory, Endpoint};
use anyhow::{Context, Result};
use ceph::{CephFence, Cluster, Clusters};
use file::FileFence;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use ports::{Bmc, PortError, StorageFence};
use redfish::{RedfishBmc, RedfishConfig, Secret, Verify};
use spdk::fence::NvmeFence;
use std::sync::Arc;

/// A client that never repeats a request by itself: a write that succeeded behind a lost answer would come back as a
/// conflict. Whoever calls looks first.
pub async fn client(args: &Args) -> Result<Client> {
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let kubeconfig =
                Kubeconfig::read_from(path).with_context(|| format!("read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("use the kubeconfig {}", path.display()))?
        }
        None => Config::infer().await.context("find the API server: give --kubeconfig, or run in a pod")?,
    };
    config.default_retry = false;
    Client::try_from(config).context("make a client for the API server")
}

/// The storage that this process can reach.
pub fn fences(args: &Args) -> Fences {
    let mut all: Vec<Arc<dyn StorageFence>> = Vec::new();
    if !args.file_pools.is_empty() {
        all.push(Arc::new(FileFence::new(args.file_pools.iter().cloned().collect())));
    }
    if !args.nvmeof_targets.is_empty() {
        all.push(Arc::new(NvmeFence::new(args.nvmeof_targets.iter().cloned().collect())));
    }
    if let Some(programs) = args.ceph_programs.as_ref().filter(|_| !args.ceph_clusters.is_empty()) {
        let path = ("PATH".to_owned(), programs.display().to_string());
        let known = args.ceph_clusters.iter().map(|known| {
            (known.id.clone(), Cluster { user: known.user.clone(), config_file: known.config_file.clone() })
        });
        let clusters = Clusters::new(known.collect()).with_environment([path].into());
        all.push(Arc::new(CephFence::new(clusters)));
    }
    Fences::new(all)
}

pub struct Redfish;

impl BmcFactory for Redfish {
    fn open(&self, endpoint: &Endpoint) -> Result<Arc<dyn Bmc>, PortError> {
        let password = Secret::new(endpoint.password.0.clone());
        let mut config = RedfishConfig::new(&endpoint.host, &endpoint.username, password);
        config.port = endpoint.port;
        config.verify = if endpoint.insecure_tls { Verify::InsecureTls } else { Verify::System };
        config.system_name = endpoint.system_name.clone();
        config.use_basic_auth = endpoint.use_basic_auth;
        config.fencing_token = Some(endpoint.fencing_token.to_string());
        Ok(Arc::new(RedfishBmc::new(config)?))
    }
}
