//! A Job on a BMC that others emulate: sushy-tools with its fake system, which takes seconds to change its power, has no session
//! service and no boot order, and reports every override as continuous.

use super::machine::SOON;
use super::netboot::says;
use super::on_servers;
use anyhow::{Context, Result, ensure};
use sandbox::layout::{API_ADDRESS, CONTROL_PLANE};
use std::path::Path;
use std::process::{Command as Program, Stdio};
use tests::site::{INVENTORY_NAMESPACE, Site, until};
use tokio::process::Child;

const TEST: &str = "jobs::a_job_is_done_by_a_bmc_of_sushy_tools";
const PORT: u16 = 8009;
const USER: &str = "admin";
const PASSWORD: &str = "correct-horse";
const HASH: &str = "import bcrypt, sys; print(bcrypt.hashpw(sys.argv[1].encode(), bcrypt.gensalt(4)).decode())";
/// What the emulator says of its only system.
const ASK: &str = "import sys, requests; requests.packages.urllib3.disable_warnings()
get = lambda path: requests.get(sys.argv[1] + path, auth=(sys.argv[2], sys.argv[3]), verify=False, timeout=30).json()
system = get(get('/redfish/v1/Systems')['Members'][0]['@odata.id'])
print(system['PowerState'], system['Boot']['BootSourceOverrideTarget'])";

#[test]
fn a_job_is_done_by_a_bmc_of_sushy_tools() {
    let programs = match programs() {
        Ok(programs) => programs,
        Err(reason) => return eprintln!("SKIP {TEST}: {reason}"),
    };
    // Of no server of the site; the third one's tests are the fewest.
    on_servers(&[3], "jobs", async |site, _| {
        let folder = tempfile::tempdir().context("a folder")?;
        let _emulator = start(site, &programs, folder.path()).await?;
        site.apply(&manifest()).await?;
        let done = done(site, &programs).await;
        site.delete(&manifest()).await?;
        done
    });
}

/// The folder of sushy-tools' programs.
fn programs() -> Result<String, String> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools");
    let made = Program::new(tools.join("python.sh")).arg(tools.join("python/sushy-tools.txt")).output();
    let made = made.map_err(|error| format!("tools/python.sh: {error}"))?;
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    let last = said.lines().last().unwrap_or_default();
    if made.status.success() {
        Ok(format!("{}/bin", String::from_utf8_lossy(&made.stdout).trim()))
    } else {
        Err(format!("no sushy-tools: {last}"))
    }
}

/// In the network of the control plane, with a certificate that is another's: the Machine says `insecureTLS`.
async fn start(site: &Site, programs: &str, folder: &Path) -> Result<Child> {
    let file = |name: &str| folder.join(name).display().to_string();
    let pki = |name: &str| site.sandbox.layout().pki().join(name).display().to_string();
    let hash = Program::new(format!("{programs}/python")).args(["-c", HASH, PASSWORD]).output().context("Python")?;
    std::fs::write(file("users"), format!("{USER}:{}", String::from_utf8_lossy(&hash.stdout)))?;
    let settings = [
        ("AUTH_FILE", file("users")),
        ("STATE_DIR", folder.display().to_string()),
        ("SSL_CERT", pki("ovn-central.crt")),
        ("SSL_KEY", pki("ovn-central.key")),
    ];
    let settings: String = settings.iter().map(|(key, value)| format!("SUSHY_EMULATOR_{key} = {value:?}\n")).collect();
    std::fs::write(file("config.py"), settings)?;
    let mut command = site.sandbox.enter(CONTROL_PLANE);
    command.arg(format!("{programs}/sushy-emulator")).args(["--fake", "--interface", &API_ADDRESS.to_string()]);
    command.args(["--port", &PORT.to_string(), "--config", &file("config.py")]);
    let log = std::fs::File::create(file("log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
    let emulator = command.spawn().context("start sushy-emulator")?;
    until("sushy-emulator answers", SOON, async || {
        let asked = ask(site, programs).await;
        Ok(asked.map_err(|error| format!("{error:#}\n{}", std::fs::read_to_string(file("log")).unwrap_or_default())))
    })
    .await?;
    Ok(emulator)
}

/// Power, and what it boots from.
async fn ask(site: &Site, programs: &str) -> Result<String> {
    let url = format!("https://{API_ADDRESS}:{PORT}");
    let said = site.enter(CONTROL_PLANE, &[&format!("{programs}/python"), "-c", ASK, &url, USER, PASSWORD]).await?;
    Ok(said.trim().to_owned())
}

async fn done(site: &Site, programs: &str) -> Result<()> {
    let get = async |kind: &str, name: &str| {
        anyhow::Ok(site.get(&[kind, name, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default())
    };
    until("the Job is done", SOON, async || {
        let job = get("jobs.bmc.tinkerbell.org", "sushy").await?;
        ensure!(!says(&job, "Failed"), "{job}");
        Ok(if says(&job, "Completed") { Ok(()) } else { Err(job["status"].to_string()) })
    })
    .await?;
    ensure!(ask(site, programs).await? == "Off Pxe", "{}", ask(site, programs).await?);
    until("the Machine says what its BMC shows", SOON, async || {
        let machine = get("machines.bmc.tinkerbell.org", "sushy").await?;
        let is_off = machine["status"]["powerState"] == "off" && says(&machine, "Contactable");
        Ok(if is_off { Ok(()) } else { Err(machine["status"].to_string()) })
    })
    .await
}

fn manifest() -> String {
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: sushy, namespace: {INVENTORY_NAMESPACE}}}
stringData: {{username: {USER}, password: {PASSWORD}}}
---
apiVersion: bmc.tinkerbell.org/v1alpha1
kind: Machine
metadata: {{name: sushy, namespace: {INVENTORY_NAMESPACE}}}
spec:
  connection:
    host: {API_ADDRESS}
    port: 623
    authSecretRef: {{name: sushy, namespace: {INVENTORY_NAMESPACE}}}
    insecureTLS: true
    providerOptions: {{redfish: {{port: {PORT}}}}}
---
apiVersion: bmc.tinkerbell.org/v1alpha1
kind: Job
metadata: {{name: sushy, namespace: {INVENTORY_NAMESPACE}}}
spec:
  machineRef: {{name: sushy, namespace: {INVENTORY_NAMESPACE}}}
  tasks:
  - powerAction: 'off'
  - powerAction: 'on'
  - oneTimeBootDeviceAction: {{device: [pxe]}}
  - powerAction: 'off'
"
    )
}
