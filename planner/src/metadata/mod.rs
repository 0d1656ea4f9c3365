//! What a machine is told about itself: one table of paths for everybody who answers, whichever way the question came (a DPU's
//! metadata port, network boot). Pure: who asks is known before ([`asker`]), and tokens are the answering service's.
//!
//! | path | as |
//! |---|---|
//! | `/latest/…`, `/2021-03-23/…` and other versions | EC2's instance metadata (`tree.rs`) |
//! | `/nocloud/…` | cloud-init's NoCloud, for `seedfrom` |
//!
//! `hardware.rs` says what a server without a DPU is told.

pub mod hardware;
mod tree;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where guests ask, by IPv4 and by IPv6.
pub const ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
pub const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe);
pub const PORT: u16 = 80;

/// The names of NoCloud's files, which are the keys of the Secret too.
pub const META_DATA: &str = "meta-data";
pub const USER_DATA: &str = "user-data";
pub const NETWORK_CONFIG: &str = "network-config";
const VENDOR_DATA: &str = "vendor-data";
/// A key of the Secret alone: OpenSSH keys, one a line.
pub const PUBLIC_KEYS: &str = "public-keys";
/// A key of the Secret alone, of a machine on a server without a DPU: its `cloudInit.source`.
pub const SOURCE: &str = "source";
/// Of [`SOURCE`]: who asks from the server's address is told, in the clear.
pub const BY_ADDRESS: &str = "Metadata";

/// EC2's versions that are answered, all with the same: cloud-init asks for 2021-03-23 and 2018-09-24 first, older programs for 2009-04-04.
const VERSIONS: [&str; 6] = ["1.0", "2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23", "latest"];

/// One NIC of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Lower case with colons.
    pub mac: String,
    pub addresses: Vec<IpAddr>,
}

/// A machine, as it is told about itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Instance {
    /// Stays the same on every server that the machine is on.
    pub id: String,
    pub hostname: String,
    pub interfaces: Vec<Interface>,
    /// By [`META_DATA`] and the other keys.
    pub data: BTreeMap<String, Vec<u8>>,
    /// Further leaves of EC2's tree, by their path below `meta-data`; before those of this table.
    pub further: BTreeMap<String, String>,
}

/// User data may hold credentials: nothing of it is ever printed.
impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("id", &self.id).field("hostname", &self.hostname).finish_non_exhaustive()
    }
}

/// What stands under a path, for who asks by the NIC with this MAC address; `None`: nothing.
pub fn answer<'a>(instance: &'a Instance, mac: &str, path: &str) -> Option<Cow<'a, [u8]>> {
    let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
    let file = |name: &str| instance.data.get(name).map(|content| Cow::Borrowed(content.as_slice()));
    match words.as_slice() {
        [] => Some(VERSIONS.join("\n").into_bytes().into()),
        // Optional for cloud-init, which asks for it all the same.
        ["nocloud", VENDOR_DATA] => Some(file(VENDOR_DATA).unwrap_or(Cow::Borrowed(b""))),
        ["nocloud", name @ (META_DATA | USER_DATA | NETWORK_CONFIG)] => file(name),
        [version, rest @ ..] if VERSIONS.contains(version) => match rest {
            [] => Some(format!("{META_DATA}\n{USER_DATA}").into_bytes().into()),
            [USER_DATA] => file(USER_DATA),
            [META_DATA, rest @ ..] => tree::answer(instance, mac, rest).map(|text| text.into_bytes().into()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a path is one of this table's, whoever asks.
pub fn is_path(path: &str) -> bool {
    let first = path.split('/').find(|word| !word.is_empty());
    first.is_some_and(|word| word == "nocloud" || VERSIONS.contains(&word))
}

/// Whether EC2's rules are about this path: a token that is sent has to be one of ours, and none is sent by a proxy.
pub fn is_ec2(path: &str) -> bool {
    !path.trim_start_matches('/').starts_with("nocloud/")
}

/// Which of the NICs behind a metadata port sends from this MAC address and this address. The switch lets a guest send from its own
/// addresses alone; of IPv6 also from the link-local one that is made from its MAC address.
pub fn asker<'a>(nics: &'a [Interface], mac: &str, address: IpAddr) -> Option<&'a Interface> {
    let has = |nic: &&Interface| {
        nic.mac == mac && (nic.addresses.contains(&address) || link_local(mac).is_some_and(|own| address == own))
    };
    nics.iter().find(has)
}

fn link_local(mac: &str) -> Option<IpAddr> {
    let id = crate::mac::eui64(mac)?;
    Some(Ipv6Addr::from((0xfe80_u128 << 112) | u128::from(id)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> Instance {
        let files = [
            (META_DATA, "instance-id: uid-1\n"),
            (USER_DATA, "#cloud-config\n{}\n"),
            (NETWORK_CONFIG, "version: 2\n"),
            (PUBLIC_KEYS, "ssh-ed25519 AAAA one\nssh-ed25519 BBBB two"),
        ];
        Instance {
            id: "uid-1".to_owned(),
            hostname: "bm-01".to_owned(),
            interfaces: vec![
                nic("02:00:00:00:00:07", &["10.20.0.7", "fd00:20::7"]),
                nic("02:00:00:00:00:08", &["10.30.0.7"]),
            ],
            data: files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect(),
            further: BTreeMap::new(),
        }
    }

    fn nic(mac: &str, addresses: &[&str]) -> Interface {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        Interface { mac: mac.to_owned(), addresses }
    }

    fn get(path: &str) -> Option<String> {
        let instance = instance();
        let answer = answer(&instance, "02:00:00:00:00:07", path)?;
        Some(String::from_utf8(answer.into_owned()).expect("text"))
    }

    #[test]
    fn every_version_of_ec2_has_the_same() {
        for version in get("/").expect("the versions").lines() {
            let of = |path: &str| get(&format!("/{version}/meta-data/{path}"));
            assert_eq!(of("instance-id").as_deref(), Some("uid-1"));
            assert_eq!(of("hostname").as_deref(), Some("bm-01"));
            assert_eq!(of("local-ipv4").as_deref(), Some("10.20.0.7"));
            assert_eq!(of("mac").as_deref(), Some("02:00:00:00:00:07"));
            assert_eq!(of("public-keys").as_deref(), Some("0=key-0\n1=key-1"));
            assert_eq!(of("public-keys/1/").as_deref(), Some("openssh-key"));
            assert_eq!(of("public-keys/1/openssh-key").as_deref(), Some("ssh-ed25519 BBBB two"));
            assert_eq!(of("public-keys/2/openssh-key"), None);
            assert_eq!(of("no-such-thing"), None);
            assert_eq!(get(&format!("/{version}/user-data")).as_deref(), Some("#cloud-config\n{}\n"));
        }
        assert_eq!(get("/1999-01-01/meta-data/"), None);
    }

    /// As cloud-init walks it: what ends with a slash is a folder, everything else is there.
    #[test]
    fn the_tree_can_be_walked() {
        let mut folders = vec!["/latest/meta-data/".to_owned()];
        let mut leaves = Vec::new();
        while let Some(folder) = folders.pop() {
            for name in get(&folder).unwrap_or_else(|| panic!("{folder} is listed")).lines() {
                let name = name.split_once('=').map_or(name.to_owned(), |(number, _)| format!("{number}/"));
                let path = format!("{folder}{name}");
                if name.ends_with('/') {
                    folders.push(path);
                } else {
                    leaves.push((path.clone(), get(&path).unwrap_or_else(|| panic!("{path} is there"))));
                }
            }
        }
        let of = |path: &str| leaves.iter().find(|(leaf, _)| leaf == path).map(|(_, text)| text.as_str());
        let macs = "/latest/meta-data/network/interfaces/macs";
        assert_eq!(of(&format!("{macs}/02:00:00:00:00:08/local-ipv4s")), Some("10.30.0.7"));
        assert_eq!(of(&format!("{macs}/02:00:00:00:00:08/device-number")), Some("1"));
        assert_eq!(of(&format!("{macs}/02:00:00:00:00:07/ipv6s")), Some("fd00:20::7"));
        assert_eq!(of(&format!("{macs}/02:00:00:00:00:08/ipv6s")), None, "it has none");
    }

    #[test]
    fn nocloud_has_its_files_and_nothing_else() {
        assert_eq!(get("/nocloud/meta-data").as_deref(), Some("instance-id: uid-1\n"));
        assert_eq!(get("/nocloud/network-config").as_deref(), Some("version: 2\n"));
        assert_eq!(get("/nocloud/vendor-data").as_deref(), Some(""));
        assert_eq!((get("/nocloud/public-keys"), get("/nocloud/")), (None, None));
    }

    #[test]
    fn who_asks_is_known_by_both_addresses() {
        let nics = instance().interfaces;
        let who = |mac: &str, address: &str| asker(&nics, mac, address.parse().expect("an address")).is_some();
        assert!(who("02:00:00:00:00:07", "10.20.0.7") && who("02:00:00:00:00:07", "fd00:20::7"));
        assert!(who("02:00:00:00:00:07", "fe80::ff:fe00:7"), "its link-local address");
        assert!(!who("02:00:00:00:00:08", "10.20.0.7"), "the address of another");
        assert!(!who("02:00:00:00:00:07", "fe80::ff:fe00:8"));
        assert!(!who("02:00:00:00:00:09", "10.20.0.9"), "nobody");
    }

    #[test]
    fn user_data_is_not_printed() {
        assert!(!format!("{:?}", instance()).contains("cloud-config"));
    }
}
