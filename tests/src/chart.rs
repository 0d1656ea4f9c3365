//! Every value of the chart, with another one than its default, and what has to be set for that to count.

pub use sandbox::chart::{Helm, documented, file};

pub struct Setting {
    pub path: &'static str,
    pub json: &'static str,
    /// Values in YAML.
    pub within: &'static str,
}

impl Setting {
    pub fn flag(&self) -> String {
        format!("--set-json={}={}", self.path, self.json)
    }
}

const fn plain(path: &'static str, json: &'static str) -> Setting {
    Setting { path, json, within: "" }
}

const fn within(within: &'static str, path: &'static str, json: &'static str) -> Setting {
    Setting { path, json, within }
}

const AUTHORITIES: &str = "bmc: {caBundle: {configMap: trusted}}";
const OVN: &str = "ovn: {northBound: 'tcp:192.0.2.1:6641'}";
const OVN_TLS: &str = "ovn: {northBound: 'ssl:192.0.2.1:6641', tls: {secretName: ovn}}";
const VIRTNET: &str = "agent: {nicsBy: virtnet}";
const SPDK: &str = "agent: {disksBy: spdk}";
const TARGET: &str = "{agent: {disksBy: spdk}, spdkTarget: {enabled: true}}";
const FABRICS: &str = "agent: {disksBy: spdk, hostOverFabrics: {enabled: true}}";
const STORAGE_NODE: &str = "controller: {nvmeofTargets: [{address: '192.0.2.1:4420', socket: storage-1.sock}]}";
const LVOLS: &str = "lvolPools: [{name: fast, lvstore: lvs0, address: '192.0.2.1:4420', socket: storage-1.sock}]";
const CNI: &str = "cni: {enabled: true}";
const WORKERS: &str = "cni: {workers: {enabled: true}}";
/// The Secret is named: the chart makes one at random otherwise, another one each time.
const BOOT: &str = "boot: {enabled: true, addresses: [192.0.2.1], agentsKeySecret: given}";
const BOOT_ISO: &str =
    "boot: {enabled: true, addresses: [192.0.2.1], agentsKeySecret: given, iso: {caBundle: {configMap: trusted}}}";
const METRICS: &str = "monitoring: {agents: true}";
const PROXY: &str = "csi: {proxy: {enabled: true, machineNamespace: workers}}";

pub const SETTINGS: &[Setting] = &[
    plain("images.pullPolicy", r#""Never""#),
    plain("images.registry", r#""registry.example:5000/metalplane""#),
    plain("images.pullSecrets", r#"["registry"]"#),
    plain("images.controller", r#""metalplane.io/controller:2""#),
    plain("images.agent", r#""metalplane.io/dpu-agent:2""#),
    plain("images.csi", r#""metalplane.io/csi:2""#),
    plain("images.provisioner", r#""metalplane.io/csi-provisioner:2""#),
    plain("images.attacher", r#""metalplane.io/csi-attacher:2""#),
    plain("images.resizer", r#""metalplane.io/csi-resizer:2""#),
    plain("images.snapshotter", r#""metalplane.io/csi-snapshotter:2""#),
    plain("images.snapshotController", r#""metalplane.io/snapshot-controller:2""#),
    plain("images.holder", r#""metalplane.io/pause:2""#),
    within(BOOT, "images.boot", r#""metalplane.io/boot:2""#),
    within(TARGET, "images.spdkTarget", r#""metalplane.io/spdk-target:2""#),
    plain("logFormat", r#""json""#),
    plain("ovn.northBound", r#""tcp:192.0.2.1:6641""#),
    within(OVN, "ovn.southBound", r#""tcp:192.0.2.1:6642""#),
    within(OVN_TLS, "ovn.tls.secretName", r#""other""#),
    within(OVN_TLS, "ovn.tls.keys.certificate", r#""cert""#),
    within(OVN_TLS, "ovn.tls.keys.privateKey", r#""key""#),
    within(OVN_TLS, "ovn.tls.keys.authority", r#""cacert""#),
    within(OVN_TLS, "ovn.tls.serverName", r#""HOST""#),
    plain("inventory.namespace", r#""default""#),
    plain("inventory.seedsNamespace", r#""kube-public""#),
    plain("inventory.create", "false"),
    plain("inventory.discoverBootOptions", "true"),
    plain("inventory.policy.create", "false"),
    plain("inventory.policy.selector", r#"{"matchLabels": {"rack": "1"}}"#),
    plain("inventory.policy.claimNamespaces", r#"{"matchLabels": {"team": "a"}}"#),
    plain("inventory.policy.localDisks", r#""Erase""#),
    plain("bmc.caBundle.configMap", r#""trusted""#),
    within(AUTHORITIES, "bmc.caBundle.key", r#""bmcs.pem""#),
    plain("controller.enabled", "false"),
    plain("controller.replicas", "2"),
    plain("controller.nvmeofTargets", r#"[{"address": "192.0.2.1:4420", "socket": "storage-1.sock"}]"#),
    within(STORAGE_NODE, "controller.nvmeofTargetsDirectory", r#""/run/storage""#),
    plain("controller.resources", r#"{"requests": {"cpu": "70m"}}"#),
    plain("agent.enabled", "false"),
    plain("agent.bootIdFile", r#""/run/boot-id""#),
    plain("agent.runDirectory", r#""/run/agent""#),
    plain("agent.slotsDirectory", r#""/run/slots""#),
    plain("agent.disksBy", r#""snap""#),
    plain("agent.nicsBy", r#""static""#),
    plain("agent.switchPorts", "15"),
    plain("agent.eraserArguments", r#"["console=ttyS0", "quiet"]"#),
    within(VIRTNET, "agent.virtnet.program", r#""/opt/virtnet""#),
    within(VIRTNET, "agent.virtnet.device", r#""mlx5_1""#),
    within(VIRTNET, "agent.virtnet.queues", "8"),
    within(SPDK, "agent.spdkDirectory", r#""/var/tmp""#),
    within(SPDK, "agent.spdkSocket", r#""spdk.sock""#),
    within(SPDK, "agent.spdkVolumes", r#"["nvmeof", "local"]"#),
    within(SPDK, "agent.cephClusters", r#"[{"id": "c", "user": "u", "configFile": "/etc/ceph/c.conf"}]"#),
    within(SPDK, "agent.hostOverFabrics.enabled", "true"),
    within(FABRICS, "agent.hostOverFabrics.port", "4421"),
    within(FABRICS, "agent.hostOverFabrics.rdma", "true"),
    plain("agent.diskLimits.iops", "2000"),
    plain("agent.diskLimits.mibPerSecond", "100"),
    plain("agent.openvswitchDirectory", r#""/var/run/ovs""#),
    plain("agent.bridge", r#""br-vpc""#),
    plain("agent.kubelet.enabled", "false"),
    plain("agent.kubelet.directory", r#""/var/lib/k0s/kubelet""#),
    plain("agent.resources", r#"{"requests": {"cpu": "70m"}}"#),
    within(SPDK, "spdkTarget.enabled", "true"),
    within(TARGET, "spdkTarget.cores", r#""[0,1]""#),
    within(TARGET, "spdkTarget.memoryMiB", "2048"),
    within(TARGET, "spdkTarget.hugePages", r#""1Gi""#),
    within(TARGET, "spdkTarget.metricsPort", "9766"),
    within(TARGET, "spdkTarget.resources", r#"{"requests": {"cpu": "1"}}"#),
    plain("cni.enabled", "true"),
    within(CNI, "cni.chain", "true"),
    within(CNI, "cni.binDirectory", r#""/usr/libexec/cni""#),
    within("cni: {enabled: true, chain: true}", "cni.confDirectory", r#""/etc/cni/other.d""#),
    within(CNI, "cni.nodeSelector", r#"{"pods": "vpc"}"#),
    within(CNI, "cni.smartNics", "true"),
    plain("cni.workers.enabled", "true"),
    within(WORKERS, "cni.workers.nodeSelector", r#"{"pods": "vpc"}"#),
    within(WORKERS, "cni.workers.kubeconfig", r#""/etc/kubelet.conf""#),
    within(WORKERS, "cni.workers.pki", r#""/etc/kubelet/pki""#),
    within(CNI, "cni.resources", r#"{"requests": {"cpu": "70m"}}"#),
    within("boot: {addresses: [192.0.2.1], agentsKeySecret: given}", "boot.enabled", "true"),
    within(BOOT, "boot.addresses", r#"["192.0.2.1", "192.0.2.2"]"#),
    within(BOOT, "boot.interface", r#""eth1""#),
    within(BOOT, "boot.dhcp", r#""Proxy""#),
    within(BOOT, "boot.dhcpSubnets", r#"[{"subnet": "10.1.0.0/24", "mode": "Proxy"}]"#),
    within(BOOT, "boot.dhcpPools", r#"[{"range": "10.88.0.200-10.88.0.239", "prefix": 24, "gateway": "10.88.0.1"}]"#),
    within(BOOT, "boot.discovery", "true"),
    within(BOOT, "boot.directory", r#""/srv/boot""#),
    within(BOOT, "boot.iso.url", r#""https://images.example/hook.iso""#),
    within(BOOT, "boot.iso.caBundle.configMap", r#""trusted""#),
    within(BOOT_ISO, "boot.iso.caBundle.key", r#""images.pem""#),
    within(BOOT, "boot.iso.virtualMedia", r#""installer.iso""#),
    within(BOOT, "boot.programs", PROGRAM),
    within(BOOT, "boot.architectures", r#"{"7": "installer.efi"}"#),
    within(BOOT, "boot.kernelArguments", r#"["console=ttyS0"]"#),
    within(BOOT, "boot.agents", r#""open""#),
    within(BOOT, "boot.agentsKeySecret", r#""other""#),
    within(BOOT, "boot.metricsPort", "9767"),
    within(BOOT, "boot.syslog", r#""192.0.2.3""#),
    within(BOOT, "boot.references.allow", r#"[{"reference": {"resource": ["lvms"]}}]"#),
    within(BOOT, "boot.references.deny", r#"[{"reference": {"resource": ["pods"]}}]"#),
    within(
        BOOT,
        "boot.references.readable",
        r#"[{"namespace": "default", "group": "example.org", "resources": ["lvms"]}]"#,
    ),
    within(BOOT, "boot.nodeSelector", r#"{"boot": "here"}"#),
    within(BOOT, "boot.tolerations", r#"[{"operator": "Exists"}]"#),
    within(BOOT, "boot.resources", r#"{"requests": {"cpu": "70m"}}"#),
    plain("monitoring.agents", "true"),
    within(METRICS, "monitoring.port", "9000"),
    plain("monitoring.podMonitor", "true"),
    plain("filePool.enabled", "false"),
    plain("filePool.name", r#""other""#),
    plain("filePool.directory", r#""/srv/pool""#),
    plain("filePool.fence", "true"),
    plain("filePool.storageClass.create", "false"),
    plain("filePool.storageClass.name", r#""files""#),
    plain("filePool.storageClass.isDefault", "true"),
    plain("filePool.snapshotClass.create", "false"),
    plain("filePool.snapshotClass.name", r#""files""#),
    plain("filePool.volumeAttributesClasses", r#"{"gold": {"iops": "20000", "bandwidthMiBps": "500"}}"#),
    plain("lvolPools", POOL),
    within(LVOLS, "lvolRecordsDirectory", r#""/srv/records""#),
    plain("csi.enabled", "false"),
    plain("csi.nodeSelector", r#"{"storage": "here"}"#),
    plain("csi.snapshotController", "false"),
    plain("csi.topology", "false"),
    plain("csi.node.enabled", "false"),
    plain("csi.node.nodeSelector", r#"{"pool": "here"}"#),
    plain("csi.node.tolerations", "[]"),
    plain("csi.node.kubeletDirectory", r#""/var/lib/k0s/kubelet""#),
    plain("csi.node.resources", r#"{"requests": {"cpu": "70m"}}"#),
    within("csi: {proxy: {machineNamespace: default}}", "csi.proxy.enabled", "true"),
    within(PROXY, "csi.proxy.machineNamespace", r#""others""#),
    within(PROXY, "csi.proxy.kubeconfigSecret", r#""machines""#),
    within(PROXY, "csi.proxy.nodeSelector", r#"{"worker": "machine"}"#),
    within(PROXY, "csi.proxy.storageClass.name", r#""machine-disks""#),
    within(PROXY, "csi.proxy.storageClass.machineStorageClassName", r#""metalplane-file""#),
    within(PROXY, "csi.proxy.storageClass.bus", r#""VirtioBlk""#),
];

const PROGRAM: &str = r#"[{"name": "ipxe.efi", "file": "ipxe.efi",
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]"#;
const POOL: &str = r#"[{"name": "fast", "lvstore": "lvs0", "address": "192.0.2.1:4420", "socket": "storage-1.sock",
    "largestGiB": 10, "storageClassName": "fast"}]"#;
