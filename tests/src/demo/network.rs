//! Two Vpcs with the same addresses. In blue a machine that has no cloud-init disk, a pod and a virtual machine in a pod reach each other;
//! a pod in red, which has the address of the one in blue, hears nothing.

use super::watch::{self, Until};
use super::{BOOT_LIMIT, NAMESPACE, Story};
use crate::site::{Agents, GuestKind, Site, Vm, until};
use anyhow::{Result, ensure};
use serde_json::json;
use std::time::Duration;

const NETWORKS: &str = include_str!("../../../examples/vpc.yaml");
const MACHINE: &str = "bm-02";
const PODS: [&str; 2] = ["blue-client", "red-client"];
const VIRTUAL_MACHINE: &str = "blue-vm";
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn image(story: &Story, site: &Site) -> Result<()> {
    story.say("golden image: a tiny Linux that asks at the metadata address, imported as MachineImage tiny");
    site.golden_image(GuestKind::Tiny, Some(NAMESPACE), "tiny").await
}

pub(super) async fn show(story: &Story, site: &Site) -> Result<()> {
    story.say("kubectl apply -f examples/vpc.yaml: Vpcs blue and red, with the same addresses of both families");
    site.apply(NETWORKS).await?;
    story.say("kubectl apply -f examples/bm-02.yaml (with the tiny image)");
    site.apply(&include_str!("../../../examples/bm-02.yaml").replace("debian-12", "tiny")).await?;
    let has_pods = site.agents == Agents::DaemonSet;
    match has_pods {
        true => apply_pods(story, site).await?,
        false => story.say("    no pods: with AGENTS=process the ordinary node has no agent"),
    }
    watch::machine(story, site, MACHINE, Until::Answers).await?;
    let address = site.kubectl(&["get", "vnic", "bm-02-eth0", "-o", "jsonpath={.status.addresses[0]}"]).await?;
    story.say(&format!(
        "{MACHINE} took its name and {address} from DHCP and 169.254.169.254; it has no cloud-init disk"
    ));
    if has_pods {
        ask_from_pods(story, site, &address).await?;
        ask_from_virtual_machine(story, site, &address).await?;
        println!("{}", site.bmctl(&["net", "trace", &vnic_of(site, PODS[0]).await?, MACHINE, "--tcp", "22"]).await?);
    }
    println!("{}", site.kubectl(&["get", "vpc,sn,sg,vnic", "-n", NAMESPACE]).await?);
    Ok(())
}

/// The example, with the one image that the sandbox has, and the same pod in red.
async fn apply_pods(story: &Story, site: &Site) -> Result<()> {
    let blue = include_str!("../../../examples/pod.yaml")
        .replace(
            "image: busybox:1.37",
            &format!("image: {}\n    imagePullPolicy: Never", sandbox::cluster::images::PAUSE),
        )
        .replace("    command: [sleep, infinity]\n", "");
    let red = blue.replace("blue", "red");
    story.say("kubectl apply -f examples/pod.yaml, and the same pod in red");
    site.apply(&format!("{blue}---\n{red}")).await?;
    let [one, other] = PODS.map(|name| format!("pod/{name}"));
    let running = "--for=jsonpath={.status.phase}=Running";
    site.kubectl(&["wait", running, &one, &other, "-n", NAMESPACE, "--timeout=60s"]).await?;
    story.say("both pods run, each with a second NIC in its Vpc");
    story.say("a virtual machine in a pod: QEMU on the ordinary node, with a NIC of blue-b that is its guest's (configure: false)");
    site.apply(&virtual_machine().manifest().await?).await.map(drop)
}

fn virtual_machine() -> Vm<'static> {
    Vm { namespace: NAMESPACE, name: VIRTUAL_MACHINE, nic: json!({"subnet": "blue-b"}), guest: GuestKind::Tiny }
}

async fn ask_from_virtual_machine(story: &Story, site: &Site, address: &str) -> Result<()> {
    let guest = virtual_machine().console(site);
    guest.line("the guest of the virtual machine has booted", 0, BOOT_LIMIT, |line| line.contains("MP-BOOT ")).await?;
    let said = guest.shell(&format!("ping -q -c 3 -W 5 {address}"), LIMIT).await?;
    ensure!(
        said.contains("3 packets received"),
        "{address} does not answer the virtual machine {VIRTUAL_MACHINE}: {said}"
    );
    let vnic = vnic_of(site, VIRTUAL_MACHINE).await?;
    let own = site.kubectl(&["get", "vnic", &vnic, "-n", NAMESPACE, "-o", "jsonpath={.status.addresses[0]}"]).await?;
    story.say(&format!("{address} answers ping from the virtual machine {VIRTUAL_MACHINE}, which took {own} by DHCP"));
    until(&format!("{own} answers the pod {}", PODS[0]), LIMIT, async || {
        Ok(ping(site, PODS[0], &own).await?.map_err(|error| format!("{error:#}")))
    })
    .await?;
    story.say(&format!("{own} answers ping from the pod {}", PODS[0]));
    Ok(())
}

async fn ask_from_pods(story: &Story, site: &Site, address: &str) -> Result<()> {
    let [blue, red] = PODS;
    until(&format!("{address} answers the pod {blue}"), LIMIT, async || {
        Ok(ping(site, blue, address).await?.map_err(|error| format!("{error:#}")))
    })
    .await?;
    story.say(&format!("{address} answers ping from the pod {blue}"));
    ensure!(ping(site, red, address).await?.is_err(), "{address} answers the pod {red}, which is in another Vpc");
    story.say(&format!("the pod {red}, with the same addresses in its own Vpc, hears nothing"));
    Ok(())
}

async fn ping(site: &Site, pod: &str, address: &str) -> Result<Result<()>> {
    let ask = ["ping", "-q", "-i", "0.2", "-c", "3", "-W", "1", "-I", "net1", address];
    let inside = site.pod(NAMESPACE, pod).await?;
    Ok(inside.enter(site, &ask).await.map(drop))
}

async fn vnic_of(site: &Site, pod: &str) -> Result<String> {
    let named = format!("metalplane.io/pod={pod}");
    let name = "jsonpath={.items[0].metadata.name}";
    site.kubectl(&["get", "vnic", "-n", NAMESPACE, "-l", &named, "-o", name]).await
}

pub(super) async fn remove_pods(site: &Site) -> Result<()> {
    let given = ["--ignore-not-found", "--grace-period=0", "--timeout=60s", "-n", NAMESPACE];
    site.kubectl(&[&["delete", "pod", VIRTUAL_MACHINE], &PODS[..], &given].concat()).await.map(drop)
}

pub(super) async fn remove_networks(site: &Site) -> Result<()> {
    site.delete(NETWORKS).await.map(drop)
}
