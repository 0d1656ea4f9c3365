//! The driver in a real cluster: API server, kube-controller-manager, kubelet, and the sidecars external-provisioner,
//! external-attacher, external-resizer, csi-snapshotter and snapshot-controller, each of them the program that a user runs.

mod fixture;

use csi::pool::{Handle, Pool, VolumeRecord};
use fixture::tool;
use sandbox::{Sandbox, handle::Options, supervisor::process::ProcessSpec};
use std::{
    fmt::Debug,
    fs,
    io::Write,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(120);
const KUBELET_SOCKET: &str = "/var/lib/kubelet/plugins/csi.metalplane.io/csi.sock";

const CLASSES: &str = "
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: csi.metalplane.io}
spec: {attachRequired: true, podInfoOnMount: false, fsGroupPolicy: File, volumeLifecycleModes: [Persistent]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: csi.metalplane.io
parameters: {pool: default, csi.storage.k8s.io/fstype: xfs}
allowVolumeExpansion: true
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: fast}
driver: csi.metalplane.io
deletionPolicy: Delete
---
apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshotClass
metadata: {name: fast}
driver: csi.metalplane.io
deletionPolicy: Delete
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: gold}
driverName: csi.metalplane.io
parameters: {iops: \"20000\"}
";

const GROUP: &str = "
apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshot
metadata: {name: both}
spec: {volumeGroupSnapshotClassName: fast, source: {selector: {matchLabels: {group: both}}}}
";

const SNAPSHOT: &str = "
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: golden}
spec: {volumeSnapshotClassName: fast, source: {persistentVolumeClaimName: golden}}
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: both}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: pause
    image: metalplane.local/pause:1
    imagePullPolicy: Never
    volumeDevices: [{name: block, devicePath: /dev/xvda}]
    volumeMounts: [{name: files, mountPath: /files}]
  volumes:
  - {name: block, persistentVolumeClaim: {claimName: clone}}
  - {name: files, persistentVolumeClaim: {claimName: files}}
";

fn claim(name: &str, mode: &str, size: &str, source: &str) -> String {
    format!(
        "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  storageClassName: fast
  volumeMode: {mode}
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: {size}}}}}
{source}"
    )
}

const FROM_SNAPSHOT: &str =
    "  dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: golden}\n";

struct Cluster {
    sandbox: Sandbox,
}

impl Cluster {
    /// `None`, after saying so by the test's name, where a part is missing.
    async fn start(test: &str) -> Option<Cluster> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIP {test}: needs root");
            return None;
        }
        // Tests are in `deps`, one below the programs.
        let program = std::env::current_exe().ok()?.parent()?.parent()?.join("sandbox");
        if !program.is_file() {
            eprintln!("SKIP {test}: {} is missing: cargo build -p sandbox", program.display());
            return None;
        }
        for name in [
            "csi-provisioner",
            "csi-attacher",
            "csi-resizer",
            "csi-snapshotter",
            "snapshot-controller",
            "kubelet",
            "ctr",
        ] {
            if tool(name).is_none() {
                eprintln!(
                    "SKIP {test}: {name} is missing: run tools/build.sh for kubernetes, provisioner and containerd"
                );
                return None;
            }
        }
        let options =
            Options { nodes: vec!["node-1".into()], servers: vec![], program: Some(program), ..Options::default() };
        let sandbox = Sandbox::start(&format!("csi{}", std::process::id()), options).await.expect("a sandbox");
        Some(Cluster { sandbox })
    }

    async fn spawn(&self, process: ProcessSpec) {
        self.sandbox.spawn(&process).await.expect("a process of the sandbox");
    }

    fn program(name: &str) -> String {
        tool(name).expect("looked for before").display().to_string()
    }

    /// The driver, once as controller and once on the node, and the sidecars.
    async fn install(&self) {
        // Those of the controller that serves them: other programs were built with older ones.
        let controller = PathBuf::from(Cluster::program("snapshot-controller"));
        let (layout, crds) = (self.sandbox.layout(), controller.with_file_name("snapshot-crds"));
        self.kubectl(&["apply", "--server-side", "-k", &crds.display().to_string()], "").await;
        self.until("the snapshot API is discovered", || self.discovers("volumegroupsnapshotclasses")).await;
        let pool = format!("--pool=default={}", layout.pool().display());
        let address = format!("--csi-address=unix://{}", layout.dir.join("csi.sock").display());
        let driver = env!("CARGO_BIN_EXE_csi");
        self.spawn(ProcessSpec::new("csi/controller", [driver, &address, "--mode=controller", &pool])).await;
        self.until("the driver's socket", || async { layout.dir.join("csi.sock").exists() }).await;
        let kubeconfig = format!("--kubeconfig={}", self.sandbox.admin_kubeconfig().display());
        // As the chart has them.
        let provisioner = [
            &*address,
            "--extra-create-metadata",
            "--feature-gates=Topology=true",
            "--immediate-topology=false",
            "--enable-capacity",
            "--capacity-for-immediate-binding",
            "--capacity-ownerref-level=-1",
            "--capacity-poll-interval=5s",
        ];
        let sidecars: [(&str, &[&str]); 5] = [
            ("csi-provisioner", &provisioner),
            ("csi-attacher", &[&address, "--reconcile-sync=5s"]),
            ("csi-resizer", &[&address, "--handle-volume-inuse-error=false"]),
            ("csi-snapshotter", &[&address, "--extra-create-metadata"]),
            ("snapshot-controller", &[]),
        ];
        for (name, flags) in sidecars {
            let program = Cluster::program(name);
            let argv = [&[&program, &*kubeconfig, "--leader-election=false"], flags].concat();
            let process = ProcessSpec::new(format!("csi/{name}"), argv).enter("cp").env("NAMESPACE", "default");
            self.spawn(process).await;
        }
        let mut mkdir = self.sandbox.enter("node-1");
        let folder = PathBuf::from(KUBELET_SOCKET);
        let made = mkdir.arg("mkdir").arg("-p").arg(folder.parent().expect("a folder")).status().await;
        assert!(made.expect("mkdir starts").success());
        let (address, registration) =
            (format!("--csi-address={KUBELET_SOCKET}"), format!("--kubelet-registration-path={KUBELET_SOCKET}"));
        let argv = [driver, &address, "--mode=node", "--node-id=node-1", &pool, &registration];
        self.spawn(ProcessSpec::new("csi/node", argv).enter("node-1")).await;
        self.reaches("csinode/node-1", "{.spec.drivers[*].name}", "csi.metalplane.io").await;
        self.kubectl(&["apply", "-f", "-"], CLASSES).await;
    }

    /// Runs kubectl, which has to succeed, and answers what it printed.
    async fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let mut command = self.sandbox.kubectl();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(input.as_bytes()).expect("written");
        std::io::Seek::rewind(&mut file).expect("rewound");
        let output = command.stdin(file).output().await.expect("kubectl starts");
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A definition is served some time after it was applied.
    async fn discovers(&self, resource: &str) -> bool {
        let mut command = self.sandbox.kubectl();
        command.args(["get", resource]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().await.is_ok_and(|status| status.success())
    }

    async fn apply(&self, manifest: &str) {
        self.kubectl(&["apply", "-f", "-"], manifest).await;
    }

    async fn get(&self, object: &str, path: &str) -> String {
        self.kubectl(&["get", object, "--ignore-not-found", "-o", &format!("jsonpath={path}")], "").await
    }

    async fn reaches(&self, object: &str, path: &str, value: &str) {
        self.until(&format!("{object} {path}: {value}"), || async { self.get(object, path).await.contains(value) })
            .await;
    }

    async fn until<F: Future<Output = bool>>(&self, what: impl Debug, holds: impl Fn() -> F) {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < deadline, "not within {} s: {what:?}", PATIENCE.as_secs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The nodes that the pool has on record for a PersistentVolume.
    async fn publications(&self, volume: &str) -> Vec<String> {
        self.record(volume).await.published.into_iter().map(|publication| publication.node).collect()
    }

    /// What the pool has on record for a PersistentVolume.
    async fn record(&self, volume: &str) -> VolumeRecord {
        let handle = self.get(&format!("pv/{volume}"), "{.spec.csi.volumeHandle}").await;
        let pool = Pool::open("default", &self.sandbox.layout().pool()).expect("the sandbox's pool");
        pool.volume(&Handle::parse(&handle).expect("our handle")).expect("read").expect("it exists").record
    }

    /// How many volumes and snapshots the pool holds.
    fn held(&self) -> (usize, usize) {
        let count = |name: &str| fs::read_dir(self.sandbox.layout().pool().join(name)).map_or(0, Iterator::count);
        (count("volumes"), count("snapshots"))
    }
}

#[tokio::test]
async fn clones_restores_grows_and_serves_pods_in_a_real_cluster() {
    let test = "clones_restores_grows_and_serves_pods_in_a_real_cluster";
    let Some(cluster) = Cluster::start(test).await else { return };
    cluster.install().await;
    golden_image_and_clone(&cluster).await;
    pod_with_both_kinds(&cluster).await;
    topology_and_capacity(&cluster).await;
    limits(&cluster).await;
    group(&cluster).await;
    deletion(&cluster).await;
    let dir = cluster.sandbox.layout().dir.clone();
    cluster.sandbox.down().await.expect("the sandbox ends");
    fs::remove_dir_all(dir).expect("the logs can go");
}

async fn golden_image_and_clone(cluster: &Cluster) {
    cluster.apply(&claim("golden", "Block", "3Gi", "")).await;
    cluster.reaches("pvc/golden", "{.status.phase}", "Bound").await;
    cluster.apply(SNAPSHOT).await;
    cluster.reaches("volumesnapshot/golden", "{.status.readyToUse}", "true").await;
    assert_eq!(cluster.get("volumesnapshot/golden", "{.status.restoreSize}").await, "3Gi");
    cluster.apply(&claim("clone", "Block", "5Gi", FROM_SNAPSHOT)).await;
    cluster.apply(&claim("too-small", "Block", "1Gi", FROM_SNAPSHOT)).await;
    cluster.reaches("pvc/clone", "{.status.capacity.storage}", "5Gi").await;
    let volume = cluster.get("pvc/clone", "{.spec.volumeName}").await;
    let volume = format!("pv/{volume}");
    let attributes =
        cluster.get(&volume, "{.spec.csi.volumeAttributes.pool} {.spec.csi.volumeAttributes.format}").await;
    assert_eq!(attributes, "default raw");
    let handle = cluster.get(&volume, "{.spec.csi.volumeHandle}").await;
    let image = cluster.sandbox.layout().pool().join("volumes").join(handle).join("disk.img");
    assert_eq!(image.metadata().expect("the image is where an agent looks for it").len(), 5 << 30);
    cluster.reaches("events", "{.items[*].message}", "is less than the size 3221225472 for the source snapshot").await;
    // Nobody has it open: nobody has to be told.
    let grow = r#"{"spec":{"resources":{"requests":{"storage":"6Gi"}}}}"#;
    cluster.kubectl(&["patch", "pvc", "clone", "--type=merge", "-p", grow], "").await;
    cluster.reaches("pvc/clone", "{.status.capacity.storage}", "6Gi").await;
    assert_eq!(image.metadata().expect("the image").len(), 6 << 30);
}

async fn pod_with_both_kinds(cluster: &Cluster) {
    cluster.apply(&claim("files", "Filesystem", "1Gi", "")).await;
    cluster.apply(POD).await;
    cluster.reaches("pod/both", "{.status.phase}", "Running").await;
    let grow = r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#;
    cluster.kubectl(&["patch", "pvc", "files", "--type=merge", "-p", grow], "").await;
    // A node has it open: kubelet calls the node plugin before the claim says so.
    cluster.reaches("pvc/files", "{.status.capacity.storage}", "2Gi").await;
    published(cluster, "clone").await;
    let mut df = cluster.sandbox.enter("node-1");
    let uid = cluster.get("pod/both", "{.metadata.uid}").await;
    let volume = cluster.get("pvc/files", "{.spec.volumeName}").await;
    let path = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount");
    let df = df.args(["df", "--output=fstype,size", "-B1M", &path]).output().await.expect("df starts");
    let answer = String::from_utf8_lossy(&df.stdout).into_owned();
    let mut words = answer.lines().last().expect("an answer").split_whitespace();
    let (kind, mebibytes) = (words.next(), words.next().and_then(|it| it.parse::<u64>().ok()));
    assert!(kind == Some("xfs") && mebibytes > Some(1900), "{answer}");
}

/// The volume asks for its pool, and Kubernetes knows what is free in it.
async fn topology_and_capacity(cluster: &Cluster) {
    let key = "pool.csi.metalplane.io/default";
    let volume = cluster.get("pvc/clone", "{.spec.volumeName}").await;
    let affinity = "{.spec.nodeAffinity.required.nodeSelectorTerms[*].matchExpressions[*].key}";
    assert_eq!(cluster.get(&format!("pv/{volume}"), affinity).await, key);
    let capacity = "{.items[?(@.storageClassName==\"fast\")].nodeTopology} \
                    {.items[?(@.storageClassName==\"fast\")].maximumVolumeSize}";
    cluster.reaches("csistoragecapacities", capacity, key).await;
}

async fn limits(cluster: &Cluster) {
    let patch = r#"{"spec":{"volumeAttributesClassName":"gold"}}"#;
    cluster.kubectl(&["patch", "pvc", "files", "--type=merge", "-p", patch], "").await;
    cluster.reaches("pvc/files", "{.status.currentVolumeAttributesClassName}", "gold").await;
    let volume = cluster.get("pvc/files", "{.spec.volumeName}").await;
    let limits = cluster.record(&volume).await.limits;
    assert_eq!(limits.iter().collect::<Vec<_>>(), [("iops", 20_000)]);
}

/// Two volumes that a pod has at that moment.
async fn group(cluster: &Cluster) {
    cluster.kubectl(&["label", "pvc", "clone", "files", "group=both"], "").await;
    cluster.apply(GROUP).await;
    cluster.reaches("volumegroupsnapshot/both", "{.status.readyToUse}", "true").await;
    let pool = cluster.sandbox.layout().pool();
    let groups = || Pool::open("default", &pool).expect("the sandbox's pool").groups().expect("listed");
    let sizes: Vec<usize> = groups().iter().map(|group| group.snapshots.len()).collect();
    assert_eq!(sizes, [2]);
    cluster.kubectl(&["delete", "volumegroupsnapshot", "both", "--timeout=180s"], "").await;
    cluster.until("the group is gone", || async { groups().is_empty() }).await;
}

/// Kubernetes and the pool agree on where a claim's volume is; the pool refuses to lose it, and the object comes back.
async fn published(cluster: &Cluster, claim: &str) {
    let volume = cluster.get(&format!("pvc/{claim}"), "{.spec.volumeName}").await;
    let all = "{range .items[*]}{.spec.source.persistentVolumeName} {.spec.attacher} {.spec.nodeName} \
               {.status.attached} {.status.attachmentMetadata.readonly}{'\\n'}{end}";
    let attached = cluster.get("volumeattachments", all).await;
    let ours = attached.lines().find(|line| line.starts_with(&volume)).unwrap_or_default();
    assert_eq!(
        ours.split(' ').skip(1).collect::<Vec<_>>(),
        ["csi.metalplane.io", "node-1", "true", "false"],
        "{attached}"
    );
    assert_eq!(cluster.publications(&volume).await, ["node-1"]);
}

async fn deletion(cluster: &Cluster) {
    let files = cluster.get("pvc/files", "{.spec.volumeName}").await;
    cluster.kubectl(&["delete", "pod", "both", "--timeout=180s"], "").await;
    // Detached by the sidecar, not forgotten by it.
    cluster.until("nothing is published", || async { cluster.publications(&files).await.is_empty() }).await;
    cluster
        .until("nothing is attached", || async {
            cluster.get("volumeattachments", "{.items[*].metadata.name}").await.is_empty()
        })
        .await;
    cluster.kubectl(&["delete", "pvc", "--all", "--timeout=180s"], "").await;
    // The snapshot outlives its volume and all that was made from it.
    cluster.until("only the snapshot is left", || async { cluster.held() == (0, 1) }).await;
    cluster.kubectl(&["delete", "volumesnapshot", "golden", "--timeout=180s"], "").await;
    cluster.until("nothing is left", || async { cluster.held() == (0, 0) }).await;
    assert_eq!(cluster.get("pv", "{.items[*].metadata.name}").await, "");
}
