//! Other people's CSI drivers behind a holder pod: the mock driver of Kubernetes' own storage tests, which has no data path,
//! for the protocol; csi-driver-host-path, for data, where `CSI_HOSTPATH_PLUGIN` names its program.

use super::{attachment, holder};
use crate::machine::{Machine, SOON};
use crate::on_servers;
use anyhow::{Context, Result, ensure};
use sandbox::supervisor::process::ProcessSpec;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tests::site::{Site, tools, until};

const HOSTPATH_PLUGIN: &str = "CSI_HOSTPATH_PLUGIN";

/// A driver whose programs run as processes of one DPU, with the registration that kubelet asks for and a provisioner.
struct Driver<'a> {
    site: &'a Site,
    dpu: String,
    name: &'static str,
    processes: Vec<String>,
}

impl<'a> Driver<'a> {
    /// `plugin`: the driver's own program, if it is not the mock.
    async fn start(site: &'a Site, dpu: String, name: &'static str, plugin: Option<&Path>) -> Result<Self> {
        let mut driver = Self { site, dpu, name, processes: Vec::new() };
        let mock = tools("mock-driver").await?.join("mock-driver").display().to_string();
        let mut registrar = vec![mock, format!("--name={name}")];
        if let Some(plugin) = plugin {
            registrar.push("--register-only".to_owned());
            // It expects to find the folder of its socket, as a DaemonSet mounts it.
            let socket = driver.socket();
            let folder = Path::new(&socket).parent().context("a folder")?.display().to_string();
            site.enter(&driver.dpu, &["mkdir", "-p", &folder]).await?;
            driver.spawn("plugin", driver.plugin(plugin)).await?;
        }
        driver.spawn("driver", registrar).await?;
        let provisioner = tools("provisioner").await?.join("csi-provisioner").display().to_string();
        let flags = ["--leader-election=false", "--feature-gates=Topology=false", "--retry-interval-start=200ms"];
        let kubeconfig = format!("--kubeconfig={}", site.sandbox.admin_kubeconfig().display());
        let words = [provisioner, format!("--csi-address={}", driver.socket()), kubeconfig];
        driver.spawn("provisioner", words.into_iter().chain(flags.map(str::to_owned)).collect()).await?;
        if plugin.is_some() {
            let resizer = tools("kubernetes").await?.join("csi-resizer").display().to_string();
            let kubeconfig = format!("--kubeconfig={}", site.sandbox.admin_kubeconfig().display());
            let words = vec![resizer, format!("--csi-address={}", driver.socket()), kubeconfig, flags[0].to_owned()];
            driver.spawn("resizer", words).await?;
        }
        site.apply(&driver.manifests()).await?;
        until(&format!("kubelet knows {name}"), SOON, async || {
            let node = site.get(&["csinode", &driver.dpu]).await?.unwrap_or_default();
            let drivers = node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
            let known = drivers.iter().any(|known| known["name"] == name);
            Ok(if known { Ok(()) } else { Err(node["spec"].to_string()) })
        })
        .await?;
        Ok(driver)
    }

    fn socket(&self) -> String {
        format!("/var/lib/kubelet/plugins/{}/csi.sock", self.name)
    }

    fn plugin(&self, program: &Path) -> Vec<String> {
        vec![
            program.display().to_string(),
            format!("--drivername={}", self.name),
            format!("--endpoint=unix://{}", self.socket()),
            format!("--nodeid={}", self.dpu),
            "--statedir=/var/lib/csi-hostpath".to_owned(),
        ]
    }

    fn process(&self, part: &str) -> String {
        format!("{}/{}-{part}", self.dpu, self.name)
    }

    async fn spawn(&mut self, part: &str, words: Vec<String>) -> Result<()> {
        let name = self.process(part);
        self.site.sandbox.spawn(&ProcessSpec::new(name.clone(), words).enter(&self.dpu)).await?;
        self.processes.push(name);
        Ok(())
    }

    fn manifests(&self) -> String {
        let name = self.name;
        format!(
            "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {{name: {name}}}\nspec: {{attachRequired: false}}\n---\n\
             apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}}}\nprovisioner: {name}\n\
             allowVolumeExpansion: true\nvolumeBindingMode: Immediate\n"
        )
    }

    /// Calls that the mock was asked and answered well, in their order.
    fn calls(&self) -> Result<Vec<String>> {
        let log = self.site.sandbox.layout().dir.join("logs").join(format!("{}.log", self.process("driver")));
        let text = std::fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
        let good = |line: &str| Some(line.strip_prefix("call ")?.strip_suffix(" OK")?.to_owned());
        Ok(text.lines().filter_map(good).collect())
    }

    async fn asked(&self, call: &str) -> Result<()> {
        until(&format!("{} was asked for {call}", self.name), SOON, async || {
            let calls = self.calls()?;
            Ok(if calls.iter().any(|asked| asked == call) { Ok(()) } else { Err(calls.join(", ")) })
        })
        .await
    }

    async fn end(self) -> Result<()> {
        for process in self.processes.iter().rev() {
            self.site.sandbox.stop_process(process).await?;
        }
        self.site.kubectl(&["delete", "storageclass,csidriver", self.name]).await.map(drop)
    }
}

/// Everything that a CSI driver is asked for a disk, in the order of the specification, by the real provisioner and a real
/// kubelet. There is no device, so nothing is granted, the machine says what kubelet says, and all is taken back.
#[test]
fn the_mock_driver_is_asked_as_the_specification_says() {
    on_servers(&[2], "mock_driver", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        let driver = Driver::start(site, machine.on().dpu(), "mock.csi.k8s.io", None).await?;
        let result = machine.told(protocol(&machine, &driver).await).await;
        driver.end().await?;
        result
    });
}

async fn protocol(machine: &Machine<'_>, driver: &Driver<'_>) -> Result<()> {
    machine.apply().await?;
    machine.wait_ready().await?;
    let host = machine.on().host()?;
    add_disk(machine, driver.name).await?;
    for call in ["CreateVolume", "NodeStageVolume", "NodePublishVolume"] {
        driver.asked(call).await?;
    }
    let words = machine.says("HolderPodStarting").await?;
    ensure!(words.contains(&machine.on().dpu()), "which node is it about? {words}");
    let there = attachment(machine, "foreign").await?.context("there is no attachment")?;
    ensure!(there["spec"]["volume"]["connector"] == "Kubelet", "the connector: {there}");
    ensure!(there["spec"]["grant"].is_null(), "a disk without a device is granted: {there}");
    let volume = there["spec"]["volume"]["persistentVolumeName"].as_str().unwrap_or_default().to_owned();
    ensure!(holder(machine, &volume).await?.is_some(), "nobody holds the volume that kubelet connects");
    remove_disk(machine, &volume).await?;
    driver.asked("NodeUnstageVolume").await?;
    machine.wait_ready().await?;
    machine.kubectl(&["delete", "pvc", &format!("{}-foreign", machine.name), "--timeout=150s"]).await?;
    driver.asked("DeleteVolume").await?;
    let calls = driver.calls()?;
    let place = |call: &str| calls.iter().position(|asked| asked == call);
    let order = ["CreateVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnstageVolume", "DeleteVolume"];
    ensure!(order.windows(2).all(|pair| place(pair[0]) < place(pair[1])), "asked in another order: {calls:?}");
    ensure!(machine.on().host()? == host, "the host was started anew");
    machine.delete().await
}

async fn add_disk(machine: &Machine<'_>, class: &str) -> Result<()> {
    let disk = format!(
        r#"[{{"op":"add","path":"/spec/disks/-","value":{{"name":"foreign","bus":"VirtioBlk","size":"64Mi","storageClassName":"{class}","source":{{"blank":{{}}}}}}}}]"#
    );
    machine.kubectl(&["patch", "bmm", machine.name, "--type=json", "-p", &disk]).await.map(drop)
}

/// The same volume once more, by its claim.
fn again(machine: &Machine<'_>) -> String {
    let claim = format!("{}-foreign", machine.name);
    format!(
        r#"[{{"op":"add","path":"/spec/disks/-","value":{{"name":"foreign","bus":"VirtioBlk","source":{{"persistentVolumeClaim":{{"claimName":"{claim}"}}}}}}}}]"#
    )
}

/// Taken out of the list; nobody has it any more.
async fn remove_disk(machine: &Machine<'_>, volume: &str) -> Result<()> {
    let remove = r#"[{"op":"remove","path":"/spec/disks/1"}]"#;
    machine.kubectl(&["patch", "bmm", machine.name, "--type=json", "-p", remove]).await?;
    until("the disk is taken back", SOON, async || {
        let mut left: Vec<Value> = attachment(machine, "foreign").await?.into_iter().collect();
        left.extend(holder(machine, volume).await?.map(Value::from));
        let pods = machine.kubectl(&["get", "pods", "-o", "name"]).await?;
        left.extend(pods.lines().map(Value::from));
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    })
    .await
}

#[test]
fn a_disk_of_csi_driver_host_path_goes_through_a_holder_pod() {
    const NAME: &str = "a_disk_of_csi_driver_host_path_goes_through_a_holder_pod";
    let Some(plugin) = std::env::var_os(HOSTPATH_PLUGIN).map(PathBuf::from) else {
        eprintln!("SKIP holder_pods::foreign::{NAME}: {HOSTPATH_PLUGIN} does not name csi-driver-host-path's program");
        return;
    };
    on_servers(&[2], "host_path", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        let driver = Driver::start(site, machine.on().dpu(), "hostpath.csi.k8s.io", Some(&plugin)).await?;
        let result = machine.told(data(&machine, &driver).await).await;
        driver.end().await?;
        result
    });
}

async fn data(machine: &Machine<'_>, driver: &Driver<'_>) -> Result<()> {
    machine.apply().await?;
    machine.wait_ready().await?;
    let guest = machine.guest();
    let from = guest.printed().len();
    add_disk(machine, driver.name).await?;
    guest.line("the guest sees the disk", from, SOON, |line| line.contains("vda=131072")).await?;
    let copy = "printf FOREIGN | dd of=/dev/vda conv=notrunc,fsync && dd if=/dev/vda bs=7 count=1; echo";
    let read = guest.shell(copy, SOON).await?;
    ensure!(read.contains("FOREIGN"), "what was written is not read back: {read}");
    let there = attachment(machine, "foreign").await?.context("there is no attachment")?;
    let volume = there["spec"]["volume"]["persistentVolumeName"].as_str().unwrap_or_default().to_owned();
    remove_disk(machine, &volume).await?;
    // This driver grows nothing but its own record of a block volume: what is asked is that the data is there again.
    let from = guest.printed().len();
    machine.kubectl(&["patch", "bmm", machine.name, "--type=json", "-p", &again(machine)]).await?;
    guest.line("the guest sees the disk again", from, SOON, |line| line.contains("vda=131072")).await?;
    let read = guest.shell("dd if=/dev/vda bs=7 count=1; echo", SOON).await?;
    ensure!(read.contains("FOREIGN"), "what was written before is not read back: {read}");
    remove_disk(machine, &volume).await?;
    machine.kubectl(&["delete", "pvc", &format!("{}-foreign", machine.name), "--timeout=150s"]).await?;
    machine.delete().await
}
