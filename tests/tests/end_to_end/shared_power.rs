//! A DPU that shares its host's power: off with it, on with it, and the host is reset once it has presented all. Its firmware lists what it
//! saw in its last POST, so it is reset into its setup first; and while there is no disk of the DPU to boot from OVMF boots nothing.
//!
//! The DPU that comes back in the end has the port of its last boot in its database, and a unit that takes the port out before the switch
//! forwards.

use super::machine::{Machine, SOON};
use super::on_servers;
use anyhow::{Context, Result, ensure};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tests::site::{Site, until};

#[test]
fn a_dpu_that_shares_its_hosts_power_boots_its_host_by_warm_resets() {
    on_servers(&[2], "a_dpu_shares_power", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        let dpu = machine.on().dpu();
        site.sandbox.power(&dpu, "off").await?;
        machine.on().rerack("shared-power", "Host").await?;
        let result = machine.told(life(site, &machine).await).await;
        let deleted = machine.kubectl(&["delete", "bmm", "--all", "--timeout=240s"]).await;
        machine.on().rerack("standby", "Standby").await?;
        let unit = Unit::order(site, &dpu)?;
        site.sandbox.power(&dpu, "on").await?;
        site.wait_for_workloads().await?;
        site.kubectl(&["wait", "--for=condition=Ready", &format!("dpu/{dpu}"), "--timeout=180s"]).await?;
        result.and(deleted.map(drop))?;
        unit.was_in_time(site, &dpu).await
    });
}

/// What runs between ovsdb-server and ovs-vswitchd; taken away when this is dropped.
struct Unit {
    program: PathBuf,
    /// The ports that it found.
    found: PathBuf,
}

impl Unit {
    fn order(site: &Site, dpu: &str) -> Result<Self> {
        let program = site.sandbox.layout().before_switch(dpu);
        let found = program.with_extension("ports");
        let lists = format!("ovs-vsctl --timeout=20 list-ports br-int >{}", found.display());
        let agent = tests::site::program("dpu-agent")?;
        let sanitizes =
            format!("{} --sanitize --node-name={dpu} --boot-id-file=/run/metalplane/boot-id", agent.display());
        std::fs::write(&program, format!("#!/bin/sh\nset -e\n{lists}\nexec {sanitizes}\n"))?;
        std::fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        Ok(Self { program, found })
    }

    async fn was_in_time(&self, site: &Site, dpu: &str) -> Result<()> {
        let found = std::fs::read_to_string(&self.found).context("the unit has not run")?;
        ensure!(found.lines().any(|port| port.starts_with("mp")), "there was no port of the boot before: {found}");
        let window = "jsonpath={.status.conditions[?(@.type=='BootWindow')]['status','reason']}";
        let window = site.kubectl(&["get", "dpu", dpu, "-o", window]).await?;
        ensure!(window == "False NothingForwarded", "a DPU whose ports were taken out in time tells '{window}'");
        Ok(())
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}

async fn is_parked(site: &Site, dpu: &str) -> Result<()> {
    until(&format!("{dpu} is parked"), SOON, async || {
        let conditions = site.get(&["dpu", dpu]).await?.unwrap_or_default()["status"]["conditions"].clone();
        let parked = conditions.as_array().into_iter().flatten().find(|c| c["type"] == "Parked");
        let seen = parked.map_or_else(|| "no condition".to_owned(), |c| format!("{} {}", c["status"], c["reason"]));
        Ok(if parked.is_some_and(|c| c["status"] == "True") { Ok(()) } else { Err(seen) })
    })
    .await
}

async fn life(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let (server, before) = (machine.on(), machine.power_actions()?.len());
    let dpu = server.dpu();
    is_parked(site, &dpu).await?;
    let boot = async || site.kubectl(&["get", "dpu", &dpu, "-o", "jsonpath={.status.bootID}"]).await;
    let (old, printed) = (boot().await?, machine.guest().printed().len());
    machine.apply().await?;
    machine.wait_ready().await?;
    ensure!(boot().await? != old, "the DPU did not start with its host");
    let sent = machine.power_actions()?.split_off(before);
    ensure!(sent == ["On", "ForceRestart", "ForceRestart"], "it was started by {sent:?}");
    machine.guest().line("OVMF is in its setup", printed, SOON, |line| line.contains("Boot Manager")).await?;
    boots_alone(machine, printed).await?;

    machine.bmctl(&["stop", machine.name, "--wait", "--timeout", "240s"]).await?;
    is_parked(site, &dpu).await?;
    machine.wait_state("Stopped").await?;
    // Its agent cannot say that it let go: that its host is off says so.
    machine.delete().await?;
    let namespace = format!("metalplane-dpu-{dpu}");
    let left = site.kubectl(&["get", "diskattachments,nicattachments", "-n", &namespace, "-o", "name"]).await?;
    ensure!(left.trim().is_empty(), "attachments are left: {left}");
    Ok(())
}

/// The guest boots, and before it the firmware has tried nothing: not the network, which is first in its factory order.
async fn boots_alone(machine: &Machine<'_>, from: usize) -> Result<()> {
    machine.guest().line("the guest boots", from, SOON, |line| line.contains("MP-BOOT")).await?;
    let printed = machine.guest().printed();
    let since = printed.get(from..).unwrap_or_default();
    let tried =
        since.lines().find(|line| ["PXE", "No bootable", "failed to load"].iter().any(|word| line.contains(word)));
    ensure!(tried.is_none(), "the firmware tried something else: {tried:?}");
    Ok(())
}
