//! Pods on the ordinary node with a NIC in a Vpc, beside the cluster network: kubelet, containerd, ptp, and behind that our plugin. One
//! of them is a virtual machine's, which has the NIC in its guest.

use super::machine::{BOOT, Machine, SOON, wait_ready};
use super::on_servers;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::guest::Guest;
use tests::site::{GuestKind, ORDINARY_NODE as NODE, Place, Pod, Site, Vm, tcp, until};

/// The pod's, and those of who asks from another chassis: of each family one.
const ADDRESSES: [&str; 2] = ["10.30.0.21", "fd00:30::21"];
const ASKING: [&str; 2] = ["10.30.0.251", "fd00:30::251"];

pub(super) fn pod(namespace: &str, name: &str, asks: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
{asks}spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {{kubernetes.io/hostname: {NODE}}}
  containers:
  - {{name: pause, image: 'metalplane.local/pause:1', imagePullPolicy: Never}}
"
    )
}

fn asking(addresses: &[&str]) -> String {
    let networks = json!([{"name": "net1", "subnet": "blue", "addresses": addresses}]);
    format!("  labels: {{metalplane.io/networks: ''}}\n  annotations: {{metalplane.io/networks: '{networks}'}}\n")
}

/// Another Subnet of the machine's Vpc, with both families.
const GUESTS_SUBNET: &str = "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {name: green}
spec: {cidr: 10.31.0.0/24, ipv6Cidr: 'fd00:31::/64', ipv6Mode: SLAAC}
";

#[test]
fn pods_and_a_virtual_machine_are_members_of_a_vpc() {
    on_servers(&[1, 2], "vpc_pods", async |site, namespace| {
        let limit = format!("--timeout={}s", SOON.as_secs());
        site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", namespace, &limit]).await?;
        let machine = Machine::on_first(site, namespace);
        let pods =
            [machine.in_both_families(), pod(namespace, "quiet", ""), pod(namespace, "member", &asking(&ADDRESSES))];
        site.apply(&pods.join("---\n")).await?;
        let virtual_machine =
            Vm { namespace, name: "virtual", node: NODE, nic: json!({"subnet": "green"}), guest: GuestKind::Tiny };
        site.apply_in(namespace, &format!("{GUESTS_SUBNET}---\n{}", virtual_machine.manifest().await?)).await?;
        for name in ["quiet", "member"] {
            let phase = "--for=jsonpath={.status.phase}=Running";
            site.kubectl(&["wait", phase, &format!("pod/{name}"), "-n", namespace, &limit]).await?;
        }
        let inside = site.pod(namespace, "member").await?;
        let shown = inside.enter(site, &["ip", "-brief", "address"]).await?;
        let [four, six] = ADDRESSES;
        let has_both = shown.contains(&format!("{four}/24")) && shown.contains(&format!("{six}/64"));
        ensure!(shown.contains("eth0") && has_both, "in the pod: {shown}");

        wait_ready(site, namespace, machine.name).await?;
        let machines = machine.both();
        for address in &machines {
            until(&format!("{address} answers the pod"), BOOT, async || {
                Ok(asks(site, &inside, address).await.map_err(|error| format!("{error:#}")))
            })
            .await?;
        }
        only_what_it_was_given(site, &inside).await?;
        from_another_chassis(site, namespace, &inside).await?;
        let guests = in_a_guest(site, &virtual_machine).await.context("the guest of the virtual machine")?;
        between_guests(&virtual_machine.console(site), &guests, &machine.guest(), &machines).await?;
        containerd_is_killed(site, namespace, &inside, &machines).await.context("containerd is killed")?;

        // Kubelet hears of it when the object no longer exists.
        let force = ["delete", "pod", "member", "after", "-n", namespace, "--force", "--grace-period=0"];
        site.kubectl(&force).await?;
        site.kubectl(&["delete", "pod", virtual_machine.name, "-n", namespace, &limit]).await?;
        let held: Vec<&str> = ADDRESSES.into_iter().chain(guests.iter().map(String::as_str)).collect();
        until("nothing of the pods is left", SOON, async || Ok(left(site, namespace, &held).await?.map_or(Ok(()), Err)))
            .await
    });
}

/// The Subnet's router has advertised a prefix and itself since the pod has its NIC.
async fn only_what_it_was_given(site: &Site, inside: &Pod) -> Result<()> {
    let shown =
        inside.enter(site, &["ip", "-6", "-oneline", "address", "show", "dev", "net1", "scope", "global"]).await?;
    ensure!(shown.lines().count() == 1 && shown.contains(ADDRESSES[1]), "in the pod net1 has {shown}");
    let routes = inside.enter(site, &["ip", "-6", "route", "show", "default"]).await?;
    ensure!(!routes.contains("net1"), "the pod's default route is not the cluster network's: {routes}");
    Ok(())
}

/// By the pod's NIC; within ten seconds.
async fn asks(site: &Site, from: &Pod, address: &str) -> Result<()> {
    let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "10", "-I", "net1", address];
    from.enter(site, &ask).await.map(drop)
}

/// The pod keeps its NIC while no containerd runs, and the next containerd starts pods as the one before. `machines`: the addresses that
/// are asked.
async fn containerd_is_killed(site: &Site, namespace: &str, inside: &Pod, machines: &[String; 2]) -> Result<()> {
    let [four, six] = machines;
    let containerd = format!("{NODE}/containerd");
    site.sandbox.kill_process(&containerd).await?;
    let answered = tokio::join!(asks(site, inside, four), asks(site, inside, six));
    site.sandbox.start_process(&containerd).await?;
    answered.0.and(answered.1).context("the pod's NIC without containerd")?;
    site.apply(&pod(namespace, "after", &asking(&[]))).await?;
    let limit = format!("--timeout={}s", SOON.as_secs());
    site.kubectl(&["wait", "--for=condition=Ready", "pod/after", "-n", namespace, &limit]).await?;
    let after = site.pod(namespace, "after").await?;
    for address in machines {
        asks(site, &after, address).await.context("from the pod that came after")?;
    }
    Ok(())
}

/// It has the VNic's MAC address, and by DHCP and router advertisements the VNic's addresses; gives those.
async fn in_a_guest(site: &Site, virtual_machine: &Vm<'_>) -> Result<[String; 2]> {
    let Vm { namespace, name, .. } = virtual_machine;
    let guest = virtual_machine.console(site);
    let booted = guest.line("the guest has booted", 0, BOOT, |line| line.contains("MP-BOOT ")).await?;
    ensure!(booted.trim().ends_with(&format!("{name} {name}")), "{booted}");
    let of_pod = format!("metalplane.io/pod={name}");
    let vnics = site.get(&["vnics", "-n", namespace, "-l", &of_pod]).await?.context("a list")?;
    let status = &vnics["items"][0]["status"];
    let printed = guest.printed();
    let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("of the VNic: {status}"));
    let [four, six] = [text(&status["addresses"][0])?, text(&status["addresses"][1])?];
    for address in [&text(&status["macAddress"])?, &four, &six] {
        ensure!(printed.contains(&format!("={address}")), "{address} is not among what the guest says:\n{printed}");
    }
    let router = guest.shell("ping -q -c 1 -W 5 fd00:31::1", SOON).await?;
    ensure!(router.contains("1 packets received"), "the Subnet's router: {router}");
    Ok([four, six])
}

/// Ping, and TCP in packets of full size, in either direction and by either family.
async fn between_guests(one: &Guest, ones: &[String; 2], other: &Guest, others: &[String; 2]) -> Result<()> {
    let to_one = ones.iter().map(|at| (one, at, other));
    for (server, at, client) in to_one.chain(others.iter().map(|at| (other, at, one))) {
        let pinged = client.shell(&format!("ping -q -c 3 -W 5 {at}"), SOON).await?;
        ensure!(pinged.contains("3 packets received"), "{at}: {pinged}");
        server.order("(head -c 100000 /dev/zero | nc -l -p 8080) &", SOON).await?;
        let fetch =
            format!("for i in 1 2 3 4 5; do nc -w 30 {at} 8080 >/tmp/got && break; sleep 1; done; wc -c </tmp/got");
        let received = client.shell(&fetch, SOON).await?;
        ensure!(received.split_whitespace().any(|word| word == "100000"), "from {at} by TCP: {received}");
    }
    Ok(())
}

/// Ping, and TCP in packets of full size: a checksum that the pod left to hardware would be the end of it.
async fn from_another_chassis(site: &Site, namespace: &str, inside: &Pod) -> Result<()> {
    let addresses = &["10.30.0.251/24", "fd00:30::251/64"];
    let place = Place { namespace, subnet: "blue", addresses };
    let probe = site.probe("dpu-2", "probe2", place).await?;
    let heard = async {
        for (address, own) in ADDRESSES.into_iter().zip(ASKING) {
            probe.hears(address, SOON).await?;
            let in_the_pod = async |args: &[&str]| inside.enter(site, args).await;
            let seen = tcp(in_the_pod, async |args: &[&str]| site.enter("dpu-2", args).await, address, address).await?;
            ensure!(seen == own, "in the pod it was seen as {seen}");
        }
        anyhow::Ok(())
    };
    let heard = heard.await;
    site.remove_probe("dpu-2", "probe2").await.and(heard)
}

/// One thing of the pod that is still there.
pub(super) async fn left(site: &Site, namespace: &str, addresses: &[&str]) -> Result<Option<String>> {
    let objects = site.kubectl(&["get", "vnics", "-n", namespace, "-l", "metalplane.io/pod", "-o", "name"]).await?;
    let attachments = site.kubectl(&["get", "nicattachments", "-n", "metalplane-dpu-node-1", "-o", "name"]).await?;
    let holds = site.kubectl(&["get", "addressholds", "-o", "jsonpath={.items[*].spec.address}"]).await?;
    let holds = holds.split(' ').filter(|held| addresses.contains(held)).collect::<Vec<_>>().join(" ");
    let ours = site.network_devices(NODE).await?;
    let notes = site.pod_notes().await?.iter().map(|note| note["containerId"].to_string()).collect::<Vec<_>>();
    let all = [objects.trim(), attachments.trim(), &holds, &ours.join(" "), &notes.join(" ")].join(" ");
    Ok(Some(all.trim().to_owned()).filter(|all| !all.is_empty()))
}
