//! A machine is a Kubernetes worker. Its DPU plugs pods' NICs in ([`nic`]), and in proxy mode their volumes: the chart's controller half
//! with the real sidecars takes a claim and a VolumeAttachment; the node half is in the guest and is called over its network.

mod nic;
mod plug_in;

use super::machine::{Machine, SOON};
use super::on_servers;
use anyhow::{Context, Result, ensure};
use plug_in::{PlugIn, TARGET, Volume, shell};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use tests::site::until;

const MIB: i64 = 1 << 20;
const DRIVER: &str = "proxy.csi.metalplane.io";
/// What says at which node a volume is: made by Kubernetes for a pod, here by the test.
const ATTACHMENT: &str = "worker-data";

#[test]
fn a_worker_mounts_volumes_that_its_dpu_plugs_in() {
    on_servers(&[2], "a_worker_mounts_volumes", async |site, namespace| {
        let machine = Machine { name: "worker", ..Machine::on_second(site, namespace) };
        let proxy = site.proxy_mode(namespace).await?;
        site.apply(&proxy).await?;
        let result = machine.told(used(&machine).await).await;
        // In this order: what was plugged in is taken out by the driver that is deleted then.
        let detached = detach(&machine).await;
        plug_in::leave(&machine).await?;
        nic::leave(&machine).await?;
        site.kubectl(&["delete", "csinode", machine.name, "--ignore-not-found"]).await?;
        site.delete(&proxy).await?;
        result.and(detached)
    });
}

async fn used(machine: &Machine<'_>) -> Result<()> {
    let (namespace, name) = (machine.namespace, machine.name);
    machine
        .site
        .apply(
            &machine.in_both_families().replace("spec:\n  hardware", &format!("spec:\n  nodeName: {name}\n  hardware")),
        )
        .await?;
    machine.site.apply(&nic::node(machine)).await?;
    machine
        .site
        .apply(&format!(
            "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data, namespace: {namespace}}}
spec: {{storageClassName: metalplane-proxy, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 64Mi}}}}}}
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {{name: {name}}}
spec: {{drivers: [{{name: {DRIVER}, nodeID: {name}, topologyKeys: []}}]}}
"
        ))
        .await?;
    machine.wait_ready().await?;
    let plug_in = PlugIn::bring(machine).await?;
    nic::used(machine, &plug_in).await?;
    let (guest, from) = (machine.guest(), machine.guest().printed().len());
    let volume = attach(machine).await?;
    guest.line("the guest sees the new disk", from, SOON, |line| line.contains("vda=131072")).await?;
    plug_in.stage(&volume).await?;
    // What it has done is in the kernel, and nowhere else.
    plug_in.kill().await?;
    plug_in.start().await?;
    for _ in 0..2 {
        plug_in.stage(&volume).await?;
        plug_in.publish(&volume).await?;
    }
    shell(machine, &format!("echo kept >{TARGET}/note && sync")).await?;
    let image = image(machine, &volume).await?;
    ensure!(is_ext4(&image)?, "no filesystem is in the volume's image");

    let before = plug_in.total(&volume).await?;
    grow(machine, &volume).await?;
    plug_in.expand(&volume, 128 * MIB).await?;
    let after = plug_in.total(&volume).await?;
    ensure!(before < 64 * MIB && after > 100 * MIB, "the filesystem had {before} bytes, then {after}");
    let said = shell(machine, &format!("cat {TARGET}/note")).await?;
    ensure!(said.contains("kept"), "the guest reads {said}");

    plug_in.take_down(&volume).await?;
    shell(machine, &format!("[ ! -e {TARGET} ] && ! grep -q vda /proc/mounts")).await?;
    let from = guest.printed().len();
    detach(machine).await?;
    let gone = |line: &str| line.contains("MP-BLOCK") && !line.contains("vda");
    guest.line("the guest lost the disk", from, SOON, gone).await?;
    let disks = machine.object().await?["spec"]["disks"].as_array().map_or(0, Vec::len);
    ensure!(disks == 1, "the machine has {disks} disks");
    machine.kubectl(&["delete", "pvc", "data", "--timeout=120s"]).await?;
    until("the pool has the volume no more", SOON, async || {
        Ok(if image.exists() { Err(format!("{} is there", image.display())) } else { Ok(()) })
    })
    .await?;
    nic::goes_with_the_machine(machine).await
}

/// As Kubernetes does for a pod that is scheduled to the worker.
async fn attach(machine: &Machine<'_>) -> Result<Volume> {
    machine.kubectl(&["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", "--timeout=150s"]).await?;
    let claim = machine.site.get(&["pvc", "data", "-n", machine.namespace]).await?.context("no claim")?;
    let volume = claim["spec"]["volumeName"].as_str().context("the claim has no volume")?;
    let node = machine.name;
    machine
        .site
        .apply(&format!(
            "apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {{name: {ATTACHMENT}}}
spec: {{attacher: {DRIVER}, nodeName: {node}, source: {{persistentVolumeName: {volume}}}}}
"
        ))
        .await?;
    let attached = until("the volume is attached", SOON, async || {
        let seen = machine.site.get(&["volumeattachment", ATTACHMENT]).await?.unwrap_or_default();
        let said = seen["status"]["attachError"]["message"].to_string();
        Ok(if seen["status"]["attached"] == true { Ok(seen) } else { Err(said) })
    })
    .await?;
    let object = machine.site.get(&["pv", volume]).await?.context("no volume")?;
    let words = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    Ok(Volume {
        id: object["spec"]["csi"]["volumeHandle"].as_str().context("the volume has no handle")?.to_owned(),
        context: words(&object["spec"]["csi"]["volumeAttributes"]),
        publish_context: words(&attached["status"]["attachmentMetadata"]),
    })
}

async fn detach(machine: &Machine<'_>) -> Result<()> {
    let delete = ["delete", "volumeattachment", ATTACHMENT, "--ignore-not-found", "--timeout=120s"];
    machine.site.kubectl(&delete).await.map(drop)
}

/// The claim of the pod asks for more; the real resizer asks the driver, and the machine's disk grows.
async fn grow(machine: &Machine<'_>, volume: &Volume) -> Result<()> {
    let more = r#"{"spec":{"resources":{"requests":{"storage":"128Mi"}}}}"#;
    machine.kubectl(&["patch", "pvc", "data", "--type=merge", "-p", more]).await?;
    until("the volume has grown", SOON, async || {
        let all = machine.site.get(&["pv"]).await?.unwrap_or_default();
        let mut all = all["items"].as_array().cloned().unwrap_or_default().into_iter();
        let found = all.find(|it| it["spec"]["csi"]["volumeHandle"] == volume.id.as_str()).unwrap_or_default();
        let capacity = found["spec"]["capacity"]["storage"].clone();
        Ok(if capacity == "128Mi" { Ok(()) } else { Err(capacity.to_string()) })
    })
    .await
}

/// The file behind the volume, by the claim that stands for it in the machines' namespace.
async fn image(machine: &Machine<'_>, volume: &Volume) -> Result<PathBuf> {
    let name = machine.kubectl(&["get", "pvc", &volume.id, "-o", "jsonpath={.spec.volumeName}"]).await?;
    let handle = machine.site.kubectl(&["get", "pv", &name, "-o", "jsonpath={.spec.csi.volumeHandle}"]).await?;
    Ok(machine.site.sandbox.ready().pool.join("volumes").join(handle).join("disk.img"))
}

fn is_ext4(image: &PathBuf) -> Result<bool> {
    let mut magic = [0; 2];
    File::open(image).and_then(|file| file.read_exact_at(&mut magic, 1080)).context("read the volume's image")?;
    Ok(magic == [0x53, 0xef])
}
