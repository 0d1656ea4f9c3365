//! Workflows that boot their server from an ISO (`bootMode: isoboot`): the controller has it inserted at the server's BMC, the firmware
//! boots from the BMC's drive, the installer on it runs the actions, and the drive is empty at the end: of a Workflow that fails, and of
//! one that installs the server.

use super::machine::{BOOT, SOON};
use super::netboot::{BOOTED, HARDWARE, SERVER, answers, says, template};
use anyhow::{Context, Result, ensure};
use qemu::qmp::Qmp;
use sandbox::cluster::servers::slots_socket;
use sandbox::layout::Provisioned;
use sandbox::preflight;
use serde_json::{Value, json};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tests::site::{GuestKind, INVENTORY_NAMESPACE, InstallerCd, Site, until};

const TEST: &str = "isoboot::an_iso_by_virtual_media_installs_a_server";

#[test]
fn an_iso_by_virtual_media_installs_a_server() {
    super::on_servers(&[3], "isoboot", installed);
}

async fn installed(site: &Site, _: &str) -> Result<()> {
    let xorriso = match preflight::unpacked("xorriso", "xorriso").await {
        Ok(xorriso) => xorriso,
        Err(reason) => {
            eprintln!("SKIP {TEST}: {reason:#}");
            return Ok(());
        }
    };
    let cd = site.installer_cd(SERVER, xorriso).await?;
    site.rack_bare(SERVER).await?;
    fails(site, &cd).await?;
    succeeds(site, &cd).await?;
    site.unrack_bare(SERVER).await
}

async fn get(site: &Site, kind: &str, name: &str) -> Result<Value> {
    Ok(site.get(&[kind, name, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default())
}

/// Its action finds no such disk.
async fn fails(site: &Site, cd: &InstallerCd) -> Result<()> {
    let name = "broken-u03";
    site.apply(&format!("{}---{}", broken(), workflow(name, "broken", cd)?)).await?;
    boots_from_the_drive(site, cd).await?;
    ends(site, name, "FAILED").await?;
    ejected(site, name).await?;
    ensure!(site.server(SERVER).host()?.is_some(), "the server stays in the installer");
    let failed = get(site, "workflow", name).await?;
    ensure!(failed["status"]["state"] == "FAILED" && says(&failed, "WorkflowFailed"), "{failed}");
    site.kubectl(&["delete", &format!("workflow/{name}"), "template/broken", "-n", INVENTORY_NAMESPACE]).await.map(drop)
}

async fn succeeds(site: &Site, cd: &InstallerCd) -> Result<()> {
    let name = "install-u03";
    let console = site.server(SERVER).guest();
    let from = console.printed().len();
    site.apply(&format!("{}---{}", template(site, INVENTORY_NAMESPACE).await?, workflow(name, "tiny", cd)?)).await?;
    boots_from_the_drive(site, cd).await?;
    ends(site, name, "SUCCESS").await?;
    // The override was for once: the restart is from the disk, and the seed that the Workflow wrote gives the guest its name.
    console.line("the installed system is up", from, BOOT, |line| line == BOOTED).await?;
    answers(site).await?;
    ejected(site, name).await?;
    let printed = console.printed();
    let printed = printed.get(from..).unwrap_or_default();
    ensure!(printed.contains("installer: "), "the installer ran: {printed}");
    ensure!(!printed.contains("iPXE"), "the network booted the server: {printed}");
    is_written(site).await?;
    for at in 0..5 {
        let task = get(site, "tasks.bmc.tinkerbell.org", &format!("iso-mount-{name}-task-{at}")).await?;
        ensure!(says(&task, "Completed"), "{task}");
    }
    let hardware = get(site, "hardware", HARDWARE).await?;
    ensure!(hardware["spec"]["interfaces"][0]["netboot"]["allowPXE"] == false, "{hardware}");
    site.kubectl(&["delete", &format!("workflow/{name}"), "template/tiny", "-n", INVENTORY_NAMESPACE]).await.map(drop)
}

/// The firmware reads the whole program from the drive that the BMC has connected.
async fn boots_from_the_drive(site: &Site, cd: &InstallerCd) -> Result<()> {
    let qmp = Qmp::new(slots_socket(&site.server(SERVER).folder()), Duration::from_secs(10));
    until("the firmware has read the installer from the virtual drive", BOOT, async || {
        // The controller powers the host off and on meanwhile: a QEMU that ends under the question has not booted yet.
        let counted = match qmp.execute("query-blockstats", json!({})).await {
            Ok(counted) => counted,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let is_drive = |device: &&Value| device["qdev"].as_str().is_some_and(|name| name.starts_with("cd-"));
        let drive = counted.as_array().into_iter().flatten().find(is_drive);
        let read = drive.and_then(|drive| drive["stats"]["rd_bytes"].as_u64()).unwrap_or_default();
        Ok(if read >= cd.program { Ok(()) } else { Err(format!("{read} of {} bytes", cd.program)) })
    })
    .await?;
    let shown = site.virtual_drive(SERVER).await?;
    ensure!(shown["Inserted"] == true && shown["Image"] == *cd.url && shown["ConnectedVia"] == "URI", "{shown}");
    Ok(())
}

async fn ends(site: &Site, workflow: &str, state: &str) -> Result<()> {
    until(&format!("the Workflow is {state}"), BOOT, async || {
        let workflow = get(site, "workflow", workflow).await?;
        let is_so = workflow["status"]["state"] == *state;
        Ok(if is_so { Ok(()) } else { Err(workflow["status"].to_string()) })
    })
    .await
}

/// By a Job of the Workflow's own.
async fn ejected(site: &Site, workflow: &str) -> Result<()> {
    until("the medium is ejected", SOON, async || {
        let job = get(site, "jobs.bmc.tinkerbell.org", &format!("iso-eject-{workflow}")).await?;
        Ok(if says(&job, "Completed") { Ok(()) } else { Err(job["status"].to_string()) })
    })
    .await?;
    let shown = site.virtual_drive(SERVER).await?;
    ensure!(shown["Inserted"] == false && shown["Image"].is_null(), "{shown}");
    Ok(())
}

/// The first partition, which nothing but the image's action has written to.
async fn is_written(site: &Site) -> Result<()> {
    let cache = sandbox::args::cache_folder();
    let image = tokio::task::spawn_blocking(move || sandbox::guest::image(GuestKind::Tiny, &cache)).await??;
    let part = |path: &std::path::Path| -> Result<Vec<u8>> {
        let mut bytes = vec![0; 46 << 20];
        let file = std::fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
        file.read_exact_at(&mut bytes, 2 << 20).with_context(|| format!("read {}", path.display()))?;
        Ok(bytes)
    };
    ensure!(part(&site.local_disk(SERVER))? == part(&image)?, "the disk has another content than the image");
    Ok(())
}

fn broken() -> String {
    format!(
        r#"
apiVersion: tinkerbell.org/v1alpha1
kind: Template
metadata: {{name: broken, namespace: {INVENTORY_NAMESPACE}}}
spec:
  data: |
    version: "0.1"
    name: broken
    global_timeout: 600
    tasks:
    - name: os
      worker: "{{{{.device_1}}}}"
      actions:
      - name: nothing
        image: quay.io/tinkerbell/actions/writefile:latest
        timeout: 60
        environment:
          {{DEST_DISK: /dev/no-such-disk, FS_TYPE: ext4, DEST_PATH: /a, CONTENTS: a, UID: 0, GID: 0, MODE: 0644, DIRMODE: 0755}}
"#
    )
}

fn workflow(name: &str, template: &str, cd: &InstallerCd) -> Result<String> {
    let (mac, url) = (Provisioned::of(SERVER)?.mac, &cd.url);
    Ok(format!(
        r#"
apiVersion: tinkerbell.org/v1alpha1
kind: Workflow
metadata: {{name: {name}, namespace: {INVENTORY_NAMESPACE}}}
spec:
  templateRef: {template}
  hardwareRef: {HARDWARE}
  hardwareMap: {{device_1: "{mac}"}}
  bootOptions: {{bootMode: isoboot, isoURL: "{url}", toggleAllowNetboot: true}}
"#
    ))
}
