//! A pod on the worker has a NIC: a function that the worker's DPU plugs in, and that the plugin in the guest moves into the pod.
//!
//! The guest has the chart's worker agent and the plugin, and nothing of Metalplane's that may read more than the node itself: to the API
//! server it is `system:node:worker`. What kubelet and containerd would do, the test does: the pod's network namespace, and the plugin's
//! calls.

use super::plug_in::{API, PlugIn, shell};
use crate::machine::{BOOT, Machine, SOON};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tests::site::{ORDINARY_NODE, Place, until};

const ADDRESSES: [&str; 2] = ["10.30.0.31", "fd00:30::31"];
const AGENT: &str = "/dpu-agent --worker --kubeconfig=/run/kubelet.conf --run-dir=/run/metalplane";
/// On the ordinary node: its device and its addresses.
const PEER: (&str, &[&str]) = ("peer0", &["10.30.0.252/24", "fd00:30::252/64"]);

pub async fn used(machine: &Machine<'_>, plug_in: &PlugIn<'_>) -> Result<()> {
    let (site, namespace) = (machine.site, machine.namespace);
    site.apply(&pod(machine, "member", &ADDRESSES)).await?;
    nobody_else_tells(machine).await?;
    bring(machine, plug_in).await?;
    let uid = machine.kubectl(&["get", "pod", "member", "-o", "jsonpath={.metadata.uid}"]).await?;
    let plugin = Plugin { machine, uid };
    plugin.sandbox("one").await?;
    plugin.call("ADD", "one").await?;
    let shown = shell(machine, "busybox nsenter -t $(cat /run/one) -n ip addr show net1").await?;
    let has = |with_prefix: String| shown.contains(&with_prefix);
    let [four, six] = ADDRESSES;
    let has_both = has(format!("{four}/24")) && has(format!("{six}/64"));
    ensure!(has_both && shown.contains("LOWER_UP"), "in the pod: {shown}");

    let place = Place { namespace, subnet: "blue", addresses: PEER.1 };
    let peer = site.probe(ORDINARY_NODE, PEER.0, place).await?;
    for address in ADDRESSES {
        peer.hears(address, SOON).await?;
    }

    // Another sandbox of the same pod, before the first one's end is told.
    plugin.sandbox("two").await?;
    plugin.call("ADD", "two").await?;
    plugin.call("DEL", "one").await?;
    plugin.call("CHECK", "two").await?;
    for address in ADDRESSES {
        peer.hears(address, SOON).await?;
    }
    plugin.call("DEL", "two").await?;
    let mac = machine
        .kubectl(&["get", "vnic", "-l", "metalplane.io/pod=member", "-o", "jsonpath={.items[0].status.macAddress}"])
        .await?;
    let console = machine.guest();
    let from = console.printed().len();
    delete(machine, "member").await?;
    let gone = |line: &str| line.contains("MP-NIC") && !line.contains(mac.trim());
    console.line("the guest lost the NIC", from, SOON, gone).await?;
    until("nothing of the pod is left", SOON, async || Ok(left(machine).await?.map_or(Ok(()), Err))).await
}

/// Whoever may write a pod, an administrator too, does not say which device of the node is the pod's.
async fn nobody_else_tells(machine: &Machine<'_>) -> Result<()> {
    let nics = json!([{"name": "net1", "macAddress": "02:00:00:00:00:01", "mtu": 1500}]).to_string();
    let change = json!({"metadata": {"annotations": {"metalplane.io/network-status": nics}}}).to_string();
    let refused = |result: Result<String>| match result {
        Ok(_) => bail!("it is written"),
        Err(error) => {
            let said = format!("{error:#}");
            ensure!(said.contains("is the controller's"), "{said}");
            Ok(())
        }
    };
    for part in [None, Some("--subresource=status")] {
        let patch = ["patch", "pod", "member", "--type=merge", "-p", &change];
        let patch: Vec<&str> = patch.into_iter().chain(part).collect();
        refused(machine.kubectl(&patch).await)?;
    }
    let made =
        pod(machine, "forged", &[]).replace("annotations: {", "annotations: {metalplane.io/network-status: '[]', ");
    refused(machine.site.apply(&made).await)
}

/// The machine is deleted under a pod that has a NIC there: that goes first, and nobody else's server shows it.
pub async fn goes_with_the_machine(machine: &Machine<'_>) -> Result<()> {
    machine.site.apply(&pod(machine, "left", &[])).await?;
    until("the pod's NIC is in force", BOOT, async || {
        let told = machine.kubectl(&["get", "pod", "left", "-o", "jsonpath={.metadata.annotations}"]).await?;
        Ok(if told.contains("network-status") { Ok(()) } else { Err(told) })
    })
    .await?;
    machine.delete().await?;
    let all = machine.kubectl(&["get", "nicattachments", "-A", "-l", "metalplane.io/worker-uid", "-o", "name"]).await?;
    ensure!(all.trim().is_empty(), "the server was released with {all}");
    let events = machine.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).await?;
    ensure!(events.contains("NicGranted"), "{events}");
    delete(machine, "left").await?;
    until("nothing of the pod is left", SOON, async || Ok(left(machine).await?.map_or(Ok(()), Err))).await
}

/// As its kubelet would register it.
pub fn node(machine: &Machine<'_>) -> String {
    let (name, namespace) = (machine.name, machine.namespace);
    format!(
        "apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{metalplane.io/worker: ''}}}}
spec: {{providerID: 'metalplane://{namespace}/{name}'}}
"
    )
}

pub async fn leave(machine: &Machine<'_>) -> Result<()> {
    machine.site.remove_probe(ORDINARY_NODE, PEER.0).await?;
    machine.site.kubectl(&["delete", "node", machine.name, "--ignore-not-found"]).await.map(drop)
}

fn pod(machine: &Machine<'_>, name: &str, addresses: &[&str]) -> String {
    let networks = json!([{"name": "net1", "subnet": "blue", "addresses": addresses}]);
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {}
  annotations: {{metalplane.io/networks: '{networks}'}}
spec:
  nodeName: {}
  tolerations: [{{operator: Exists}}]
  containers:
  - {{name: pause, image: 'metalplane.local/pause:1', imagePullPolicy: Never}}
",
        machine.namespace, machine.name
    )
}

/// No kubelet ends it.
async fn delete(machine: &Machine<'_>, pod: &str) -> Result<()> {
    machine.kubectl(&["delete", "pod", pod, "--force", "--grace-period=0"]).await.map(drop)
}

async fn left(machine: &Machine<'_>) -> Result<Option<String>> {
    let vnics = machine.kubectl(&["get", "vnics", "-l", "metalplane.io/pod", "-o", "name"]).await?;
    let attachments = ["get", "nicattachments", "-A", "-l", "metalplane.io/worker-uid", "-o", "name"];
    let all = format!("{vnics}{}", machine.kubectl(&attachments).await?);
    Ok(Some(all.trim().to_owned()).filter(|all| !all.is_empty()))
}

/// The worker agent and the plugin, out of the agent's image.
async fn bring(machine: &Machine<'_>, plug_in: &PlugIn<'_>) -> Result<()> {
    let config = machine.site.kubectl(&["config", "view", "--raw", "--flatten", "-o", "json"]).await?;
    let mut config: Value = serde_json::from_str(&config).context("the kubeconfig")?;
    let cluster = &mut config["clusters"][0]["cluster"];
    (cluster["server"], cluster["tls-server-name"]) = (json!(format!("https://{API}")), json!("kubernetes"));
    let user = &mut config["users"][0]["user"];
    user["as"] = json!(format!("system:node:{}", machine.name));
    user["as-groups"] = json!(["system:nodes"]);
    plug_in.hand_out("kubelet.conf", &config.to_string())?;
    plug_in.fetch("kubelet.conf", "/run/kubelet.conf").await?;
    plug_in.fetch_image("dpu-agent").await?;
    let start = format!("{AGENT} --node-name={} >>/run/agent.log 2>&1 &", machine.name);
    machine.guest().order(&start, SOON).await
}

struct Plugin<'a> {
    machine: &'a Machine<'a>,
    uid: String,
}

impl Plugin<'_> {
    /// A process in a network namespace of its own, which goes with the guest.
    async fn sandbox(&self, name: &str) -> Result<()> {
        let command = format!(
            "busybox unshare -n sleep 100000 & echo $! >/run/{name}; until [ \"$(readlink /proc/$!/ns/net)\" != \
             \"$(readlink /proc/self/ns/net)\" ]; do :; done"
        );
        shell(self.machine, &command).await.map(drop)
    }

    async fn call(&self, verb: &str, sandbox: &str) -> Result<()> {
        let config = json!({"cniVersion": "1.1.0", "name": "vpc", "type": "metalplane", "subnet": "blue"});
        let args = format!("K8S_POD_NAMESPACE={};K8S_POD_NAME=member;K8S_POD_UID={}", self.machine.namespace, self.uid);
        let command = format!(
            "echo '{config}' | CNI_COMMAND={verb} CNI_CONTAINERID={sandbox} CNI_NETNS=/proc/$(cat /run/{sandbox})/ns/net \
             CNI_IFNAME=net1 CNI_ARGS='{args}' /metalplane || (cat /run/agent.log; false)"
        );
        shell(self.machine, &command).await.map(drop)
    }
}
