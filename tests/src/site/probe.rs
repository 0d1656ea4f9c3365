//! A logical port of the tests' own: an internal port of a node's `br-int`, a member of a Subnet's network as a guest is one.

use super::{Site, until};
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use std::net::IpAddr;
use std::time::Duration;

/// The security group that lets its members reach each other.
const GROUP: &str = "default";
/// The rows of a Subnet that was just made are written by the controller.
const PROGRAMMED: Duration = Duration::from_secs(60);

/// Where a probe is a member, and as who.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub namespace: &'a str,
    pub subnet: &'a str,
    /// With their prefixes, of either family; such as nobody is given, for no AddressHold knows of them.
    pub addresses: &'a [&'a str],
}

pub struct Probe<'a> {
    site: &'a Site,
    node: String,
    device: &'static str,
    /// Its logical port; no name of Metalplane's begins so.
    port: String,
    addresses: Vec<String>,
}

impl Site {
    /// Makes a probe on a node and waits until OVN has bound it. `device` is the internal port.
    pub async fn probe(&self, node: &str, device: &'static str, place: Place<'_>) -> Result<Probe<'_>> {
        let port = format!("probe-{}-{node}-{device}", place.namespace);
        let addresses = place.addresses.iter().map(|&address| address.to_owned()).collect();
        let probe = Probe { site: self, node: node.to_owned(), device, port, addresses };
        let mac = mac(place.addresses)?;
        let bare: Vec<&str> = place.addresses.iter().filter_map(|address| address.split('/').next()).collect();
        probe.make_logical_port(place, &format!("{mac} {}", bare.join(" "))).await?;
        let interface = format!("type=internal mac=\"{mac}\" external-ids:iface-id={}", probe.port);
        let add = format!("ovs-vsctl --may-exist add-port br-int {device} -- set interface {device} {interface}");
        self.enter(node, &add.split(' ').collect::<Vec<_>>()).await?;
        probe.configure().await?;
        self.nbctl(&["wait-until", "Logical_Switch_Port", &probe.port, "up=true"]).await?;
        self.nbctl(&["--wait=hv", "sync"]).await?;
        Ok(probe)
    }

    /// Takes a probe away, if there is one.
    pub async fn remove_probe(&self, node: &str, device: &str) -> Result<()> {
        let port = ["ovs-vsctl", "--if-exists", "get", "interface", device, "external-ids:iface-id"];
        let port = self.enter(node, &port).await?;
        self.enter(node, &["ovs-vsctl", "--if-exists", "del-port", "br-int", device]).await?;
        match port.trim().trim_matches('"') {
            "" => Ok(()),
            port => self.nbctl(&["--if-exists", "lsp-del", port]).await.map(drop),
        }
    }

    /// The UUID of a row that the controller wrote for an object.
    async fn north_bound_row(&self, table: &str, kind: &str, uid: &str) -> Result<String> {
        let (kind, uid) =
            (format!("external_ids:metalplane-kind={kind}"), format!("external_ids:metalplane-uid={uid}"));
        until(&format!("{table} has a row with {kind}, {uid}"), PROGRAMMED, async || {
            let rows = self.nbctl(&["--bare", "--columns=_uuid", "find", table, &kind, &uid]).await?;
            let rows: Vec<&str> = rows.split_whitespace().collect();
            ensure!(rows.len() < 2, "{table} has {} rows with {kind}, {uid}", rows.len());
            Ok(rows.first().map(|row| (*row).to_owned()).ok_or_else(|| "none".to_owned()))
        })
        .await
    }

    async fn uid(&self, kind: &str, namespace: &str, name: &str) -> Result<String> {
        self.kubectl(&["get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.uid}"]).await
    }
}

impl Probe<'_> {
    /// Waits until `address` answers; tells when it did.
    pub async fn hears(&self, address: &str, limit: Duration) -> Result<Timestamp> {
        // Asks five times a second until the first answer; an error from its own network ends it, so it is asked again.
        let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "10", "-I", self.device, address];
        until(&format!("{address} answers ping from {}", self.node), limit, async || {
            let answered = self.site.enter(&self.node, &ask).await;
            Ok(answered.map(|_| Timestamp::now()).map_err(|error| format!("{error:#}")))
        })
        .await
    }

    /// One question, which is answered.
    pub async fn hears_at_once(&self, address: &str) -> Result<()> {
        let ask = ["ping", "-q", "-c", "1", "-W", "2", "-I", self.device, address];
        let answered = self.site.enter(&self.node, &ask).await;
        answered.map(drop).with_context(|| format!("{address} does not answer {}", self.node))
    }

    /// Asks ten times a second, always on one connection, for so many seconds; tells when answers came.
    pub async fn answers(&self, address: &str, seconds: u32) -> Result<Vec<Timestamp>> {
        let seconds = seconds.to_string();
        // Without an answer it ends with an error, which is none here.
        let ask = "ping -D -i 0.1 -w \"$1\" -I \"$2\" \"$3\" || true";
        let told = self.site.enter(&self.node, &["sh", "-c", ask, "sh", &seconds, self.device, address]).await?;
        let at = |line: &str| {
            let (at, _) = line.strip_prefix('[')?.split_once("] ")?;
            let microseconds = at.replace('.', "").parse().ok()?;
            Timestamp::from_microsecond(microseconds).ok()
        };
        Ok(told.lines().filter(|line| line.contains("bytes from")).filter_map(at).collect())
    }

    /// Every chassis has what was written; then `address` does not answer three questions.
    pub async fn hears_nothing(&self, address: &str) -> Result<()> {
        self.site.nbctl(&["--wait=hv", "sync"]).await?;
        let ask = ["ping", "-q", "-i", "0.2", "-c", "3", "-W", "1", "-I", self.device, address];
        let answered = self.site.enter(&self.node, &ask).await;
        ensure!(answered.is_err(), "{address} answers {} although no group allows it", self.node);
        Ok(())
    }

    /// Gives the device its addresses, as a node's network configuration does: a switch that starts anew makes the device
    /// without.
    pub async fn configure(&self) -> Result<()> {
        let (site, node, device) = (self.site, &self.node, self.device);
        // The router advertises to guests: by that the node would have another address here, and a default route.
        let deaf = format!("echo 0 >/proc/sys/net/ipv6/conf/{device}/accept_ra");
        site.enter(node, &["sh", "-c", &deaf]).await?;
        for address in &self.addresses {
            // The address is used at once, and OVN lets nobody else have it.
            let at_once: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            site.enter(node, &[&["ip", "addr", "replace", address, "dev", device], at_once].concat()).await?;
        }
        site.enter(node, &["ip", "link", "set", device, "up"]).await.map(drop)
    }

    async fn make_logical_port(&self, place: Place<'_>, addresses: &str) -> Result<()> {
        let (site, port) = (self.site, self.port.as_str());
        let subnet = site.uid("subnets.metalplane.io", place.namespace, place.subnet).await?;
        let switch = site.north_bound_row("Logical_Switch", "Subnet", &subnet).await?;
        let set = ["--", "lsp-set-addresses", port, addresses, "--", "lsp-set-port-security", port, addresses];
        site.nbctl(&[&["--may-exist", "lsp-add", &switch, port], set.as_slice()].concat()).await?;
        let group = site.uid("securitygroups.metalplane.io", place.namespace, GROUP).await?;
        let group = site.north_bound_row("Port_Group", "SecurityGroup", &group).await?;
        let row = site.nbctl(&["--bare", "--columns=_uuid", "list", "Logical_Switch_Port", port]).await?;
        site.nbctl(&["add", "Port_Group", &group, "ports", row.trim()]).await.map(drop)
    }
}

/// A locally administered one, by the end of the first address.
fn mac(addresses: &[&str]) -> Result<String> {
    let first = addresses.first().context("a probe has an address")?;
    let (address, _) = first.split_once('/').context("the address of a probe has a prefix")?;
    let [a, b, c, d] = match address.parse::<IpAddr>().context("the address of a probe")? {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            [a, b, c, d]
        }
    };
    Ok(format!("02:70:{a:02x}:{b:02x}:{c:02x}:{d:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_the_mac_address_of_its_first_address() {
        assert_eq!(mac(&["10.30.0.250/24", "fd00:30::250/64"]).expect("an address"), "02:70:0a:1e:00:fa");
        assert_eq!(mac(&["fd00:30::1:250/64"]).expect("an address"), "02:70:00:01:02:50");
        assert!(mac(&[]).is_err() && mac(&["10.30.0.250"]).is_err());
    }
}
