//! A server whose firmware has not seen the disk of its DPU yet: OVMF enters its setup once, and boots from the disk then. So it is at the first start
//! of a machine, and before there is one, when the server joins.

use super::machine::{Machine, SOON};
use super::on_servers;
use anyhow::{Context, Result, ensure};
use api::labels::{BOOT_DISCOVERY, BOOT_PATH};
use imaging::hold_disk::{Loader, make};
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::site::{INVENTORY_NAMESPACE, Site, until};

#[test]
fn a_new_server_is_started_into_its_setup_once_and_boots() {
    on_servers(&[2], "a_new_server", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        let mut result = Ok(());
        let first = async || life(site, &machine, &["On", "ForceOff", "On"]).await;
        let joins = async || {
            joined(site, &machine).await?;
            life(site, &machine, &["On"]).await
        };
        for joins_first in [false, true] {
            machine.on().rerack("edgeline", "Standby").await?;
            let lived = if joins_first { joins().await } else { first().await };
            let lived = machine.told(lived).await;
            let deleted = machine.kubectl(&["delete", "bmm", "--all", "--timeout=240s"]).await;
            result = result.and(lived).and(deleted.map(drop));
        }
        machine.on().rerack("standby", "Standby").await?;
        let dpu = format!("dpu/{}", machine.on().dpu());
        site.kubectl(&["wait", "--for=condition=Ready", &dpu, "--timeout=180s"]).await?;
        result
    });
}

/// The machine boots, and its host was started so.
async fn life(site: &Site, machine: &Machine<'_>, expected: &[&str]) -> Result<()> {
    let (before, printed) = (machine.power_actions()?.len(), machine.guest().printed().len());
    machine.apply().await?;
    if expected.len() > 1 {
        let (name, limit) = (format!("bmm/{}", machine.name), format!("--timeout={}s", SOON.as_secs()));
        let awaited = "--for=jsonpath={.status.conditions[?(@.type=='BootConfigured')].reason}=BootOptionAwaited";
        site.kubectl(&["wait", awaited, &name, "-n", machine.namespace, &limit]).await?;
        machine.guest().line("OVMF is in its setup", printed, SOON, |line| line.contains("Boot Manager")).await?;
    }
    machine.wait_ready().await?;
    let sent = machine.power_actions()?.split_off(before);
    ensure!(sent == expected, "it was started by {sent:?}");
    machine.guest().line("the guest boots", printed, SOON, |line| line.contains("MP-BOOT")).await.map(drop)
}

/// Nothing is known of the server any more, as when it is registered: the controller finds the disk, and gives the server back.
async fn joined(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let (before, printed) = (machine.power_actions()?.len(), machine.guest().printed().len());
    let (server, limit) = (machine.hardware(), format!("--timeout={}s", SOON.as_secs()));
    let forgotten = [BOOT_PATH, BOOT_DISCOVERY].map(|key| format!("{key}-"));
    site.kubectl(&["annotate", "hardware", &server, "-n", INVENTORY_NAMESPACE, &forgotten[0], &forgotten[1]]).await?;
    let dpu = format!("dpu/{}", machine.on().dpu());
    for reason in ["Discovering", "Listed"] {
        let is_so = format!("--for=jsonpath={{.status.conditions[?(@.type=='BootOptionKnown')].reason}}={reason}");
        site.kubectl(&["wait", &is_so, &dpu, &limit]).await?;
    }
    machine.guest().line("OVMF is in its setup", printed, SOON, |line| line.contains("Boot Manager")).await?;
    until("the server is free", SOON, async || {
        let hardware = site.get(&["hardware", &server, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default();
        let taken = hardware["metadata"]["annotations"]["metalplane.io/claimed-by"].clone();
        Ok(if taken.is_null() { Ok(()) } else { Err(format!("{taken} has it")) })
    })
    .await?;
    let sent = machine.power_actions()?.split_off(before);
    ensure!(sent == ["On", "ForceOff"], "it was started by {sent:?}");
    let left = site.kubectl(&["get", "diskattachments", "-A", "-o", "name"]).await?;
    ensure!(!left.contains("hold-disk"), "the hold disk is left: {left}");
    Ok(())
}

/// In which nothing comes after a hold disk.
const CALM: Duration = Duration::from_secs(10);

/// Where a firmware ignores the override, it boots the hold disk: with secure boot on, and nothing comes after it.
#[test]
fn secure_boot_lets_a_hold_disk_start_and_that_waits() {
    on_servers(&[2], "a_hold_disk", async |_, _| {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        let programs = sandbox::guest::hold_disk::hold_disk(&sandbox::args::cache_folder())?;
        let [first, second] = [0, 1].map(|program| fs::read(&programs[program].0));
        let disk = File::options().read(true).write(true).create_new(true).open(path("disk"))?;
        make(&disk, "a-hold-disk", &Loader { first: &first?, second: &second? })?;
        fs::copy("/usr/share/OVMF/OVMF_VARS_4M.ms.fd", path("variables")).context("copy OVMF's variables")?;
        let console = path("console");
        let printed = || String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
        let drive = |rest: &str, name: &str| format!("{rest},format=raw,file={}", path(name).display());
        let child = Command::new("qemu-system-x86_64")
            .args(["-machine", "q35,smm=on", "-accel", "tcg", "-m", "256", "-nodefaults", "-display", "none"])
            .args(["-global", "driver=cfi.pflash01,property=secure,value=on", "-net", "none"])
            .args(["-drive", "if=pflash,unit=0,readonly=on,format=raw,file=/usr/share/OVMF/OVMF_CODE_4M.ms.fd"])
            .args([
                "-drive",
                &drive("if=pflash,unit=1", "variables"),
                "-serial",
                &format!("file:{}", console.display()),
            ])
            .args(["-drive", &drive("if=none,id=hold,readonly=on", "disk"), "-device", "nvme,drive=hold,serial=MP1"])
            .stdin(Stdio::null())
            .spawn()
            .context("start qemu-system-x86_64")?;
        let mut qemu = Qemu(child);
        until("the hold disk says what it is", SOON, async || {
            let text = printed();
            Ok(if text.contains("Nothing starts from this disk") { Ok(()) } else { Err(text) })
        })
        .await?;
        // OVMF says at once what it does after a loader that has ended.
        let said = printed().len();
        tokio::time::sleep(CALM).await;
        ensure!(qemu.0.try_wait()?.is_none(), "QEMU has ended: {}", printed());
        let more = printed().split_off(said);
        ensure!(!more.contains("BdsDxe") && !more.contains("Boot Manager"), "it does not wait: {more}");
        Ok(())
    });
}

/// It ends with the test.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
