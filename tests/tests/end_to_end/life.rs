//! A machine's whole life, as its user sees it.

use super::{IMAGE, on_site};
use anyhow::{Context, Result, ensure};
use std::time::Duration;
use tests::guest::Guest;
use tests::site::{Site, until};

/// A tiny guest is up in about ten seconds; the limit is for a busy machine.
const BOOT: Duration = Duration::from_secs(120);
const CHANGE: Duration = Duration::from_secs(30);

/// A machine of the tiny image with one interface.
pub(crate) fn manifest(namespace: &str, name: &str, address: &str) -> String {
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: blue, namespace: {namespace}}}
spec: {{cidr: 10.30.0.0/24}}
---
apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  readinessProbe: {{icmp: {{}}}}
  terminationGracePeriodSeconds: 5
  disks:
  - {{name: root, bootOrder: 1, source: {{image: {{kind: ClusterMachineImage, name: {IMAGE}}}}}}}
  interfaces:
  - {{name: eth0, subnet: blue, addresses: [{address}]}}
"
    )
}

pub(crate) async fn wait_ready(site: &Site, namespace: &str, name: &str) -> Result<()> {
    let wait = [
        "wait",
        "--for=condition=Ready",
        &format!("bmm/{name}"),
        "-n",
        namespace,
        &format!("--timeout={}s", BOOT.as_secs()),
    ];
    site.kubectl(&wait).await.map(drop)
}

/// The machine's status.
pub(crate) async fn status(site: &Site, namespace: &str, name: &str) -> Result<serde_json::Value> {
    let machine = site.get(&["bmm", name, "-n", namespace]).await?.context("the machine is gone")?;
    Ok(machine["status"].clone())
}

/// The console of the guest that the machine runs on.
pub(crate) async fn guest(site: &Site, namespace: &str, name: &str) -> Result<Guest> {
    let status = status(site, namespace, name).await?;
    let hardware = status["hardwareName"].as_str().context("no hardware is claimed")?.to_owned();
    Ok(Guest::new(site.sandbox.layout(), &hardware.replace("rack1-u0", "server-")))
}

#[test]
fn a_machine_boots_is_changed_while_it_runs_and_leaves_nothing() {
    on_site("a_machine_boots", async |site, namespace| {
        site.apply(&manifest(namespace, "bm-01", "10.30.0.7")).await?;
        wait_ready(site, namespace, "bm-01").await?;
        let guest = guest(site, namespace, "bm-01").await?;
        let seen = status(site, namespace, "bm-01").await?;
        ensure!(seen["state"] == "Running", "state is {}", seen["state"]);
        ensure!(seen["addresses"][0]["address"] == "10.30.0.7", "addresses are {}", seen["addresses"]);
        ensure!(guest.printed().contains("bm-01"), "the guest did not read its host name from the seed");

        let from = guest.printed().len();
        site.bmctl(&[
            "-n",
            namespace,
            "adddisk",
            "bm-01",
            "data",
            "--size",
            "64Mi",
            "--bus",
            "VirtioBlk",
            "--wait",
            "--timeout",
            "30s",
        ])
        .await?;
        guest
            .line("the guest sees the new disk", from, CHANGE, |line| {
                line.contains("MP-BLOCK") && line.contains("vda=131072")
            })
            .await?;
        let from = guest.printed().len();
        site.kubectl(&[
            "patch",
            "bmm",
            "bm-01",
            "-n",
            namespace,
            "--type=json",
            "-p",
            r#"[{"op":"replace","path":"/spec/disks/1/size","value":"128Mi"}]"#,
        ])
        .await?;
        guest.line("the guest sees the new size", from, CHANGE, |line| line.contains("vda=262144")).await?;
        let from = guest.printed().len();
        site.bmctl(&["-n", namespace, "removedisk", "bm-01", "data", "--wait", "--timeout", "30s"]).await?;
        guest
            .line("the guest lost the disk", from, CHANGE, |line| line.contains("MP-BLOCK") && !line.contains("vda"))
            .await?;
        let from = guest.printed().len();
        site.bmctl(&[
            "-n",
            namespace,
            "addinterface",
            "bm-01",
            "eth1",
            "--subnet",
            "blue",
            "--address",
            "10.30.0.8",
            "--wait",
            "--timeout",
            "30s",
        ])
        .await?;
        guest
            .line("the guest sees the new interface", from, CHANGE, |line| {
                line.contains("MP-NIC") && line.matches('=').count() >= 2
            })
            .await?;
        site.bmctl(&["-n", namespace, "removeinterface", "bm-01", "eth1", "--wait", "--timeout", "30s"]).await?;

        site.kubectl(&["delete", "bmm", "bm-01", "-n", namespace, "--timeout=60s"]).await?;
        nothing_is_left(site, namespace).await
    });
}

#[test]
fn a_machine_stops_and_starts() {
    on_site("a_machine_stops_and_starts", async |site, namespace| {
        site.apply(&manifest(namespace, "bm-02", "10.30.0.9")).await?;
        wait_ready(site, namespace, "bm-02").await?;
        site.bmctl(&["-n", namespace, "stop", "bm-02", "--wait", "--timeout", "60s"]).await?;
        ensure!(tests::site::running_guests(site)?.is_empty(), "the guest still runs");
        let seen = status(site, namespace, "bm-02").await?;
        ensure!(seen["state"] == "Stopped", "state is {}", seen["state"]);
        site.bmctl(&["-n", namespace, "start", "bm-02", "--wait", "--timeout", "120s"]).await?;
        wait_ready(site, namespace, "bm-02").await
    });
}

/// No attachment, no volume but golden ones, no switch port, no guest, and the hardware is free.
async fn nothing_is_left(site: &Site, namespace: &str) -> Result<()> {
    until("nothing is left of the machine", Duration::from_secs(30), async || {
        let mut left = Vec::new();
        for kind in ["diskattachments", "nicattachments", "vnics"] {
            left.extend(site.kubectl(&["get", kind, "-A", "-o", "name"]).await?.lines().map(str::to_owned));
        }
        let claims = site.kubectl(&["get", "pvc", "-n", namespace, "-o", "name"]).await?;
        // The claim of the disk that was taken out of the list is the user's now.
        left.extend(claims.lines().filter(|claim| !claim.ends_with("bm-01-data")).map(str::to_owned));
        let hardware = site.get(&["hardware", "-A"]).await?.unwrap_or_default().to_string();
        if hardware.contains("metalplane.io/claimed-by\"") {
            left.push("the claim of a Hardware".to_owned());
        }
        for node in site.sandbox.ready().nodes.iter().filter(|node| node.dpu) {
            let ports = site.enter(&node.name, &["ovs-vsctl", "list-ports", "br-int"]).await?;
            left.extend(ports.lines().filter(|port| port.starts_with("mp")).map(|port| format!("port {port}")));
        }
        left.extend(tests::site::running_guests(site)?.iter().map(|pid| format!("QEMU {pid}")));
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    })
    .await
}
