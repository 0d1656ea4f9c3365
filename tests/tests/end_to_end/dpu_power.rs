//! A DPU with a BMC of its own, on which it reads off: what it held is free, without anybody's word.

use super::machine::{Machine, SOON};
use super::on_servers;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::site::{HELD_CLASS, HELD_MANIFEST, Site, until};

/// The host stays off: what is asked is who may write.
#[test]
fn a_dpu_that_its_own_bmc_reads_off_gives_its_volumes_up() {
    on_servers(&[2], "a_dpu_read_off", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        let dpu = machine.on().dpu();
        site.name_dpu_bmc(&dpu, Some(&machine.hardware())).await?;
        let result = machine.told(life(site, &machine).await).await;
        site.sandbox.power(&dpu, "on").await?;
        site.wait_for_workloads().await?;
        let object = format!("dpu/{dpu}");
        site.kubectl(&["wait", "--for=condition=Ready", &object, "--timeout=180s"]).await?;
        site.name_dpu_bmc(&dpu, None).await?;
        // Open vSwitch had the port of the boot before in its database, and forwarded there until the agent took that out.
        let window = "jsonpath={.status.conditions[?(@.type=='BootWindow')]['status','message']}";
        let window = site.kubectl(&["get", &object, "-o", window]).await?;
        ensure!(result.is_err() || window.starts_with("True "), "a DPU that came back with a port tells '{window}'");
        result
    });
}

async fn life(site: &Site, machine: &Machine<'_>) -> Result<()> {
    // Of a volume that nobody can refuse it.
    site.apply(HELD_MANIFEST).await?;
    machine.apply_own_claim(HELD_CLASS).await?;
    let halted = machine.manifest().replace("spec:\n  hardware", "spec:\n  runStrategy: Halted\n  hardware");
    site.apply(&Machine::with_own_disk(&halted)).await?;
    until("the disk is presented", SOON, async || {
        let disks = machine.object().await?["status"]["disks"].as_array().cloned().unwrap_or_default();
        let attached = disks.iter().any(|disk| disk["name"] == "data" && disk["phase"] == "Attached");
        Ok(if attached { Ok(()) } else { Err(Value::from(disks).to_string()) })
    })
    .await?;
    site.sandbox.power(&machine.on().dpu(), "off").await?;
    machine.delete().await?;
    let volume = machine.kubectl(&["get", "pvc", "mine", "-o", "jsonpath={.spec.volumeName}"]).await?;
    let holds = site.get(&["volumeholds"]).await?.unwrap_or_default();
    let mut holds = holds["items"].as_array().cloned().unwrap_or_default().into_iter();
    let hold = holds.find(|hold| hold["spec"]["persistentVolumeName"] == volume.as_str()).context("no hold is left")?;
    ensure!(hold["spec"]["holder"].is_null(), "the volume is held: {hold}");
    ensure!(hold["spec"]["fences"][0]["proof"] == "DpuPoweredOff", "how it was fenced: {hold}");
    Ok(())
}
