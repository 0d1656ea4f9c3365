//! What a node's Kubernetes programs are told: containerd, kubelet, kube-proxy and the pod network.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::{Site, images, pki};
use crate::layout::{NodeId, POD_CIDR};
use crate::registry::HOSTS;
use crate::supervisor::process::ProcessSpec;

/// The node's own folder for plugins beside those that every node has, and for the pod network's configuration, which a plugin may
/// be added to.
pub const CNI: &str = "/var/lib/cni";

pub fn write_containerd_config(site: &Site, node: &NodeId, dir: &Path, path: &Path) -> Result<()> {
    let cni = dir.join(CNI.trim_start_matches("/var/")).join("net.d");
    fs::create_dir_all(&cni)?;
    fs::write(cni.join("10-pods.conflist"), serde_json::to_vec_pretty(&pod_network(node))?)?;
    let (pause, plugins) = (images::PAUSE, site.programs.kubernetes.display());
    // restrict_oom_score_adj: root may lack CAP_SYS_RESOURCE, and then no pod could start.
    let text = format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{HOSTS}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}", "{CNI}/bin"]
conf_dir = "{CNI}/net.d"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins.'io.containerd.internal.v1.opt']
path = "/var/lib/containerd-opt"

[plugins.'io.containerd.nri.v1.nri']
disable = true
"#
    );
    Ok(fs::write(path, text)?)
}

/// A cable per pod and routes between nodes: no bridge, no masquerade. The addresses handed out are forgotten with
/// `/run`, as the pods that had them are.
fn pod_network(node: &NodeId) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni/networks",
                "ranges": [[{"subnet": node.pod_cidr()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

pub fn process(site: &Site, node: &NodeId, dir: &Path) -> Result<ProcessSpec> {
    let config = dir.join("kubelet.json");
    fs::write(&config, serde_json::to_vec_pretty(&kubelet_config(site, node))?)?;
    let mut argv = vec![
        site.programs.kubernetes_program("kubelet"),
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", pki::kubelet_kubeconfig(&site.layout, node).display()),
        format!("--hostname-override={}", node.name),
        format!("--node-ip={}", node.address()),
        "--root-dir=/var/lib/kubelet".into(),
        "--cert-dir=/var/lib/kubelet/pki".into(),
    ];
    if node.is_dpu() {
        argv.push("--node-labels=metalplane.io/dpu=true".into());
    }
    Ok(ProcessSpec::new(format!("{}/kubelet", node.name), argv).enter(&node.name))
}

fn kubelet_config(site: &Site, node: &NodeId) -> Value {
    let pki = |name: &str| site.layout.pki().join(name);
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki(&format!("{}-kubelet.crt", node.name)),
        "tlsPrivateKeyFile": pki(&format!("{}-kubelet.key", node.name)),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": site.layout.node_cgroup(&node.name),
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        // All nodes share one real disk and memory: none may evict for what the others use.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": false,
        "resolvConf": "",
        "clusterDomain": "cluster.local",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "podLogsDir": "/var/log/pods",
        // A node that is off is seen to be off after seconds: see the controllers' grace period.
        "nodeLeaseDurationSeconds": 20,
        "nodeStatusUpdateFrequency": "4s",
        // How often pods are looked at again: what a DPU that was off should run, and whether a volume has grown, is not
        // waited for longer than that.
        "syncFrequency": "10s",
        // What a test kills is started again a second later, the least that kubelet takes: it may kill a program after each of its steps.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    });
    if node.is_dpu() {
        config["registerWithTaints"] = json!([{"key": "metalplane.io/dpu", "value": "true", "effect": "NoSchedule"}]);
    }
    config
}

pub fn proxy(site: &Site, node: &NodeId, dir: &Path) -> Result<ProcessSpec> {
    let config = dir.join("kube-proxy.json");
    let content = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node.name,
        "bindAddress": node.address(),
        "clusterCIDR": POD_CIDR,
        "clientConnection": {"kubeconfig": site.layout.pki().join("kube-proxy.kubeconfig")},
        // The machine's own limits are not ours to change.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    });
    fs::write(&config, serde_json::to_vec_pretty(&content)?)?;
    let argv = [site.programs.kubernetes_program("kube-proxy"), format!("--config={}", config.display())];
    Ok(ProcessSpec::new(format!("{}/kube-proxy", node.name), argv).enter(&node.name))
}
