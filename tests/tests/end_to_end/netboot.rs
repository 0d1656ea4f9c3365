//! A server without a DPU is installed over the network by a Template and a Workflow as Tinkerbell has them.

use super::machine::{BOOT, SOON};
use anyhow::{Result, ensure};
use sandbox::layout::{CONTROL_PLANE, Provisioned};
use tests::site::{GuestKind, INVENTORY_NAMESPACE, Site, until};

const SERVER: &str = "server-3";
const HARDWARE: &str = "rack1-u03";

#[test]
fn a_workflow_installs_a_server_without_a_dpu() {
    super::on_servers(&[3], "netboot", installed);
}

async fn installed(site: &Site, _namespace: &str) -> Result<()> {
    site.rack_bare(SERVER).await?;
    site.apply(&objects(site).await?).await?;
    let state = async || {
        let workflow = site.get(&["workflow", "install-u03", "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default();
        anyhow::Ok((
            workflow["status"]["state"].as_str().unwrap_or_default().to_owned(),
            workflow["status"].to_string(),
        ))
    };
    until("the Workflow is rendered", SOON, async || {
        let (state, status) = state().await?;
        Ok(if state == "PENDING" { Ok(()) } else { Err(status) })
    })
    .await?;
    let server = site.server(SERVER);
    ensure!(server.host()?.is_none(), "the server is off until somebody switches it on");
    let from = server.guest().printed().len();
    site.boot_from_the_network(SERVER).await?;
    until("the Workflow has succeeded", BOOT, async || {
        let (state, status) = state().await?;
        Ok(if state == "SUCCESS" { Ok(()) } else { Err(status) })
    })
    .await?;
    // The override was for once: the restart is from the disk, and the seed that the Workflow wrote gives the guest its name.
    server.guest().line("the installed system is up", from, BOOT, |line| line == "MP-BOOT u03 bm-03").await?;
    let address = Provisioned::of(SERVER)?.address.to_string();
    until("the installed system answers", SOON, async || {
        let asked = site.enter(CONTROL_PLANE, &["ping", "-c", "1", "-W", "1", &address]).await;
        Ok(asked.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await?;
    site.kubectl(&["delete", "workflow/install-u03", "template/tiny", "-n", INVENTORY_NAMESPACE]).await?;
    site.unrack_bare(SERVER).await
}

async fn objects(site: &Site) -> Result<String> {
    let (url, checksum, _) = site.golden_source(GuestKind::Tiny).await?;
    let mac = Provisioned::of(SERVER)?.mac;
    Ok(format!(
        r#"
apiVersion: tinkerbell.org/v1alpha1
kind: Template
metadata: {{name: tiny, namespace: {INVENTORY_NAMESPACE}}}
spec:
  data: |
    version: "0.1"
    name: tiny
    global_timeout: 1800
    tasks:
    - name: os
      worker: "{{{{.device_1}}}}"
      environment: {{FS_TYPE: ext4, UID: 0, GID: 0, MODE: 0644, DIRMODE: 0755}}
      actions:
      - name: image
        image: quay.io/tinkerbell/actions/image2disk:latest
        timeout: 600
        environment:
          IMG_URL: {url}
          CHECKSUM: sha256:{checksum}
          DEST_DISK: {{{{ index .Hardware.Disks 0 }}}}
      - name: name
        image: quay.io/tinkerbell/actions/writefile:latest
        timeout: 90
        environment:
          DEST_DISK: {{{{ index .Hardware.Disks 0 }}}}p2
          DEST_PATH: /seed/meta-data
          CONTENTS: |
            instance-id: u03
            local-hostname: bm-03
      - name: network
        image: quay.io/tinkerbell/actions/writefile:latest
        timeout: 90
        environment:
          DEST_DISK: {{{{ index .Hardware.Disks 0 }}}}p2
          DEST_PATH: /seed/network-config
          CONTENTS: |
            version: 2
            ethernets:
              prov:
                match:
                  macaddress: "{mac}"
                dhcp4: true
      - name: restart
        image: reboot
        timeout: 90
---
apiVersion: tinkerbell.org/v1alpha1
kind: Workflow
metadata: {{name: install-u03, namespace: {INVENTORY_NAMESPACE}}}
spec:
  templateRef: tiny
  hardwareRef: {HARDWARE}
  hardwareMap: {{device_1: "{mac}"}}
"#
    ))
}
