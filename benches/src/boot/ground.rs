//! The Hardware: each has one interface, whose MAC address and reservation are a client's of `boot-load`, by its number.

use super::network::{FIRST, NETMASK, RELAY};
use ::tests::site::INVENTORY_NAMESPACE;
use anyhow::{Context, Result};
use api::tinkerbell::Hardware;
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use std::net::Ipv4Addr;
use std::ops::Range;

/// Requests that are under way at the same time.
const AT_ONCE: usize = 32;

pub struct Ground {
    hardware: Api<Hardware>,
}

impl Ground {
    pub fn new(client: Client) -> Self {
        Self { hardware: Api::namespaced(client, INVENTORY_NAMESPACE) }
    }

    /// As fast as the API server takes them.
    pub async fn make(&self, numbers: Range<u16>) -> Result<()> {
        let make = |number| async move {
            let object = hardware(number)?;
            let made = self.hardware.create(&PostParams::default(), &object).await;
            made.with_context(|| format!("create Hardware {number}")).map(drop)
        };
        stream::iter(numbers.map(make)).buffer_unordered(AT_ONCE).try_collect().await
    }
}

pub fn mac(client: u16) -> String {
    let [high, low] = client.to_be_bytes();
    format!("52:54:00:b0:{high:02x}:{low:02x}")
}

pub fn address(client: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(FIRST) + u32::from(client))
}

/// As an inventory has it: more than what `boot` reads.
fn hardware(number: u16) -> Result<Hardware> {
    let name = format!("server-{number}");
    let object = json!({
        "metadata": {"name": name, "labels": {"rack": format!("r{}", number / 40)}},
        "spec": {
            "bmcRef": {"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": name},
            "disks": [{"device": "/dev/nvme0n1"}],
            "metadata": {"instance": {"id": mac(number), "hostname": name}},
            "interfaces": [{
                "dhcp": {
                    "mac": mac(number),
                    "hostname": name,
                    "arch": "x86_64",
                    "name_servers": ["10.120.0.2"],
                    "ip": {"address": address(number), "netmask": NETMASK, "gateway": RELAY},
                },
                "netboot": {"allowPXE": true, "allowWorkflow": true},
            }],
        },
    });
    serde_json::from_value(object).context("a Hardware")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_other_servers() {
        let all: std::collections::BTreeSet<_> = (0..10_000).map(|number| (mac(number), address(number))).collect();
        assert_eq!(all.len(), 10_000);
        assert_eq!(all.iter().map(|(_, address)| address).collect::<std::collections::BTreeSet<_>>().len(), 10_000);
        assert_eq!(hardware(300).expect("one").spec.interfaces.len(), 1);
    }
}
