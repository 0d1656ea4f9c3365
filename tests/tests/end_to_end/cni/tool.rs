//! A sandbox that cnitool attaches in kubelet's place. Its Pod exists, and has the node; kubelet waits for a ConfigMap that there
//! is not, and makes no sandbox.

use crate::machine::SOON;
use crate::vpc_pods::pod;
use anyhow::{Context, Result, ensure};
use sandbox::cluster::kubelet::CNI;
use serde_json::{Value, json};
use tests::site::{ORDINARY_NODE as NODE, Site, tools};

pub(super) const NETWORK: &str = "judge";
pub(super) const ADDRESSES: [&str; 2] = ["10.30.0.31/24", "fd00:30::31/64"];
/// Of our own, by which ptp numbers its ends.
const RANGE: &str = "10.245.0.0/24";
pub(super) const SUBNET: &str = "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {name: blue}
spec: {cidr: 10.30.0.0/24, ipv6Cidr: 'fd00:30::/64'}
---
";

pub(super) struct Sandbox<'a> {
    pub site: &'a Site,
    pub namespace: &'a str,
    pub pod: String,
    uid: String,
    /// What it asks for, as the runtime hands it over.
    capabilities: Value,
    pub ifname: String,
    program: String,
}

/// What a program said and how it ended.
pub(super) struct Said {
    pub succeeded: bool,
    pub text: String,
}

impl Said {
    pub(super) fn done(self) -> Result<String> {
        ensure!(self.succeeded, "it failed: {}", self.text);
        Ok(self.text)
    }

    pub(super) fn refused(self, named: &str) -> Result<()> {
        ensure!(!self.succeeded && self.text.contains(named), "no error with '{named}': {}", self.text);
        Ok(())
    }
}

/// The configuration that cnitool reads: ours behind ptp.
pub(super) fn chained() -> Value {
    let ipam = json!({
        "type": "host-local", "dataDir": "/run/cni/judge", "ranges": [[{"subnet": RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    });
    json!({
        "cniVersion": "1.1.0", "name": NETWORK,
        "plugins": [
            {"type": "ptp", "ipMasq": false, "ipam": ipam},
            {"type": "metalplane", "capabilities": {"io.kubernetes.cri.pod-annotations": true}},
        ],
    })
}

pub(super) async fn configure(site: &Site, config: &Value) -> Result<()> {
    let name = config["name"].as_str().context("a network has a name")?;
    let write = format!("mkdir -p {CNI}/judge && printf %s \"$1\" > {CNI}/judge/{name}.conflist");
    site.enter(NODE, &["sh", "-c", &write, "sh", &config.to_string()]).await.map(drop)
}

impl<'a> Sandbox<'a> {
    /// Pod, network namespace and configuration; nothing is attached yet.
    pub(super) async fn make(site: &'a Site, namespace: &'a str, name: &str, addresses: &[&str]) -> Result<Self> {
        let bare: Vec<&str> = addresses.iter().filter_map(|address| address.split('/').next()).collect();
        let networks = json!([{"name": "net1", "subnet": "blue", "addresses": bare}]).to_string();
        let annotations = json!({"metalplane.io/networks": networks});
        let asks = format!("  labels: {{metalplane.io/networks: ''}}\n  annotations: {annotations}\n");
        configure(site, &chained()).await?;
        let capabilities = json!({"io.kubernetes.cri.pod-annotations": annotations});
        Self::of(site, namespace, name, &asks, capabilities).await
    }

    pub(super) async fn of(
        site: &'a Site,
        namespace: &'a str,
        name: &str,
        asks: &str,
        capabilities: Value,
    ) -> Result<Self> {
        let limit = format!("--timeout={}s", SOON.as_secs());
        site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", namespace, &limit]).await?;
        // A volume that no container mounts is not waited for.
        let mounted = "imagePullPolicy: Never, volumeMounts: [{name: never, mountPath: /never}]}";
        let waiting = pod(namespace, name, asks).replace("imagePullPolicy: Never}", mounted);
        ensure!(waiting.contains(mounted), "the pod does not mount it: {waiting}");
        let manifest = format!("{SUBNET}{waiting}  volumes:\n  - {{name: never, configMap: {{name: never}}}}\n");
        site.apply_in(namespace, &manifest).await?;
        let uid = site.kubectl(&["get", "pod", name, "-n", namespace, "-o", "jsonpath={.metadata.uid}"]).await?;
        let program = tools("cnitool").await?.join("cnitool").display().to_string();
        let made = Self {
            site,
            namespace,
            pod: name.to_owned(),
            uid: uid.trim().to_owned(),
            capabilities,
            ifname: "eth0".to_owned(),
            program,
        };
        made.remove_netns().await?;
        site.enter(NODE, &["ip", "netns", "add", &made.netns()]).await?;
        Ok(made)
    }

    pub(super) fn netns(&self) -> String {
        format!("{}-{}", self.namespace, self.pod)
    }

    pub(super) async fn remove_netns(&self) -> Result<()> {
        let remove = format!("ip netns delete {} 2>/dev/null || true", self.netns());
        self.site.enter(NODE, &["sh", "-c", &remove]).await.map(drop)
    }

    /// What is in the sandbox.
    pub(super) async fn inside(&self, args: &[&str]) -> Result<String> {
        self.site.enter(NODE, &[&["ip", "netns", "exec", &self.netns()], args].concat()).await
    }

    pub(super) async fn has(&self, device: &str) -> Result<bool> {
        let links = self.inside(&["ip", "-brief", "link"]).await?;
        Ok(links.lines().any(|line| line.split(['@', ' ']).next() == Some(device)))
    }

    fn args(&self) -> String {
        let Self { namespace, pod, uid, .. } = self;
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod};K8S_POD_UID={uid}")
    }

    /// cnitool with a verb on a network.
    pub(super) async fn tool(&self, verb: &str, network: &str) -> Result<Said> {
        let programs = self.site.sandbox.ready().programs.first().context("no programs")?.display().to_string();
        let variables = [
            format!("CNI_PATH={programs}:{CNI}/bin"),
            format!("NETCONFPATH={CNI}/judge"),
            format!("CNI_IFNAME={}", self.ifname),
            format!("CNI_ARGS={}", self.args()),
            format!("CAP_ARGS={}", self.capabilities),
        ];
        let mut words = vec!["env"];
        words.extend(variables.iter().map(String::as_str));
        let netns = format!("/run/netns/{}", self.netns());
        words.extend([self.program.as_str(), verb, network, &netns]);
        run(self.site, &words).await
    }

    /// The plugin itself, with what it reads.
    pub(super) async fn plugin(site: &Site, verb: &str, config: &Value) -> Result<Said> {
        let call = format!("printf %s \"$1\" | env -i CNI_COMMAND={verb} CNI_PATH={CNI}/bin {CNI}/bin/metalplane");
        run(site, &["sh", "-c", &call, "sh", &config.to_string()]).await
    }

    /// What the plugin has noted of it.
    pub(super) async fn note(&self) -> Result<Option<Value>> {
        let netns = format!("/run/netns/{}", self.netns());
        Ok(self.site.pod_notes().await?.into_iter().find(|note| note["netns"] == netns.as_str()))
    }

    /// As cnitool makes it from the namespace's path, found in what the plugin noted.
    pub(super) async fn container(&self) -> Result<String> {
        let own = self.note().await?.context("the plugin has noted nothing")?;
        Ok(own["containerId"].as_str().context("no sandbox")?.to_owned())
    }

    pub(super) async fn end(self) -> Result<()> {
        self.tool("del", NETWORK).await?.done()?;
        self.remove_netns().await
    }
}

async fn run(site: &Site, words: &[&str]) -> Result<Said> {
    let output = site.sandbox.enter(NODE).args(words).output().await.context("enter the node")?;
    let text = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    Ok(Said { succeeded: output.status.success(), text })
}
