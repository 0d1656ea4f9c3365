//! A whole site on real SPDK, installed by the chart: a target as a pod on each DPU presents the disks by vfio-user, and connects volumes
//! of an lvol pool on a storage node. Runs where SPDK is installed.
//!
//! Targets poll: each takes a core for as long as nobody else wants it, so everything is one test.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};
use tests::guest::Guest;
use tests::site::{GuestKind, POOL_CLASS, STORAGE_CLASS, SYSTEM_NAMESPACE, Site, running_guests, until};

const NAMESPACE: &str = "t-spdk";
const LIMIT: Duration = Duration::from_secs(300);
const LIMIT_FLAG: &str = "--timeout=300s";

#[test]
fn machines_live_on_disks_of_spdk_targets() {
    const NAME: &str = "machines_live_on_disks_of_spdk_targets";
    if let Some(missing) = Site::spdk_is_missing() {
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
        let site = Site::start_with_spdk("spdk", &say).await.expect("the site starts");
        let result = whole_life(&site, &say).await;
        let logs = site.sandbox.layout().dir.join("logs");
        if let Err(error) = result {
            for what in ["bmm", "diskattachments", "volumeholds"] {
                eprintln!("{}", site.kubectl(&["get", what, "-A", "-o", "yaml"]).await.unwrap_or_default());
            }
            panic!("{error:#}\nlogs: {}", logs.display());
        }
        site.down().await.expect("the site ends");
    });
}

async fn whole_life(site: &Site, say: &dyn Fn(&str)) -> Result<()> {
    let first = Machine { site, name: "bm", server: "server-1", address: "10.30.0.7" };
    let second = Machine { site, name: "second", server: "server-2", address: "10.30.0.8" };
    say("importing an image into the lvol pool, through a DPU's target");
    site.golden_image(GuestKind::Tiny, None, "tiny").await?;
    let empty = Pool::of(site).await?;
    site.kubectl(&["create", "namespace", NAMESPACE]).await?;
    say("booting from a clone of it");
    first.boots().await?;
    say("hot-plug, growth and a new agent under load");
    grows_under_load(&first).await?;
    say("a snapshot of that disk, and a clone of the snapshot");
    is_copied(&first).await?;
    say("a disk of the file pool");
    of_the_file_pool(&first).await?;
    say("the target is killed under the host");
    target_is_lost(&first).await?;
    say("the agent falls silent, and its disk moves to the other DPU");
    moves(&first, &second).await?;
    say("deletion");
    nothing_is_left(&first, &second, &empty).await
}

struct Machine<'a> {
    site: &'a Site,
    name: &'static str,
    server: &'static str,
    address: &'static str,
}

impl Machine<'_> {
    fn dpu(&self) -> String {
        self.site.server(self.server).dpu()
    }

    fn guest(&self) -> Guest {
        self.site.server(self.server).guest()
    }

    async fn bmctl(&self, arguments: &[&str]) -> Result<String> {
        self.site.bmctl(&[&["-n", NAMESPACE], arguments].concat()).await
    }

    async fn plug(&self, disk: &str, source: &[&str]) -> Result<()> {
        let add = ["adddisk", self.name, disk, "--bus", "NVMe", "--wait", "--timeout", "300s"];
        self.bmctl(&[&add[..], source].concat()).await.map(drop)
    }

    async fn ready(&self) -> Result<()> {
        let machine = format!("bmm/{}", self.name);
        self.site.kubectl(&["wait", "--for=condition=Ready", &machine, "-n", NAMESPACE, LIMIT_FLAG]).await.map(drop)
    }

    async fn condition(&self, of: impl Fn(&Value) -> bool) -> Result<Result<String, String>> {
        let machine =
            self.site.get(&["bmm", self.name, "-n", NAMESPACE]).await?.context("the machine no longer exists")?;
        let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| of(condition)).cloned();
        let message = |condition: Value| condition["message"].as_str().unwrap_or_default().to_owned();
        Ok(found.map(message).ok_or_else(|| Value::from(conditions).to_string()))
    }

    /// Waits until one of its conditions has this reason; gives that condition's message.
    async fn says(&self, reason: &str) -> Result<String> {
        until(&format!("{} says {reason}", self.name), LIMIT, async || self.condition(|c| c["reason"] == reason).await)
            .await
    }

    async fn apply(&self, more_disks: &str) -> Result<()> {
        let hardware = self.server.replace("server-", "rack1-u0");
        let (name, address) = (self.name, self.address);
        let manifest = format!(
            "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: blue, namespace: {NAMESPACE}}}
spec: {{cidr: 10.30.0.0/24}}
---
apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  hardware: {{name: {hardware}}}
  readinessProbe: {{icmp: {{}}}}
  terminationGracePeriodSeconds: 5
  disks:
  - {{name: root, bootOrder: 1, storageClassName: {POOL_CLASS}, source: {{image: {{kind: ClusterMachineImage, name: tiny}}}}}}
{more_disks}
  interfaces:
  - {{name: eth0, subnet: blue, addresses: [{address}]}}
  cloudInit: {{userData: \"#cloud-config\"}}
"
        );
        self.site.apply(&manifest).await.map(drop)
    }

    async fn boots(&self) -> Result<()> {
        self.apply("").await?;
        self.ready().await?;
        let model = self.guest().shell("cat /sys/class/nvme/nvme0/model", LIMIT).await?;
        ensure!(model.contains("Metalplane disk"), "the guest's disk is {model}");
        ensure!(self.guest().printed().contains("boots=1"), "the root file system is not a fresh clone");
        Ok(())
    }

    /// The name of the newest disk of this many sectors in the guest, printed behind `from`.
    async fn sees(&self, from: usize, sectors: u64) -> Result<String> {
        let ending = format!("={sectors}");
        let seen = |line: &str| line.contains("MP-BLOCK") && line.contains(&ending);
        let line = self.guest().line(&format!("the guest sees {sectors} sectors"), from, LIMIT, seen).await?;
        let disk = line.split_whitespace().rev().find_map(|word| word.strip_suffix(&ending));
        Ok(disk.context("no name")?.to_owned())
    }

    async fn sees_no_more(&self, from: usize, sectors: u64) -> Result<()> {
        let ending = format!("={sectors}");
        let gone = |line: &str| line.contains("MP-BLOCK") && !line.contains(&ending);
        self.guest().line("the guest lost the disk", from, LIMIT, gone).await.map(drop)
    }

    async fn write(&self, disk: &str, text: &str) -> Result<()> {
        let write = format!("printf {text} | dd of=/dev/{disk} conv=notrunc,fsync && echo MP-''WRITTEN");
        let said = self.guest().shell(&write, LIMIT).await?;
        ensure!(said.contains("MP-WRITTEN"), "{text} was not written: {said}");
        Ok(())
    }

    async fn begins_with(&self, disk: &str, text: &str) -> Result<()> {
        let read = format!("dd if=/dev/{disk} bs=4096 count=1 iflag=direct 2>/dev/null | head -c {}; echo", text.len());
        let said = self.guest().shell(&read, LIMIT).await?;
        ensure!(said.lines().any(|line| line.trim() == text), "{disk} of {} begins with {said:?}", self.name);
        Ok(())
    }
}

async fn grow(machine: &Machine<'_>, size: &str, sectors: u64) -> Result<()> {
    let from = machine.guest().printed().len();
    let patch = format!(r#"[{{"op":"replace","path":"/spec/disks/1/size","value":"{size}"}}]"#);
    machine.site.kubectl(&["patch", "bmm", machine.name, "-n", NAMESPACE, "--type=json", "-p", &patch]).await?;
    machine.sees(from, sectors).await.map(drop)
}

/// 64 MiB, then 128, then 192; the guest writes all the time, and the agent is another one in between.
async fn grows_under_load(machine: &Machine<'_>) -> Result<()> {
    let (site, guest) = (machine.site, machine.guest());
    let from = guest.printed().len();
    machine.plug("data", &["--size", "64Mi", "--storage-class", POOL_CLASS]).await?;
    let disk = machine.sees(from, 131_072).await?;
    let writes = guest.printed().len();
    guest.order(&format!("mp-write /dev/{disk} &"), LIMIT).await?;
    guest.line("the guest writes", writes, LIMIT, |line| line.contains("MP-WRITE ")).await?;
    grow(machine, "128Mi", 262_144).await?;
    let presented = presented(machine).await?;
    site.replace_agent(&machine.dpu()).await?;
    ensure!(presented == self::presented(machine).await?, "the new agent changed what the target presents");
    grow(machine, "192Mi", 393_216).await?;
    guest.order("touch /run/mp-write.stop", LIMIT).await?;
    let end = guest.line("the guest stops to write", writes, LIMIT, |line| line.contains("MP-WRITE-END")).await?;
    ensure!(end.contains("errors=0"), "I/O failed or came back different: {end}");
    machine.write(&disk, "ORIGINAL").await
}

/// Subsystems with their namespaces, and bdevs: one that is made anew has another UUID.
async fn presented(machine: &Machine<'_>) -> Result<(Value, Vec<(Value, Value)>)> {
    let (site, dpu) = (machine.site, machine.dpu());
    let bdevs = site.ask_target(&dpu, "bdev_get_bdevs").await?;
    let bdevs = bdevs.as_array().into_iter().flatten().map(|b| (b["name"].clone(), b["uuid"].clone())).collect();
    Ok((site.ask_target(&dpu, "nvmf_get_subsystems").await?, bdevs))
}

async fn is_copied(machine: &Machine<'_>) -> Result<()> {
    let (site, guest) = (machine.site, machine.guest());
    site.apply(&format!(
        "apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {{name: data, namespace: {NAMESPACE}}}
spec: {{source: {{persistentVolumeClaimName: {}-data}}}}
",
        machine.name
    ))
    .await?;
    let taken = "--for=jsonpath={.status.readyToUse}=true";
    site.kubectl(&["wait", taken, "volumesnapshot/data", "-n", NAMESPACE, LIMIT_FLAG]).await?;
    // What comes behind the snapshot is not in the clone.
    let disk = disk_of(machine, 393_216).await?;
    machine.write(&disk, "LATER").await?;
    site.apply(&format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: copy, namespace: {NAMESPACE}}}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: {POOL_CLASS}
  dataSource: {{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: data}}
  resources: {{requests: {{storage: 192Mi}}}}
"
    ))
    .await?;
    machine.plug("copy", &["--claim", "copy"]).await?;
    let block =
        guest.shell("for d in /sys/block/nvme[0-9]n*; do echo MP-''DISK ${d##*/} $(cat $d/size); done", LIMIT).await?;
    let all = block.lines().filter_map(|line| line.trim().strip_prefix("MP-DISK ")?.strip_suffix(" 393216"));
    let copy = all.into_iter().find(|name| *name != disk).context("the guest has no second disk of that size")?;
    machine.begins_with(copy, "ORIGINAL").await?;
    machine.begins_with(&disk, "LATER").await?;
    for name in ["copy", "data"] {
        machine.bmctl(&["removedisk", machine.name, name, "--wait", "--timeout", "300s"]).await?;
    }
    Ok(())
}

async fn disk_of(machine: &Machine<'_>, sectors: u64) -> Result<String> {
    let find = format!(
        "for d in /sys/block/nvme[0-9]n*; do [ $(cat $d/size) = {sectors} ] && echo MP-''DISK ${{d##*/}}; done"
    );
    let said = machine.guest().shell(&find, LIMIT).await?;
    let disk = said.lines().find_map(|line| line.trim().strip_prefix("MP-DISK "));
    Ok(disk.with_context(|| format!("no disk of {sectors} sectors: {said}"))?.to_owned())
}

async fn of_the_file_pool(machine: &Machine<'_>) -> Result<()> {
    let from = machine.guest().printed().len();
    machine.plug("file", &["--size", "48Mi", "--storage-class", STORAGE_CLASS]).await?;
    let disk = machine.sees(from, 98_304).await?;
    machine.write(&disk, "FILE").await?;
    machine.begins_with(&disk, "FILE").await?;
    let from = machine.guest().printed().len();
    machine.bmctl(&["removedisk", machine.name, "file", "--wait", "--timeout", "300s"]).await?;
    machine.sees_no_more(from, 98_304).await
}

/// Its pod starts it again. The host cannot find back to it, and nobody switches that off unasked.
async fn target_is_lost(machine: &Machine<'_>) -> Result<()> {
    let (site, guest) = (machine.site, machine.guest());
    let (guests, actions) = (running_guests(site)?, site.server(machine.server).actions()?);
    site.kill_target(&machine.dpu())?;
    let cycle =
        |c: &Value| c["type"] == "RestartRequired" && c["status"] == "True" && c["reason"] == "HostPowerCycleNeeded";
    until("the machine says that it needs a power cycle", LIMIT, async || machine.condition(cycle).await).await?;
    ensure!(running_guests(site)? == guests, "the guest was started anew");
    ensure!(site.server(machine.server).actions()? == actions, "somebody switched the host's power");
    machine.bmctl(&["stop", machine.name, "--wait", "--timeout", "300s"]).await?;
    let from = guest.printed().len();
    machine.bmctl(&["start", machine.name, "--wait", "--timeout", "300s"]).await?;
    guest.line("the guest boots again", from, LIMIT, |line| line.contains("boots=2")).await?;
    machine.ready().await
}

async fn hold(site: &Site) -> Result<Value> {
    let claim = ["get", "pvc", "mine", "-n", NAMESPACE, "-o", "jsonpath={.spec.volumeName}"];
    let volume = site.kubectl(&claim).await?;
    let holds = site.get(&["volumeholds"]).await?.unwrap_or_default();
    let mut holds = holds["items"].as_array().cloned().unwrap_or_default().into_iter();
    holds.find(|hold| hold["spec"]["persistentVolumeName"] == volume.as_str()).context("the volume has no hold")
}

/// By the list of hosts of the storage node's target: the silent DPU is taken off it, the other one is put on.
async fn moves(first: &Machine<'_>, second: &Machine<'_>) -> Result<()> {
    let site = first.site;
    site.apply(&format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: mine, namespace: {NAMESPACE}}}
spec: {{accessModes: [ReadWriteOnce], volumeMode: Block, storageClassName: {POOL_CLASS}, resources: {{requests: {{storage: 80Mi}}}}}}
"
    ))
    .await?;
    let from = first.guest().printed().len();
    first.plug("mine", &["--claim", "mine"]).await?;
    let disk = first.sees(from, 163_840).await?;
    first.write(&disk, "FIRST").await?;
    second.apply("  - {name: mine, bus: NVMe, source: {persistentVolumeClaim: {claimName: mine}}}").await?;
    let holder = second.says("VolumeHeld").await?;
    ensure!(holder.contains(&first.dpu()), "the holder is not named: {holder}");

    // All the time, behind what is read here, so that the storage is lost under a write.
    let write = format!("dd if=/dev/zero of=/dev/{disk} bs=4k count=1 seek=4096 conv=notrunc,fsync 2>/dev/null");
    first.guest().order(&format!("while [ -b /dev/{disk} ]; do {write}; done &"), LIMIT).await?;
    let (from, frozen) = (first.guest().printed().len(), site.freeze_agent(&first.dpu())?);
    let remove = r#"[{"op":"remove","path":"/spec/disks/1"}]"#;
    site.kubectl(&["patch", "bmm", first.name, "-n", NAMESPACE, "--type=json", "-p", remove]).await?;
    let explained = first.says("DpuSilent").await?;
    ensure!(explained.contains(&first.dpu()), "the silent DPU is not named: {explained}");
    second.ready().await?;
    let hold = hold(site).await?;
    ensure!(hold["spec"]["holder"]["dpuName"] == second.dpu(), "who has the volume: {hold}");
    ensure!(hold["spec"]["fences"][0]["proof"] == "StorageFenced", "how it was fenced: {hold}");
    let moved = disk_of(second, 163_840).await?;
    second.begins_with(&moved, "FIRST").await?;
    second.write(&moved, "SECOND").await?;
    drop(frozen);
    first.sees_no_more(from, 163_840).await?;
    first.ready().await?;
    second.begins_with(&moved, "SECOND").await
}

/// The names of the lvols on the storage node.
#[derive(PartialEq, Eq, Debug)]
struct Pool(Vec<String>);

impl Pool {
    async fn of(site: &Site) -> Result<Self> {
        let storage = site.spdk.as_ref().context("the site has no storage node")?;
        let lvols = storage.ask("bdev_lvol_get_lvols", Value::Null).await?;
        let names = lvols.as_array().into_iter().flatten().map(|lvol| lvol["name"].to_string());
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(Self(names))
    }
}

/// How often the targets' containers were started again, in order.
async fn restarts(site: &Site) -> Result<String> {
    let pods = ["get", "pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/component=spdk-target"];
    let counts = ["-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}"];
    let said = site.kubectl(&[&pods[..], &counts].concat()).await?;
    let mut counts: Vec<&str> = said.split(' ').collect();
    counts.sort_unstable();
    Ok(counts.join(" "))
}

async fn nothing_is_left(first: &Machine<'_>, second: &Machine<'_>, empty: &Pool) -> Result<()> {
    let site = first.site;
    site.kubectl(&["delete", "bmm", "--all", "-n", NAMESPACE, LIMIT_FLAG]).await?;
    ensure!(running_guests(site)?.is_empty(), "a guest still runs");
    for machine in [first, second] {
        until("the target has no disk left", LIMIT, async || {
            let bdevs = site.ask_target(&machine.dpu(), "bdev_get_bdevs").await?;
            Ok(if bdevs == serde_json::json!([]) { Ok(()) } else { Err(bdevs.to_string()) })
        })
        .await?;
    }
    ensure!(restarts(site).await? == "0 1", "a target has died by itself: {}", restarts(site).await?);
    site.kubectl(&["delete", "volumesnapshot,pvc", "--all", "-n", NAMESPACE, LIMIT_FLAG]).await?;
    until("the pool has the image alone", LIMIT, async || {
        let pool = Pool::of(site).await?;
        Ok(if pool == *empty { Ok(()) } else { Err(format!("{pool:?}")) })
    })
    .await
}
