//! One machine gets to its end through everything that a BMC does wrong, and its guest notices nothing.

use super::machine::{BOOT, Machine, SOON};
use super::on_servers;
use anyhow::{Context, Result, ensure};
use sandbox::server::faults::Faults;
use tests::site::{Site, until};

const ALWAYS: u32 = 1_000_000;

#[test]
fn a_bmc_that_is_down_slow_lying_or_loses_answers_leads_to_no_second_start() {
    on_servers(&[1], "a_bmc_misbehaves", async |site, namespace| {
        let machine = Machine::on_first(site, namespace);
        let result = machine.told(life(site, &machine).await).await;
        machine.on().inject(Faults::default()).await?;
        result
    });
}

async fn life(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let (server, before) = (machine.on(), machine.power_actions()?.len());
    let printed = server.guest().printed().len();
    server.inject(Faults { down: true, ..Faults::default() }).await?;
    machine.apply().await?;
    machine.says("BmcUnreachable").await?;
    server.inject(Faults { status_503: ALWAYS, ..Faults::default() }).await?;
    machine.says("BmcFailed").await?;
    let right = password(site, machine).await?;
    set_password(site, machine, "d3Jvbmc=").await?;
    server.inject(Faults::default()).await?;
    let refused = machine.says("BmcUnauthorized").await;
    // Boot order and power-on are sent to one that answers after seconds, and then not at all.
    server.inject(Faults { slow_ms: 2000, lost_answer: 2, ..Faults::default() }).await?;
    set_password(site, machine, &right).await?;
    refused?;
    machine.wait_ready().await?;
    ensure!(
        machine.power_actions()?[before..] == ["On"],
        "it was started by {:?}",
        &machine.power_actions()?[before..]
    );
    let host = server.host()?.context("no host runs")?;

    // The lie that a host is off leads to switching it on, which nobody notices: it is on.
    let asked = server.actions()?.len();
    server.inject(Faults { wrong_state: Some("Off".to_owned()), ..Faults::default() }).await?;
    until("the host is told to be on", SOON, async || {
        Ok(if server.actions()?.len() > asked { Ok(()) } else { Err("no action was sent".to_owned()) })
    })
    .await?;
    server.inject(Faults::default()).await?;
    machine.wait_state("Running").await?;
    machine.wait_ready().await?;
    ensure!(server.host()?.as_ref() == Some(&host), "the host was started anew");
    ensure!(machine.power_actions()?[before..] == ["On"], "it was sent {:?}", &machine.power_actions()?[before..]);
    let boots = server.guest().printed()[printed..].matches("MP-SYSTEM").count();
    ensure!(boots == 1, "the guest has booted {boots} times");
    machine.guest().shell("cat /sys/block/nvme0n1/size", BOOT).await?;

    server.inject(Faults { lost_answer: 1, ..Faults::default() }).await?;
    machine.delete().await?;
    ensure!(server.host()?.is_none(), "the host still runs");
    Ok(())
}

async fn password(site: &Site, machine: &Machine<'_>) -> Result<String> {
    let secret = format!("{}-bmc", machine.hardware());
    let secret = site.get(&["secret", "-n", "metalplane-inventory", &secret]).await?.context("no Secret")?;
    secret["data"]["password"].as_str().map(str::to_owned).context("the Secret has no password")
}

async fn set_password(site: &Site, machine: &Machine<'_>, encoded: &str) -> Result<()> {
    let patch = format!(r#"{{"data":{{"password":"{encoded}"}}}}"#);
    let secret = format!("{}-bmc", machine.hardware());
    let patch = ["patch", "secret", &secret, "-n", "metalplane-inventory", "--type=merge", "-p", &patch];
    site.kubectl(&patch).await.map(drop)
}
