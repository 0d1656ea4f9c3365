//! A server whose BMC takes an override for one boot, and whose firmware boots the disk all the same, is installed once more by
//! `bmctl reinstall`: the system of before runs, nothing is heard of it, and the next way is taken. And one that is installed by the ISO in the
//! virtual drive of its BMC. They take minutes by themselves, so `make judges JUDGE=pxe-boot` has them.

use super::machine::{self, BOOT, SOON};
use super::netboot::{HARDWARE, SERVER, answers, bare_machine, template};
use anyhow::{Result, ensure};
use api::labels;
use sandbox::preflight;
use sandbox::server::faults::Faults;
use std::time::Duration;
use tests::site::{INVENTORY_NAMESPACE, Site, until};

const LONG: &str = "LONG_TESTS";
/// As long as the BMC says that POST runs: a server's is not shorter.
const POST_S: u64 = 70;
/// POST, the time after it in which the network is not asked, and an installation.
const SECOND: Duration = Duration::from_secs(POST_S + 180 + 2 * BOOT.as_secs());

#[test]
fn a_bmc_that_boots_the_disk_all_the_same_is_asked_otherwise() {
    if runs("a_bmc_that_boots_the_disk_all_the_same_is_asked_otherwise") {
        super::on_servers(&[3], "ladder", reinstalled);
    }
}

#[test]
fn the_installers_iso_is_inserted_at_the_bmc_and_ejected() {
    if runs("the_installers_iso_is_inserted_at_the_bmc_and_ejected") {
        super::on_servers(&[3], "ladder-medium", installed_by_medium);
    }
}

fn runs(test: &str) -> bool {
    let runs = std::env::var_os(LONG).is_some();
    if !runs {
        eprintln!("SKIP ladder::{test}: `make judges JUDGE=pxe-boot` runs it ({LONG}=1)");
    }
    runs
}

/// An administrator says that it is the way which works.
async fn installed_by_medium(site: &Site, namespace: &str) -> Result<()> {
    let xorriso = match preflight::unpacked("xorriso", "xorriso").await {
        Ok(xorriso) => xorriso,
        Err(reason) => {
            eprintln!("SKIP ladder::the_installers_iso_is_inserted_at_the_bmc_and_ejected: {reason:#}");
            return Ok(());
        }
    };
    site.installer_cd(SERVER, xorriso).await?;
    site.rack_bare(SERVER).await?;
    let way = format!("{}=VirtualMedia", labels::NETBOOT_BY);
    site.kubectl(&["annotate", "hardware", HARDWARE, "-n", INVENTORY_NAMESPACE, &way]).await?;
    let console = site.server(SERVER).guest();
    let from = console.printed().len();
    site.apply(&format!("{}---{}", template(site, namespace).await?, bare_machine(namespace))).await?;
    machine::wait_ready(site, namespace, "bm-03").await?;
    answers(site).await?;
    let status = machine::status(site, namespace, "bm-03").await?;
    ensure!(status["power"]["netbootBy"] == "VirtualMedia", "{status}");
    let printed = console.printed();
    let printed = printed.get(from..).unwrap_or_default();
    ensure!(printed.contains("installer: ") && !printed.contains("iPXE"), "the network booted the server: {printed}");
    until("the medium is ejected", SOON, async || {
        let shown = site.virtual_drive(SERVER).await?;
        Ok(if shown["Inserted"] == false { Ok(()) } else { Err(shown.to_string()) })
    })
    .await?;
    let boot = site.boot_settings(SERVER).await?;
    ensure!(boot["BootSourceOverrideEnabled"] == "Disabled", "the override is left: {boot}");
    site.kubectl(&["delete", "bmm/bm-03", "-n", namespace]).await?;
    site.unrack_bare(SERVER).await
}

async fn reinstalled(site: &Site, namespace: &str) -> Result<()> {
    site.rack_bare(SERVER).await?;
    site.apply(&format!("{}---{}", template(site, namespace).await?, bare_machine(namespace))).await?;
    machine::wait_ready(site, namespace, "bm-03").await?;
    answers(site).await?;
    site.server(SERVER).inject(Faults { ignores_once: true, post_s: POST_S, ..Faults::default() }).await?;
    site.bmctl(&["reinstall", "bm-03", "-n", namespace, "--yes"]).await?;
    until("it is installed once more", SECOND, async || {
        let status = machine::status(site, namespace, "bm-03").await?;
        let is_done = status["install"]["number"] == 2 && status["install"]["phase"] == "Done";
        Ok(if is_done { Ok(()) } else { Err(status.to_string()) })
    })
    .await?;
    machine::wait_ready(site, namespace, "bm-03").await?;
    answers(site).await?;
    let status = machine::status(site, namespace, "bm-03").await?;
    ensure!(status["power"]["netbootBy"] == "Continuous", "{status}");
    let hardware = site.get(&["hardware", HARDWARE, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default();
    ensure!(hardware["metadata"]["annotations"][labels::NETBOOT_BY] == "Continuous", "{hardware}");
    until("the override is taken back", SOON, async || {
        let boot = site.boot_settings(SERVER).await?;
        Ok(if boot["BootSourceOverrideEnabled"] == "Disabled" { Ok(()) } else { Err(boot.to_string()) })
    })
    .await?;
    site.server(SERVER).inject(Faults::default()).await?;
    site.kubectl(&["delete", "bmm/bm-03", "-n", namespace]).await?;
    site.unrack_bare(SERVER).await
}
