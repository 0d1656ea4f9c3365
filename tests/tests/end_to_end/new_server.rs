//! A server whose firmware has not seen the disk of its DPU yet: OVMF enters its setup once, and boots from the disk then.

use super::machine::{Machine, SOON};
use super::on_servers;
use anyhow::{Result, ensure};
use tests::site::Site;

#[test]
fn a_new_server_is_started_into_its_setup_once_and_boots() {
    on_servers(&[2], "a_new_server", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        machine.on().rerack("edgeline", "Standby").await?;
        let result = machine.told(life(site, &machine).await).await;
        let deleted = machine.kubectl(&["delete", "bmm", "--all", "--timeout=240s"]).await;
        machine.on().rerack("standby", "Standby").await?;
        let dpu = format!("dpu/{}", machine.on().dpu());
        site.kubectl(&["wait", "--for=condition=Ready", &dpu, "--timeout=180s"]).await?;
        result.and(deleted.map(drop))
    });
}

async fn life(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let (before, printed) = (machine.power_actions()?.len(), machine.guest().printed().len());
    machine.apply().await?;
    let (name, limit) = (format!("bmm/{}", machine.name), format!("--timeout={}s", SOON.as_secs()));
    let awaited = "--for=jsonpath={.status.conditions[?(@.type=='BootConfigured')].reason}=BootOptionAwaited";
    site.kubectl(&["wait", awaited, &name, "-n", machine.namespace, &limit]).await?;
    machine.guest().line("OVMF is in its setup", printed, SOON, |line| line.contains("Boot Manager")).await?;
    machine.wait_ready().await?;
    let sent = machine.power_actions()?.split_off(before);
    ensure!(sent == ["On", "ForceOff", "On"], "it was started by {sent:?}");
    machine.guest().line("the guest boots", printed, SOON, |line| line.contains("MP-BOOT")).await.map(drop)
}
