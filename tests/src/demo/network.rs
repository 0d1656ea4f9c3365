//! Two Vpcs with the same addresses: in blue a machine that has no cloud-init disk, a pod and a virtual machine in a pod, on three nodes;
//! what is in red has the same addresses, and hears nothing of blue.

use super::watch::{self, Until};
use super::{NAMESPACE, Story, members, report};
use crate::site::{Agents, GuestKind, ORDINARY_NODE, Site, Vm};
use anyhow::{Result, anyhow, ensure};
use serde_json::json;
use std::time::Instant;

const NETWORKS: &str = include_str!("../../../examples/vpc.yaml");
pub(super) const MACHINE: &str = "bm-02";
pub(super) const PODS: [&str; 2] = ["blue-client", "red-client"];
const VIRTUAL_MACHINE: &str = "blue-vm";
/// The second ordinary node, beside that of the pods.
pub(super) const VM_NODE: &str = "node-2";

pub(super) async fn image(story: &Story, site: &Site) -> Result<()> {
    story.say("golden image: a tiny Linux that asks at the metadata address, imported as MachineImage tiny");
    site.golden_image(GuestKind::Tiny, Some(NAMESPACE), "tiny").await
}

pub(super) async fn show(story: &Story, site: &Site) -> Result<()> {
    story.say("kubectl apply -f examples/vpc.yaml: Vpcs blue and red, with the same addresses of both families");
    site.apply(&networks()?).await?;
    story.say("kubectl apply -f examples/bm-02.yaml (with the tiny image)");
    site.apply(&include_str!("../../../examples/bm-02.yaml").replace("debian-12", "tiny")).await?;
    let has_pods = site.agents == Agents::DaemonSet;
    match has_pods {
        true => apply_pods(story, site).await?,
        false => story.say("    no pods: with AGENTS=process the ordinary node has no agent"),
    }
    watch::machine(story, site, MACHINE, Until::Answers).await?;
    let addresses = addresses_of(site, &format!("{MACHINE}-eth0")).await?;
    let address = &addresses[0];
    story.say(&format!(
        "{MACHINE} took its name and {address} from DHCP and 169.254.169.254; it has no cloud-init disk"
    ));
    if has_pods {
        members::show(story, site, &addresses).await?;
        println!("{}", site.bmctl(&["net", "trace", &vnic_of(site, PODS[0]).await?, MACHINE, "--tcp", "22"]).await?);
    }
    println!("{}", site.kubectl(&["get", "vpc,sn,sg,vnic", "-n", NAMESPACE]).await?);
    Ok(())
}

/// The example's guests ask by DHCPv6, which busybox does not: here they take what the router advertises.
fn networks() -> Result<String> {
    let of_the_example = "::/64\"}";
    ensure!(NETWORKS.contains(of_the_example), "examples/vpc.yaml no longer has {of_the_example}");
    Ok(NETWORKS.replace(of_the_example, "::/64\", ipv6Mode: SLAAC}"))
}

/// Of the pods, with addresses of both families, the one image that the sandbox has, on the node that pods are entered on.
fn example() -> Result<String> {
    let image = format!("image: {}\n    imagePullPolicy: Never", sandbox::cluster::images::PAUSE);
    let node = format!("spec:\n  nodeSelector: {{kubernetes.io/hostname: {ORDINARY_NODE}}}\n");
    let (one, both) = (r#"["10.30.0.21"]"#, r#"["10.30.0.21", "fd00:30::21"]"#.to_owned());
    let ours = [
        (one, both),
        ("image: busybox:1.37", image),
        ("    command: [sleep, infinity]\n", String::new()),
        ("spec:\n", node),
    ];
    ours.iter().try_fold(include_str!("../../../examples/pod.yaml").to_owned(), |text, (of_the_example, ours)| {
        ensure!(text.contains(of_the_example), "examples/pod.yaml no longer has {of_the_example}");
        Ok(text.replace(of_the_example, ours))
    })
}

/// The example, and the same pod in red.
async fn apply_pods(story: &Story, site: &Site) -> Result<()> {
    let blue = example()?;
    let red = blue.replace("blue", "red").replace(r#""subnet""#, r#""securityGroups": ["red-open"], "subnet""#);
    ensure!(red.contains("red-open"), "examples/pod.yaml no longer names its Subnet as the demo knows it");
    story.say("kubectl apply -f examples/pod.yaml");
    let began = Instant::now();
    site.apply(&blue).await?;
    runs(site, PODS[0]).await?;
    let took = report::network("pod with a NIC: apply → Running", began.elapsed())?;
    story.say(&format!("the pod {} runs {took} ms later", PODS[0]));
    cluster_network_stays(story, site).await?;
    story.say("the same pod in red");
    site.apply(&format!("{}---\n{red}", members::RED_OPEN)).await?;
    story.say(&format!(
        "a virtual machine in a pod: QEMU on {VM_NODE}, with a NIC of blue-b that is its guest's (configure: false)"
    ));
    site.apply(&virtual_machine().manifest().await?).await?;
    runs(site, PODS[1]).await
}

async fn runs(site: &Site, pod: &str) -> Result<()> {
    let running = "--for=jsonpath={.status.phase}=Running";
    site.kubectl(&["wait", running, &format!("pod/{pod}"), "-n", NAMESPACE, "--timeout=60s"]).await.map(drop)
}

/// Its `eth0` is the cluster's, as in any pod, and so is what leads everywhere else.
async fn cluster_network_stays(story: &Story, site: &Site) -> Result<()> {
    let told = ["get", "pod", PODS[0], "-n", NAMESPACE, "-o", "jsonpath={.status.podIP}"];
    let (cluster_address, inside) = (site.kubectl(&told).await?, site.pod(NAMESPACE, PODS[0]).await?);
    let shown = inside.enter(site, &["ip", "-4", "-brief", "address"]).await?;
    let has = |device: &str, address: &str| {
        let is_it = |line: &str| line.starts_with(device) && line.contains(&format!(" {address}/"));
        shown.lines().any(is_it)
    };
    let [own, _] = addresses_of(site, &vnic_of(site, PODS[0]).await?).await?;
    ensure!(
        has("eth0", &cluster_address) && has("net1", &own),
        "not eth0 with {cluster_address}, net1 with {own}: {shown}"
    );
    let default = inside.enter(site, &["ip", "route", "show", "default"]).await?;
    ensure!(default.contains("dev eth0"), "the pod's default route is not the cluster's: {default}");
    let default = inside.enter(site, &["ip", "-6", "route", "show", "default"]).await?;
    ensure!(!default.contains("dev net1"), "the pod's IPv6 default route is not the cluster's: {default}");
    story.say(&format!("in it: eth0 with {cluster_address} of the cluster's network, net1 with {own} of blue"));
    Ok(())
}

pub(super) fn virtual_machine() -> Vm<'static> {
    let (nic, guest) = (json!({"subnet": "blue-b"}), GuestKind::Tiny);
    Vm { namespace: NAMESPACE, name: VIRTUAL_MACHINE, node: VM_NODE, nic, guest }
}

pub(super) async fn vnic_of(site: &Site, pod: &str) -> Result<String> {
    let named = format!("metalplane.io/pod={pod}");
    let name = "jsonpath={.items[0].metadata.name}";
    site.kubectl(&["get", "vnic", "-n", NAMESPACE, "-l", &named, "-o", name]).await
}

/// Of each family one.
pub(super) async fn addresses_of(site: &Site, vnic: &str) -> Result<[String; 2]> {
    let told = site.kubectl(&["get", "vnic", vnic, "-n", NAMESPACE, "-o", "jsonpath={.status.addresses[*]}"]).await?;
    let all: Vec<String> = told.split_whitespace().map(str::to_owned).collect();
    all.try_into().map_err(|all| anyhow!("VNic {vnic} has {all:?}"))
}

pub(super) async fn remove_pods(site: &Site) -> Result<()> {
    let given = ["--ignore-not-found", "--grace-period=0", "--timeout=60s", "-n", NAMESPACE];
    site.kubectl(&[&["delete", "pod", VIRTUAL_MACHINE], &PODS[..], &given].concat()).await.map(drop)
}

pub(super) async fn remove_networks(site: &Site) -> Result<()> {
    site.delete(&format!("{}---\n{NETWORKS}", members::RED_OPEN)).await.map(drop)
}
