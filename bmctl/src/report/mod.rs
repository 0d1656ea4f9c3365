//! `bmctl dpu report`: one archive with what nobody knows yet of DPUs, servers and their BMCs (docs/hardware.md), for whoever runs Metalplane on one
//! first. It reads only. What cannot be had is told in the archive's index and stops nothing: it runs on a DPU, which has no kubeconfig, and on
//! a desk, which has no DPU.
//!
//! No secret: what is asked for holds none where the vendors' documents are right, and [`scrub`] takes out what looks like one.

mod archive;
mod bmc;
mod dpu;
mod scrub;

use crate::args::ClusterArgs;
use crate::cluster::Cluster;
use crate::failure::Failure;
use anyhow::Context;
use api::{DiskAttachment, Dpu, NicAttachment};
use archive::Part;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct Report {
    /// The Dpu whose objects are taken along
    pub dpu: Option<String>,
    /// The archive (tar) to write. Default: dpu-report-TIME.tar here
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// When this is, for what changes with a start of the server
    #[arg(long, value_enum, default_value_t = Phase::Once)]
    pub phase: Phase,
    /// On the DPU: the socket on which SNAP, or another SPDK target, takes JSON-RPC. May be repeated
    #[arg(long, value_name = "SOCKET", default_values = dpu::SOCKETS)]
    pub socket: Vec<PathBuf>,
    /// The BMC of the server, as https://192.0.2.7
    #[arg(long, value_name = "URL", requires_all = ["bmc_user", "bmc_password_file"])]
    pub bmc: Option<String>,
    /// Who may read there
    #[arg(long, value_name = "NAME")]
    pub bmc_user: Option<String>,
    /// A file with that user's password, which is sent to the BMC and goes nowhere else
    #[arg(long, value_name = "FILE")]
    pub bmc_password_file: Option<PathBuf>,
    /// The BMC's certificate is not checked
    #[arg(long)]
    pub bmc_insecure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// Before the server is started with the DPU's disk
    Before,
    /// After that start
    After,
    /// Neither
    Once,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Once => "once",
        }
    }
}

pub async fn run(cluster: &ClusterArgs, report: &Report, program: &'static str) -> Result<String, Failure> {
    let now = Timestamp::now();
    let mut parts = vec![about(report, now)];
    parts.extend(objects(cluster, report, program).await);
    parts.extend(dpu::gather(&report.socket, &dpu::search_path()).await);
    if let Some(url) = &report.bmc {
        let user = report.bmc_user.as_deref().unwrap_or_default();
        let file = report.bmc_password_file.clone().unwrap_or_default();
        let password = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let bmc = bmc::Bmc { url, user, password: password.trim_end(), insecure: report.bmc_insecure };
        parts.extend(bmc.gather(&dpu::search_path()).await);
    }
    let name = || PathBuf::from(format!("dpu-report-{}-{}.tar", report.phase.as_str(), now.strftime("%Y%m%dT%H%M%SZ")));
    let out = report.out.clone().unwrap_or_else(name);
    archive::write(&out, &parts).with_context(|| format!("write {}", out.display()))?;
    let missing = parts.iter().filter(|part| part.content.is_err()).count();
    let got = parts.len() - missing;
    let next = match report.phase {
        Phase::Before => {
            format!("\nnext: start the server, and {program} dpu report --phase after with the same flags")
        }
        Phase::After | Phase::Once => String::new(),
    };
    Ok(format!(
        "{}: {got} parts; {missing} could not be had, see index.txt in it. Look through it before you send it.{next}\n",
        out.display()
    ))
}

fn about(report: &Report, now: Timestamp) -> Part {
    let about = json!({
        "time": now.to_string(),
        "phase": report.phase.as_str(),
        "version": runtime::version::VERSION,
        "dpu": report.dpu,
    });
    Part::json("about.json", Ok(about))
}

/// What the cluster has of the DPU.
async fn objects(args: &ClusterArgs, report: &Report, program: &'static str) -> Vec<Part> {
    let Some(name) = &report.dpu else {
        return vec![Part::json("cluster/dpu.json", Err("no Dpu was named".to_owned()))];
    };
    let cluster = match Cluster::connect(args, program).await {
        Ok(cluster) => cluster,
        Err(failure) => return vec![Part::json("cluster/dpu.json", Err(failure.to_string()))],
    };
    let dpu = Api::<Dpu>::all(cluster.client.clone()).get(name).await;
    let namespace = dpu.as_ref().ok().and_then(|dpu| dpu.status.as_ref()?.namespace.clone());
    let mut parts = vec![Part::json("cluster/dpu.json", told(dpu))];
    if let Some(namespace) = namespace {
        let (client, all) = (cluster.client.clone(), ListParams::default());
        let disks = Api::<DiskAttachment>::namespaced(client.clone(), &namespace).list(&all).await;
        let disks = disks.map(|list| list.items.into_iter().map(without_volume).collect::<Vec<_>>());
        parts.push(Part::json("cluster/diskattachments.json", told(disks)));
        let nics = Api::<NicAttachment>::namespaced(client, &namespace).list(&all).await;
        parts.push(Part::json("cluster/nicattachments.json", told(nics.map(|list| list.items))));
    }
    parts
}

/// Attributes of a volume are its storage's, and may be anything.
fn without_volume(mut attachment: DiskAttachment) -> DiskAttachment {
    attachment.managed_fields_mut().clear();
    if let Some(volume) = &mut attachment.spec.volume {
        volume.attributes.clear();
    }
    attachment
}

fn told<T: Serialize>(read: Result<T, kube::Error>) -> Result<Value, String> {
    serde_json::to_value(read.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
