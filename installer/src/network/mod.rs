//! The link that the server was started through, or a VLAN on it, and its address: what the boot script says, else what a DHCP server gives.

mod dhcp;

use crate::console;
use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use rtnetlink::{Handle, LinkUnspec, LinkVlan, RouteMessageBuilder};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// For a NIC to appear, and its link to come up.
const NIC: Duration = Duration::from_secs(60);
/// For all that DHCP takes.
const ADDRESS: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

/// Without it the kernel knows of no VLAN, and it asks for the module by a program that is not here.
pub const VLAN_MODULE: &str = "8021q";

/// The address of one NIC, with what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub address: Ipv4Addr,
    pub prefix: u8,
    pub router: Option<Ipv4Addr>,
    /// Name servers.
    pub names: Vec<Ipv4Addr>,
    /// The longest packet of that network, if it says so.
    pub mtu: Option<u16>,
}

/// IPv4 wants no less (RFC 791; RFC 2132, 5.1).
pub const LEAST_MTU: u16 = 68;

/// Takes the link up, and the VLAN on it if there is one, and gives it its address; without one (`given`), DHCP is asked. It is kept until
/// the restart: reservations last longer than an installation. `mtu` goes before that of the network.
pub async fn up(mac: Option<[u8; 6]>, vlan: Option<u16>, given: Option<Lease>, mtu: Option<u16>) -> Result<()> {
    let (connection, handle, _) = rtnetlink::new_connection().context("open a netlink socket")?;
    tokio::spawn(connection);
    link_up(&handle, "lo").await?;
    let (name, mac) = find(mac).await?;
    link_up(&handle, &name).await?;
    carrier(&name).await?;
    let nic = name;
    let name = match vlan {
        Some(id) => tagged(&handle, &nic, id).await.with_context(|| format!("make VLAN {id} on {nic}"))?,
        None => nic.clone(),
    };
    let (lease, from) = match given {
        Some(lease) => (lease, "the boot script"),
        None => {
            let lease = timeout(ADDRESS, dhcp::lease(&name, mac)).await;
            let silent = |_| anyhow::anyhow!("no DHCP server answered on {name} within {} s", ADDRESS.as_secs());
            (lease.map_err(silent)??, "DHCP")
        }
    };
    console::say(format_args!("{name} has {}/{} by {from}", lease.address, lease.prefix));
    if let Some(mtu) = mtu.or(lease.mtu) {
        let also_tagged = vlan.is_some().then_some(name.as_str());
        for link in [nic.as_str()].into_iter().chain(also_tagged) {
            resize(&handle, link, mtu).await;
        }
    }
    let index = index(&handle, &name).await?;
    let added = handle.address().add(index, lease.address.into(), lease.prefix).execute().await;
    added.with_context(|| format!("give {} to {name}", lease.address))?;
    if let Some(router) = lease.router {
        let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(router).build();
        handle.route().add(route).execute().await.with_context(|| format!("add the route by {router}"))?;
    }
    if !lease.names.is_empty() {
        let text: String = lease.names.iter().map(|server| format!("nameserver {server}\n")).collect();
        fs::write("/etc/resolv.conf", text).context("write /etc/resolv.conf")?;
    }
    Ok(())
}

/// The NIC with that MAC address; without one, the first that there is.
async fn find(wanted: Option<[u8; 6]>) -> Result<(String, [u8; 6])> {
    let until = Instant::now() + NIC;
    loop {
        let nics = nics(Path::new("/sys/class/net"));
        let found = nics.iter().find(|(_, mac)| wanted.is_none_or(|wanted| wanted == *mac));
        if let Some(found) = found {
            return Ok(found.clone());
        }
        if Instant::now() > until {
            let names: Vec<&str> = nics.iter().map(|(name, _)| name.as_str()).collect();
            match wanted {
                Some(mac) => bail!("no NIC has the MAC address {}; there are: {}", text(mac), names.join(", ")),
                None => bail!("there is no NIC"),
            }
        }
        sleep(LOOK).await;
    }
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Ethernet devices, by name.
fn nics(folder: &Path) -> Vec<(String, [u8; 6])> {
    let mut nics = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default().trim().to_owned();
        const ETHERNET: &str = "1";
        let address = read("address");
        let mac: Vec<u8> = address.split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        if let Ok(mac) = <[u8; 6]>::try_from(mac)
            && read("type") == ETHERNET
        {
            nics.push((entry.file_name().to_string_lossy().into_owned(), mac));
        }
    }
    nics.sort();
    nics
}

async fn index(handle: &Handle, name: &str) -> Result<u32> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    let link = links.try_next().await.with_context(|| format!("look for {name}"))?;
    Ok(link.with_context(|| format!("{name} is no longer there"))?.header.index)
}

async fn link_up(handle: &Handle, name: &str) -> Result<()> {
    let up = LinkUnspec::new_with_name(name).up().build();
    handle.link().set(up).execute().await.with_context(|| format!("take {name} up"))
}

/// A NIC whose driver takes no such MTU keeps its own: most networks are reached by that, and the line says why if this one is not.
async fn resize(handle: &Handle, name: &str, mtu: u16) {
    let link = LinkUnspec::new_with_name(name).mtu(mtu.into()).build();
    match handle.link().set(link).execute().await {
        Ok(()) => console::say(format_args!("{name} has the MTU {mtu}")),
        Err(error) => console::say(format_args!("{name} does not take the MTU {mtu}: {error}")),
    }
}

/// The interface of a VLAN, which is up then: what is sent there has that tag (802.1Q), and nothing else is heard.
async fn tagged(handle: &Handle, nic: &str, id: u16) -> Result<String> {
    let name = format!("{nic}.{id}");
    let link = LinkVlan::new(&name, index(handle, nic).await?, id).up().build();
    handle.link().add(link).execute().await?;
    Ok(name)
}

async fn carrier(name: &str) -> Result<()> {
    let until = Instant::now() + NIC;
    while fs::read_to_string(format!("/sys/class/net/{name}/carrier")).unwrap_or_default().trim() != "1" {
        if Instant::now() > until {
            bail!("{name} has no link after {} s", NIC.as_secs());
        }
        sleep(LOOK).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_alone_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, kind, address) in [
            ("lo", "772", "00:00:00:00:00:00"),
            ("eth1", "1", "52:54:00:00:00:02"),
            ("eth0", "1", "52:54:00:00:00:01"),
            ("ib0", "32", "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:31:78:f2"),
        ] {
            fs::create_dir(folder.path().join(name)).expect("made");
            fs::write(folder.path().join(name).join("type"), format!("{kind}\n")).expect("written");
            fs::write(folder.path().join(name).join("address"), format!("{address}\n")).expect("written");
        }
        let mac = |last| [0x52, 0x54, 0, 0, 0, last];
        assert_eq!(nics(folder.path()), [("eth0".to_owned(), mac(1)), ("eth1".to_owned(), mac(2))]);
        assert_eq!(text(mac(1)), "52:54:00:00:00:01");
    }
}
