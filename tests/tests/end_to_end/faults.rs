//! One fault of each kind on real parts: what is awaited can be read, and when the fault ends the machine gets there.

use super::life::{guest, manifest, status, wait_ready};
use super::on_site;
use anyhow::{Context, Result, ensure};
use std::time::Duration;
use tests::site::{SYSTEM_NAMESPACE, Site, until};

const SOON: Duration = Duration::from_secs(40);

/// Waits until Ready is not true for this reason.
async fn waits_for(site: &Site, namespace: &str, name: &str, reason: &str) -> Result<()> {
    until(&format!("{name} says {reason}"), SOON, async || {
        let conditions = status(site, namespace, name).await.unwrap_or_default()["conditions"].clone();
        let said: Vec<&str> =
            conditions.as_array().into_iter().flatten().filter_map(|c| c["reason"].as_str()).collect();
        Ok(if said.contains(&reason) { Ok(()) } else { Err(said.join(", ")) })
    })
    .await
}

/// A change that is carried out: the machine is still led.
async fn plug_a_disk(site: &Site, namespace: &str, limit: &str) -> Result<()> {
    let add = ["adddisk", "bm", "data", "--size", "64Mi", "--bus", "VirtioBlk", "--wait", "--timeout", limit];
    site.bmctl(&[&["-n", namespace], add.as_slice()].concat()).await.map(drop)
}

/// How often each server was sent a power action, over all its life.
fn power_actions(site: &Site) -> usize {
    let servers = site.sandbox.ready().servers.iter();
    let logs = servers.map(|server| site.sandbox.layout().server_dir(&server.name).join("actions.jsonl"));
    logs.filter_map(|log| std::fs::read_to_string(log).ok()).map(|text| text.lines().count()).sum()
}

#[test]
fn a_golden_image_that_does_not_exist_is_named_and_awaited() {
    on_site("an_image_that_does_not_exist", async |site, namespace| {
        site.apply(&manifest(namespace, "bm", "10.30.0.7").replace("name: tiny", "name: none-such")).await?;
        waits_for(site, namespace, "bm", "ImageMissing").await?;
        let explained = site.bmctl(&["-n", namespace, "explain", "bm"]).await?;
        ensure!(explained.contains("none-such"), "bmctl explain does not name the image:\n{explained}");
        Ok(())
    });
}

#[test]
fn a_volume_that_is_too_small_says_what_to_write() {
    on_site("a_volume_too_small", async |site, namespace| {
        site.apply(&manifest(namespace, "bm", "10.30.0.7").replace("bootOrder: 1,", "bootOrder: 1, size: 1Mi,"))
            .await?;
        waits_for(site, namespace, "bm", "VolumeTooSmall").await
    });
}

#[test]
fn a_claim_that_never_binds_is_named_with_its_class() {
    on_site("a_claim_that_never_binds", async |site, namespace| {
        let class = "bootOrder: 1, storageClassName: none-such,";
        site.apply(&manifest(namespace, "bm", "10.30.0.7").replace("bootOrder: 1,", class)).await?;
        waits_for(site, namespace, "bm", "ClaimPending").await?;
        let explained = site.bmctl(&["-n", namespace, "explain", "bm"]).await?;
        ensure!(explained.contains("none-such"), "bmctl explain does not name the class:\n{explained}");
        Ok(())
    });
}

#[test]
fn a_second_machine_that_wants_the_same_hardware_waits_and_says_for_whom() {
    on_site("the_same_hardware_twice", async |site, namespace| {
        let on = |name: &str, address: &str| {
            let text = manifest(namespace, name, address);
            text.replace("  readinessProbe", "  hardware: {name: rack1-u01}\n  readinessProbe")
        };
        site.apply(&on("first", "10.30.0.7")).await?;
        wait_ready(site, namespace, "first").await?;
        site.apply(&on("second", "10.30.0.8")).await?;
        waits_for(site, namespace, "second", "HardwareTaken").await?;
        site.kubectl(&["delete", "bmm", "first", "-n", namespace, "--timeout=60s"]).await?;
        wait_ready(site, namespace, "second").await
    });
}

#[test]
fn the_agent_and_the_controller_are_killed_under_a_running_machine_without_a_power_action() {
    on_site("killed_under_a_running_machine", async |site, namespace| {
        site.apply(&manifest(namespace, "bm", "10.30.0.7")).await?;
        wait_ready(site, namespace, "bm").await?;
        let (before, guests) = (power_actions(site), tests::site::running_guests(site)?);
        for component in ["dpu-agent", "controller"] {
            let selector = format!("app.kubernetes.io/component={component}");
            site.kubectl(&[
                "delete",
                "pod",
                "-n",
                SYSTEM_NAMESPACE,
                "-l",
                &selector,
                "--grace-period=0",
                "--force",
                "--timeout=60s",
            ])
            .await?;
        }
        site.wait_for_workloads().await?;
        plug_a_disk(site, namespace, "60s").await?;
        ensure!(power_actions(site) == before, "a power action was sent");
        ensure!(tests::site::running_guests(site)? == guests, "the guest was started anew");
        guest(site, namespace, "bm").await?.shell("cat /sys/block/nvme0n1/size", SOON).await.map(drop)
    });
}

#[test]
fn the_api_server_is_away_while_a_machine_runs() {
    on_site("the_api_server_is_away", async |site, namespace| {
        site.apply(&manifest(namespace, "bm", "10.30.0.7")).await?;
        wait_ready(site, namespace, "bm").await?;
        let (before, guests) = (power_actions(site), tests::site::running_guests(site)?);
        let process = "control-plane/kube-apiserver";
        site.sandbox.stop_process(process).await?;
        tokio::time::sleep(Duration::from_secs(60)).await; // the fault itself: a minute without an API server
        site.sandbox.start_process(process).await?;
        until("the API server answers", SOON, async || {
            Ok(site.kubectl(&["get", "--raw", "/readyz"]).await.map(drop).map_err(|error| format!("{error:#}")))
        })
        .await?;
        plug_a_disk(site, namespace, "180s").await?;
        ensure!(power_actions(site) == before, "a power action was sent");
        ensure!(tests::site::running_guests(site)? == guests, "the guest was started anew");
        Ok(())
    });
}

#[test]
fn a_bmc_that_refuses_the_password_is_named_and_read_again_when_the_secret_is_right() {
    on_site("a_wrong_bmc_password", async |site, namespace| {
        let secret = ["get", "secret", "-n", "metalplane-inventory", "-o", "json", "rack1-u01-bmc"];
        let right: serde_json::Value = serde_json::from_str(&site.kubectl(&secret).await?)?;
        let right = right["data"]["password"].as_str().context("the Secret has no password")?.to_owned();
        let set = async |password: &str| {
            let patch = format!(r#"{{"data":{{"password":"{password}"}}}}"#);
            site.kubectl(&[
                "patch",
                "secret",
                "rack1-u01-bmc",
                "-n",
                "metalplane-inventory",
                "--type=merge",
                "-p",
                &patch,
            ])
            .await
        };
        set("d3Jvbmc=").await?;
        let text = manifest(namespace, "bm", "10.30.0.7")
            .replace("  readinessProbe", "  hardware: {name: rack1-u01}\n  readinessProbe");
        site.apply(&text).await?;
        let refused = waits_for(site, namespace, "bm", "BmcUnauthorized").await;
        set(&right).await?;
        refused?;
        wait_ready(site, namespace, "bm").await
    });
}

#[test]
fn a_deletion_in_the_foreground_takes_no_disk_from_a_running_host() {
    on_site("deleted_in_the_foreground", async |site, namespace| {
        site.apply(&manifest(namespace, "bm", "10.30.0.7")).await?;
        wait_ready(site, namespace, "bm").await?;
        site.kubectl(&["delete", "bmm", "bm", "-n", namespace, "--cascade=foreground", "--timeout=60s"]).await?;
        let claims = site.kubectl(&["get", "pvc", "-n", namespace, "-o", "name"]).await?;
        ensure!(claims.trim().is_empty(), "claims are left: {claims}");
        Ok(())
    });
}

#[test]
fn the_controller_manager_is_restarted_under_a_running_machine() {
    on_site("controller_manager_restarted", async |site, namespace| {
        site.apply(&manifest(namespace, "bm", "10.30.0.7")).await?;
        wait_ready(site, namespace, "bm").await?;
        let guests = tests::site::running_guests(site)?;
        site.sandbox.kill_process("control-plane/kube-controller-manager").await?;
        site.sandbox.start_process("control-plane/kube-controller-manager").await?;
        plug_a_disk(site, namespace, "90s").await?;
        ensure!(tests::site::running_guests(site)? == guests, "the guest was started anew");
        Ok(())
    });
}
