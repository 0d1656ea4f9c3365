//! The only place that names a concrete driver.

use crate::args::Args;
use crate::bmc::{BmcFactory, RedfishEndpoint};
use crate::{Fences, OpenNorthBound, OpenSouthBound, Ovn};
use ceph::{CephFence, Cluster, Clusters};
use file::FileFence;
use ovsdb::{Address, OvnNorthBound, OvnSouthBound, Schedule, SessionConfig, chassis, client, north_bound};
use ports::{Bmc, PortError, StorageFence};
use redfish::{RedfishBmc, RedfishConfig, Secret, Verify};
use spdk::fence::NvmeFence;
use std::sync::Arc;

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

pub fn ovn(args: &Args) -> Option<Ovn> {
    let config = |address: &Address, database: &str, monitored| SessionConfig {
        address: address.clone(),
        database: database.to_owned(),
        monitored,
        limits: client::Limits::default(),
        schedule: Schedule::default(),
    };
    let address = args.ovn_nb.clone()?;
    let north_bound: OpenNorthBound = Arc::new(move |site| {
        let config = config(&address, north_bound::DATABASE, north_bound::monitored());
        Arc::new(OvnNorthBound::new(config, site))
    });
    let south_bound = args.ovn_sb.clone().map(|address| {
        let open: OpenSouthBound =
            Arc::new(move || Arc::new(OvnSouthBound::new(config(&address, chassis::DATABASE, chassis::monitored()))));
        open
    });
    Some(Ovn { north_bound, south_bound })
}

pub struct Redfish;

impl BmcFactory for Redfish {
    fn redfish(&self, endpoint: &RedfishEndpoint) -> Result<Arc<dyn Bmc>, PortError> {
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
