//! One run of the host: a QEMU process from power-on to power-off.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};

use super::config::Config;
use super::qmp::{Answer, Arguments, Client};
use super::{firmware, inside, ports};

/// Id of the local disk's device.
pub const LOCAL_DISK: &str = "local";
/// Id of the NIC on the provisioning network.
pub const PROVISIONING: &str = "provisioning";
/// Id of the USB controller, at which a virtual CD drive appears.
pub const USB: &str = "usb";
/// Id of the NVMe controller that a target on the DPU offers.
pub const CONTROLLER: &str = "controller";

/// A host that is on.
pub struct Host {
    qmp: Client,
    kill: Option<oneshot::Sender<()>>,
    /// Tells this run from the ones before.
    pub number: u64,
}

/// What a fresh run comes with.
pub struct Started {
    pub host: Host,
    pub events: mpsc::UnboundedReceiver<Value>,
    pub process: Process,
}

/// The process behind a host, for whoever waits for its end.
pub struct Process {
    child: Child,
    kill: oneshot::Receiver<()>,
}

impl Process {
    /// Waits until the process has ended, by itself or on [`Host::kill`].
    pub async fn ended(mut self) {
        let by_itself = tokio::select! {
            status = self.child.wait() => Some(status),
            _ = self.kill => None,
        };
        match by_itself {
            Some(Ok(status)) => tracing::info!("QEMU ended: {status}"),
            Some(Err(error)) => tracing::warn!("cannot wait for QEMU: {error}"),
            None => match self.child.kill().await {
                Ok(()) => tracing::info!("QEMU was ended: power off"),
                Err(error) => tracing::warn!("cannot end QEMU: {error}"),
            },
        }
    }
}

impl Host {
    /// Starts QEMU, its processors stopped.
    pub async fn start(
        config: &Config,
        enter: Option<&Path>,
        accelerator: &str,
        number: u64,
        into_setup: bool,
    ) -> Result<Started> {
        let monitor = config.state("qmp.sock");
        for socket in [&monitor, &config.state("console.sock")] {
            if let Err(error) = std::fs::remove_file(socket)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(error).with_context(|| format!("remove the old socket {}", socket.display()));
            }
        }
        let variables = config.state("firmware-variables.fd");
        if !variables.exists() {
            let from = &config.firmware.variables;
            std::fs::copy(from, &variables)
                .with_context(|| format!("copy the firmware's variables {}", from.display()))?;
        }
        if into_setup {
            firmware::enter_setup(&variables)?;
        }
        let log_path = config.state("qemu.log");
        let log = std::fs::File::create(&log_path).with_context(|| format!("create {}", log_path.display()))?;
        let said = log.try_clone().context("share QEMU's log")?;
        let mut command = inside::command(enter, "setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&config.qemu).args(arguments(config, accelerator)?);
        let child = command.stdin(Stdio::null()).stdout(log).stderr(said).spawn().context("start QEMU")?;
        let (kill, killed) = oneshot::channel();
        let mut process = Process { child, kill: killed };
        let (qmp, events) = tokio::select! {
            connected = Client::connect(&monitor) => connected?,
            status = process.child.wait() => {
                let said = std::fs::read_to_string(&log_path).unwrap_or_default();
                bail!("QEMU ended at once ({status:?}): {}", said.lines().last().unwrap_or("it said nothing"));
            }
        };
        Ok(Started { host: Host { qmp, kill: Some(kill), number }, events, process })
    }

    pub async fn execute(&mut self, command: &str, arguments: Arguments) -> Answer {
        self.qmp.execute(command, arguments).await
    }

    /// Connects to the controller that a target offers in that folder, in the boot slot.
    pub async fn add_controller(&mut self, folder: &Path) -> Answer {
        let socket = json!({ "type": "unix", "path": folder.join("cntrl") });
        let device =
            json!({ "driver": "vfio-user-pci", "id": CONTROLLER, "bus": ports::BOOT, "addr": "0", "socket": socket });
        self.execute("device_add", device.as_object().cloned().unwrap_or_default()).await
    }

    /// Executes a command that takes no arguments.
    pub async fn order(&mut self, command: &str) -> Answer {
        self.execute(command, Arguments::new()).await
    }

    /// What QEMU does when the guest shuts down: `poweroff` or `pause`.
    pub async fn on_shutdown(&mut self, action: &str) -> Answer {
        self.execute("set-action", Arguments::from_iter([("shutdown".to_owned(), json!(action))])).await
    }

    /// Gives a device its place in the boot order, or none.
    pub async fn set_boot_index(&mut self, device: &str, index: Option<u32>) -> Answer {
        let value = index.map_or(json!(-1), |index| json!(index));
        let path = format!("/machine/peripheral/{device}");
        let arguments = [("path", json!(path)), ("property", json!("bootindex")), ("value", value)];
        self.execute("qom-set", arguments.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()).await
    }

    /// Cuts the power.
    pub fn kill(&mut self) {
        if let Some(kill) = self.kill.take() {
            // The process that nobody can tell has ended already.
            let _ = kill.send(());
        }
    }
}

fn arguments(config: &Config, accelerator: &str) -> Result<Vec<String>> {
    let personality = config.personality()?;
    let path = |path: &Path| escaped(&path.display().to_string());
    let state = |file: &str| path(&config.state(file));
    let mut arguments: Vec<String> =
        ["-nodefaults", "-no-user-config", "-display", "none", "-S"].map(str::to_owned).into();
    let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    add("-name", escaped(&config.name));
    if config.vfio_user.is_some() {
        // The target reads and writes the guest's memory.
        add("-object", format!("memory-backend-memfd,id=memory,size={}M,share=on", config.memory_mib));
        add("-machine", "q35,memory-backend=memory".to_owned());
    } else {
        add("-machine", "q35".to_owned());
    }
    add("-accel", if accelerator == "tcg" { "tcg,thread=multi".to_owned() } else { accelerator.to_owned() });
    add("-m", config.memory_mib.to_string());
    add("-smp", processors(accelerator, config.vcpus));
    add("-uuid", super::system_uuid(config).to_string());
    let (maker, model) = (escaped(personality.manufacturer), escaped(personality.model));
    add("-smbios", format!("type=1,manufacturer={maker},product={model},serial={}", escaped(&config.serial_number)));
    let code = path(&config.firmware.code);
    add("-drive", format!("if=pflash,format=raw,readonly=on,file={code}"));
    add("-drive", format!("if=pflash,format=raw,file={}", state("firmware-variables.fd")));
    let (socket, log) = (state("console.sock"), state("console.log"));
    add("-chardev", format!("socket,id=console,path={socket},server=on,wait=off,logfile={log},logappend=on"));
    add("-serial", "chardev:console".to_owned());
    add("-qmp", format!("unix:{},server=on,wait=off", state("qmp.sock")));
    add("-device", "virtio-rng-pci,bus=pcie.0,addr=0x10".to_owned());
    if personality.drive.is_some() {
        add("-device", format!("qemu-xhci,id={USB},bus=pcie.0,addr=0x{:x}", ports::USB_SLOT));
    }
    // What a DPU presents is not booted from the network, and a firmware that tries would be the first to send a packet.
    let (of_both, of_ipv6) =
        (["IPv4PXESupport", "IPv4Support", "IPv6PXESupport", "IPv6Support"], ["IPv6PXESupport", "IPv6Support"]);
    let absent = if config.provisioning.is_some() { &of_ipv6[..] } else { &of_both[..] };
    for name in absent {
        add("-fw_cfg", format!("name=opt/org.tianocore/{name},string=n"));
    }
    if let Some(nic) = &config.provisioning {
        let (tap, mac, slot) = (escaped(&nic.tap), escaped(&nic.mac), ports::PROVISIONING_SLOT);
        add("-netdev", format!("tap,id={PROVISIONING},ifname={tap},script=no,downscript=no"));
        // Without a ROM of its own: the firmware's own driver boots by it.
        let device = format!("virtio-net-pci,id={PROVISIONING},netdev={PROVISIONING},mac={mac},romfile=");
        add("-device", format!("{device},bus=pcie.0,addr=0x{slot:x}"));
    }
    if let Some(disk) = config.local_disk.as_deref().filter(|_| personality.has_local_disk) {
        let file = path(disk);
        add("-blockdev", format!("driver=raw,node-name={LOCAL_DISK},file.driver=file,file.filename={file}"));
        let (serial, slot) = (&config.serial_number, ports::LOCAL_DISK_SLOT);
        let device = format!(
            "nvme,id={LOCAL_DISK},drive={LOCAL_DISK},serial=local-{},bus=pcie.0,addr=0x{slot:x}",
            escaped(serial)
        );
        add("-device", device);
    }
    arguments.extend(ports::arguments());
    Ok(arguments)
}

/// For a machine that can have one processor only, QEMU before 8.1 leaves the guest's memory barriers out of what it translates;
/// but its devices run beside the processor. A guest that then tells the NVMe controller of a command by a shadow doorbell (NVMe
/// 1.4 section 7.13) may read the event index before the controller sees the doorbell, and the command is lost: one boot of two hundred hung.
/// A second processor that could be plugged in keeps them.
fn processors(accelerator: &str, present: u32) -> String {
    match accelerator {
        "tcg" => format!("{present},maxcpus={}", present.max(2)),
        _ => present.to_string(),
    }
}

/// QEMU's option syntax: a comma in a value is doubled.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::processors;

    #[test]
    fn a_translated_guest_keeps_its_memory_barriers() {
        let counted =
            [("tcg", 1), ("tcg", 4), ("kvm", 1)].map(|(accelerator, present)| processors(accelerator, present));
        assert_eq!(counted, ["1,maxcpus=2", "4,maxcpus=4", "1"]);
    }
}
