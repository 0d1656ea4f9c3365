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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netboot::report::{Sight, add};
    use serde_json::json;

    const MAC: &str = "52:54:00:00:00:01";

    fn hardware(name: &str, macs: &[&str]) -> Arc<Hardware> {
        let interfaces: Vec<_> = macs.iter().map(|mac| json!({"dhcp": {"mac": mac}})).collect();
        let object = json!({"metadata": {"name": name}, "spec": {"interfaces": interfaces}});
        Arc::new(serde_json::from_value(object).expect("a Hardware"))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    fn report(cause: Unserved) -> HardwareReportStatus {
        let sight = Sight::Unserved { cause, uuid: None };
        add(&HardwareReportStatus::default(), MAC, &sight, at(0)).expect("news")
    }

    fn told(cause: Unserved) -> String {
        let reason = reason_since(&hardware("a", &[MAC]), Some(&report(cause)), Some(at(-1))).expect("a reason");
        reason.to_string()
    }

    #[test]
    fn each_cause_is_a_reason_that_names_the_server() {
        use DhcpUnservedReason::*;
        let (server, address) = (Some([192, 168, 1, 1].into()), Some([192, 168, 1, 77].into()));
        for (cause, message) in [
            (
                Unserved::new(DhcpRefused, "dhcp.ip.address is missing"),
                "DhcpRefused: host 'a' asked for an address by MAC address '52:54:00:00:00:01' at 08:00:00Z, and boot did not answer: \
                 dhcp.ip.address is missing",
            ),
            (
                Unserved::new(DhcpPoolFull, "all addresses of the pool p are taken"),
                "DhcpPoolFull: host 'a' asked for an address by MAC address '52:54:00:00:00:01' at 08:00:00Z, and boot had none to give: \
                 all addresses of the pool p are taken",
            ),
            (
                Unserved { address, ..Unserved::new(DhcpAddressInUse, "why") },
                "DhcpAddressInUse: host 'a' (MAC address '52:54:00:00:00:01') declined address 192.168.1.77 at 08:00:00Z: another device \
                 on that network has address 192.168.1.77",
            ),
            (
                Unserved { server, address, ..Unserved::new(ForeignDhcp, "why") },
                "ForeignDhcp: host 'a' (MAC address '52:54:00:00:00:01') took address 192.168.1.77 of DHCP server 192.168.1.1 at \
                 08:00:00Z: DHCP server 192.168.1.1 is not boot, so host 'a' gets no boot program from boot",
            ),
            (
                Unserved::new(NoBootProgram, "no boot program is known for PXE"),
                "NoBootProgram: host 'a' asked to boot from the network by MAC address '52:54:00:00:00:01' at 08:00:00Z, and boot has no \
                 boot program for host 'a': no boot program is known for PXE",
            ),
        ] {
            assert_eq!(told(cause), message);
        }
    }

    #[test]
    fn what_was_before_or_is_over_is_no_reason() {
        let hardware = hardware("a", &[MAC]);
        let reason = |status: &HardwareReportStatus, since: i64| reason_since(&hardware, Some(status), Some(at(since)));
        for kind in [DhcpUnservedReason::DhcpPoolFull, DhcpUnservedReason::ForeignDhcp] {
            let status = report(Unserved::new(kind, "why"));
            assert!(reason(&status, -1).is_some() && reason(&status, 0).is_none(), "{kind:?}");
            // As another replica may have written it, an older one.
            let came = |stage| HardwareReportStatus {
                unserved: status.unserved.clone(),
                ..add(&HardwareReportStatus::default(), MAC, &Sight::Came(stage), at(9)).expect("news")
            };
            assert_eq!(reason(&came(NetbootStage::Program), -1), None, "{kind:?}");
            assert_eq!(reason(&came(NetbootStage::Dhcp), -1).is_none(), is_refusal(kind), "{kind:?}");
        }
        assert_eq!(reason_since(&hardware, None, None), None);
        let shared = report(Unserved::new(DhcpUnservedReason::SameMacAddress, "why"));
        assert_eq!(reason(&shared, -1), None, "the inventory says whether it is so now");
    }

    #[test]
    fn two_with_one_mac_name_each_other_and_what_to_edit() {
        let (a, b) = (hardware("a", &[MAC]), hardware("b", &["02:00:00:00:00:02", &MAC.to_uppercase()]));
        let reason = same_mac(&a, MAC, vec![b.clone(), a.clone()]).expect("two");
        assert_eq!(
            reason.told(),
            "Hardware 'a' and Hardware 'b' have MAC address '52:54:00:00:00:01', and boot answers no server by a MAC address that two \
             have: host 'a' cannot boot from the network. Next: kubectl edit hardware b -n INVENTORY, and mend spec.interfaces[].dhcp.mac \
             there or in Hardware 'a'"
        );
        assert_eq!(reason.name(), SAME_MAC);
        let of_b = same_mac(&b, &MAC.to_uppercase(), vec![a.clone(), b.clone()]).expect("two");
        assert!(of_b.told().contains("host 'b' cannot") && of_b.told().contains("kubectl edit hardware a"), "{of_b}");
        assert_eq!(same_mac(&b, "02:00:00:00:00:02", vec![b.clone()]), None);
        assert_eq!(same_mac(&a, MAC, vec![a.clone()]), None);
        let twice = hardware("c", &[MAC, MAC]);
        let reason = same_mac(&twice, MAC, vec![twice.clone()]).expect("two interfaces");
        assert!(reason.message().starts_with("several interfaces of Hardware 'c' have MAC address"), "{reason}");
        // What was discovered, and nobody has approved, counts for nothing beside it.
        let mut found = Hardware::clone(&b);
        found.metadata.labels = Some([(api::labels::UNAPPROVED.to_owned(), "true".to_owned())].into());
        assert_eq!(same_mac(&a, MAC, vec![a.clone(), Arc::new(found)]), None);
    }
}
