//! A second NIC while the guest runs: seen on its PCI bus, with an address by DHCP, used from another DPU; then unplugged, and nothing of it
//! remains.

use super::machine::MACHINE;
use super::{NAMESPACE, Story, report};
use crate::guest::Guest;
use crate::site::{Place, Site, until};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const NIC: &str = "eth1";
/// A NIC that waits, and the Subnet that it waits for.
const WAITS: &str = "eth2";
const NOBODYS: &str = "violet";
/// In the machine's Vpc; nobody has a NIC in it yet.
const GREEN: &str = "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {name: green}
spec: {cidr: 10.21.0.0/24}
";
/// Of whoever asks the new NIC.
const ASKS_AS: Place = Place { namespace: NAMESPACE, subnet: "green", addresses: &["10.21.0.250/24"] };
/// cloud-init has configured what was there at the start, by MAC address. The last file by name is for what no other is for.
const BY_DHCP: &str = "printf '[Match]\\nType=ether\\n[Network]\\nDHCP=ipv4\\n' >/etc/systemd/network/99-later.network; networkctl reload";
/// Tells the console the address once it is there, in one line with an end. The mark is split, so that the console's echo of it is none.
const TELL: &str = "(until a=$(ip -4 -brief address | grep -o '10\\.21\\.0\\.[0-9]*/24'); do sleep 0.1; done; printf '\\nMP-''GREEN %s .\\n' $a >/dev/console) &";

/// Of what a NIC is beside the guest, as [`traces`] calls it.
const TRACES: [&str; 6] = ["port", "device", "row", "VNic", "NicAttachment", "AddressHold"];

/// The machine has it.
pub(super) struct Plugged {
    vnic: Value,
    address: String,
    dpu: String,
    /// What the DPU had before.
    devices: Vec<String>,
}

pub(super) async fn plug(story: &Story, site: &Site, guest: &Guest, dpu: &str) -> Result<Plugged> {
    site.apply(GREEN).await?;
    let devices = site.network_devices(dpu).await?;
    on_pci(guest, 1).await?;
    guest.shell(BY_DHCP, LIMIT).await?;
    guest.order(TELL, LIMIT).await?;
    let printed = guest.printed().len();

    story.say(&format!("bmctl addinterface {MACHINE} {NIC} --subnet green"));
    let began = Instant::now();
    let add = ["addinterface", MACHINE, NIC, "--subnet", "green", "--wait", "--timeout", "180s"];
    let has_address = async {
        let is_told = |line: &str| line.contains("MP-GREEN ") && line.trim_end().ends_with(" .");
        let told = guest.line("the guest has an address by DHCP", printed, 3 * LIMIT, is_told).await?;
        anyhow::Ok((told, began.elapsed()))
    };
    let (_, (told, took)) = tokio::try_join!(site.bmctl(&add), has_address)?;
    let seen = on_pci(guest, 2).await?;
    let took = report::network("hot-plug → address in the guest", took)?;
    let vnic = site.assigned_vnic(NAMESPACE, &format!("{MACHINE}-{NIC}")).await?;
    let address = vnic["status"]["addresses"][0].as_str().context("the VNic has no address")?.to_owned();
    ensure!(told.contains(&format!(" {address}/24 ")), "the guest has another address than {address}: {told}");
    story.say(&format!("lspci in the guest: {seen}"));
    story.say(&format!("the guest took {address} by DHCP, {took} ms after bmctl was started"));
    site.ping_from_another_dpu(dpu, ASKS_AS, &address, LIMIT).await?;
    story.say(&format!("{address} answers ping from another DPU"));
    let plugged = Plugged { vnic, address, dpu: dpu.to_owned(), devices };
    let there = traces(site, &plugged).await?;
    let unseen = TRACES.iter().find(|kind| !there.iter().any(|trace| trace.starts_with(**kind)));
    ensure!(unseen.is_none(), "of {NIC} there should be a {}, among {}", unseen.unwrap_or(&""), there.join(", "));
    Ok(plugged)
}

/// A NIC in a Subnet that nobody made: what it waits for is said.
pub(super) async fn waits(story: &Story, site: &Site) -> Result<()> {
    story.say(&format!("bmctl addinterface {MACHINE} {WAITS} --subnet {NOBODYS}"));
    site.bmctl(&["addinterface", MACHINE, WAITS, "--subnet", NOBODYS]).await?;
    let told = until(&format!("bmctl explain names the Subnet {NOBODYS}"), LIMIT, async || {
        let told = site.bmctl(&["explain", MACHINE]).await?;
        Ok(if told.contains(NOBODYS) { Ok(told) } else { Err(told) })
    })
    .await?;
    let lines: Vec<&str> = told.lines().filter(|line| line.contains(NOBODYS)).map(str::trim).collect();
    story.say(&format!("bmctl explain {MACHINE}: {}", lines.join("; ")));
    site.bmctl(&["removeinterface", MACHINE, WAITS, "--wait", "--timeout", "60s"]).await.map(drop)
}

pub(super) async fn unplug(story: &Story, site: &Site, guest: &Guest, plugged: &Plugged) -> Result<()> {
    story.say(&format!("bmctl removeinterface {MACHINE} {NIC}"));
    site.bmctl(&["removeinterface", MACHINE, NIC, "--wait", "--timeout", "180s"]).await?;
    on_pci(guest, 1).await?;
    until(&format!("nothing is left of {NIC}"), LIMIT, async || {
        let left = traces(site, plugged).await?;
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    })
    .await?;
    let address = &plugged.address;
    story.say(&format!("nothing of {NIC} remains: no {}, and nobody holds {address}", TRACES.join(", ")));
    site.delete(GREEN).await.map(drop)
}

/// What there is of it beside the guest.
async fn traces(site: &Site, plugged: &Plugged) -> Result<Vec<String>> {
    let Plugged { vnic, address, dpu, devices } = plugged;
    let mut found = site.network_devices(dpu).await?;
    found.retain(|device| !devices.contains(device));
    let rows = site.north_bound_rows().await?;
    let of_vnic = rows.iter().filter(|row| vnic["metadata"]["uid"] == row.uid.as_str());
    found.extend(of_vnic.map(|row| format!("row of {}", row.table)));
    let name = vnic["metadata"]["name"].as_str().context("the VNic has a name")?;
    found.extend(site.get(&["vnic", name, "-n", NAMESPACE]).await?.map(|_| format!("VNic {name}")));
    let attached = site.kubectl(&["get", "nicattachments", "-A", "-o", "jsonpath={.items[*].spec.vnicName}"]).await?;
    found.extend(attached.split(' ').filter(|one| *one == name).map(|_| "NicAttachment".to_owned()));
    let held = site.kubectl(&["get", "addressholds", "-o", "jsonpath={.items[*].spec.address}"]).await?;
    found.extend(held.split(' ').filter(|one| one == address).map(|_| "AddressHold".to_owned()));
    Ok(found)
}

/// The guest's PCI bus has so many network controllers; the last one of them.
async fn on_pci(guest: &Guest, wanted: usize) -> Result<String> {
    until(&format!("lspci in the guest tells {wanted} network controllers"), LIMIT, async || {
        let told = guest.shell("lspci -d ::0200", LIMIT).await?;
        let seen: Vec<&str> = told.lines().filter(|line| line.contains("Ethernet controller")).collect();
        let last = seen.last().copied().unwrap_or_default().trim().to_owned();
        Ok(if seen.len() == wanted { Ok(last) } else { Err(told) })
    })
    .await
}
