//! A running machine, writing to its disk all the time, while everything around it is killed, and upgraded.

use super::stranger::Stranger;
use crate::machine::{BOOT, Machine, SOON};
use crate::on_site;
use anyhow::{Context, Result, ensure};
use sandbox::layout::NodeId;
use sandbox::supervisor::process::State;
use std::time::Duration;
use tests::site::{Place, Probe, Site, until};
use tokio::process::Command;

#[test]
fn a_running_machine_notices_nothing_of_what_is_killed_and_upgraded_around_it() {
    on_site("a_running_machine", async |site, namespace| {
        let machine = Machine::on_first(site, namespace);
        site.apply(&machine.in_both_families()).await?;
        machine.wait_ready().await?;
        machine.plug_a_disk("data").await?;
        let (actions, host) = (machine.power_actions()?, machine.on().host()?.context("no host runs")?);
        let guest = machine.guest();
        let printed = guest.printed().len();
        guest.order("mp-write /dev/vda &", BOOT).await?;
        guest.line("the guest writes", printed, SOON, |line| line.contains("MP-WRITE /dev/vda")).await?;

        let place = Place { namespace, subnet: "blue", addresses: &["10.30.0.251/24", "fd00:30::251/64"] };
        let probe = site.probe(&machine.on().dpu(), PROBE, place).await?;
        // First: a kubelet that has just started has no token for its pods yet, and starts none while there is no API server.
        away(site, &machine, &probe).await.context("the API server away, the agent killed")?;
        let stranger = Stranger::sends_to(&machine).await.context("a stranger")?;
        kubelet_and_switch(&machine, &probe).await.context("kubelet and Open vSwitch killed")?;
        chassis(&machine, &probe).await.context("ovn-controller and the switch's database killed")?;
        stranger.was_never_heard().await?;
        leaders(site, &machine).await.context("controller and kube-controller-manager killed")?;
        upgraded(site, &machine, &probe)
            .await
            .context("every pod of Metalplane replaced by helm, and once more by its rollback")?;
        site.remove_probe(&machine.on().dpu(), PROBE).await?;

        let printed = guest.printed().len();
        guest.order("touch /run/mp-write.stop", BOOT).await?;
        let end = guest.line("the guest stops writing", printed, SOON, |line| line.contains("MP-WRITE-END")).await?;
        ensure!(end.contains("errors=0"), "the guest met errors: {end}");
        ensure!(machine.power_actions()? == actions, "power actions were sent: {:?}", machine.power_actions()?);
        ensure!(machine.on().host()?.as_ref() == Some(&host), "the guest was started anew");
        handed_over(site, &machine).await
    });
}

/// The DPU's own among the guests.
const PROBE: &str = "probe0";

/// By either family.
async fn answers(machine: &Machine<'_>, probe: &Probe<'_>) -> Result<()> {
    for address in machine.both() {
        probe.hears(&address, SOON).await?;
    }
    Ok(())
}

async fn addresses(machine: &Machine<'_>, probe: &Probe<'_>) -> Result<()> {
    probe.configure().await?;
    machine.site.configure_switch(&machine.on().dpu()).await
}

async fn kubelet_and_switch(machine: &Machine<'_>, probe: &Probe<'_>) -> Result<()> {
    let (sandbox, dpu) = (&machine.site.sandbox, machine.on().dpu());
    answers(machine, probe).await?;
    for process in ["kubelet", "ovs-vswitchd"] {
        let process = format!("{dpu}/{process}");
        sandbox.kill_process(&process).await?;
        sandbox.start_process(&process).await?;
    }
    // The switch makes its own devices anew, without the addresses that somebody gave them.
    until("the switch is there again", SOON, async || {
        Ok(addresses(machine, probe).await.map_err(|error| format!("{error:#}")))
    })
    .await?;
    answers(machine, probe).await?;
    aborted(machine, probe).await?;
    machine.wait_ready().await
}

/// The flows stay while nobody is there who makes them, and are made anew after.
async fn chassis(machine: &Machine<'_>, probe: &Probe<'_>) -> Result<()> {
    let (sandbox, dpu) = (&machine.site.sandbox, machine.on().dpu());
    for process in ["ovn-controller", "ovsdb-server"].map(|process| format!("{dpu}/{process}")) {
        sandbox.kill_process(&process).await?;
        sandbox.start_process(&process).await?;
    }
    answers(machine, probe).await?;
    machine.wait_ready().await
}

/// As by an assertion of the switch's own: it comes back by itself, with its addresses.
async fn aborted(machine: &Machine<'_>, probe: &Probe<'_>) -> Result<()> {
    let (sandbox, dpu) = (&machine.site.sandbox, machine.on().dpu());
    let process = format!("{dpu}/ovs-vswitchd");
    let pid = async || {
        let all = sandbox.list().await?;
        let found = all.into_iter().find(|listed| listed.name == process).context("the switch is listed")?;
        anyhow::Ok(if let State::Running { pid } = found.state { Some(pid) } else { None })
    };
    let before = pid().await?.context("the switch runs")?;
    let sent = Command::new("kill").args(["-ABRT", &before.to_string()]).status().await;
    ensure!(sent.context("kill starts")?.success(), "the signal was sent");
    let tunnel = format!("{}/24", NodeId::parse(&dpu)?.tunnel_address());
    until("the switch is there by itself", SOON, async || {
        let back = pid().await?.is_some_and(|pid| pid != before);
        let told = machine.site.enter(&dpu, &["ip", "-br", "address", "show", "dev", "br-phy"]).await;
        let told = told.map_err(|error| format!("{error:#}"));
        Ok(told.and_then(|told| if back && told.contains(&tunnel) { Ok(()) } else { Err(told) }))
    })
    .await?;
    // The probe's own device is new too, and its address nobody's but this test's.
    until("the probe has its address", SOON, async || {
        Ok(probe.configure().await.map_err(|error| format!("{error:#}")))
    })
    .await?;
    answers(machine, probe).await
}

/// A minute without an API server, in which the agent dies as well: it comes back and takes nothing away.
async fn away(site: &Site, machine: &Machine<'_>, probe: &Probe<'_>) -> Result<()> {
    let (process, dpu) = ("control-plane/kube-apiserver", machine.on().dpu());
    site.sandbox.stop_process(process).await?;
    site.kill_agent(&dpu)?;
    tokio::time::sleep(Duration::from_secs(60)).await; // the fault itself: a minute without an API server
    let back = site.agent_is_back(&dpu, SOON).await;
    let answered = answers(machine, probe).await;
    // Whatever came of it: the other tests use the same API server.
    site.sandbox.start_process(process).await?;
    back.and(answered)?;
    until("the API server answers", SOON, async || {
        Ok(site.kubectl(&["get", "--raw", "/readyz"]).await.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await?;
    machine.plug_a_disk("after-outage").await
}

async fn leaders(site: &Site, machine: &Machine<'_>) -> Result<()> {
    site.kill_controller().await?;
    site.sandbox.kill_process("control-plane/kube-controller-manager").await?;
    site.sandbox.start_process("control-plane/kube-controller-manager").await?;
    machine.plug_a_disk("after-kill").await?;
    site.wait_for_workloads().await?;
    machine.wait_ready().await
}

/// What presents its disks and carries its packets is no part of a pod.
async fn upgraded(site: &Site, machine: &Machine<'_>, probe: &Probe<'_>) -> Result<()> {
    site.upgrade(&["logFormat=json"]).await.context("helm upgrade")?;
    answers(machine, probe).await?;
    machine.plug_a_disk("after-upgrade").await?;
    site.roll_back().await.context("helm rollback")?;
    answers(machine, probe).await?;
    machine.plug_a_disk("after-rollback").await?;
    machine.wait_ready().await
}

/// A second machine wants the same server: it waits, says for whom, and gets it when the first is gone. That goes at
/// once in the foreground, under a running host.
async fn handed_over(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let second = Machine { name: "second", address: "10.30.0.9", ..Machine::on_first(site, machine.namespace) };
    site.apply(&second.in_both_families().replace("spec:\n  hardware", "spec:\n  runStrategy: Halted\n  hardware"))
        .await?;
    let by = second.says("HardwareTaken").await?;
    ensure!(by.contains(&format!("{}/{}", machine.namespace, machine.name)), "it waits for whom? {by}");
    machine.kubectl(&["delete", "bmm", machine.name, "--cascade=foreground", "--timeout=240s"]).await?;
    // kube-controller-manager, which was started anew, lets go of the deleted claim in its own time.
    let root = format!("pvc/{}-root", machine.name);
    machine.kubectl(&["wait", "--for=delete", &root, "--timeout=120s"]).await.context("the boot volume is left")?;
    second.wait_state("Stopped").await?;
    second.delete().await
}
