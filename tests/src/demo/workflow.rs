//! A server without a DPU: switched on, it is discovered; written down, a Tinkerbell workflow installs it on its own disk, over the network; then it runs like any other machine.

use super::watch::{self, Until};
use super::{BOOT_LIMIT, NAMESPACE, Story};
use crate::site::{GuestKind, INVENTORY_NAMESPACE, Site, until};
use anyhow::{Result, ensure};
use api::labels::UNAPPROVED;
use sandbox::layout::{CONTROL_PLANE, Provisioned};
use std::time::Duration;

pub(super) const SERVER: &str = "server-3";
const MACHINE: &str = "bm-03";
const HARDWARE: &str = "rack1-u03";
const NETBOOT_AWAITED: &str = "NetbootAwaited";
const SILENT: &str = "has not seen the server";
const INSTALLING: &str = "Installing";
const MANIFEST: &str = include_str!("../../../examples/bm-03-workflow.yaml");
/// Beside the chart's, which keeps what is on the disks.
const ERASES: &str = "apiVersion: metalplane.io/v1alpha1
kind: HardwarePolicy
metadata: {name: erases, namespace: metalplane-inventory}
spec:
  selector: {matchLabels: {metalplane.io/class: bare}}
  releasePolicy: {localDisks: Erase}
";
const LIMIT: Duration = Duration::from_secs(60);
/// Firmware, iPXE, kernel and the agent's first question, without KVM.
const DISCOVERED: Duration = Duration::from_secs(240);

pub(super) async fn rack(story: &Story, site: &Site) -> Result<()> {
    discovered(story, site).await?;
    story.say("writing it down as rack1-u03: with a fixed address, and what else no agent knows");
    site.rack_bare(SERVER).await
}

/// Nobody has written the server down: network boot finds out what it is, and an administrator says that it may be used.
async fn discovered(story: &Story, site: &Site) -> Result<()> {
    story.say(
        "a third server is switched on: no DPU, an empty disk, a NIC on the provisioning network, and in no inventory",
    );
    let hardware = format!("discovery-{}", Provisioned::of(SERVER)?.mac.replace(':', "-"));
    let bmc = site.rack_bmc(SERVER).await?;
    site.switch_on_from_network(SERVER).await?;
    until("the server is discovered", DISCOVERED, async || {
        let report = site.get(&["hwr", &hardware, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default();
        let told = report["status"]["conditions"][0]["type"] == "Approved";
        Ok(if told { Ok(()) } else { Err(report["status"].to_string()) })
    })
    .await?;
    story.say("kubectl get hw,hwr: its agent has told what it is, and nobody can claim it yet");
    println!("{}", site.kubectl(&["get", "hw,hwr", "-n", INVENTORY_NAMESPACE, "-L", UNAPPROVED]).await?);
    println!("{}", site.bmctl(&["hardware", "get", &hardware]).await?);
    story.say(&format!("bmctl hardware approve {hardware} --bmc {bmc}"));
    println!("{}", site.bmctl(&["hardware", "approve", &hardware, "--bmc", &bmc]).await?);
    site.switch_off(SERVER).await?;
    site.kubectl(&["delete", "-n", INVENTORY_NAMESPACE, &format!("hardware/{hardware}")]).await.map(drop)
}

pub(super) async fn show(story: &Story, site: &Site) -> Result<()> {
    let printed = site.server(SERVER).guest().printed().len();
    story.say("kubectl apply -f examples/bm-03-workflow.yaml (with the tiny image)");
    site.apply(&manifest(site).await?).await?;
    tokio::try_join!(watch::machine(story, site, MACHINE, Until::Runs), explained(story, site))?;
    answers(story, site, printed, "the system that was installed on the server's own disk").await?;
    println!("{}", site.bmctl(&["timeline", MACHINE]).await?);
    println!("{}", site.kubectl(&["get", "bmm"]).await?);
    story.say("kubectl get hwr: what network boot has seen of the server");
    println!("{}", site.kubectl(&["get", "hwr", "-n", INVENTORY_NAMESPACE]).await?);
    Ok(())
}

/// What takes minutes more: shown where this part alone is.
pub(super) async fn show_more(story: &Story, site: &Site) -> Result<()> {
    let printed = site.server(SERVER).guest().printed().len();
    story.say(&format!("bmctl reinstall {MACHINE} --yes --wait"));
    let limit = format!("{}s", BOOT_LIMIT.as_secs());
    println!("{}", site.bmctl(&["reinstall", MACHINE, "--yes", "--wait", "--timeout", &limit]).await?);
    watch::machine(story, site, MACHINE, Until::Runs).await?;
    answers(story, site, printed, "the system that was installed anew").await?;
    println!("{}", site.bmctl(&["timeline", MACHINE]).await?);

    story.say(
        "kubectl apply: a HardwarePolicy by which the disks of a server without a DPU are erased before it is released",
    );
    site.apply(ERASES).await?;
    story.say(&format!("kubectl delete bmm {MACHINE}"));
    site.kubectl(&["delete", "bmm", MACHINE, "-n", NAMESPACE, "--wait=false"]).await?;
    watch::until_gone(story, site, MACHINE).await?;
    story.say(&format!("bmctl hardware get {HARDWARE}: free again, and what was erased, and how that was checked"));
    println!("{}", site.bmctl(&["hardware", "get", HARDWARE]).await?);
    site.delete(ERASES).await.map(drop)
}

/// Asked in the middle of it: what is awaited, once the firmware has been heard.
async fn explained(story: &Story, site: &Site) -> Result<()> {
    until("its server has asked the network", DISCOVERED, async || {
        let machine = site.get(&["bmm", MACHINE]).await?.unwrap_or_default();
        let ready = watch::condition(&machine, "Ready");
        let is_silent = ready["message"].as_str().is_none_or(|message| message.contains(SILENT));
        let is_asked = ready["reason"] == INSTALLING || ready["reason"] == NETBOOT_AWAITED && !is_silent;
        Ok(if is_asked { Ok(()) } else { Err(ready.to_string()) })
    })
    .await?;
    story.say(&format!("bmctl explain {MACHINE}: what it waits for"));
    println!("{}", site.bmctl(&["explain", MACHINE]).await?);
    Ok(())
}

/// The installer answers at the same address until it restarts the server, and firmware hears no power button: a machine that is deleted
/// then is switched off only when its terminationGracePeriodSeconds have passed. So the console, from `printed` on, has to say first that
/// the installed system is up.
async fn answers(story: &Story, site: &Site, printed: usize, who: &str) -> Result<()> {
    let is_up = |line: &str| line.contains("MP-BOOT ") && line.contains(MACHINE);
    site.server(SERVER).guest().line("the installed system is up", printed, BOOT_LIMIT, is_up).await?;
    let address = Provisioned::of(SERVER)?.address.to_string();
    until(&format!("{address} answers"), LIMIT, async || {
        let asked = site.enter(CONTROL_PLANE, &["ping", "-c", "1", "-W", "1", &address]).await;
        Ok(asked.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await?;
    story.say(&format!("{address} answers ping: {who}"));
    Ok(())
}

/// The example, with parameters of the tiny image instead of a Debian's.
async fn manifest(site: &Site) -> Result<String> {
    let (url, checksum, _) = site.golden_source(GuestKind::Tiny).await?;
    let ours = [
        ("http://images.example.com/debian-13.raw", url),
        ("sha256:0000000000000000000000000000000000000000000000000000000000000000", format!("sha256:{checksum}")),
    ];
    ours.iter().try_fold(MANIFEST.to_owned(), |text, (of_the_example, ours)| {
        ensure!(text.contains(of_the_example), "examples/bm-03-workflow.yaml no longer has {of_the_example}");
        Ok(text.replace(of_the_example, ours))
    })
}

pub(super) async fn remove(site: &Site) -> Result<()> {
    site.delete(MANIFEST).await?;
    match site.bare_servers().is_empty() {
        true => Ok(()),
        false => site.unrack_bare(SERVER).await,
    }
}
