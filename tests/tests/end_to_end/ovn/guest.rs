//! An endpoint in a guest: a machine's, or that of a virtual machine in a pod. Each NIC of a guest has a network namespace of its own in
//! there, so that none answers for another. The guest is told by its serial console, and heard by it.

use super::draw::PORTS;
use super::endpoint::ways;
use crate::machine::{BOOT, SOON};
use anyhow::{Result, ensure};
use serde_json::json;
use std::fmt::Write as _;
use std::sync::Arc;
use tests::guest::Guest;
use tests::site::{GuestKind, LISTEN, ORDINARY_NODE, SEND, Site, Vm};
use tokio::sync::Mutex;

/// Machines: the server, and the VNics of the machine's interfaces.
const MACHINES: [(&str, &[&str]); 2] = [("server-1", &["blue-2"]), ("server-2", &["red-2", "red-3"])];
const IN_A_POD: &str = "blue-3";
const IMAGE: &str = "debian-12";

/// Whether this VNic is a guest's.
pub(super) fn is_one(vnic: &str) -> bool {
    vnic == IN_A_POD || MACHINES.iter().any(|(_, vnics)| vnics.contains(&vnic))
}

/// What boots.
pub(super) struct Booting {
    guest: Guest,
    /// Where its console was before.
    from: usize,
    vnics: &'static [&'static str],
}

/// Two machines, and a virtual machine in a pod. Their VNics are there.
pub(super) async fn start(site: &Site, namespace: &str) -> Result<Vec<Booting>> {
    site.golden_image(GuestKind::Debian, Some(namespace), IMAGE).await?;
    let mut all = Vec::new();
    for (server, vnics) in MACHINES {
        let guest = site.server(server).guest();
        all.push(Booting { from: guest.printed().len(), guest, vnics });
        let interfaces =
            vnics.iter().enumerate().map(|(n, vnic)| json!({"name": format!("eth{n}"), "vnic": {"name": vnic}}));
        let machine = json!({
            "apiVersion": "metalplane.io/v1alpha1",
            "kind": "BareMetalMachine",
            "metadata": {"name": server},
            "spec": {
                "hardware": {"name": server.replace("server-", "rack1-u0")},
                "terminationGracePeriodSeconds": 5,
                "disks": [{"name": "root", "bootOrder": 1, "source": {"image": {"kind": "MachineImage", "name": IMAGE}}}],
                "interfaces": interfaces.collect::<Vec<_>>(),
            },
        });
        site.apply_in(namespace, &machine.to_string()).await?;
    }
    let nic = json!({"vnic": IN_A_POD});
    let virtual_machine = Vm { namespace, name: "virtual", node: ORDINARY_NODE, nic, guest: GuestKind::Debian };
    site.apply(&virtual_machine.manifest().await?).await?;
    all.push(Booting { guest: virtual_machine.console(site), from: 0, vnics: &[IN_A_POD] });
    Ok(all)
}

/// A Debian with the two programs: it has Perl.
pub(super) struct Console {
    guest: Guest,
    /// Two NICs of one guest take turns.
    typing: Mutex<()>,
}

impl Booting {
    /// Once the guest has booted; and the VNics that are in it.
    pub(super) async fn booted(self) -> Result<(Arc<Console>, &'static [&'static str])> {
        let Self { guest, from, vnics } = self;
        guest.line("the guest of an endpoint has booted", from, BOOT, |line| line.contains("MP-BOOT ")).await?;
        // What the kernel says would stand in the middle of what is heard.
        guest.shell("dmesg -n 1", SOON).await?;
        for (file, program) in [("listen.pl", LISTEN), ("send.pl", SEND)] {
            guest.fed(&format!("cat >/root/{file}"), program, SOON).await?;
        }
        Ok((Arc::new(Console { guest, typing: Mutex::new(()) }), vnics))
    }
}

pub(super) struct InGuest {
    console: Arc<Console>,
    /// The endpoint's, and of its namespace.
    name: String,
    from: usize,
}

impl InGuest {
    pub(super) async fn new(console: Arc<Console>, name: &str, mac: &str, addresses: &[&str]) -> Result<Self> {
        let mut make = format!(
            "set -e; ip netns add {name}; device=$(basename $(dirname $(grep -l {mac} /sys/class/net/*/address))); \
             ip link set $device netns {name}; inside() {{ ip -n {name} \"$@\"; }}; inside link set lo up; \
             inside link set $device up mtu 1442"
        );
        for address in addresses {
            let (length, gateway, all) = ways(address)?;
            let nodad = if address.contains(':') { "nodad" } else { "" };
            write!(make, "; inside address add {address}/{length} dev $device {nodad}")?;
            write!(make, "; inside route add {all} via {gateway} dev $device")?;
        }
        let typing = console.typing.lock().await;
        let said = console.guest.shell(&format!("({make})"), SOON).await?;
        ensure!(said.contains("MP-DONE 0"), "{name} in its guest: {said}");
        drop(typing);
        Ok(Self { console, name: name.to_owned(), from: 0 })
    }

    pub(super) async fn listen(&mut self) -> Result<()> {
        let (name, ports) = (&self.name, PORTS.map(|port| port.to_string()).join(" "));
        let _typing = self.console.typing.lock().await;
        let guest = &self.console.guest;
        self.from = guest.printed().len();
        let listen =
            format!("WHO='at {name}: ' setsid ip netns exec {name} perl /root/listen.pl {ports} >/dev/console 2>&1 &");
        guest.order(&listen, SOON).await?;
        let ready = format!("at {name}: ready");
        guest
            .line(&format!("{name} listens in its guest"), self.from, SOON, |line| line.contains(&ready))
            .await
            .map(drop)
    }

    pub(super) fn heard(&self) -> Vec<String> {
        let printed = self.console.guest.printed();
        let mark = format!("at {}: ", self.name);
        // A line may begin behind the shell's own words.
        let lines = printed.get(self.from..).unwrap_or_default().lines();
        lines.filter_map(|line| Some(line.split_once(&mark)?.1.trim_end().to_owned())).collect()
    }

    pub(super) async fn send(&self, lines: &str) -> Result<()> {
        let name = &self.name;
        let _typing = self.console.typing.lock().await;
        let said = self.console.guest.fed(&format!("ip netns exec {name} perl /root/send.pl"), lines, SOON).await?;
        ensure!(said.contains("MP-DONE 0"), "the sender of {name}: {said}");
        Ok(())
    }
}
