//! Installs Metalplane as a user would: the snapshot API, two charts, and images without a registry.

use super::{Agents, INVENTORY_NAMESPACE, STORAGE_CLASS, SYSTEM_NAMESPACE, Site, Storage, images, run, until};
use anyhow::{Context, Result};
use sandbox::cluster::kubelet::CNI;
/// The folder with the programs of a pinned module below tools/, built once.
pub use sandbox::programs::build as tools;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// With the controller's certificate for OVN.
const OVN_SECRET: &str = "metalplane-ovn";

/// The workspace's folder: charts and scripts are taken from the checkout that this was built from.
pub(super) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

pub(super) async fn helm() -> Result<PathBuf> {
    Ok(tools("helm").await?.join("helm"))
}

impl Site {
    pub(super) async fn install(&self, say: &dyn Fn(&str)) -> Result<()> {
        images::load(&self.sandbox, say).await?;
        say("installing the snapshot API and Metalplane's charts with helm");
        self.definitions().await?;
        self.ovn_secret().await?;
        let mut values = images::values();
        let boot = self.boot_values().await?;
        let spdk = self.spdk.iter().flat_map(Storage::values);
        values.extend(self.values().into_iter().chain(boot).chain(spdk).map(|value| format!("--set={value}")));
        self.chart("metalplane", &values).await?;
        if self.agents == Agents::Process {
            self.start_processes().await?;
        }
        self.wait_for_workloads().await?;
        say("racking the virtual servers: inventory, BMC credentials, approval of their DPUs");
        self.rack_servers().await
    }

    pub(super) async fn definitions(&self) -> Result<()> {
        self.snapshot_definitions().await?;
        self.chart("metalplane-crds", &[]).await
    }

    /// The controller's certificate for OVN, as cert-manager would leave it.
    async fn ovn_secret(&self) -> Result<()> {
        let ovn = &self.sandbox.ready().ovn;
        let files = [("tls.crt", &ovn.certificate), ("tls.key", &ovn.private_key), ("ca.crt", &ovn.ca_cert)];
        let files = files.map(|(key, file)| format!("--from-file={key}={}", file.display()));
        let create = ["create", "secret", "generic", OVN_SECRET, "-n", SYSTEM_NAMESPACE, "--type=kubernetes.io/tls"];
        self.kubectl(&[&create[..], &files.each_ref().map(String::as_str)].concat()).await.map(drop)
    }

    pub(super) async fn snapshot_definitions(&self) -> Result<()> {
        let given = self.sandbox.ready().programs.iter().map(|folder| folder.join("snapshot-crds"));
        let mut found = given.filter(|folder| folder.is_dir());
        let folder = match found.next() {
            Some(folder) => folder,
            // The programs were given, not built: the definitions come from our own build all the same.
            None => tools("kubernetes").await?.join("snapshot-crds"),
        };
        let folder = folder.to_string_lossy().into_owned();
        self.kubectl(&["apply", "--server-side", "-k", &folder]).await.map(drop)
    }

    pub(super) async fn chart(&self, chart: &str, flags: &[String]) -> Result<()> {
        let folder = images::chart(chart).display().to_string();
        let mut args =
            vec!["upgrade", "--install", chart, &folder, "--namespace", SYSTEM_NAMESPACE, "--create-namespace"];
        args.extend(flags.iter().map(String::as_str));
        self.run_helm(&args).await.with_context(|| format!("install the chart {chart}"))
    }

    pub(super) async fn run_helm(&self, args: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.helm);
        command.env("KUBECONFIG", self.sandbox.kubeconfig());
        run(command, args, None).await.map(drop)
    }

    /// The chart's objects of proxy mode, for workers that are the machines of one namespace. Its node plug-in runs on no
    /// node of the site: the workers' own system runs it.
    pub async fn proxy_mode(&self, machine_namespace: &str) -> Result<String> {
        let (chart, images) = (images::chart("metalplane").display().to_string(), images::values());
        let class = format!("--set=csi.proxy.storageClass.machineStorageClassName={STORAGE_CLASS}");
        let machines = format!("--set=csi.proxy.machineNamespace={machine_namespace}");
        let mut args = vec![
            "template",
            "metalplane",
            &chart,
            "--namespace",
            SYSTEM_NAMESPACE,
            "--show-only=templates/csi-proxy.yaml",
            "--set=csi.proxy.enabled=true",
            &machines,
            &class,
            // Of what QEMU emulates, these are the disks that grow while the guest runs.
            "--set=csi.proxy.storageClass.bus=VirtioBlk",
            "--set=csi.proxy.nodeSelector.worker=elsewhere",
            "--set=images.pullPolicy=Never",
        ];
        args.extend(images.iter().map(String::as_str));
        run(Command::new(&self.helm), &args, None).await.context("write the chart's objects of proxy mode")
    }

    fn values(&self) -> Vec<String> {
        let pods = self.agents == Agents::DaemonSet;
        vec![
            format!("filePool.directory={}", self.sandbox.ready().pool.display()),
            "filePool.fence=true".to_owned(),
            "filePool.storageClass.isDefault=true".to_owned(),
            "agent.bootIdFile=/run/metalplane/boot-id".to_owned(),
            "agent.eraserArguments[0]=console=ttyS0".to_owned(),
            "inventory.discoverBootOptions=true".to_owned(),
            format!("agent.enabled={pods}"),
            format!("controller.enabled={pods}"),
            format!("inventory.namespace={INVENTORY_NAMESPACE}"),
            format!("ovn.northBound={}", self.sandbox.ready().ovn.north_bound),
            format!("ovn.southBound={}", self.sandbox.ready().ovn.south_bound),
            format!("ovn.tls.secretName={OVN_SECRET}"),
            "ovn.tls.serverName=HOST".to_owned(),
            format!("cni.enabled={pods}"),
            "cni.chain=true".to_owned(),
            format!("cni.binDirectory={CNI}/bin"),
            format!("cni.confDirectory={CNI}/net.d"),
            "images.pullPolicy=Never".to_owned(),
            format!("images.holder={}", sandbox::cluster::images::PAUSE),
        ]
    }

    /// Every pod of Metalplane is there and ready.
    pub async fn wait_for_workloads(&self) -> Result<()> {
        until("the workloads of Metalplane are ready", Duration::from_secs(120), async || {
            let list = self.get(&["pods", "-n", SYSTEM_NAMESPACE]).await?.unwrap_or_default();
            let pods = list["items"].as_array().cloned().unwrap_or_default();
            let ready = |pod: &serde_json::Value| {
                let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
            };
            let waiting: Vec<String> =
                pods.iter().filter(|p| !ready(p)).map(|p| p["metadata"]["name"].to_string()).collect();
            // The CSI driver and its plug-in on every node; the controller, and an agent on every node; two targets.
            let on_nodes = 1 + self.sandbox.ready().nodes.len();
            let expected = on_nodes
                + if self.agents == Agents::DaemonSet { on_nodes } else { 0 }
                + if self.spdk.is_some() { 2 } else { 0 };
            if pods.len() < expected {
                return Ok(Err(format!("{} of {expected} pods", pods.len())));
            }
            if waiting.is_empty() { Ok(Ok(())) } else { Ok(Err(format!("not ready: {}", waiting.join(", ")))) }
        })
        .await
        .map_err(|error| error.context(format!("see: kubectl -n {SYSTEM_NAMESPACE} describe pods")))
    }
}
