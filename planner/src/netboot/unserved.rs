//! Why DHCP does not serve a server, as a reason.
//!
//! That two Hardware have one MAC address follows from the inventory, so it is told before a server is powered on in vain. Everything else
//! only the boot service sees, and tells in the server's HardwareReport: it alone knows how a network is served. A Hardware without an
//! address boots by a pool, and beside another DHCP server.

use super::{Directory, Why};
use crate::meta::name;
use crate::reason::{Blocked, Reason};
use api::report::{DhcpUnserved, DhcpUnservedReason, HardwareReportStatus, NetbootStage};
use api::tinkerbell::Hardware;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The name of [`same_mac`]'s reason.
pub const SAME_MAC: &str = "SameMacAddress";

/// What the boot service says of a server that it does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    pub reason: DhcpUnservedReason,
    pub message: String,
    /// The DHCP server whose address was taken.
    pub server: Option<Ipv4Addr>,
    pub address: Option<Ipv4Addr>,
}

impl Unserved {
    pub fn new(reason: DhcpUnservedReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), server: None, address: None }
    }

    /// As it stands in the report.
    pub(super) fn seen(&self, mac: &str, now: Timestamp) -> DhcpUnserved {
        let Self { reason, message, server, address } = self;
        DhcpUnserved {
            at: MicroTime(now),
            mac_address: mac.to_owned(),
            reason: *reason,
            message: message.clone(),
            server: server.map(|server| server.to_string()),
            address: address.map(|address| address.to_string()),
        }
    }
}

/// It was not even offered an address; an offer is the end of that.
pub(super) fn is_refusal(reason: DhcpUnservedReason) -> bool {
    match reason {
        DhcpUnservedReason::SameMacAddress
        | DhcpUnservedReason::DhcpRefused
        | DhcpUnservedReason::DhcpPoolFull
        | DhcpUnservedReason::NoBootProgram => true,
        DhcpUnservedReason::DhcpAddressInUse | DhcpUnservedReason::ForeignDhcp => false,
    }
}

/// Why DHCP did not serve the server in the boot that began at `since`, if nothing has come of that boot afterwards.
pub fn unserved_since(status: Option<&HardwareReportStatus>, since: Option<Timestamp>) -> Option<&DhcpUnserved> {
    let status = status?;
    let unserved = status.unserved.as_ref().filter(|unserved| since.is_none_or(|since| unserved.at.0 > since))?;
    let is_over = status.netboot.as_ref().is_some_and(|seen| {
        seen.at.0 > unserved.at.0 && (is_refusal(unserved.reason) || seen.stage > NetbootStage::Dhcp)
    });
    (!is_over).then_some(unserved)
}

/// The same as a reason. `None`, too, of two with one MAC address: that the inventory says, as it is now ([`same_mac`]).
pub fn reason_since(
    hardware: &Hardware,
    status: Option<&HardwareReportStatus>,
    since: Option<Timestamp>,
) -> Option<Reason> {
    let unserved = unserved_since(status, since)?;
    let (hardware, mac) = (name(&hardware.metadata).to_owned(), unserved.mac_address.clone());
    let (at, why) = (unserved.at.0.strftime("%H:%M:%SZ").to_string(), unserved.message.clone());
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "that is not known".to_owned());
    let reason = match unserved.reason {
        DhcpUnservedReason::SameMacAddress => return None,
        DhcpUnservedReason::DhcpRefused => Blocked::DhcpRefused { hardware, mac, at, why },
        DhcpUnservedReason::DhcpPoolFull => Blocked::DhcpPoolFull { hardware, mac, at, why },
        DhcpUnservedReason::NoBootProgram => Blocked::NoBootProgram { hardware, mac, at, why },
        DhcpUnservedReason::DhcpAddressInUse => {
            Blocked::DhcpAddressInUse { hardware, mac, at, address: known(&unserved.address) }
        }
        DhcpUnservedReason::ForeignDhcp => {
            let (server, address) = (known(&unserved.server), known(&unserved.address));
            Blocked::ForeignDhcp { hardware, mac, at, server, address }
        }
    };
    Some(reason.into())
}

/// Why nobody who asks by this MAC address of a Hardware is answered. `all`: every Hardware that has it.
pub fn same_mac(hardware: &Hardware, mac: &str, all: Vec<Arc<Hardware>>) -> Option<Reason> {
    let mac = mac.to_ascii_lowercase();
    let Err(Why::SameMac { mut names, .. }) = Directory::new(all).by_mac(&mac) else { return None };
    let hardware = name(&hardware.metadata).to_owned();
    names.dedup();
    let other = names.iter().find(|name| **name != hardware).unwrap_or(&hardware).clone();
    let names = match names.as_slice() {
        [one] => format!("several interfaces of Hardware '{one}'"),
        all => all.iter().map(|name| format!("Hardware '{name}'")).collect::<Vec<_>>().join(" and "),
    };
    Some(Blocked::SameMacAddress { hardware, mac, names, other }.into())
}

/// What a person is told of it; `when` says when that was.
pub(super) fn told(unserved: &DhcpUnserved, when: impl Fn(Timestamp) -> String) -> String {
    let (mac, at) = (&unserved.mac_address, when(unserved.at.0));
    format!("DHCP did not serve the server by {mac} {at}: {}", unserved.message)
}
