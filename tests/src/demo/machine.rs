//! A Debian from a cloud disk: from `kubectl apply` to its answer, then everything that can be done to it while it runs.

use super::watch::{self, Until};
use super::{BOOT_LIMIT, NAMESPACE, Story, hot_plug, report, rules, way_out};
use crate::guest::Guest;
use crate::site::{GuestKind, Place, Site};
use anyhow::{Context, Result};
use jiff::Timestamp;

pub(super) const MACHINE: &str = "bm-01";
/// The first one behind the gateway's, which is chosen.
pub(super) const ADDRESS: &str = "10.20.0.2";

pub(super) async fn image(story: &Story, site: &Site) -> Result<()> {
    story.say("golden image: a real Debian 12, imported as MachineImage debian-12 (built once, then cached)");
    site.golden_image(GuestKind::Debian, Some(NAMESPACE), "debian-12").await
}

pub(super) async fn show(story: &Story, site: &Site) -> Result<()> {
    story.say("kubectl apply -f examples/bm-01.yaml");
    let applied = Timestamp::now();
    site.apply(include_str!("../../../examples/bm-01.yaml")).await?;
    watch::machine(story, site, MACHINE, Until::Answers).await?;
    let dpu = dpu_of(site, MACHINE).await?;
    let answered = ping_from_the_other_dpu(story, site, &dpu).await?;
    let machine = site.get(&["bmm", MACHINE]).await?.context("the machine no longer exists")?;
    report::start(story, &machine, applied, answered)?;
    println!("{}", site.bmctl(&["timeline", MACHINE]).await?);
    println!("{}", site.kubectl(&["get", "bmm"]).await?);

    let guest = console_of(site, MACHINE).await?;
    story.say("waiting for the guest's console, to look from inside");
    guest.line("the guest has finished its boot", 0, BOOT_LIMIT, |line| line.contains("MP-BOOT")).await?;
    rules::show(story, site, &guest, &dpu).await?;
    hot_plug::show(story, site, &guest, &dpu).await?;
    way_out::show(story, site, &guest).await
}

async fn told(site: &Site, machine: &str, path: &str) -> Result<String> {
    site.kubectl(&["get", "bmm", machine, "-n", NAMESPACE, "-o", &format!("jsonpath={{.status.{path}}}")]).await
}

/// The DPU that presents the machine's disk.
pub(super) async fn dpu_of(site: &Site, machine: &str) -> Result<String> {
    told(site, machine, "disks[0].dpuName").await
}

/// Of the virtual server that the machine has claimed.
pub(super) async fn console_of(site: &Site, machine: &str) -> Result<Guest> {
    let hardware = told(site, machine, "hardwareName").await?;
    Ok(Guest::new(site.sandbox.layout(), &hardware.replace("rack1-u0", "server-")))
}

/// Asks from a logical port on the other DPU: the packets cross the tunnel between the two.
async fn ping_from_the_other_dpu(story: &Story, site: &Site, own: &str) -> Result<Timestamp> {
    let from = Place { namespace: NAMESPACE, subnet: "blue", addresses: &["10.20.0.250/24"] };
    let answered = site.ping_from_another_dpu(own, from, ADDRESS, BOOT_LIMIT).await?;
    story.say(&format!("{ADDRESS} answers ping from another DPU"));
    Ok(answered)
}
