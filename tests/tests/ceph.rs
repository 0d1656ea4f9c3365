//! A whole site on a real Ceph: a DPU's agent falls silent while the host writes to an image, and the image passes to another
//! DPU by the cluster's own refusal of the first one's session.
//!
//! Two DPUs, two servers whose guests boot, controller and agents as processes, and a Ceph of one node in the control plane's
//! network. It is a site of its own, which takes minutes: the judge csi-foreign runs it.

use anyhow::{Context, Result, ensure};
use sandbox::handle::Options;
use serde_json::Value;
use std::time::{Duration, Instant};
use tests::guest::Guest;
use tests::site::{Ceph, GuestKind, Site, running_guests, until};

const NAMESPACE: &str = "t-ceph";
const IMAGE: &str = "mine";
/// Of everything that takes a moment, on a machine that two guests share with a site.
const LIMIT: Duration = Duration::from_secs(300);
const LIMIT_FLAG: &str = "--timeout=300s";
/// Set where a test may take a site of its own, and minutes.
const LONG: &str = "LONG_TESTS";

#[test]
fn an_image_passes_from_a_silent_dpu_once_the_cluster_refuses_it() {
    const NAME: &str = "an_image_passes_from_a_silent_dpu_once_the_cluster_refuses_it";
    let skip = |reason: &str| eprintln!("SKIP {NAME}: {reason}");
    if std::env::var_os(LONG).is_none() {
        return skip(&format!("it takes minutes: `make judges JUDGE=csi-foreign` runs it ({LONG}=1)"));
    }
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can make network namespaces");
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let began = Instant::now();
    let say = |text: &str| eprintln!("[{:6.1} s] {text}", began.elapsed().as_secs_f64());
    runtime.expect("a runtime").block_on(async {
        let parts = match Ceph::find().await {
            Ok(parts) => parts,
            Err(missing) => return skip(&format!("{missing:#}")),
        };
        let options = Options::default();
        let site = Site::start_with_ceph("ceph", options, parts, &say).await.expect("the site starts");
        let result = whole_life(&site, &say).await;
        let logs = site.sandbox.layout().dir.join("logs");
        if let Err(error) = result {
            for what in ["bmm,diskattachments,dpus", "volumeholds"] {
                eprintln!("{}", site.kubectl(&["get", what, "-A", "-o", "yaml"]).await.unwrap_or_default());
            }
            panic!("{error:#}\nlogs: {}", logs.display());
        }
        site.down().await.expect("the site ends");
    });
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

    async fn apply(&self) -> Result<()> {
        let hardware = self.server.replace("server-", "rack1-u0");
        let (name, address) = (self.name, self.address);
        let manifest = format!(
            "apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  hardware: {{name: {hardware}}}
  readinessProbe: {{icmp: {{}}}}
  terminationGracePeriodSeconds: 5
  disks:
  - {{name: root, bootOrder: 1, source: {{image: {{kind: ClusterMachineImage, name: tiny}}}}}}
  - {{name: data, bus: VirtioBlk, source: {{persistentVolumeClaim: {{claimName: mine}}}}}}
  interfaces:
  - {{name: eth0, subnet: blue, addresses: [{address}]}}
"
        );
        self.site.apply(&manifest).await.map(drop)
    }

    async fn ready(&self) -> Result<()> {
        let machine = format!("bmm/{}", self.name);
        let wait = ["wait", "--for=condition=Ready", &machine, "-n", NAMESPACE, LIMIT_FLAG];
        self.site.kubectl(&wait).await.map(drop)
    }

    /// Waits until one of its conditions has this reason; gives that condition's message.
    async fn says(&self, reason: &str, part: &str) -> Result<String> {
        until(&format!("{} says {reason}: …{part}…", self.name), LIMIT, async || {
            let machine = self.site.get(&["bmm", self.name, "-n", NAMESPACE]).await?.context("the machine is gone")?;
            let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let message = |c: &Value| c["message"].as_str().unwrap_or_default().to_owned();
            let found = conditions.iter().filter(|c| c["reason"] == reason).map(message);
            let found = found.into_iter().find(|message| message.contains(part));
            Ok(found.ok_or_else(|| Value::from(conditions).to_string()))
        })
        .await
    }
}

/// The hold on the image.
async fn hold(site: &Site) -> Result<Value> {
    let holds = site.get(&["volumeholds"]).await?.unwrap_or_default();
    let mut holds = holds["items"].as_array().cloned().unwrap_or_default().into_iter();
    holds.find(|hold| hold["spec"]["persistentVolumeName"] == "mine").context("the image has no hold")
}

impl Machine<'_> {
    async fn holds(&self, fences: usize) -> Result<()> {
        let hold = hold(self.site).await?;
        ensure!(hold["spec"]["holder"]["dpuName"] == self.dpu(), "who has the image: {hold}");
        let on_record = hold["spec"]["fences"].as_array().map_or(0, Vec::len);
        ensure!(on_record == fences, "what is on record: {hold}");
        Ok(())
    }

    /// What the agent has noted of sessions.
    async fn sessions(&self) -> Result<String> {
        let look = "ls /run/metalplane/ceph-sessions 2>/dev/null || true";
        self.site.enter(&self.dpu(), &["sh", "-c", look]).await
    }
}

async fn ceph(site: &Site, program: &str, words: &[&str]) -> Result<String> {
    site.ceph.as_ref().context("the site has no Ceph")?.lab.ceph.run(program, words).await
}

/// The addresses of those that have the image open.
async fn watchers(site: &Site) -> Result<Vec<String>> {
    let said: Value = serde_json::from_str(&ceph(site, "rbd", &["status", "--format", "json", IMAGE]).await?)?;
    let watchers = said["watchers"].as_array().cloned().unwrap_or_default();
    Ok(watchers.iter().filter_map(|one| one["address"].as_str().map(str::to_owned)).collect())
}

/// The image's own first bytes, past everybody who has it open.
async fn begins_with(site: &Site, wanted: &str) -> Result<()> {
    let file = site.ceph.as_ref().context("the site has no Ceph")?.lab.path("begins");
    ceph(site, "rbd", &["export", "--no-progress", IMAGE, &file.display().to_string()]).await?;
    let bytes = std::fs::read(&file)?;
    std::fs::remove_file(&file)?;
    let found = String::from_utf8_lossy(&bytes[..wanted.len()]).into_owned();
    ensure!(found == wanted, "the image begins with {found:?}, not with {wanted:?}");
    Ok(())
}

/// An image and the PersistentVolume that an administrator made of it, with its claim.
async fn volume(site: &Site) -> Result<()> {
    let lab = &site.ceph.as_ref().context("the site has no Ceph")?.lab;
    let volume = lab.volume(IMAGE, 64 << 20).await;
    let attributes = serde_json::to_string(&volume.attributes)?;
    let (driver, handle) = (volume.driver, volume.handle);
    let modes = "accessModes: [ReadWriteOnce], volumeMode: Block, storageClassName: \"\"";
    site.apply(&format!(
        "apiVersion: v1
kind: PersistentVolume
metadata: {{name: mine}}
spec:
  {{{modes}, capacity: {{storage: 64Mi}}, persistentVolumeReclaimPolicy: Retain, claimRef: {{name: mine, namespace: {NAMESPACE}}},
  csi: {{driver: {driver}, volumeHandle: {handle}, volumeAttributes: {attributes}}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: mine, namespace: {NAMESPACE}}}
spec: {{{modes}, volumeName: mine, resources: {{requests: {{storage: 64Mi}}}}}}
---
apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: blue, namespace: {NAMESPACE}}}
spec: {{cidr: 10.30.0.0/24}}
"
    ))
    .await
    .map(drop)
}

async fn whole_life(site: &Site, say: &dyn Fn(&str)) -> Result<()> {
    let first = Machine { site, name: "bm-01", server: "server-1", address: "10.30.0.7" };
    let second = Machine { site, name: "bm-02", server: "server-2", address: "10.30.0.8" };
    site.golden_image(GuestKind::Tiny, None, "tiny").await?;
    site.kubectl(&["create", "namespace", NAMESPACE]).await?;
    volume(site).await?;
    say("bm-01 boots and writes to the image");
    first.apply().await?;
    first.ready().await?;
    let session = writes(&first).await?;
    second.apply().await?;
    let holder = second.says("VolumeHeld", "").await?;
    ensure!(holder.contains(&first.dpu()), "the holder is not named: {holder}");

    say("its agent falls silent, and the cluster takes no orders");
    let frozen = site.freeze_agent(&first.dpu())?;
    refused_until_fenced(&first, &second).await?;
    say("the cluster takes orders");
    passes_on(&first, &second, &session).await?;
    say("the agent comes back");
    drop(frozen);
    lets_go(&first, &second, &session).await?;
    say("deletion");
    nothing_is_left(&[&first, &second]).await
}

/// Gives the address of the session by which it does.
async fn writes(machine: &Machine<'_>) -> Result<String> {
    let guest = machine.guest();
    guest.shell("printf FIRST | dd of=/dev/vda conv=notrunc,fsync", LIMIT).await?;
    begins_with(machine.site, "FIRST").await?;
    let from = guest.printed().len();
    guest.order("mp-write /dev/vda &", LIMIT).await?;
    guest.line("the guest writes", from, LIMIT, |line| line.contains("MP-WRITE /dev/vda")).await?;
    let watchers = watchers(machine.site).await?;
    ensure!(watchers.len() == 1, "who has the image open: {watchers:?}");
    machine.holds(0).await?;
    Ok(watchers[0].clone())
}

/// The disk is taken from the machine. While the cluster cannot be told to refuse the silent DPU, the hold stays where it is,
/// however long that is, and the host goes on writing.
async fn refused_until_fenced(first: &Machine<'_>, second: &Machine<'_>) -> Result<()> {
    let (site, guest) = (first.site, first.guest());
    let muted = site.ceph.as_ref().context("the site has no Ceph")?.lab.ceph.mute()?;
    let remove = r#"[{"op":"remove","path":"/spec/disks/1"}]"#;
    site.kubectl(&["patch", "bmm", first.name, "-n", NAMESPACE, "--type=json", "-p", remove]).await?;
    let why = first.says("Fencing", "not yet").await?;
    ensure!(why.contains(&first.dpu()), "the silent DPU is not named: {why}");
    let explained = site.bmctl(&["explain", first.name, "-n", NAMESPACE]).await?;
    ensure!(explained.contains("is unresponsive"), "bmctl explain does not say it: {explained}");
    first.holds(0).await?;
    second.says("VolumeHeld", &first.dpu()).await?;
    let from = guest.printed().len();
    let goes_on = guest.line("the guest writes on", from, LIMIT, |line| line.contains("MP-WRITE ")).await?;
    ensure!(goes_on.contains("errors=0"), "nobody has refused it yet: {goes_on}");
    first.holds(0).await?;
    drop(muted);
    Ok(())
}

/// The old session is refused, its host's writes fail, and the other machine has the image with what was written to it.
async fn passes_on(first: &Machine<'_>, second: &Machine<'_>, session: &str) -> Result<()> {
    let site = first.site;
    until("the hold has a proof", LIMIT, async || {
        let fences = hold(site).await?["spec"]["fences"].clone();
        Ok(if fences[0]["proof"] == "StorageFenced" { Ok(()) } else { Err(fences.to_string()) })
    })
    .await?;
    let refused = ceph(site, "ceph", &["osd", "blocklist", "ls"]).await?;
    ensure!(refused.lines().any(|line| line.split(' ').next() == Some(session)), "{session} is not refused: {refused}");
    let errors = |line: &str| line.contains("MP-WRITE-ERROR /dev/vda");
    first.guest().line("the old host's writes fail", 0, LIMIT, errors).await?;
    second.ready().await?;
    second.holds(1).await?;
    let guest = second.guest();
    let read = guest.shell("dd if=/dev/vda bs=5 count=1 2>/dev/null; echo", LIMIT).await?;
    ensure!(read.contains("FIRST"), "the image has other content on the other DPU: {read}");
    guest.shell("printf SECOND | dd of=/dev/vda conv=notrunc,fsync", LIMIT).await?;
    begins_with(site, "SECOND").await?;
    let watchers = watchers(site).await?;
    ensure!(watchers.len() == 1 && watchers[0] != session, "who has the image open: {watchers:?}");
    // The old host still has the disk.
    let late = first.guest().shell("printf LATE | dd of=/dev/vda conv=notrunc,fsync && echo MP-''LATE", LIMIT).await?;
    ensure!(!late.lines().any(|line| line.trim() == "MP-LATE"), "a late write was taken: {late}");
    begins_with(site, "SECOND").await
}

/// Its agent takes the disk from the host, and leaves the other's alone.
async fn lets_go(first: &Machine<'_>, second: &Machine<'_>, session: &str) -> Result<()> {
    let (site, guest) = (first.site, first.guest());
    // What it would write from then on would be a file in the guest.
    guest.order("touch /run/mp-write.stop", LIMIT).await?;
    let end = guest.line("the guest stops to write", 0, LIMIT, |line| line.contains("MP-WRITE-END")).await?;
    ensure!(!end.contains("errors=0"), "it met no error: {end}");
    let gone = |line: &str| line.contains("MP-BLOCK") && !line.contains("vda");
    let there = guest.printed().rfind("vda=131072").context("the guest had no disk")?;
    guest.line("the guest lost the disk", there, LIMIT, gone).await?;
    until("its agent has no session", LIMIT, async || {
        let sessions = first.sessions().await?;
        Ok(if sessions.trim().is_empty() { Ok(()) } else { Err(sessions) })
    })
    .await?;
    first.ready().await?;
    second.holds(1).await?;
    let watchers = watchers(site).await?;
    ensure!(watchers.len() == 1 && watchers[0] != session, "who has the image open: {watchers:?}");
    let read = second.guest().shell("dd if=/dev/vda bs=6 count=1 2>/dev/null; echo", LIMIT).await?;
    ensure!(read.contains("SECOND"), "the image has changed under its holder: {read}");
    begins_with(site, "SECOND").await
}

async fn nothing_is_left(machines: &[&Machine<'_>; 2]) -> Result<()> {
    let site = machines[0].site;
    site.kubectl(&["delete", "bmm", "--all", "-n", NAMESPACE, LIMIT_FLAG]).await?;
    ensure!(running_guests(site)?.is_empty(), "a guest still runs");
    let attachments = site.kubectl(&["get", "diskattachments", "-A", "-o", "name"]).await?;
    ensure!(attachments.trim().is_empty(), "attachments are left: {attachments}");
    for machine in machines {
        let sessions = machine.sessions().await?;
        ensure!(sessions.trim().is_empty(), "{} has sessions: {sessions}", machine.dpu());
    }
    let hold = hold(site).await?;
    ensure!(hold["spec"]["holder"].is_null(), "the image is held: {hold}");
    ensure!(watchers(site).await?.is_empty(), "somebody has the image open");
    site.kubectl(&["delete", "pvc/mine", "-n", NAMESPACE, LIMIT_FLAG]).await?;
    site.kubectl(&["delete", "pv/mine", LIMIT_FLAG]).await?;
    ceph(site, "rbd", &["rm", "--no-progress", IMAGE]).await.map(drop)
}
