//! Pods that mount volumes of our driver: the node plug-in of the chart under real kubelets.

use super::on_site;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Read;
use std::time::Duration;
use tests::site::{STORAGE_CLASS, Site, until};

const PATIENCE: Duration = Duration::from_secs(180);

fn claim(namespace: &str, name: &str, mode: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  storageClassName: {STORAGE_CLASS}
  volumeMode: {mode}
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 400Mi}}}}
"
    )
}

fn pod(namespace: &str, name: &str, node: &str, volume: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  tolerations: [{{operator: Exists}}]
  containers:
  - name: pause
    image: metalplane.local/pause:1
    imagePullPolicy: Never
    {volume}
  volumes:
  - {{name: v, persistentVolumeClaim: {{claimName: {name}}}}}
"
    )
}

#[test]
fn pods_mount_volumes_as_filesystem_and_as_block_device() {
    on_site("pods_mount_volumes", async |site, namespace| {
        let limit = format!("--timeout={}s", PATIENCE.as_secs());
        // A pod is refused before its namespace has that; it is made by kube-controller-manager, which may have just started anew.
        site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", namespace, &limit]).await?;
        let block = "volumeDevices: [{name: v, devicePath: /dev/xvda}]";
        site.apply(
            &[
                claim(namespace, "files", "Filesystem"),
                pod(namespace, "files", "node-1", "volumeMounts: [{name: v, mountPath: /files}]"),
                claim(namespace, "block", "Block"),
                pod(namespace, "block", "dpu-1", block),
            ]
            .join("---\n"),
        )
        .await?;
        for name in ["files", "block"] {
            let phase = "--for=jsonpath={.status.phase}=Running";
            site.kubectl(&["wait", phase, &format!("pod/{name}"), "-n", namespace, &limit]).await?;
        }
        let (volume, uid) = placed(site, namespace, "files").await?;
        let mount = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount");
        let kind = site.enter("node-1", &["findmnt", "--noheadings", "--output", "FSTYPE", &mount]).await?;
        ensure!(kind.trim() == "ext4", "the filesystem is {kind}");
        site.enter("node-1", &["touch", &format!("{mount}/written")]).await?;

        let (volume, uid) = placed(site, namespace, "block").await?;
        let device = format!("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/{volume}/{uid}");
        site.enter("dpu-1", &["sh", "-c", &format!("printf MARK | dd of={device} conv=fsync status=none")]).await?;
        let handle = site.kubectl(&["get", "pv", &volume, "-o", "jsonpath={.spec.csi.volumeHandle}"]).await?;
        let image = site.sandbox.ready().pool.join("volumes").join(handle).join("disk.img");
        let mut start = [0; 4];
        File::open(&image).and_then(|mut file| file.read_exact(&mut start)).context("read the volume's image")?;
        ensure!(start == *b"MARK", "what was written is not in the volume's image");

        site.kubectl(&["delete", "pod,pvc", "--all", "-n", namespace, "--timeout=120s"]).await?;
        until("the volumes are gone from the pool", PATIENCE, async || {
            Ok(if image.exists() { Err(format!("{} is there", image.display())) } else { Ok(()) })
        })
        .await
    });
}

/// The volume of the claim, and the UID of the pod of the same name.
async fn placed(site: &Site, namespace: &str, name: &str) -> Result<(String, String)> {
    let claim = site.get(&["pvc", name, "-n", namespace]).await?.context("no claim")?;
    let pod = site.get(&["pod", name, "-n", namespace]).await?.context("no pod")?;
    let word = |value: &serde_json::Value| value.as_str().map(str::to_owned).context("not set");
    Ok((word(&claim["spec"]["volumeName"])?, word(&pod["metadata"]["uid"])?))
}
