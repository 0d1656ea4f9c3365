//! Disks that kubelet connects: our own driver, forced through holder pods by its StorageClass, on real kubelets.
//!
//! What is asked of any other CSI driver is asked of ours here: nothing of Metalplane knows that it could do better.

mod foreign;

use super::machine::{BOOT, Machine, SOON, SOON_FLAG};
use super::{on_servers, on_site};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use tests::guest::Guest;
use tests::site::{HELD_CLASS, HELD_MANIFEST, OUT_OF_SERVICE, SYSTEM_NAMESPACE, until};

#[test]
fn a_machine_lives_on_disks_that_kubelet_connects() {
    on_servers(&[2], "disks_by_kubelet", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        site.apply(HELD_MANIFEST).await?;
        site.apply(&manifest(&machine)).await?;
        machine.wait_ready().await?;
        let root = one_disk(&machine, "root").await?;
        let (guest, host) = (machine.guest(), machine.on().host()?);
        let (disk, volume) = hot_plug(&machine, &guest).await?;
        nobody_takes_it_away(&machine, &disk).await?;
        used_all_the_time(&machine, &guest).await?;
        unplug(&machine, &guest, &disk).await?;
        machine.kubectl(&["delete", "pvc", &format!("{}-data", machine.name), "--timeout=150s"]).await?;
        until("the volume is gone from the pool", SOON, async || {
            Ok(if volume.exists() { Err(format!("{} is there", volume.display())) } else { Ok(()) })
        })
        .await?;
        ensure!(machine.on().host()? == host, "the host was started anew");
        machine.delete().await?;
        nothing_is_left(&machine, &[root, disk]).await
    });
}

/// Nobody can fence what a CSI driver does on a node: the disk of a DPU that is lost stays where it is until an administrator
/// vouches for it. Then the pod that nobody can end any more goes, too. What is left is the storage's own word: this driver
/// gives a volume to one node at a time, so the other DPU has the disk once the lost one's kubelet has cleaned up.
#[test]
fn a_lost_dpus_disk_by_kubelet_moves_when_an_administrator_says_that_it_is_down() {
    on_site("lost_disks_by_kubelet", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        let result = machine.told(lost(&machine).await).await;
        site.back_in_service(&machine.on().dpu()).await?;
        result
    });
}

fn manifest(machine: &Machine<'_>) -> String {
    machine.manifest().replace("bootOrder: 1,", &format!("bootOrder: 1, storageClassName: {HELD_CLASS},"))
}

/// What is known of a disk that kubelet connects, while it is there.
struct Held {
    /// The PersistentVolume, and what its driver calls it.
    volume: String,
    handle: String,
    pod: String,
}

/// The disk as the controller, kubelet and the agent have it, each asked.
async fn one_disk(machine: &Machine<'_>, disk: &str) -> Result<Held> {
    let (site, dpu) = (machine.site, machine.on().dpu());
    let attachment = attachment(machine, disk).await?.with_context(|| format!("disk {disk} has no attachment"))?;
    let word = |pointer: &str| -> Result<String> {
        let value = attachment.pointer(pointer).and_then(Value::as_str);
        Ok(value.with_context(|| format!("the attachment has no {pointer}: {attachment}"))?.to_owned())
    };
    ensure!(word("/spec/volume/connector")? == "Kubelet", "the connector is {}", word("/spec/volume/connector")?);
    ensure!(word("/status/phase")? == "Attached", "the attachment is {}", word("/status/phase")?);
    let held = Held {
        volume: word("/spec/volume/persistentVolumeName")?,
        handle: word("/spec/volume/volumeHandle")?,
        pod: holder_pod(machine, &word("/metadata/uid")?).await?,
    };
    let pod = site.get(&["pod", &held.pod, "-n", machine.namespace]).await?.context("the holder pod is gone")?;
    ensure!(pod["metadata"]["uid"] == attachment["spec"]["holderPodUID"], "the grant names another pod");
    ensure!(pod["spec"]["nodeName"] == dpu.as_str() && pod["status"]["phase"] == "Running", "the pod is {pod}");
    // What the host has open is the block device that kubelet made, and none of ours.
    let folder = format!("/var/lib/kubelet/pods/{}/volumeDevices/kubernetes.io~csi", word("/spec/holderPodUID")?);
    let mapped = format!("{folder}/{}", held.volume);
    site.enter(&dpu, &["test", "-b", &mapped]).await.context("kubelet has mapped no block device")?;
    ensure!(!loops(machine, &held.handle).await?.is_empty(), "the driver has not staged {}", held.handle);
    Ok(held)
}

async fn attachment(machine: &Machine<'_>, disk: &str) -> Result<Option<Value>> {
    let namespace = format!("metalplane-dpu-{}", machine.on().dpu());
    let all = machine.site.get(&["diskattachments", "-n", &namespace]).await?.unwrap_or_default();
    let mut all = all["items"].as_array().cloned().unwrap_or_default().into_iter();
    Ok(all.find(|a| a["spec"]["diskName"] == disk && a["spec"]["owner"]["name"] == machine.name))
}

async fn holder_pod(machine: &Machine<'_>, attachment_uid: &str) -> Result<String> {
    let selector = format!("metalplane.io/attachment-uid={attachment_uid}");
    let names = machine.kubectl(&["get", "pods", "-l", &selector, "-o", "jsonpath={.items[*].metadata.name}"]).await?;
    ensure!(!names.is_empty() && !names.contains(' '), "holder pods of the attachment: {names:?}");
    Ok(names)
}

/// The loop devices by which the driver's node plug-in shows that volume on the machine's DPU.
async fn loops(machine: &Machine<'_>, handle: &str) -> Result<Vec<String>> {
    let list = ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"];
    let all = machine.site.enter(&machine.on().dpu(), &list).await?;
    Ok(all.lines().filter(|line| line.contains(handle)).map(str::to_owned).collect())
}

fn image(machine: &Machine<'_>, handle: &str) -> PathBuf {
    machine.site.sandbox.ready().pool.join("volumes").join(handle).join("disk.img")
}

/// Plugged in while the guest runs; what the guest writes is in the volume.
async fn hot_plug(machine: &Machine<'_>, guest: &Guest) -> Result<(Held, PathBuf)> {
    let from = guest.printed().len();
    let add = ["adddisk", machine.name, "data", "--storage-class", HELD_CLASS, "--size", "64Mi", "--bus", "VirtioBlk"];
    machine.bmctl(&[add.as_slice(), &["--wait", "--timeout", SOON_FLAG]].concat()).await?;
    guest.line("the guest sees the new disk", from, SOON, |line| line.contains("vda=131072")).await?;
    let held = one_disk(machine, "data").await?;
    guest.shell("printf MARK | dd of=/dev/vda conv=notrunc,fsync", SOON).await?;
    let volume = image(machine, &held.handle);
    let mut start = [0; 4];
    File::open(&volume).and_then(|mut file| file.read_exact(&mut start)).context("read the volume's image")?;
    ensure!(start == *b"MARK", "what the guest wrote is not in the volume's image");
    Ok((held, volume))
}

/// Neither a user nor a drain of the node ends a holder pod.
async fn nobody_takes_it_away(machine: &Machine<'_>, held: &Held) -> Result<()> {
    let deleted = machine.kubectl(&["delete", "pod", &held.pod, "--wait=false"]).await;
    let refused = deleted.err().context("anybody may delete a holder pod")?.to_string();
    ensure!(refused.contains("connects a disk of a machine"), "the refusal is {refused}");
    let dpu = machine.on().dpu();
    let drain = ["drain", &dpu, "--ignore-daemonsets", "--force", "--timeout=5s"];
    let only = ["--pod-selector=metalplane.io/holder-pod=true"];
    let drained = machine.site.kubectl(&[drain.as_slice(), only.as_slice()].concat()).await;
    machine.site.kubectl(&["uncordon", &dpu]).await?;
    let refused = drained.err().context("a drain takes a holder pod away")?.to_string();
    ensure!(refused.contains("connects a disk of a machine"), "the refusal is {refused}");
    Ok(())
}

/// It grows, and kubelet and the driver's plug-in are replaced, while the guest writes to it without one error.
async fn used_all_the_time(machine: &Machine<'_>, guest: &Guest) -> Result<()> {
    let (site, dpu) = (machine.site, machine.on().dpu());
    let from = guest.printed().len();
    guest.order("mp-write /dev/vda &", BOOT).await?;
    guest.line("the guest writes", from, SOON, |line| line.contains("MP-WRITE /dev/vda")).await?;
    let grow = r#"[{"op":"replace","path":"/spec/disks/1/size","value":"128Mi"}]"#;
    machine.kubectl(&["patch", "bmm", machine.name, "--type=json", "-p", grow]).await?;
    guest.line("the guest sees the new size", from, SOON, |line| line.contains("vda=262144")).await?;
    until("the claim says that it has grown", SOON, async || {
        let claim = format!("{}-data", machine.name);
        let size = machine.kubectl(&["get", "pvc", &claim, "-o", "jsonpath={.status.capacity.storage}"]).await?;
        Ok(if size == "128Mi" { Ok(()) } else { Err(size) })
    })
    .await?;
    let kubelet = format!("{dpu}/kubelet");
    site.sandbox.kill_process(&kubelet).await?;
    site.sandbox.start_process(&kubelet).await?;
    let node = format!("--field-selector=spec.nodeName={dpu}");
    let selected = ["-l", "app.kubernetes.io/component=csi-node", node.as_str()];
    let delete = ["delete", "pod", "-n", SYSTEM_NAMESPACE, "--timeout=120s"];
    site.kubectl(&[delete.as_slice(), selected.as_slice()].concat()).await.context("replace the driver's plug-in")?;
    site.wait_for_workloads().await?;
    machine.wait_ready().await?;
    one_disk(machine, "data").await.context("after kubelet's restart")?;
    let from = guest.printed().len();
    guest.order("touch /run/mp-write.stop", BOOT).await?;
    let end = guest.line("the guest stops writing", from, SOON, |line| line.contains("MP-WRITE-END")).await?;
    ensure!(end.contains("errors=0"), "the guest met errors: {end}");
    Ok(())
}

async fn unplug(machine: &Machine<'_>, guest: &Guest, held: &Held) -> Result<()> {
    let from = guest.printed().len();
    machine.bmctl(&["removedisk", machine.name, "data", "--wait", "--timeout", SOON_FLAG]).await?;
    let gone = |line: &str| line.contains("MP-BLOCK") && !line.contains("vda");
    guest.line("the guest lost the disk", from, SOON, gone).await?;
    disconnected(machine, held).await
}

/// kubelet has given it up, and nobody holds it.
async fn disconnected(machine: &Machine<'_>, held: &Held) -> Result<()> {
    until(&format!("volume {} is connected nowhere", held.volume), SOON, async || {
        let mut left = loops(machine, &held.handle).await?;
        if machine.site.get(&["pod", &held.pod, "-n", machine.namespace]).await?.is_some() {
            left.push(format!("pod {}", held.pod));
        }
        if let Some(holder) = holder(machine, &held.volume).await? {
            left.push(format!("the hold of {holder}"));
        }
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    })
    .await
}

/// The Dpu that may write the volume.
async fn holder(machine: &Machine<'_>, volume: &str) -> Result<Option<String>> {
    let holds = machine.site.get(&["volumeholds"]).await?.unwrap_or_default();
    let mut holds = holds["items"].as_array().cloned().unwrap_or_default().into_iter();
    let hold = holds.find(|hold| hold["spec"]["persistentVolumeName"] == volume);
    Ok(hold.and_then(|hold| Some(hold.pointer("/spec/holder/dpuName")?.as_str()?.to_owned())))
}

/// No pod, no loop device, no volume, no attachment; and the agent has no record of a connection.
async fn nothing_is_left(machine: &Machine<'_>, held: &[Held]) -> Result<()> {
    let (site, dpu) = (machine.site, machine.on().dpu());
    for disk in held {
        disconnected(machine, disk).await?;
    }
    until("nothing is left of the machine", SOON, async || {
        let mut left = Vec::new();
        let namespace = format!("metalplane-dpu-{dpu}");
        left.push(site.kubectl(&["get", "diskattachments,nicattachments", "-n", &namespace, "-o", "name"]).await?);
        left.push(machine.kubectl(&["get", "pods,pvc,vnics", "-o", "name"]).await?);
        left.push(site.enter(&dpu, &["sh", "-c", "ls /run/metalplane/kubelet-connections 2>/dev/null || true"]).await?);
        for disk in held {
            left.extend(site.get(&["pv", &disk.volume]).await?.map(|_| format!("PersistentVolume {}", disk.volume)));
            left.extend(image(machine, &disk.handle).exists().then(|| format!("the image of {}", disk.handle)));
        }
        left.retain(|words| !words.trim().is_empty());
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    })
    .await
}

async fn lost(machine: &Machine<'_>) -> Result<()> {
    let (site, dpu) = (machine.site, machine.on().dpu());
    site.apply(HELD_MANIFEST).await?;
    machine.apply_own_claim(HELD_CLASS).await?;
    site.apply(&Machine::with_own_disk(&manifest(machine))).await?;
    machine.wait_ready().await?;
    let held = one_disk(machine, "data").await?;
    machine.guest().shell("printf LOST | dd of=/dev/vda conv=notrunc,fsync", SOON).await?;

    site.sandbox.power(&dpu, "off").await?;
    machine.kubectl(&["delete", "bmm", machine.name, "--wait=false"]).await?;
    let explained = machine.says("DpuSilent").await?;
    ensure!(explained.contains(&dpu), "the silent DPU is not named: {explained}");
    let second = Machine { name: "second", ..Machine::on_first(site, machine.namespace) };
    site.apply(&Machine::with_own_disk(&second.manifest())).await?;
    let by = second.says("VolumeHeld").await?;
    ensure!(by.contains(&dpu), "the holder is not named: {by}");
    ensure!(holder(machine, &held.volume).await?.as_deref() == Some(&dpu), "the volume has moved on its own");
    ensure!(site.get(&["pod", &held.pod, "-n", machine.namespace]).await?.is_some(), "the holder pod is gone");
    // Half of an administrator's word is none.
    site.kubectl(&["taint", "node", &dpu, &format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute")]).await?;
    second.says("VolumeHeld").await?;
    ensure!(holder(machine, &held.volume).await?.as_deref() == Some(&dpu), "the volume has moved by half a word");

    site.confirm_down(&dpu).await?;
    machine.kubectl(&["wait", "--for=delete", &format!("bmm/{}", machine.name), "--timeout=240s"]).await?;
    ensure!(site.get(&["pod", &held.pod, "-n", machine.namespace]).await?.is_none(), "the holder pod is still there");
    let words = second.says("HolderPodStarting").await?;
    ensure!(words.contains(&second.on().dpu()), "which node is it about? {words}");
    site.back_in_service(&dpu).await?;
    second.wait_ready().await?;
    let read = second.guest().shell("dd if=/dev/vda bs=4 count=1 2>/dev/null; echo", SOON).await?;
    ensure!(read.contains("LOST"), "the disk has other content on the other DPU: {read}");
    second.delete().await
}
