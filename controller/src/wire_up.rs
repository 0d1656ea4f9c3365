//! The only place that names a concrete driver.

use crate::args::Args;
use crate::bmc::{BmcFactory, RedfishEndpoint};
use crate::{Fences, OpenNorthBound, OpenSouthBound, Ovn};
use anyhow::{Context, bail};
use ceph::{CephFence, Cluster, Clusters};
use file::FileFence;
use ovsdb::{
    Addresses, Named, OvnNorthBound, OvnSouthBound, Remotes, Schedule, SessionConfig, TlsFiles, chassis, client,
    north_bound,
};
use ports::{Bmc, ErrorClass, PortError, StorageFence};
use redfish::{RedfishBmc, RedfishConfig, Secret, Verify};
use spdk::fence::NvmeFence;
use std::path::PathBuf;
use std::sync::Arc;
use trust::Bundle;

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

/// How OVN's databases are reached.
pub fn ovn(args: &Args) -> anyhow::Result<Option<Ovn>> {
    let tls = match (&args.ovn_certificate, &args.ovn_private_key, &args.ovn_ca_cert) {
        (Some(certificate), Some(private_key), Some(authority)) => Some(TlsFiles {
            certificate: certificate.clone(),
            private_key: private_key.clone(),
            authority: authority.clone(),
            named: args.ovn_server_name.clone().unwrap_or(Named::Anything),
        }),
        _ => None,
    };
    let mut databases = [&args.ovn_nb, &args.ovn_sb].into_iter().flatten();
    if tls.is_some() && !databases.any(Addresses::need_tls) {
        bail!(
            "--ovn-certificate is for databases by ssl:, and neither --ovn-nb nor --ovn-sb is one: write ssl:ADDRESS:PORT"
        );
    }
    let remotes = |flag: &str, addresses: &Addresses| {
        let missing = || format!("{flag}: give --ovn-certificate, --ovn-private-key and --ovn-ca-cert");
        Remotes::new(addresses.clone(), tls.clone()).with_context(missing)
    };
    let config = |remotes: &Remotes, database: &str, monitored| SessionConfig {
        remotes: remotes.clone(),
        database: database.to_owned(),
        monitored,
        limits: client::Limits::default(),
        schedule: Schedule::default(),
    };
    let Some(addresses) = &args.ovn_nb else { return Ok(None) };
    let north = remotes("--ovn-nb", addresses)?;
    let north_bound: OpenNorthBound = Arc::new(move |site| {
        let config = config(&north, north_bound::DATABASE, north_bound::monitored());
        Arc::new(OvnNorthBound::new(config, site))
    });
    let south = args.ovn_sb.as_ref().map(|addresses| remotes("--ovn-sb", addresses)).transpose()?;
    let south_bound = south.map(|south| {
        let open: OpenSouthBound =
            Arc::new(move || Arc::new(OvnSouthBound::new(config(&south, chassis::DATABASE, chassis::monitored()))));
        open
    });
    Ok(Some(Ovn { north_bound, south_bound }))
}

pub fn redfish(args: &Args) -> Redfish {
    Redfish { ca_file: args.bmc_ca_file.clone() }
}

#[derive(Default)]
pub struct Redfish {
    /// The authorities of all BMCs whose own Secret has none, in PEM; read each time, for it may be mounted from an object.
    pub ca_file: Option<PathBuf>,
}

impl Redfish {
    fn verify(&self, endpoint: &RedfishEndpoint) -> Result<Verify, PortError> {
        if endpoint.insecure_tls {
            return Ok(Verify::InsecureTls);
        }
        if let Some(bundle) = &endpoint.authorities {
            return Ok(Verify::Authorities(bundle.clone()));
        }
        let Some(file) = &self.ca_file else { return Ok(Verify::System) };
        let refused = |why: String| {
            let what =
                format!("the authorities of BMCs (--bmc-ca-file, bmc.caBundle of the chart): {}", file.display());
            PortError::new(ErrorClass::Invalid, format!("{what} {why}"))
        };
        let pem = std::fs::read(file).map_err(|error| refused(format!("cannot be read: {error}")))?;
        Ok(Verify::Authorities(Bundle::parse(&pem).map_err(refused)?))
    }
}

impl BmcFactory for Redfish {
    fn redfish(&self, endpoint: &RedfishEndpoint) -> Result<Arc<dyn Bmc>, PortError> {
        let password = Secret::new(endpoint.password.0.clone());
        let mut config = RedfishConfig::new(&endpoint.host, &endpoint.username, password);
        config.port = endpoint.port;
        config.verify = self.verify(endpoint)?;
        config.system_name = endpoint.system_name.clone();
        config.use_basic_auth = endpoint.use_basic_auth;
        config.fencing_token = Some(endpoint.fencing_token.to_string());
        Ok(Arc::new(RedfishBmc::new(config)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bmc::Password;

    fn endpoint() -> RedfishEndpoint {
        RedfishEndpoint {
            host: "10.0.0.1".to_owned(),
            port: 443,
            username: "admin".to_owned(),
            password: Password("hunter2".to_owned()),
            insecure_tls: false,
            authorities: None,
            use_basic_auth: false,
            system_name: None,
            fencing_token: 1,
        }
    }

    #[test]
    fn the_nearest_word_about_a_certificate_counts_and_a_bad_file_is_named() {
        let of = |subject: &str| {
            let made = rcgen::generate_simple_self_signed([subject.to_owned()]).expect("a certificate").cert.pem();
            (Bundle::parse(made.as_bytes()).expect("a bundle"), made)
        };
        let ((own, _), (all, pem)) = (of("one"), of("all"));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.crt");
        let by_file = Redfish { ca_file: Some(file.clone()) };
        let with_own = RedfishEndpoint { authorities: Some(own.clone()), ..endpoint() };

        assert_eq!(Redfish::default().verify(&endpoint()), Ok(Verify::System));
        let insecure = RedfishEndpoint { insecure_tls: true, ..endpoint() };
        assert_eq!(by_file.verify(&insecure), Ok(Verify::InsecureTls), "the file is for the others");
        assert_eq!(by_file.verify(&with_own), Ok(Verify::Authorities(own)));
        for content in [None, Some("no certificate")] {
            if let Some(content) = content {
                std::fs::write(&file, content).expect("written");
            }
            let error = by_file.verify(&endpoint()).expect_err("nobody is trusted").message;
            assert!(error.contains("bmc.caBundle") && error.contains("ca.crt"), "{error}");
        }
        std::fs::write(&file, pem).expect("written");
        assert_eq!(by_file.verify(&endpoint()), Ok(Verify::Authorities(all)), "as it is now");
    }
}
