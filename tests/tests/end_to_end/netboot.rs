//! A server without a DPU is discovered, enrolled and approved; then it is installed over the network: by a Template and a Workflow as Tinkerbell has them, whose boot options bring
//! the server to boot by a Job, then by a BareMetalMachine, which takes the server as it is: switched on. When that one is deleted, its
//! disk is erased.

use super::erased::{is_reported, is_zero};
use super::machine::{self, BOOT, SOON};
use super::states::Shown;
use anyhow::{Context, Result, ensure};
use api::labels;
use sandbox::layout::{CONTROL_PLANE, Provisioned};
use sandbox::server::faults::Faults;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use tests::site::{GuestKind, INVENTORY_NAMESPACE, POOL, SEEDS_NAMESPACE, Site, until};

pub(super) const SERVER: &str = "server-3";
pub(super) const HARDWARE: &str = "rack1-u03";
/// In no object but Secrets.
const USER_DATA: &str = "said-to-bm-03-alone";
/// As it leaves the factory.
const DISK_FIRST: [&str; 2] = ["Boot0002", "Boot0003"];
const NETWORK_FIRST: [&str; 2] = ["Boot0003", "Boot0002"];
/// As the guest says it when it is up.
pub(super) const BOOTED: &str = "MP-BOOT u03 bm-03";

#[test]
fn a_workflow_installs_a_server_without_a_dpu() {
    super::on_servers(&[3], "netboot", installed);
}

async fn installed(site: &Site, namespace: &str) -> Result<()> {
    discovered(site, namespace).await?;
    site.rack_bare(SERVER).await?;
    by_workflow(site).await?;
    site.apply(&policy()).await?;
    by_machine(site, namespace).await?;
    erased(site, namespace).await?;
    site.kubectl(&["delete", "hardwarepolicy/erases", "-n", INVENTORY_NAMESPACE]).await?;
    site.unrack_bare(SERVER).await
}

/// A server that nobody has written down is switched on: it is a Hardware, runs the Workflow of a rule set, and is nobody's before it is
/// approved.
async fn discovered(site: &Site, namespace: &str) -> Result<()> {
    let mac = Provisioned::of(SERVER)?.mac;
    let id = mac.replace(':', "-");
    let (hardware, enrolment) = (format!("discovery-{id}"), format!("enrollment-{id}"));
    let get = async |kind: &str, name: &str| site.get(&[kind, name, "-n", INVENTORY_NAMESPACE]).await;
    site.apply(&rule_set()).await?;
    site.switch_on_from_network(SERVER).await?;
    until("the server is discovered, and has run the Workflow of the rule set", BOOT, async || {
        let workflow = get("workflow", &enrolment).await?.unwrap_or_default();
        let report = get("hwr", &hardware).await?.unwrap_or_default();
        let is_done = workflow["status"]["state"] == "SUCCESS";
        Ok(if is_done { Ok(()) } else { Err(format!("{}; {}", workflow["status"], report["status"])) })
    })
    .await?;
    let made = get("hardware", &hardware).await?.context("the Hardware is there")?;
    ensure!(made["metadata"]["labels"]["metalplane.io/unapproved"] == "true", "{made}");
    ensure!(made["spec"]["interfaces"][0]["dhcp"]["mac"] == *mac && made["spec"]["agentID"] == *mac, "{made}");
    ensure!(made["spec"]["disks"][0]["device"] == "/dev/nvme0n1", "{made}");
    let workflow = get("workflow", &enrolment).await?.unwrap_or_default();
    ensure!(workflow["spec"]["hardwareRef"] == *hardware, "{workflow}");
    let report = get("hwr", &hardware).await?.unwrap_or_default();
    ensure!(report["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"], "{report}");
    let address: Ipv4Addr = report["status"]["netboot"]["address"].as_str().unwrap_or_default().parse()?;
    ensure!((POOL[0]..=POOL[1]).contains(&address), "{report}");
    let key = report["status"]["session"]["key"].as_str().unwrap_or_default();
    ensure!(key.starts_with("sha256:"), "its installer was known by a key: {report}");
    let serial = report["status"]["attributes"]["product"]["serialNumber"].as_str().context("a serial number")?;
    let shown = site.kubectl(&["get", "hwr", &hardware, "-n", INVENTORY_NAMESPACE]).await?;
    ensure!(shown.contains(&format!("{serial}, 1 disk, ")), "serial number and disks are seen: {shown}");
    ensure!(shown.lines().all(|line| line.trim_end().len() <= 80), "within 80 columns: {shown}");
    let waits = conditions(&report).find(|c| c["type"] == "Approved").map(|c| c["reason"].clone());
    ensure!(waits == Some("HardwareNotApproved".into()), "{report}");

    site.apply(&bare_machine(namespace)).await?;
    until("no machine has it before it is approved", SOON, async || {
        let status = site.get(&["bmm", "bm-03", "-n", namespace]).await?.unwrap_or_default()["status"].to_string();
        Ok(if status.contains("HardwareNotApproved") { Ok(()) } else { Err(status) })
    })
    .await?;
    site.kubectl(&["delete", "bmm/bm-03", "-n", namespace]).await?;
    let bmc = site.rack_bmc(SERVER).await?;
    let other = site.bmctl(&["hardware", "approve", &hardware, "--bmc", &bmc, "--serial-number", "other"]).await;
    ensure!(other.is_err_and(|error| format!("{error:#}").contains(serial)), "another serial number is refused");
    site.bmctl(&["hardware", "approve", &hardware, "--bmc", &bmc, "--serial-number", serial]).await?;
    let approved = get("hardware", &hardware).await?.unwrap_or_default();
    ensure!(approved["metadata"]["labels"]["metalplane.io/unapproved"].is_null(), "{approved}");
    ensure!(approved["spec"]["bmcRef"]["name"] == *bmc, "{approved}");
    until("its report says so", SOON, async || {
        let report = get("hwr", &hardware).await?.unwrap_or_default();
        let is_told = conditions(&report).any(|c| c["type"] == "Approved" && c["status"] == "True");
        Ok(if is_told { Ok(()) } else { Err(report["status"].to_string()) })
    })
    .await?;
    let told = site.bmctl(&["hardware", "get", &hardware]).await?;
    ensure!(told.contains(serial) && told.contains("disk nvme0n1: ") && told.contains(&mac), "{told}");

    site.switch_off(SERVER).await?;
    site.kubectl(&["delete", "-n", INVENTORY_NAMESPACE, &format!("hardware/{hardware}")]).await?;
    site.delete(&rule_set()).await?;
    until("what was made goes with what it was made of", SOON, async || {
        let left = [get("hwr", &hardware).await?, get("workflow", &enrolment).await?];
        Ok(if left.iter().all(Option::is_none) { Ok(()) } else { Err(format!("{left:?}")) })
    })
    .await
}

/// As Tinkerbell's users have it: any server, and a Template that only looks.
fn rule_set() -> String {
    format!(
        r#"
apiVersion: tinkerbell.org/v1alpha1
kind: WorkflowRuleSet
metadata: {{name: look, namespace: {INVENTORY_NAMESPACE}}}
spec:
  rules:
  - '{{"networkInterfaces": {{"mac": [{{"wildcard": "*"}}]}}}}'
  workflow:
    namespace: {INVENTORY_NAMESPACE}
    addAttributes: true
    template: {{agentValue: device_1, ref: look}}
---
apiVersion: tinkerbell.org/v1alpha1
kind: Template
metadata: {{name: look, namespace: {INVENTORY_NAMESPACE}}}
spec:
  data: |
    version: "0.1"
    name: look
    global_timeout: 600
    tasks:
    - name: look
      worker: "{{{{.device_1}}}}"
      actions:
      - {{name: disks, image: inspect, timeout: 60}}
"#
    )
}

async fn by_workflow(site: &Site) -> Result<()> {
    let state = async || {
        let workflow = site.get(&["workflow", "install-u03", "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default();
        anyhow::Ok((
            workflow["status"]["state"].as_str().unwrap_or_default().to_owned(),
            workflow["status"].to_string(),
        ))
    };
    let server = site.server(SERVER);
    ensure!(server.host()?.is_none(), "the server is off before the Workflow");
    let from = server.guest().printed().len();
    let shown = Shown::of(site, "install-u03")?;
    site.apply(&format!("{}---{}", template(site, INVENTORY_NAMESPACE).await?, workflow()?)).await?;
    until("the Workflow has succeeded", BOOT, async || {
        let (state, status) = state().await?;
        Ok(if state == "SUCCESS" { Ok(()) } else { Err(status) })
    })
    .await?;
    shown.goes_from_pending_to_success(SOON).await?;
    // The override was for once: the restart is from the disk, and the seed that the Workflow wrote gives the guest its name.
    server.guest().line("the installed system is up", from, BOOT, |line| line == BOOTED).await?;
    answers(site).await?;
    after_the_workflow(site).await?;
    let told = site.bmctl(&["workflow", "get", "install-u03"]).await?;
    ensure!(told.contains("SUCCESS") && told.contains("image"), "{told}");
    let said = site.bmctl(&["workflow", "logs", "install-u03", "--action", "image"]).await?;
    ensure!(said.contains("/image: SUCCESS") && said.contains(" bytes of the image"), "{said}");
    site.kubectl(&["delete", "workflow/install-u03", "template/tiny", "-n", INVENTORY_NAMESPACE]).await.map(drop)
}

/// What upstream's controllers would have left of it: a Job with its Tasks, `allowPXE` false; and the BMC's own status.
async fn after_the_workflow(site: &Site) -> Result<()> {
    let get = async |kind: &str, name: &str| {
        anyhow::Ok(site.get(&[kind, name, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default())
    };
    let job = get("jobs.bmc.tinkerbell.org", "netboot-install-u03").await?;
    ensure!(says(&job, "Completed"), "{job}");
    for at in 0..3 {
        let task = get("tasks.bmc.tinkerbell.org", &format!("netboot-install-u03-task-{at}")).await?;
        ensure!(says(&task, "Completed"), "{task}");
    }
    let hardware = get("hardware", HARDWARE).await?;
    ensure!(hardware["spec"]["interfaces"][0]["netboot"]["allowPXE"] == false, "{hardware}");
    until("the Machine says that its BMC answers", SOON, async || {
        let machine = get("machines.bmc.tinkerbell.org", HARDWARE).await?;
        let told = says(&machine, "Contactable") && machine["status"]["powerState"] == "on";
        Ok(if told { Ok(()) } else { Err(machine["status"].to_string()) })
    })
    .await
}

async fn by_machine(site: &Site, namespace: &str) -> Result<()> {
    let console = site.server(SERVER).guest();
    let from = console.printed().len();
    let seeds = seeding(&template(site, namespace).await?)?;
    site.put_boot_order(SERVER, &NETWORK_FIRST).await?;
    site.apply(&format!("{seeds}---{}", seeded_machine(namespace))).await?;
    machine::wait_ready(site, namespace, "bm-03").await?;
    let installer = console.line("the installer ran", from, SOON, |line| line.contains("installer")).await;
    installer.context("the machine is Ready")?;
    // As its cloud-init data has it, which the action `seed` wrote beside the image.
    let made = site.get(&["bmm", "bm-03", "-n", namespace]).await?.context("the machine")?;
    let booted = format!("MP-BOOT {} bm-03", made["metadata"]["uid"].as_str().unwrap_or_default());
    console.line("the installed system is up", from, BOOT, |line| line == booted).await?;
    answers(site).await?;
    let told = site.kubectl(&["get", "workflows,templates,hardware,hwr", "-A", "-o", "yaml"]).await?;
    ensure!(!told.contains(USER_DATA), "user data stands in an object that is no Secret");
    let status = machine::status(site, namespace, "bm-03").await?;
    ensure!(status["bootStrategy"] == "Workflow" && status["install"]["phase"] == "Done", "{status}");
    let forged =
        ["annotate", "--overwrite", "hardware", HARDWARE, "-n", INVENTORY_NAMESPACE, "metalplane.io/install=2/Begun/x"];
    let forged = site.kubectl(&forged).await;
    ensure!(forged.is_err_and(|error| format!("{error:#}").contains("is the controller's")), "nobody else installs it");
    is_first(site, &status).await?;
    is_seen(site, namespace).await
}

/// The installer's word for the disk is the firmware's: by that its option was found, and put before the network's.
async fn is_first(site: &Site, status: &Value) -> Result<()> {
    let path = status["install"]["disk"]["uefiDevicePath"].as_str().unwrap_or_default();
    ensure!(path.starts_with("PciRoot(0x0)/Pci(0x") && path.contains("/NVMe(0x1,"), "{status}");
    let machine = json!({"status": status});
    let configured = conditions(&machine).find(|c| c["type"] == "BootConfigured").map(|c| c["reason"].clone());
    ensure!(configured == Some(json!("BootOrderSet")), "{status}");
    let boot = site.boot_settings(SERVER).await?;
    ensure!(boot["BootOrder"] == json!(DISK_FIRST), "{boot}");
    Ok(())
}

/// The boot service has seen the server boot, and has heard of the installed system, which took its address by DHCP.
async fn is_seen(site: &Site, namespace: &str) -> Result<()> {
    let Provisioned { address, mac, .. } = Provisioned::of(SERVER)?;
    let address = address.to_string();
    until("the machine's system is heard of", SOON, async || {
        let status = machine::status(site, namespace, "bm-03").await?;
        let is_true = |c: &Value| c["type"] == "GuestReachable" && c["status"] == "True";
        let reachable = status["conditions"].as_array().into_iter().flatten().any(is_true);
        let has_it = status["addresses"][0]["address"] == *address && status["addresses"][0]["interface"] == *mac;
        Ok(if reachable && has_it { Ok(()) } else { Err(status.to_string()) })
    })
    .await?;
    let report = site.get(&["hwr", HARDWARE, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default();
    let (netboot, guest) = (&report["status"]["netboot"], &report["status"]["guest"]);
    let stage = netboot["stage"].as_str().unwrap_or_default();
    // Firmware that asks the network first was told to boot from the disk.
    ensure!((stage == "Agent" || stage == "LocalDisk") && netboot["macAddress"] == *mac, "{report}");
    ensure!(netboot["firmware"].as_str().is_some_and(|firmware| firmware.ends_with("UEFI (x86-64)")), "{report}");
    ensure!(guest["address"] == *address && guest["by"] == "Dhcp", "{report}");
    let uuid = report["status"]["identity"]["uuid"].as_str().unwrap_or_default();
    let process = site.server(SERVER).host()?.context("the server is on")?;
    let started = std::fs::read_to_string(format!("/proc/{process}/cmdline"))?;
    ensure!(started.split('\0').skip_while(|word| *word != "-uuid").nth(1) == Some(uuid), "{report}: {started}");
    let told = site.bmctl(&["hardware", "get", HARDWARE]).await?;
    ensure!(told.contains("took its address") && told.contains(&address) && told.contains(uuid), "{told}");
    Ok(())
}

/// The server starts from the network once more, and is free when its disk is shown to be erased; the report stays with it. Its BMC takes no
/// override for one boot any more: one for every boot takes its place, and is put back.
async fn erased(site: &Site, namespace: &str) -> Result<()> {
    site.server(SERVER).inject(Faults { only_continuous: true, ..Faults::default() }).await?;
    let console = site.server(SERVER).guest();
    let (from, disk) = (console.printed().len(), site.local_disk(SERVER));
    ensure!(!is_zero(&disk)?, "a system is on the disk");
    site.kubectl(&["delete", "bmm/bm-03", "-n", namespace, "--wait=false"]).await?;
    until("the machine says what its release waits for", BOOT, async || {
        let machine = site.get(&["bmm", "bm-03", "-n", namespace]).await?.unwrap_or_default();
        let ready =
            conditions(&machine).find(|c| c["type"] == "Ready").map(|c| c["reason"].clone()).unwrap_or_default();
        let is_told = machine["status"]["state"] == "Releasing" && (ready == "NetbootAwaited" || ready == "Erasing");
        Ok(if is_told { Ok(()) } else { Err(machine["status"].to_string()) })
    })
    .await?;
    until("the machine no longer exists", BOOT, async || {
        let machine = site.get(&["bmm", "bm-03", "-n", namespace]).await?;
        Ok(machine.map_or(Ok(()), |machine| Err(machine["status"].to_string())))
    })
    .await?;
    let overwritten =
        console.line("the eraser ran", from, SOON, |line| line.contains("erase: metalplane.io/erase")).await;
    overwritten.context("the machine no longer exists")?;
    ensure!(is_zero(&disk)?, "something is left on {}", disk.display());
    is_reported(site, HARDWARE, |serial| serial.starts_with("local-")).await?;
    ensure!(site.server(SERVER).host()?.is_none(), "the server is off");
    let hardware = site.get(&["hardware", HARDWARE, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default();
    ensure!(hardware["metadata"]["annotations"][labels::NETBOOT_BY] == "Continuous", "{hardware}");
    let boot = site.boot_settings(SERVER).await?;
    ensure!(boot["BootSourceOverrideEnabled"] == "Disabled", "the override is left: {boot}");
    ensure!(boot["BootOrder"] == json!(NETWORK_FIRST), "it was so before: {boot}");
    site.put_boot_order(SERVER, &DISK_FIRST).await?;
    site.server(SERVER).inject(Faults::default()).await?;
    for (kind, namespace) in
        [("workflows", INVENTORY_NAMESPACE), ("templates", INVENTORY_NAMESPACE), ("secrets", SEEDS_NAMESPACE)]
    {
        let there = site.get(&[kind, "-n", namespace]).await?.unwrap_or_default();
        let items = there["items"].as_array().map_or(0, Vec::len);
        ensure!(items == 0, "{kind} are left: {there}");
    }
    Ok(())
}

/// One of its conditions is true.
pub(super) fn says(object: &Value, type_: &str) -> bool {
    conditions(object).any(|c| c["type"] == type_ && c["status"] == "True")
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// Beside the chart's, which says Keep.
fn policy() -> String {
    format!(
        "
apiVersion: metalplane.io/v1alpha1
kind: HardwarePolicy
metadata: {{name: erases, namespace: {INVENTORY_NAMESPACE}}}
spec:
  selector: {{matchLabels: {{metalplane.io/class: bare}}}}
  releasePolicy: {{localDisks: Erase}}
"
    )
}

pub(super) async fn answers(site: &Site) -> Result<()> {
    let address = Provisioned::of(SERVER)?.address.to_string();
    until("the installed system answers", SOON, async || {
        let asked = site.enter(CONTROL_PLANE, &["ping", "-c", "1", "-W", "1", &address]).await;
        Ok(asked.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await
}

/// The tiny image, and a seed by which the guest has its name and asks for its address.
pub(super) async fn template(site: &Site, namespace: &str) -> Result<String> {
    let (url, checksum, _) = site.golden_source(GuestKind::Tiny).await?;
    let mac = Provisioned::of(SERVER)?.mac;
    Ok(format!(
        r#"
apiVersion: tinkerbell.org/v1alpha1
kind: Template
metadata: {{name: tiny, namespace: {namespace}}}
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
"#
    ))
}

fn workflow() -> Result<String> {
    let mac = Provisioned::of(SERVER)?.mac;
    Ok(format!(
        r#"
apiVersion: tinkerbell.org/v1alpha1
kind: Workflow
metadata: {{name: install-u03, namespace: {INVENTORY_NAMESPACE}}}
spec:
  templateRef: tiny
  hardwareRef: {HARDWARE}
  hardwareMap: {{device_1: "{mac}"}}
  bootOptions: {{bootMode: netboot, toggleAllowNetboot: true}}
"#
    ))
}

/// What the guest needs is the machine's to say, and not the Template's.
fn seeding(template: &str) -> Result<String> {
    let (head, rest) = template.split_once("      - name: name\n").context("the first file")?;
    let (_, tail) = rest.split_once("      - name: restart\n").context("the last action")?;
    let seed = "      - name: cloud-init\n        image: seed\n        timeout: 90\n        environment: {DEST_DISK: {{ index .Hardware.Disks 0 }}}\n";
    Ok(format!("{head}{seed}      - name: restart\n{tail}"))
}

/// Of the network it says nothing: the guest asks by DHCP on the NIC that its server boots by.
fn seeded_machine(namespace: &str) -> String {
    format!(
        r##"{}  cloudInit:
    userDataSecretRef: {{name: bm-03}}
---
apiVersion: v1
kind: Secret
metadata: {{name: bm-03, namespace: {namespace}}}
stringData:
  userData: "#cloud-config\n# {USER_DATA}\n"
"##,
        bare_machine(namespace)
    )
}

pub(super) fn bare_machine(namespace: &str) -> String {
    format!(
        "
apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {{name: bm-03, namespace: {namespace}}}
spec:
  boot: {{strategy: Workflow, workflow: {{templateName: tiny}}}}
"
    )
}
