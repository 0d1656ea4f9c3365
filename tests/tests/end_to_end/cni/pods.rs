//! Cases 11 to 15: pods that kubelet starts, by containerd and ptp.

use super::case;
use super::tool::SUBNET;
use crate::machine::SOON;
use crate::vpc_pods::{left, pod};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::site::{ORDINARY_NODE as NODE, Place, SYSTEM_NAMESPACE, Site, until};

const ADDRESS: &str = "10.30.0.41";
const SIX: &str = "fd00:30::41";
const AGENTS: &str = "daemonset/metalplane-node-agent";

/// By the annotation alone: the label is the chart's to add.
fn asking() -> String {
    let networks = json!([{"name": "net1", "subnet": "blue", "addresses": [ADDRESS, SIX]}]).to_string();
    format!("  annotations: {}\n", json!({"metalplane.io/networks": networks}))
}

async fn apply(site: &Site, namespace: &str, pods: &str) -> Result<()> {
    let limit = format!("--timeout={}s", SOON.as_secs());
    site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", namespace, &limit]).await?;
    site.apply_in(namespace, &format!("{SUBNET}{pods}")).await.map(drop)
}

async fn runs(site: &Site, namespace: &str, name: &str) -> Result<()> {
    let (pod, limit) = (format!("pod/{name}"), format!("--timeout={}s", SOON.as_secs()));
    site.kubectl(&["wait", "--for=condition=Ready", &pod, "-n", namespace, &limit]).await.map(drop)
}

async fn in_pod(site: &Site, namespace: &str, name: &str, args: &[&str]) -> Result<String> {
    site.pod(namespace, name).await?.enter(site, args).await
}

async fn delete(site: &Site, namespace: &str, name: &str) -> Result<()> {
    let limit = format!("--timeout={}s", SOON.as_secs());
    site.kubectl(&["delete", "pod", name, "-n", namespace, &limit]).await?;
    until("nothing of the pod is left", SOON, async || {
        Ok(left(site, namespace, &[ADDRESS, SIX]).await?.map_or(Ok(()), Err))
    })
    .await
}

#[test]
fn case_11_a_pod_is_up_and_reached_from_another_node() {
    case("reached", async |site, namespace| {
        apply(site, namespace, &pod(namespace, "member", &asking())).await?;
        runs(site, namespace, "member").await?;
        let shown = in_pod(site, namespace, "member", &["ip", "-brief", "address"]).await?;
        ensure!([ADDRESS, SIX].iter().all(|address| shown.contains(*address)) && shown.contains("eth0"), "{shown}");
        let place = Place { namespace, subnet: "blue", addresses: &["10.30.0.251/24", "fd00:30::251/64"] };
        let heard = async {
            let probe = site.probe("dpu-1", "judge", place).await?;
            for (own, probes) in [(ADDRESS, "10.30.0.251"), (SIX, "fd00:30::251")] {
                probe.hears(own, SOON).await?;
                in_pod(site, namespace, "member", &["ping", "-q", "-c", "1", "-W", "5", probes]).await?;
            }
            anyhow::Ok(())
        };
        let heard = heard.await;
        site.remove_probe("dpu-1", "judge").await?;
        heard?;
        delete(site, namespace, "member").await
    });
}

/// No agent runs on ordinary nodes until this ends.
async fn without_agent(site: &Site, test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let select = |none: Value| json!({"spec": {"template": {"spec": {"nodeSelector": {"judge": none}}}}}).to_string();
    let patch = async |none: Value| {
        site.kubectl(&["patch", AGENTS, "-n", SYSTEM_NAMESPACE, "--type=merge", "-p", &select(none)]).await.map(drop)
    };
    patch(json!("none")).await?;
    let gone = async {
        let selector = "app.kubernetes.io/component=node-agent";
        until("no agent runs", SOON, async || {
            let pods = site.kubectl(&["get", "pods", "-n", SYSTEM_NAMESPACE, "-l", selector, "-o", "name"]).await?;
            Ok(if pods.trim().is_empty() { Ok(()) } else { Err(pods) })
        })
        .await?;
        test().await
    };
    let tested = gone.await;
    patch(Value::Null).await?;
    site.kubectl(&["rollout", "status", AGENTS, "-n", SYSTEM_NAMESPACE, "--timeout=120s"]).await?;
    tested
}

#[test]
fn case_12_a_pod_that_asks_for_nothing_starts_without_the_agent() {
    case("quiet", async |site, namespace| {
        without_agent(site, async || {
            apply(site, namespace, &pod(namespace, "quiet", "")).await?;
            runs(site, namespace, "quiet").await
        })
        .await?;
        ensure!(site.pod_notes().await?.is_empty(), "the plugin noted something: {:?}", site.pod_notes().await?);
        Ok(())
    });
}

/// What kubelet and the controller have told of it.
async fn events(site: &Site, namespace: &str, name: &str) -> Result<String> {
    let of_it = format!("--field-selector=involvedObject.name={name}");
    let path = "jsonpath={range .items[*]}{.reason}: {.message}{.note}{'\\n'}{end}";
    site.kubectl(&["get", "events", "-n", namespace, &of_it, "-o", path]).await
}

#[test]
fn case_13_a_pod_that_asks_waits_for_the_agent_and_says_so() {
    case("waits", async |site, namespace| {
        without_agent(site, async || {
            apply(site, namespace, &pod(namespace, "member", &asking())).await?;
            until("the pod's Events name the reason", SOON, async || {
                let told = events(site, namespace, "member").await?;
                let is_typed = told.contains("AgentUnresponsive");
                Ok(if is_typed { Ok(()) } else { Err(told) })
            })
            .await?;
            let phase = ["get", "pod", "member", "-n", namespace, "-o", "jsonpath={.status.phase}"];
            ensure!(site.kubectl(&phase).await?.trim() == "Pending", "it waits");
            Ok(())
        })
        .await?;
        runs(site, namespace, "member").await.context("the agent is back")?;
        delete(site, namespace, "member").await
    });
}

/// MAC and addresses of net1, as the pod sees them.
async fn identity(site: &Site, namespace: &str) -> Result<String> {
    let shown = in_pod(site, namespace, "member", &["ip", "-json", "address", "show", "dev", "net1"]).await?;
    let shown: Value = serde_json::from_str(&shown).context("ip -json")?;
    let addresses = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
    let global = addresses.iter().filter(|address| address["scope"] == "global").map(|a| a["local"].clone());
    Ok(json!({"mac": shown[0]["address"], "addresses": global.collect::<Vec<_>>()}).to_string())
}

#[test]
fn case_14_a_new_sandbox_of_the_same_pod_keeps_mac_and_address() {
    case("sandbox", async |site, namespace| {
        apply(site, namespace, &pod(namespace, "member", &asking())).await?;
        runs(site, namespace, "member").await?;
        let (before, netns) = (identity(site, namespace).await?, site.pod(namespace, "member").await?.netns);
        ensure!(before.contains(ADDRESS) && before.contains(SIX), "{before}");
        let name = netns.rsplit('/').next().unwrap_or_default();
        let kill = format!("kill -KILL $(ip netns pids {name})");
        site.enter(NODE, &["sh", "-c", &kill]).await.context("kill the sandbox")?;
        until("the pod has another sandbox", SOON, async || {
            let now = site.pod(namespace, "member").await.map(|pod| pod.netns).unwrap_or_default();
            Ok(if now.is_empty() || now == netns { Err(now) } else { Ok(()) })
        })
        .await?;
        runs(site, namespace, "member").await?;
        let after = identity(site, namespace).await?;
        ensure!(before == after, "before {before}, after {after}");
        delete(site, namespace, "member").await
    });
}

#[test]
fn case_15_a_deleted_pod_leaves_nothing() {
    case("deleted", async |site, namespace| {
        apply(site, namespace, &pod(namespace, "member", &asking())).await?;
        runs(site, namespace, "member").await?;
        let vnic = ["get", "vnics", "-n", namespace, "-o", "jsonpath={.items[0].metadata.uid}"];
        let port = format!("mp-{}", site.kubectl(&vnic).await?.trim());
        let named = format!("name={port}");
        let find = ["ovn-nbctl", "--timeout=30", "--bare", "--columns=name", "find", "Logical_Switch_Port", &named];
        ensure!(site.enter("cp", &find).await?.trim() == port, "OVN has its port while it runs");
        delete(site, namespace, "member").await?;
        until("OVN has no port of it", SOON, async || {
            let rows = site.enter("cp", &find).await?;
            Ok(if rows.trim().is_empty() { Ok(()) } else { Err(rows) })
        })
        .await
    });
}
