//! The boot service as the chart ships it for two nodes: kubelets run its StatefulSet in the nodes' own network, one replica on each. Both
//! answer; when one is deleted, and while helm changes both, the provisioning network is served by at least one.

use super::machine::{SOON, SOON_FLAG};
use super::netboot::SERVER;
use anyhow::{Context, Result, ensure};
use sandbox::layout::{CONTROL_PLANE, NodeId, Provisioned};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use tests::site::{Answered, BootClient, ORDINARY_NODE, SYSTEM_NAMESPACE, Site, until};
use tokio::time::Instant;

/// The second node: one with a kubelet, and for this test with a leg in the provisioning network.
const NODE: &str = "dpu-2";
/// Of the second replica.
const POD: &str = "metalplane-boot-1";
/// Of no other program on either node.
const METRICS: u16 = 9767;

#[test]
fn two_replicas_of_the_boot_service_serve_a_network_and_one_at_a_time_is_replaced() {
    super::on_servers(&[2, 3], "boot_replicas", replaced);
}

async fn replaced(site: &Site, _: &str) -> Result<()> {
    site.rack_bare(SERVER).await?;
    let addresses = site.second_boot_node(NODE).await?;
    let served = Box::pin(served(site, addresses)).await;
    // Whether it was served or not: the next test of a server without a DPU has one replica again.
    let alone = alone_again(site, addresses[0]).await;
    site.unrack_bare(SERVER).await?;
    served.and(alone)
}

async fn alone_again(site: &Site, address: Ipv4Addr) -> Result<()> {
    // First, for the replica that stays has the address of its own node.
    site.no_boot_node(NODE).await?;
    site.change_boot(&[&format!("boot.addresses={{{address}}}"), "boot.metricsPort=0"]).await?;
    let limit = format!("--timeout={SOON_FLAG}");
    site.kubectl(&["rollout", "status", "statefulset/metalplane-boot", "-n", SYSTEM_NAMESPACE, &limit]).await?;
    site.kubectl(&["wait", "--for=delete", &format!("pod/{POD}"), "-n", SYSTEM_NAMESPACE, &limit]).await?;
    site.no_provisioning_leg(NODE).await
}

async fn served(site: &Site, addresses: [Ipv4Addr; 2]) -> Result<()> {
    let own = Provisioned::of(SERVER)?.address;
    let both = Answered {
        dhcp: addresses.map(|replica| (replica, own)).into(),
        http: addresses.into(),
        tftp: addresses.into(),
    };
    let mut network = Network { site, both, client: BootClient::of(site, SERVER, addresses).await? };
    let one = Answered { dhcp: [(addresses[0], own)].into(), http: [addresses[0]].into(), tftp: [addresses[0]].into() };
    until("one replica serves the server, as ever", SOON, async || {
        let answered = network.client.answered().await?;
        Ok(if answered == one { Ok(()) } else { Err(format!("{answered:?}")) })
    })
    .await?;

    let two = format!("boot.addresses={{{},{}}}", addresses[0], addresses[1]);
    site.change_boot(&[&two]).await?;
    network.is_served_until("two replicas are ready", is_complete).await?;
    let pods = pods(site).await?;
    let nodes: BTreeSet<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    ensure!(nodes == BTreeSet::from([ORDINARY_NODE, NODE]), "one on each node: {nodes:?}");
    until("a drain may end one of them", SOON, async || {
        let budget = site.get(&["pdb", "metalplane-boot", "-n", SYSTEM_NAMESPACE]).await?.context("a budget")?;
        let allowed = budget["status"]["disruptionsAllowed"] == 1;
        Ok(if allowed { Ok(()) } else { Err(budget["status"].to_string()) })
    })
    .await?;

    deleted(site, &mut network).await?;
    let (before, metrics) = (uids(site).await?, format!("boot.metricsPort={METRICS}"));
    site.change_boot(&[&metrics]).await?;
    network.is_served_until("both replicas have the new value", is_complete).await?;
    let after = uids(site).await?;
    ensure!(after.len() == 2 && before.is_disjoint(&after), "each was replaced: {before:?}, {after:?}");
    for node in [ORDINARY_NODE, NODE] {
        let url = format!("http://{}:{METRICS}/metrics", NodeId::parse(node)?.address());
        let numbers = site.enter(CONTROL_PLANE, &["curl", "-sf", "--max-time", "5", &url]).await?;
        ensure!(numbers.contains("metalplane_boot_"), "the numbers of the replica on {node}: {numbers}");
    }
    Ok(())
}

/// Nobody has drained its node: kubelet ends it, and the StatefulSet makes it anew.
async fn deleted(site: &Site, network: &mut Network<'_>) -> Result<()> {
    let pods = pods(site).await?;
    let pod = pods.iter().find(|pod| pod["metadata"]["name"] == POD).context("the second replica's pod")?;
    let (uid, node) = (pod["metadata"]["uid"].clone(), pod["spec"]["nodeName"].clone());
    let replica = NodeId::parse(node.as_str().unwrap_or_default())?.provisioning_address();
    site.kubectl(&["delete", "pod", POD, "-n", SYSTEM_NAMESPACE, "--wait=false"]).await?;
    let other: BTreeSet<Ipv4Addr> = network.both.http.iter().copied().filter(|own| *own != replica).collect();
    let was_alone = network
        .is_served_until("the replica is back under its name", async |site: &Site| {
            let pod = site.get(&["pod", POD, "-n", SYSTEM_NAMESPACE]).await?.unwrap_or_default();
            let is_ready = is_true(&pod, "Ready") && pod["metadata"]["uid"] != uid;
            Ok(if is_ready { Ok(()) } else { Err(pod["status"].to_string()) })
        })
        .await?;
    ensure!(was_alone.contains(&other), "the other replica answered while this one was away: {was_alone:?}");
    Ok(())
}

struct Network<'a> {
    site: &'a Site,
    client: BootClient<'a>,
    /// What there is when both answer.
    both: Answered,
}

impl Network<'_> {
    /// That at least one replica answers by each protocol, until `done` and both do. Which replicas have answered one protocol together meanwhile.
    async fn is_served_until(
        &mut self,
        awaited: &str,
        done: impl AsyncFn(&Site) -> Result<Result<(), String>>,
    ) -> Result<BTreeSet<BTreeSet<Ipv4Addr>>> {
        let deadline = Instant::now() + SOON;
        let mut together = BTreeSet::new();
        loop {
            let answered = self.client.answered().await?;
            let Answered { dhcp, http, tftp } = &answered;
            ensure!(
                !dhcp.is_empty() && !http.is_empty() && !tftp.is_empty(),
                "{awaited}: nobody answers: {answered:?}"
            );
            ensure!(dhcp.is_subset(&self.both.dhcp), "an offer of another address: {answered:?}");
            together.extend([http.clone(), tftp.clone(), dhcp.iter().map(|(replica, _)| *replica).collect()]);
            let seen = done(self.site).await?;
            if seen.is_ok() && answered == self.both {
                return Ok(together);
            }
            ensure!(Instant::now() < deadline, "{awaited}: not within {} s: {seen:?}, {answered:?}", SOON.as_secs());
        }
    }
}

/// Every pod is of the newest template, and ready.
async fn is_complete(site: &Site) -> Result<Result<(), String>> {
    let set = site.boot_set().await?;
    let status = &set["status"];
    let all = ["replicas", "updatedReplicas", "readyReplicas"].iter().all(|field| status[*field] == 2);
    let is_told = status["observedGeneration"] == set["metadata"]["generation"];
    let is_new = status["currentRevision"] == status["updateRevision"];
    Ok(if all && is_told && is_new { Ok(()) } else { Err(status.to_string()) })
}

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

async fn pods(site: &Site) -> Result<Vec<Value>> {
    let label = "app.kubernetes.io/component=boot";
    let list = site.get(&["pods", "-n", SYSTEM_NAMESPACE, "-l", label]).await?.unwrap_or_default();
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

async fn uids(site: &Site) -> Result<BTreeSet<String>> {
    Ok(pods(site).await?.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect())
}
