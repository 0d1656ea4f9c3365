//! Who hears what is sent. In blue a machine, a pod and a virtual machine, on three nodes; in red one with the address of each. Everybody of
//! either Vpc may reach TCP 443 of its own members, so that nothing but the Vpc keeps a payload from the other one.

use super::machine::{console_of, dpu_of};
use super::network::{MACHINE, PODS, addresses_of, virtual_machine, vnic_of};
use super::{BOOT_LIMIT, NAMESPACE, Story};
use crate::guest::Guest;
use crate::site::{Netns, ORDINARY_NODE, Site, by_first_address, until};
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 443;
/// Takes connections one after the other. The mark is split, so that the console's echo of it is none.
const LISTEN: &str = "(while :; do nc -l -p 443 </dev/null >/tmp/got || sleep 1; printf '\\nMP-''HEARD %s\\n' \"$(cat /tmp/got)\" >/dev/console; done) &";
/// Who in red has no pod.
const RED: [&str; 2] = ["red-machine", "red-vm"];
/// The group of everything in red that listens.
pub(super) const RED_OPEN: &str = "apiVersion: metalplane.io/v1alpha1
kind: SecurityGroup
metadata: {name: red-open}
spec: {vpc: {name: red}, ingress: [{ports: [{protocol: TCP, port: 443}]}]}
";

struct Member {
    name: &'static str,
    /// Of each family one.
    addresses: [String; 2],
    at: At,
}

enum At {
    Netns(Box<Netns>),
    /// And where its console was before it listened.
    Guest(Guest, usize),
}

impl Member {
    async fn in_pod(site: &Site, name: &'static str) -> Result<Self> {
        let mut inside = Netns::of_pod(&site.pod(NAMESPACE, name).await?, name);
        inside.listen(site, &[PORT]).await?;
        Ok(Self {
            name,
            addresses: addresses_of(site, &vnic_of(site, name).await?).await?,
            at: At::Netns(Box::new(inside)),
        })
    }

    async fn in_guest(name: &'static str, guest: Guest, addresses: [String; 2]) -> Result<Self> {
        guest.line(&format!("the guest of {name} has booted"), 0, BOOT_LIMIT, |line| line.contains("MP-BOOT ")).await?;
        let from = guest.printed().len();
        guest.order(LISTEN, LIMIT).await?;
        Ok(Self { name, addresses, at: At::Guest(guest, from) })
    }

    /// One by `nodeName`. The VNic is there.
    async fn on_node(site: &Site, name: &'static str, node: &str) -> Result<Self> {
        let vnic = site.assigned_vnic(NAMESPACE, name).await?;
        let mut made = site.netns_of_vnic(&vnic, node, name, by_first_address).await?;
        made.listen(site, &[PORT]).await?;
        site.ports_are_up(&[vnic["metadata"]["uid"].as_str().unwrap_or_default()]).await?;
        Ok(Self { name, addresses: addresses_of(site, name).await?, at: At::Netns(Box::new(made)) })
    }

    fn heard(&self) -> Vec<String> {
        match &self.at {
            At::Netns(inside) => inside.heard(),
            At::Guest(guest, from) => {
                let printed = guest.printed();
                let lines = printed.get(*from..).unwrap_or_default().lines();
                lines.filter_map(|line| Some(line.split_once("MP-HEARD ")?.1.trim().to_owned())).collect()
            }
        }
    }

    async fn send(&self, site: &Site, to: &str, payload: &str) -> Result<()> {
        match &self.at {
            At::Netns(inside) => inside.send(site, &format!("tcp {to} {PORT} {payload}\n")).await,
            At::Guest(guest, _) => guest.shell(&format!("echo {payload} | nc -w 1 {to} {PORT}"), LIMIT).await.map(drop),
        }
    }

    /// Sends until it is heard: a guest takes the next connection a moment after the last one.
    async fn reaches(&self, site: &Site, other: &Self, address: &str, payload: &str) -> Result<()> {
        until(&format!("{} hears {payload} of {} at {address}", other.name, self.name), LIMIT, async || {
            self.send(site, address, payload).await?;
            let heard = other.heard();
            Ok(if heard.iter().any(|line| line.contains(payload)) { Ok(()) } else { Err(heard.join(", ")) })
        })
        .await
    }

    fn hears_none(&self, vpc: &str) -> Result<()> {
        let heard = self.heard();
        let other = heard.iter().find(|line| line.contains(&format!("{vpc}-")));
        ensure!(other.is_none(), "{} ({:?}) heard what was sent in {vpc}: {heard:?}", self.name, self.addresses);
        Ok(())
    }
}

/// `addresses`: the machine's.
pub(super) async fn show(story: &Story, site: &Site, addresses: &[String; 2]) -> Result<()> {
    let virtual_machine = virtual_machine();
    let of_vm = addresses_of(site, &vnic_of(site, virtual_machine.name).await?).await?;
    let blue = [
        Member::in_pod(site, PODS[0]).await?,
        Member::in_guest(MACHINE, console_of(site, MACHINE).await?, addresses.clone()).await?,
        Member::in_guest(virtual_machine.name, virtual_machine.console(site), of_vm.clone()).await?,
    ];
    let dpu = dpu_of(site, MACHINE).await?;
    let other_dpu = site.another_dpu(&dpu)?;
    story.say(&format!(
        "{} is on {ORDINARY_NODE}, {} on {}, the NIC of {MACHINE} on {dpu}",
        PODS[0], virtual_machine.name, virtual_machine.node
    ));
    let [machine, vm] = RED;
    let vnics = [vnic(machine, "red-a", addresses, other_dpu), vnic(vm, "red-b", &of_vm, ORDINARY_NODE)];
    story.say(&format!(
        "kubectl apply: VNics {machine} and {vm} in red, with the addresses {} and {}",
        addresses.join(", "),
        of_vm.join(", ")
    ));
    site.apply(&vnics.join("---\n")).await?;
    let mut red = [
        Member::in_pod(site, PODS[1]).await?,
        Member::on_node(site, machine, other_dpu).await?,
        Member::on_node(site, vm, ORDINARY_NODE).await?,
    ];
    let heard = all(story, site, &blue, &red).await;
    for member in &mut red {
        if let At::Netns(inside) = &mut member.at {
            inside.remove(site).await?;
        }
    }
    heard?;
    site.delete(&vnics.join("---\n")).await.map(drop)
}

/// In both Vpcs the same is sent, by turns, to the same addresses: each that should hear nothing of the other Vpc is known to hear.
async fn all(story: &Story, site: &Site, blue: &[Member; 3], red: &[Member; 3]) -> Result<()> {
    for (one, other) in [(0, 1), (1, 0), (2, 1), (1, 2)] {
        let ([from, to], [red_from, red_to]) = ([&blue[one], &blue[other]], [&red[one], &red[other]]);
        ensure!(red_to.addresses == to.addresses, "{} has {:?}, not {:?}", red_to.name, red_to.addresses, to.addresses);
        for (address, family) in to.addresses.iter().zip([4, 6]) {
            from.reaches(site, to, address, &format!("blue-{one}-{other}{family}")).await?;
            red_from.reaches(site, red_to, address, &format!("red-{one}-{other}{family}")).await?;
        }
        story.say(&format!("{} reaches {} ({}) by TCP {PORT}", from.name, to.name, to.addresses.join(", ")));
    }
    blue.iter().try_for_each(|member| member.hears_none("red"))?;
    red.iter().try_for_each(|member| member.hears_none("blue"))?;
    story.say("those in red, with the same addresses, heard each other, and nothing of blue; nor did blue hear them");
    Ok(())
}

fn vnic(name: &str, subnet: &str, [four, six]: &[String; 2], node: &str) -> String {
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: VNic
metadata: {{name: {name}}}
spec: {{subnet: {subnet}, addresses: [{four}, '{six}'], securityGroups: [red-open], nodeName: {node}}}
"
    )
}
