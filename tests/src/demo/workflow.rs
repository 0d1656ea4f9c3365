//! A server without a DPU: a Tinkerbell workflow installs it on its own disk, over the network; then it runs like any other machine.

use super::Story;
use super::watch::{self, Until};
use crate::site::{GuestKind, INVENTORY_NAMESPACE, Site, until};
use anyhow::{Result, ensure};
use sandbox::layout::{CONTROL_PLANE, Provisioned};
use std::time::Duration;

pub(super) const SERVER: &str = "server-3";
const MACHINE: &str = "bm-03";
const MANIFEST: &str = include_str!("../../../examples/bm-03-workflow.yaml");
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn rack(story: &Story, site: &Site) -> Result<()> {
    story.say("racking a third server: no DPU, an empty disk, a NIC on the provisioning network");
    site.rack_bare(SERVER).await
}

pub(super) async fn show(story: &Story, site: &Site) -> Result<()> {
    story.say("kubectl apply -f examples/bm-03-workflow.yaml (with the tiny image)");
    site.apply(&manifest(site).await?).await?;
    watch::machine(story, site, MACHINE, Until::Runs).await?;
    let address = Provisioned::of(SERVER)?.address.to_string();
    until(&format!("{address} answers"), LIMIT, async || {
        let asked = site.enter(CONTROL_PLANE, &["ping", "-c", "1", "-W", "1", &address]).await;
        Ok(asked.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await?;
    story.say(&format!("{address} answers ping: the system that was installed on the server's own disk"));
    println!("{}", site.bmctl(&["timeline", MACHINE]).await?);
    println!("{}", site.kubectl(&["get", "bmm"]).await?);
    story.say("kubectl get hwr: what network boot has seen of the server");
    println!("{}", site.kubectl(&["get", "hwr", "-n", INVENTORY_NAMESPACE]).await?);
    Ok(())
}

/// The example, with parameters of the tiny image instead of a Debian's.
async fn manifest(site: &Site) -> Result<String> {
    let (url, checksum, _) = site.golden_source(GuestKind::Tiny).await?;
    let ours = [
        ("http://images.example.com/debian-13.raw", url),
        ("sha256:0000000000000000000000000000000000000000000000000000000000000000", format!("sha256:{checksum}")),
        (r#"partition: "1""#, r#"partition: "2""#.to_owned()),
        ("/var/lib/cloud/seed/nocloud", "/seed".to_owned()),
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
