//! The guest decides about power itself: it reboots, it powers itself off. On a server that would rather start something
//! else: an old system is on a disk of its own, and its BMC forgets the boot order at every start. At the end that disk is erased.

use super::erased::{is_reported, is_zero};
use super::machine::{BOOT, Machine, SOON, status};
use super::on_servers;
use anyhow::{Result, ensure};
use sandbox::cluster::servers::LOCAL_DISK;
use std::time::Duration;
use tests::site::{INVENTORY_NAMESPACE, Site, until};

/// A BMC is read every thirty seconds while nothing is awaited, so what it forgot is seen as late.
const SEEN: Duration = Duration::from_secs(240);

#[test]
fn a_guest_reboots_and_powers_itself_off_on_a_server_with_an_old_system() {
    on_servers(&[2], "a_guest_decides_about_power", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        machine.on().rerack("forgets-overrides", "Standby").await?;
        let result = machine.told(life(&machine).await).await;
        let deleted = machine.kubectl(&["delete", "bmm", "--all", "--timeout=240s"]).await;
        machine.on().rerack("standby", "Standby").await?;
        let unlabelled = ["label", "hardware", &machine.hardware(), "-n", INVENTORY_NAMESPACE, "example.com/disks-"];
        site.kubectl(&unlabelled).await?;
        result.and(deleted.map(drop))
    });
}

async fn life(machine: &Machine<'_>) -> Result<()> {
    let (server, guest) = (machine.on(), machine.guest());
    let (disk, actions) = (server.local_disk()?, machine.power_actions()?.len());
    let printed = guest.printed().len();
    let sent = || -> Result<Vec<String>> { Ok(machine.power_actions()?.split_off(actions)) };
    let booted = async |times: usize| {
        guest.line("the guest boots", printed, BOOT, |line| line.contains(&format!("boots={times}"))).await
    };
    machine.apply().await?;
    machine.wait_ready().await?;
    booted(1).await?;

    // Its own reboot is nobody's business but for the boot order, which this BMC has forgotten by then.
    let host = server.host()?;
    server.boots_from_the_slot(SEEN).await?;
    guest.order("reboot", BOOT).await?;
    booted(2).await?;
    server.boots_from_the_slot(SEEN).await?;
    machine.wait_ready().await?;
    ensure!(server.host()? == host && sent()? == ["On"], "a guest's reboot led to {:?}", sent()?);

    // Always: powered on again, and told.
    guest.order("poweroff", BOOT).await?;
    machine.tells("GuestPoweredOff").await?;
    booted(3).await?;
    machine.wait_ready().await?;
    ensure!(sent()? == ["On", "On"], "a guest's power-off led to {:?}", sent()?);

    // Halted, by us: off, and off it stays until somebody says otherwise.
    machine.bmctl(&["stop", machine.name, "--wait", "--timeout", "240s"]).await?;
    machine.wait_state("Stopped").await?;
    ensure!(server.host()?.is_none(), "the guest still runs");
    let stopped = sent()?.len();
    machine.bmctl(&["start", machine.name, "--wait", "--timeout", "300s"]).await?;
    booted(4).await?;
    machine.wait_ready().await?;
    ensure!(sent()?[stopped..] == ["On"], "stopped and started by {:?}", sent()?);

    // Manual: off, by itself, and off it stays.
    machine.patch(r#"{"spec":{"runStrategy":"Manual"}}"#).await?;
    let before = sent()?.len();
    guest.order("poweroff", BOOT).await?;
    machine.wait_state("Stopped").await?;
    machine.wait_ready().await?;
    ensure!(
        sent()?.len() == before && server.host()?.is_none(),
        "a guest's power-off was not respected: {:?}",
        sent()?
    );

    let said = guest.printed()[printed..].to_owned();
    ensure!(!said.contains("MP-SYSTEM old"), "the old system was started");
    ensure!(server.local_disk()? == disk, "the local disk was written to");
    ensure!(sent()?.len() == before, "it was switched on all the same: {:?}", sent()?);
    released(machine).await?;
    order_is_back(machine.site, machine).await
}

/// The old system does not survive: the policy of this server says so.
async fn released(machine: &Machine<'_>) -> Result<()> {
    let (site, server, hardware) = (machine.site, machine.on(), machine.hardware());
    let (disk, printed) = (server.folder().join(LOCAL_DISK), machine.guest().printed().len());
    ensure!(!is_zero(&disk)?, "a system is on the disk");
    site.apply(&policy()).await?;
    site.kubectl(&["label", "hardware", &hardware, "-n", INVENTORY_NAMESPACE, ERASES]).await?;
    machine.kubectl(&["delete", "bmm", machine.name, "--wait=false"]).await?;
    until("the machine says what its release waits for", BOOT, async || {
        let status = status(site, machine.namespace, machine.name).await?;
        let mut all = status["conditions"].as_array().into_iter().flatten();
        let is_told = all.any(|c| c["type"] == "Ready" && (c["reason"] == "EraserAwaited" || c["reason"] == "Erasing"));
        Ok(if is_told { Ok(()) } else { Err(status.to_string()) })
    })
    .await?;
    machine.guest().line("the eraser runs", printed, BOOT, |line| line.contains("erases 1 disks")).await?;
    machine.kubectl(&["wait", "--for=delete", &format!("bmm/{}", machine.name), "--timeout=300s"]).await?;
    ensure!(is_zero(&disk)?, "something is left on {}", disk.display());
    ensure!(server.host()?.is_none(), "the server is on");
    is_reported(site, &hardware, |serial| !serial.is_empty()).await?;
    let namespace = format!("metalplane-dpu-{}", server.dpu());
    let left = site.kubectl(&["get", "diskattachments", "-n", &namespace, "-o", "name"]).await?;
    ensure!(left.trim().is_empty(), "the eraser is left: {left}");
    site.kubectl(&["delete", "hardwarepolicy", "erases-local-disks", "-n", INVENTORY_NAMESPACE]).await.map(drop)
}

const ERASES: &str = "example.com/disks=erase";

/// Beside the chart's, which says Keep.
fn policy() -> String {
    format!(
        "
apiVersion: metalplane.io/v1alpha1
kind: HardwarePolicy
metadata: {{name: erases-local-disks, namespace: {INVENTORY_NAMESPACE}}}
spec:
  selector: {{matchLabels: {{example.com/disks: erase}}}}
  releasePolicy: {{localDisks: Erase}}
"
    )
}

/// What the factory starts first is first again.
async fn order_is_back(site: &Site, machine: &Machine<'_>) -> Result<()> {
    until("the boot order is what it was", SOON, async || {
        let order = site.server(machine.server).boot_order()?;
        Ok(if order.first().is_none_or(|first| first == "Boot0002") { Ok(()) } else { Err(order.join(", ")) })
    })
    .await
}
