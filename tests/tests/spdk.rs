//! A whole site whose servers take their disks from a real SPDK target, by vfio-user. Runs where SPDK is installed.
//!
//! The target polls: it takes a core of its own, so the site is as small as it can be and everything is one test.

use anyhow::{Context, Result, ensure};
use sandbox::handle::Options;
use sandbox::spdk::real;
use serde_json::Value;
use std::time::{Duration, Instant};
use tests::guest::Guest;
use tests::site::{Agents, GuestKind, Site, running_guests, until};

const NAMESPACE: &str = "t-spdk";
const MACHINE: &str = "bm";
/// Both cores are busy.
const LIMIT: Duration = Duration::from_secs(180);
const AGENT: &str = "dpu-1/dpu-agent";
const TARGET: &str = "dpu-1/spdk-target";

#[test]
fn a_machine_lives_on_disks_of_an_spdk_target() {
    const NAME: &str = "a_machine_lives_on_disks_of_an_spdk_target";
    if let Err(missing) = real::program("nvmf_tgt") {
        eprintln!("SKIP {NAME}: {missing}");
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP {NAME}: only root can make network namespaces");
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let began = Instant::now();
    let say = |text: &str| eprintln!("[{:6.1} s] {text}", began.elapsed().as_secs_f64());
    runtime.expect("a runtime").block_on(async {
        let options = Options {
            nodes: vec!["dpu-1".to_owned(), "node-1".to_owned()],
            servers: vec!["server-1".to_owned()],
            vfio_user: true,
            ..Options::default()
        };
        let site = Site::start("spdk", options, Agents::Process, &say).await.expect("the site starts");
        let result = whole_life(&site, &say).await;
        let logs = site.sandbox.layout().dir.join("logs");
        if let Err(error) = result {
            if let Ok(machines) = site.kubectl(&["describe", "bmm", "-n", NAMESPACE]).await {
                eprintln!("{machines}");
            }
            panic!("{error:#}\nlogs: {}", logs.display());
        }
        site.down().await.expect("the site ends");
    });
}

async fn whole_life(site: &Site, say: &dyn Fn(&str)) -> Result<()> {
    site.golden_image(GuestKind::Tiny, None, "tiny").await?;
    let guest = Guest::new(site.sandbox.layout(), "server-1");
    say("booting from a clone, through SPDK");
    boots(site, &guest).await?;
    say("hot-plug, growth and a new agent under load");
    let disk = hot_plug(site, &guest).await?;
    let writes = guest.printed().len();
    guest.order(&format!("mp-write /dev/{disk} &"), LIMIT).await?;
    guest.line("the guest writes", writes, LIMIT, |line| line.contains("MP-WRITE ")).await?;
    grow(site, &guest, "128Mi", 262_144).await?;
    agent_is_replaced(site).await?;
    grow(site, &guest, "192Mi", 393_216).await?;
    guest.order("touch /run/mp-write.stop", LIMIT).await?;
    let end = guest.line("the guest stops to write", writes, LIMIT, |line| line.contains("MP-WRITE-END")).await?;
    ensure!(end.contains("errors=0"), "I/O failed or came back different: {end}");
    let from = guest.printed().len();
    bmctl(site, &["removedisk", MACHINE, "data", "--wait", "--timeout", "180s"]).await?;
    let is_gone = |line: &str| line.contains("MP-BLOCK") && !line.contains("=393216");
    guest.line("the guest lost the disk", from, LIMIT, is_gone).await?;
    say("the target is killed under the host");
    target_is_lost(site, &guest).await?;
    say("deletion");
    site.kubectl(&["delete", "bmm", MACHINE, "-n", NAMESPACE, "--timeout=180s"]).await?;
    ensure!(running_guests(site)?.is_empty(), "the guest still runs");
    until("the target has no disk left", LIMIT, async || {
        let bdevs = target(site, "bdev_get_bdevs").await?;
        Ok(if bdevs == serde_json::json!([]) { Ok(()) } else { Err(bdevs.to_string()) })
    })
    .await
}

async fn bmctl(site: &Site, arguments: &[&str]) -> Result<String> {
    site.bmctl(&[&["-n", NAMESPACE], arguments].concat()).await
}

async fn ready(site: &Site) -> Result<()> {
    let timeout = format!("--timeout={}s", LIMIT.as_secs());
    site.kubectl(&["wait", "--for=condition=Ready", "bmm/bm", "-n", NAMESPACE, &timeout]).await.map(drop)
}

/// What the target answers; asked from inside the DPU, where its socket is.
async fn target(site: &Site, method: &str) -> Result<Value> {
    let socket = site.sandbox.layout().node_dir("dpu-1").join("run/metalplane/spdk.sock");
    let said = real::ask(&socket, method, Value::Null).await.with_context(|| format!("ask the target for {method}"))?;
    Ok(said)
}

async fn boots(site: &Site, guest: &Guest) -> Result<()> {
    site.kubectl(&["create", "namespace", NAMESPACE]).await?;
    site.apply(&format!(
        "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: blue, namespace: {NAMESPACE}}}
spec: {{cidr: 10.30.0.0/24}}
---
apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {{name: {MACHINE}, namespace: {NAMESPACE}}}
spec:
  readinessProbe: {{icmp: {{}}}}
  terminationGracePeriodSeconds: 5
  disks:
  - {{name: root, bootOrder: 1, source: {{image: {{kind: ClusterMachineImage, name: tiny}}}}}}
  interfaces:
  - {{name: eth0, subnet: blue, addresses: [10.30.0.7]}}
"
    ))
    .await?;
    ready(site).await?;
    let model = guest.shell("cat /sys/class/nvme/nvme0/model", LIMIT).await?;
    ensure!(model.contains("Metalplane disk"), "the guest's disk is {model}");
    ensure!(guest.printed().contains("boots=1"), "the root file system is not a fresh clone");
    Ok(())
}

/// The name of the disk in the guest.
async fn hot_plug(site: &Site, guest: &Guest) -> Result<String> {
    let from = guest.printed().len();
    let add = ["adddisk", MACHINE, "data", "--size", "64Mi", "--bus", "NVMe", "--wait", "--timeout", "180s"];
    bmctl(site, &add).await?;
    let seen = |line: &str| line.contains("MP-BLOCK") && line.contains("=131072");
    let line = guest.line("the guest sees the new disk", from, LIMIT, seen).await?;
    let disk = line.split_whitespace().find_map(|word| word.strip_suffix("=131072"));
    Ok(disk.context("no name")?.to_owned())
}

async fn grow(site: &Site, guest: &Guest, size: &str, sectors: u64) -> Result<()> {
    let from = guest.printed().len();
    let patch = format!(r#"[{{"op":"replace","path":"/spec/disks/1/size","value":"{size}"}}]"#);
    site.kubectl(&["patch", "bmm", MACHINE, "-n", NAMESPACE, "--type=json", "-p", &patch]).await?;
    guest.line(&format!("the guest sees {size}"), from, LIMIT, |l| l.contains(&format!("={sectors}"))).await.map(drop)
}

/// The agent is killed and started: nothing in the target is made anew. Bdevs get another UUID when they are.
async fn agent_is_replaced(site: &Site) -> Result<()> {
    let (subsystems, bdevs) = (target(site, "nvmf_get_subsystems").await?, target(site, "bdev_get_bdevs").await?);
    let identities = |bdevs: &Value| -> Vec<(Value, Value)> {
        bdevs.as_array().into_iter().flatten().map(|b| (b["name"].clone(), b["uuid"].clone())).collect()
    };
    site.sandbox.kill_process(AGENT).await?;
    site.sandbox.start_process(AGENT).await?;
    site.kubectl(&["wait", "--for=condition=Ready", "dpu/dpu-1", "--timeout=180s"]).await?;
    ensure!(target(site, "nvmf_get_subsystems").await? == subsystems, "the new agent changed what is presented");
    ensure!(identities(&target(site, "bdev_get_bdevs").await?) == identities(&bdevs), "the new agent made bdevs anew");
    Ok(())
}

fn power_actions(site: &Site) -> usize {
    let log = site.sandbox.layout().server_dir("server-1").join("actions.jsonl");
    std::fs::read_to_string(log).map(|text| text.lines().count()).unwrap_or_default()
}

async fn target_is_lost(site: &Site, guest: &Guest) -> Result<()> {
    let (guests, actions) = (running_guests(site)?, power_actions(site));
    site.sandbox.kill_process(TARGET).await?;
    site.sandbox.start_process(TARGET).await?;
    until("the machine says that it needs a power cycle", LIMIT, async || {
        let machine = site.get(&["bmm", MACHINE, "-n", NAMESPACE]).await?.context("the machine is gone")?;
        let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let required = conditions.iter().find(|c| c["type"] == "RestartRequired").cloned().unwrap_or_default();
        let said = required["status"] == "True" && required["reason"] == "HostPowerCycleNeeded";
        Ok(if said { Ok(()) } else { Err(required.to_string()) })
    })
    .await?;
    ensure!(running_guests(site)? == guests && power_actions(site) == actions, "somebody switched the host's power");
    bmctl(site, &["stop", MACHINE, "--wait", "--timeout", "180s"]).await?;
    let from = guest.printed().len();
    bmctl(site, &["start", MACHINE, "--wait", "--timeout", "180s"]).await?;
    guest.line("the guest boots again", from, LIMIT, |line| line.contains("boots=2")).await?;
    ready(site).await
}
