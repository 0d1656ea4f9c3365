//! The kernel's arguments, as Tinkerbell's boot scripts write them.

use crate::actions::PROXIES;
use crate::network::{LEAST_MTU, Lease};
use crate::syslog;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use trust::pin::Pin;

/// The other replicas of the server.
const FALLBACK: &str = "metalplane_grpc_fallback";
const MTU: &str = "metalplane_mtu";

/// What of them the installer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// `worker_id`: whom the server knows.
    pub worker: String,
    /// `grpc_authority`: host and port; then those of `metalplane_grpc_fallback`.
    pub servers: Vec<String>,
    /// `metalplane_grpc_pin`: the server's key, where TLS is spoken.
    pub pin: Option<Pin>,
    /// `hw_addr`: the NIC that the server was started through; else whatever NIC has a link.
    pub mac: Option<[u8; 6]>,
    /// `vlan_id` and the VLAN of `ipam`: the network is that VLAN on the NIC; without one it is the untagged one.
    pub vlan: Option<u16>,
    /// `ipam`: the address there; without one it comes by DHCP.
    pub lease: Option<Lease>,
    /// `metalplane_mtu`: of the NIC and of the VLAN, whatever DHCP says.
    pub mtu: Option<u16>,
    /// `syslog_host` and `syslog_port`: who is told what the installer says.
    pub syslog: Option<(String, u16)>,
    /// `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, as HookOS reads them.
    pub proxies: BTreeMap<String, String>,
}

/// The disk that the installer was booted from, to erase all others and to report on that one: there is no server then.
pub fn eraser(line: &str) -> Option<&str> {
    let mut values = line.split_whitespace().filter_map(|word| word.split_once('='));
    values.rfind(|(name, value)| *name == imaging::eraser::ARGUMENT && !value.is_empty()).map(|(_, value)| value)
}

impl Arguments {
    /// Each error says which argument is meant and what to write.
    pub fn parse(line: &str) -> Result<Self, String> {
        // The last one of a name counts, as for the kernel.
        let words: BTreeMap<&str, &str> = line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let given = |name: &str| words.get(name).copied().filter(|value| !value.is_empty());
        let wanted = |name: &str, what: &str| given(name).ok_or_else(|| format!("{name} is missing: {name}={what}"));
        let worker = wanted("worker_id", "<the agent's id, usually the MAC address>")?.to_owned();
        let mut servers = vec![authority("grpc_authority", wanted("grpc_authority", "<host>:<port>")?)?];
        for other in given(FALLBACK).unwrap_or_default().split(',').filter(|other| !other.is_empty()) {
            servers.push(authority(FALLBACK, other)?);
        }
        let pin = given("metalplane_grpc_pin").map(str::parse::<Pin>).transpose();
        let pin = pin.map_err(|why| format!("metalplane_grpc_pin: {why}"))?;
        match (given("tinkerbell_tls").unwrap_or("false"), pin) {
            ("false", None) | ("true", Some(_)) => {}
            ("true", None) => {
                return Err("tinkerbell_tls=true: this installer knows a server by its key: write metalplane_grpc_pin=sha256:<of the key>".into());
            }
            ("false", Some(_)) => return Err("metalplane_grpc_pin goes with tinkerbell_tls=true".into()),
            (other, _) => return Err(format!("tinkerbell_tls is {other:?}: write true or false")),
        }
        let vlan = given("vlan_id").map(|text| vlan_of(text).map_err(|why| format!("vlan_id {why}"))).transpose()?;
        let mac = match given("hw_addr") {
            Some(text) => {
                Some(mac(text).ok_or_else(|| format!("hw_addr is {text:?}: write six bytes as 52:54:00:00:00:01"))?)
            }
            // Of a worker whose id is its MAC.
            None => mac(&worker),
        };
        let proxies = PROXIES.iter().filter_map(|key| Some(((*key).to_owned(), given(key)?.to_owned()))).collect();
        let mtu = given(MTU).map(mtu_of).transpose()?;
        let syslog_port = given("syslog_port").map(port_of).transpose()?.unwrap_or(syslog::PORT);
        let syslog = given("syslog_host").map(|host| (host.to_owned(), syslog_port));
        let is_tagged = |id: &u16| *id != UNTAGGED;
        let Some(ipam) = given("ipam") else {
            let vlan = vlan.filter(is_tagged);
            return Ok(Self { worker, servers, pin, mac, vlan, lease: None, mtu, syslog, proxies });
        };
        let told = ipam_of(ipam).map_err(|why| format!("ipam is {ipam:?}: {why}"))?;
        if mac.is_some_and(|mac| mac != told.mac) {
            return Err(format!("ipam is {ipam:?}: it has to begin with the MAC address of hw_addr"));
        }
        if let (Some(one), Some(other)) = (vlan, told.vlan)
            && one != other
        {
            return Err(format!("ipam is {ipam:?}: its VLAN is {other}, and vlan_id is {one}: write the same"));
        }
        let vlan = vlan.or(told.vlan).filter(is_tagged);
        Ok(Self { worker, servers, pin, mac: Some(told.mac), vlan, lease: told.lease, mtu, syslog, proxies })
    }
}

fn authority(name: &str, text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err(format!("{name} is {text:?}: write <host>:<port>")),
    }
}

fn port_of(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("syslog_port is {text:?}: write a port of UDP"))
}

fn mtu_of(text: &str) -> Result<u16, String> {
    let mtu = text.parse().ok().filter(|mtu| *mtu >= LEAST_MTU);
    mtu.ok_or_else(|| format!("{MTU} is {text:?}: write the bytes of the longest packet, {LEAST_MTU} to {}", u16::MAX))
}

/// The kernel's tag of no VLAN (IEEE 802.1Q, 9.6).
const UNTAGGED: u16 = 0;

fn vlan_of(text: &str) -> Result<u16, String> {
    let id = text.parse().ok().filter(|id| (UNTAGGED..=4094).contains(id));
    id.ok_or_else(|| format!("is {text:?}: write a VLAN from 1 to 4094, or nothing for the untagged network"))
}

struct Ipam {
    mac: [u8; 6],
    vlan: Option<u16>,
    lease: Option<Lease>,
}

/// `mac:vlan:address:netmask:gateway:hostname:nameservers:search:timeservers`, the MAC with dashes, lists with commas. What is empty
/// is not known; without an address there is nothing to use.
fn ipam_of(text: &str) -> Result<Ipam, String> {
    let fields: Vec<&str> = text.split(':').collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or_default();
    let mac = mac(field(0)).ok_or("write <MAC with dashes>:<VLAN>:<address>:<netmask>:<gateway>:…")?;
    let vlan = Some(field(1)).filter(|text| !text.is_empty()).map(vlan_of).transpose();
    let vlan = vlan.map_err(|why| format!("its VLAN {why}"))?;
    let address = |text: &str, what: &str| -> Result<Ipv4Addr, String> {
        text.parse().map_err(|_| format!("its {what} {text:?} is no IPv4 address"))
    };
    if field(2).is_empty() {
        return Ok(Ipam { mac, vlan, lease: None });
    }
    let mask = u32::from(address(field(3), "netmask")?);
    if mask.leading_ones() + mask.trailing_zeros() != 32 && mask != u32::MAX {
        return Err(format!("its netmask {} has a gap", field(3)));
    }
    let router = Some(field(4)).filter(|text| !text.is_empty()).map(|text| address(text, "gateway")).transpose()?;
    let names = field(6).split(',').filter(|text| !text.is_empty()).map(|text| address(text, "name server"));
    let lease = Lease {
        address: address(field(2), "address")?,
        prefix: u8::try_from(mask.leading_ones()).unwrap_or(32),
        router,
        names: names.collect::<Result<_, _>>()?,
        mtu: None,
    };
    Ok(Ipam { mac, vlan, lease: Some(lease) })
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut bytes = text.split([':', '-']);
    for byte in &mut mac {
        let digits = bytes.next().filter(|digits| digits.len() == 2)?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    bytes.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of upstream's script, in its order.
    const UPSTREAM: &str = "vlan_id= facility=onprem syslog_host=10.0.0.1 grpc_authority=10.0.0.1:42113 tinkerbell_tls=false \
        tinkerbell_insecure_tls=false worker_id=machine-1 hw_addr=52:54:00:00:00:01 modules=loop,squashfs,sd-mod,usb-storage \
        intel_iommu=on iommu=pt initrd=initramfs-x86_64 console=tty0 console=ttyS1,115200";

    #[test]
    fn the_arguments_of_a_boot_script() {
        let found = Arguments::parse(UPSTREAM).expect("understood");
        let mac = Some([0x52, 0x54, 0, 0, 0, 1]);
        assert_eq!(
            found,
            Arguments {
                worker: "machine-1".into(),
                servers: vec!["10.0.0.1:42113".into()],
                pin: None,
                mac,
                vlan: None,
                lease: None,
                mtu: None,
                syslog: Some(("10.0.0.1".into(), 514)),
                proxies: BTreeMap::new(),
            }
        );
        let found = Arguments::parse(&format!(
            "{UPSTREAM} HTTP_PROXY=http://p:3128 HTTPS_PROXY= NO_PROXY=10.0.0.0/8,.example.org"
        ));
        let proxies = [("HTTP_PROXY", "http://p:3128"), ("NO_PROXY", "10.0.0.0/8,.example.org")];
        let proxies = proxies.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found.expect("understood").proxies, BTreeMap::from(proxies));
        let pin = format!("sha256:{}", "0f".repeat(32));
        let found =
            Arguments::parse(&format!("worker_id=a grpc_authority=x:1 tinkerbell_tls=true metalplane_grpc_pin={pin}"));
        assert_eq!(found.expect("understood").pin.map(|pin| pin.to_string()), Some(pin));
        let found =
            Arguments::parse("worker_id=a grpc_authority=x:1 metalplane_grpc_fallback=y:2,z:3").expect("understood");
        assert_eq!(found.servers, ["x:1", "y:2", "z:3"]);
        let found = Arguments::parse("worker_id=52-54-00-00-00-02 grpc_authority=x:1").expect("understood");
        assert_eq!(found.mac, Some([0x52, 0x54, 0, 0, 0, 2]), "an id that is a MAC address says which NIC");
        assert_eq!(Arguments::parse("worker_id=a grpc_authority=x:1").expect("understood").mac, None);
    }

    #[test]
    fn an_address_that_the_script_has_is_used() {
        let of = |ipam: &str| {
            Arguments::parse(&format!("worker_id=a grpc_authority=x:1 hw_addr=52:54:00:00:00:01 ipam={ipam}"))
        };
        let found = of("52-54-00-00-00-01::10.0.0.5:255.255.255.0:10.0.0.1:s1:10.0.0.2,10.0.0.3:example.org:10.0.0.4");
        let lease = Lease {
            address: Ipv4Addr::new(10, 0, 0, 5),
            prefix: 24,
            router: Some(Ipv4Addr::new(10, 0, 0, 1)),
            names: vec![Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)],
            mtu: None,
        };
        assert_eq!(found.expect("understood").lease, Some(lease));
        let least =
            of("52-54-00-00-00-01::10.0.0.5:255.255.255.255:::::").expect("understood").lease.expect("an address");
        assert_eq!((least.prefix, least.router, least.names), (32, None, Vec::new()));
        assert_eq!(of("52-54-00-00-00-01:::::s1:::").expect("understood").lease, None, "by DHCP then");
        for (ipam, named) in [
            ("52-54-00-00-00-02::10.0.0.5:255.255.255.0", "hw_addr"),
            ("52-54::10.0.0.5:255.255.255.0", "MAC"),
            ("52-54-00-00-00-01:4095:10.0.0.5:255.255.255.0", "its VLAN is \"4095\": write a VLAN from 1 to 4094"),
            ("52-54-00-00-00-01:x:10.0.0.5:255.255.255.0", "its VLAN is \"x\""),
            ("52-54-00-00-00-01::10.0.0.5:", "netmask"),
            ("52-54-00-00-00-01::10.0.0.5:255.0.255.0", "netmask"),
            ("52-54-00-00-00-01::10.0.0:255.255.255.0", "address"),
            ("52-54-00-00-00-01::10.0.0.5:255.255.255.0:x", "gateway"),
        ] {
            let error = of(ipam).expect_err(ipam);
            assert!(error.starts_with("ipam is ") && error.contains(named), "{ipam}: {error}");
        }
    }

    #[test]
    fn a_vlan_is_that_of_either_argument() {
        let of = |more: &str| Arguments::parse(&format!("worker_id=a grpc_authority=x:1 {more}")).map(|all| all.vlan);
        for (arguments, vlan) in [
            ("", None),
            ("vlan_id=", None),
            ("vlan_id=0", None),
            ("vlan_id=7", Some(7)),
            ("vlan_id=4094", Some(4094)),
            ("ipam=52-54-00-00-00-01:1", Some(1)),
            ("ipam=52-54-00-00-00-01:0", None),
            ("ipam=52-54-00-00-00-01:12:10.0.0.5:255.255.255.0", Some(12)),
            ("vlan_id=12 ipam=52-54-00-00-00-01:12:10.0.0.5:255.255.255.0", Some(12)),
            ("vlan_id=12 ipam=52-54-00-00-00-01::10.0.0.5:255.255.255.0", Some(12)),
        ] {
            assert_eq!(of(arguments), Ok(vlan), "{arguments}");
        }
    }

    #[test]
    fn an_mtu_is_that_of_the_arguments() {
        let of = |more: &str| Arguments::parse(&format!("worker_id=a grpc_authority=x:1 {more}")).map(|all| all.mtu);
        for (arguments, mtu) in [
            ("", None),
            ("metalplane_mtu=", None),
            ("metalplane_mtu=68", Some(68)),
            ("metalplane_mtu=9000 ipam=52-54-00-00-00-01:12:10.0.0.5:255.255.255.0", Some(9000)),
        ] {
            assert_eq!(of(arguments), Ok(mtu), "{arguments}");
        }
    }

    #[test]
    fn a_server_of_syslog_is_that_of_the_arguments() {
        let of = |more: &str| Arguments::parse(&format!("worker_id=a grpc_authority=x:1 {more}")).map(|all| all.syslog);
        for (arguments, server) in [
            ("", None),
            ("syslog_host=", None),
            ("syslog_port=10514", None),
            ("syslog_host=logs.example syslog_port=10514", Some(("logs.example".to_owned(), 10514))),
        ] {
            assert_eq!(of(arguments), Ok(server), "{arguments}");
        }
    }

    #[test]
    fn what_is_missing_or_not_served_is_named() {
        for (line, named) in [
            ("grpc_authority=x:1", "worker_id"),
            ("worker_id= grpc_authority=x:1", "worker_id"),
            ("worker_id=a", "grpc_authority"),
            ("worker_id=a grpc_authority=x", "grpc_authority"),
            ("worker_id=a grpc_authority=x:1 tinkerbell_tls=true", "write metalplane_grpc_pin=sha256:"),
            ("worker_id=a grpc_authority=x:1 tinkerbell_tls=1", "write true or false"),
            (
                "worker_id=a grpc_authority=x:1 tinkerbell_tls=true metalplane_grpc_pin=sha256:0",
                "metalplane_grpc_pin: ",
            ),
            ("worker_id=a grpc_authority=x:1 metalplane_grpc_fallback=y:1,z", "metalplane_grpc_fallback is \"z\""),
            ("worker_id=a grpc_authority=x:1 vlan_id=4095", "vlan_id is \"4095\": write a VLAN from 1 to 4094"),
            ("worker_id=a grpc_authority=x:1 vlan_id=-1", "vlan_id is \"-1\""),
            ("worker_id=a grpc_authority=x:1 vlan_id=7 ipam=52-54-00-00-00-01:8", "its VLAN is 8, and vlan_id is 7"),
            ("worker_id=a grpc_authority=x:1 vlan_id=0 ipam=52-54-00-00-00-01:8", "its VLAN is 8, and vlan_id is 0"),
            ("worker_id=a grpc_authority=x:1 hw_addr=52:54", "hw_addr"),
            ("worker_id=a grpc_authority=x:1 metalplane_mtu=67", "metalplane_mtu is \"67\": write the bytes"),
            ("worker_id=a grpc_authority=x:1 metalplane_mtu=jumbo", "metalplane_mtu is \"jumbo\""),
            ("worker_id=a grpc_authority=x:1 syslog_host=x syslog_port=udp", "syslog_port is \"udp\": write a port"),
        ] {
            let error = Arguments::parse(line).expect_err("refused");
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
