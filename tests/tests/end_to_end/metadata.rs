//! A machine without a cloud-init disk: its guest asks at the metadata address, which its DPU answers.

use super::machine::{BOOT, Machine, SOON};
use super::on_servers;
use anyhow::{Context, Result, ensure};
use tests::site::Site;

/// Where a guest of one NIC asks.
const ADDRESSES: [&str; 2] = ["169.254.169.254", "fe80::a9fe:a9fe%eth0"];
const SECRET: &str = "only-this-guest-knows-8f2c";

fn manifest(machine: &Machine<'_>) -> String {
    let (namespace, plain) = (machine.namespace, machine.in_both_families());
    let cloud_init =
        "  cloudInit: {source: Metadata, userDataSecretRef: {name: told}, sshPublicKeys: ['ssh-ed25519 AAAA a@b']}\n";
    let spec = plain.replacen("  disks:\n", &format!("{cloud_init}  disks:\n"), 1);
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: told, namespace: {namespace}}}
stringData: {{userData: \"#!/bin/sh {SECRET}\"}}
---
{spec}"
    )
}

#[test]
fn a_guest_is_told_about_itself_at_the_metadata_address() {
    on_servers(&[1], "metadata", async |site, namespace| {
        let machine = Machine::on_first(site, namespace);
        let console = machine.guest();
        let from = console.printed().len();
        site.apply(&manifest(&machine)).await?;
        machine.wait_ready().await?;
        let says = async |what: &str, mark: &str| console.line(what, from, BOOT, |line| line.contains(mark)).await;
        let told = says("the guest was told at the metadata address", "MP-METADATA ").await?;
        ensure!(told.contains(SECRET), "user data: {told}");
        let booted = says("the guest has booted", "MP-BOOT ").await?;
        ensure!(booted.trim().ends_with(&format!(" {}", machine.name)), "its name: {booted}");
        let dpu = format!("metalplane-dpu-{}", machine.on().dpu());
        let disks = site.get(&["diskattachments", "-n", &dpu]).await?.context("a list")?.to_string();
        ensure!(!disks.contains("cloud-init.seed"), "there is a cloud-init disk: {disks}");
        let usable = "while ip -6 addr show dev eth0 | grep -q tentative; do sleep 1; done; ip -6 addr show dev eth0";
        let has = machine.guest().shell(usable, SOON).await?;
        ensure!(has.contains("inet6 fe80::"), "an address of the link: {has}");
        for address in ADDRESSES {
            session_token(&machine, address).await.with_context(|| format!("at {address}"))?;
        }
        said_nowhere(site, &machine).await
    });
}

/// busybox knows no PUT: its wget's place is taken by nc.
async fn session_token(machine: &Machine<'_>, address: &str) -> Result<()> {
    let console = machine.guest();
    // The answer's last line has no end of its own.
    let ask = |request: &str| format!("printf '{request}\\r\\n\\r\\n' | nc -w 5 {address} 80 | tail -n 1; echo");
    let put = "PUT /latest/api/token HTTP/1.1\\r\\nX-aws-ec2-metadata-token-ttl-seconds: 60";
    let answered = console.shell(&ask(put), SOON).await?;
    let is_token = |word: &&str| word.len() == 64 && word.chars().all(|digit| digit.is_ascii_hexdigit());
    let token = answered.split_whitespace().find(is_token).with_context(|| format!("no token: {answered}"))?;
    let get = |token: &str| {
        ask(&format!("GET /latest/meta-data/public-keys/0/openssh-key HTTP/1.1\\r\\nX-aws-ec2-metadata-token: {token}"))
    };
    let key = console.shell(&get(token), SOON).await?;
    ensure!(key.contains("ssh-ed25519 AAAA a@b"), "its key: {key}");
    let refused = console.shell(&get("another"), SOON).await?;
    ensure!(!refused.contains("AAAA"), "a token that is none: {refused}");
    Ok(())
}

/// User data is in Secrets, and nowhere else that somebody may read: not in objects, events, or the logs of the agents.
async fn said_nowhere(site: &Site, machine: &Machine<'_>) -> Result<()> {
    for kind in ["bmm", "vnics", "events"] {
        let all = site.get(&[kind, "-n", machine.namespace]).await?.map(|all| all.to_string()).unwrap_or_default();
        ensure!(!all.contains(SECRET), "{kind} tell the user data");
    }
    let attachments = site.get(&["nicattachments", "-A"]).await?.map(|all| all.to_string()).unwrap_or_default();
    ensure!(!attachments.contains(SECRET), "NicAttachments tell the user data");
    let pods = site.sandbox.layout().node_dir(&machine.on().dpu()).join("log/pods");
    let mut read = 0;
    for pod in std::fs::read_dir(&pods).with_context(|| format!("read {}", pods.display()))? {
        let container = pod?.path().join("dpu-agent");
        for log in std::fs::read_dir(&container).into_iter().flatten() {
            let log = log?.path();
            let text = std::fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
            ensure!(!text.contains(SECRET), "{} tells the user data", log.display());
            read += 1;
        }
    }
    ensure!(read > 0, "no log of the agent below {}", pods.display());
    Ok(())
}
