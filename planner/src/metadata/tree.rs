//! EC2's tree below `meta-data`, as far as cloud-init and others read it: what is said there is true of a machine here, and what is not
//! known is not there.

use super::{Instance, PUBLIC_KEYS};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A leaf's content, or the names in a folder; folders end with a slash.
pub(super) fn answer(instance: &Instance, mac: &str, words: &[&str]) -> Option<String> {
    let leaves = leaves(instance, mac);
    let path = words.join("/");
    if let Some(content) = leaves.get(&path) {
        return Some(content.clone());
    }
    if path == PUBLIC_KEYS {
        // A folder that is listed in a way of its own: number=name.
        let names: Vec<String> = (0..keys(instance).len()).map(|number| format!("{number}=key-{number}")).collect();
        return (!names.is_empty()).then(|| names.join("\n"));
    }
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let inside = leaves.keys().filter_map(|leaf| leaf.strip_prefix(&prefix));
    let names: BTreeSet<String> = inside
        .map(|rest| match rest.split_once('/') {
            Some((folder, _)) => format!("{folder}/"),
            None => rest.to_owned(),
        })
        .collect();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join("\n"))
}

fn keys(instance: &Instance) -> Vec<String> {
    let text = instance.data.get(PUBLIC_KEYS).map(|text| String::from_utf8_lossy(text).into_owned());
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

fn leaves(instance: &Instance, mac: &str) -> BTreeMap<String, String> {
    let mut leaves = BTreeMap::new();
    let mut add = |path: String, content: String| {
        leaves.insert(path, content);
    };
    add("instance-id".to_owned(), instance.id.clone());
    for name in ["hostname", "local-hostname"] {
        add(name.to_owned(), instance.hostname.clone());
    }
    let of = |addresses: &[IpAddr], v4: bool| {
        let all: Vec<String> = addresses.iter().filter(|a| a.is_ipv4() == v4).map(ToString::to_string).collect();
        all
    };
    for (number, interface) in instance.interfaces.iter().enumerate() {
        let (v4, v6) = (of(&interface.addresses, true), of(&interface.addresses, false));
        if interface.mac == mac {
            add("mac".to_owned(), mac.to_owned());
            for (name, addresses) in [("local-ipv4", &v4), ("ipv6", &v6)] {
                if let Some(address) = addresses.first() {
                    add(name.to_owned(), address.clone());
                }
            }
        }
        let path = |name: &str| format!("network/interfaces/macs/{}/{name}", interface.mac);
        add(path("mac"), interface.mac.clone());
        add(path("device-number"), number.to_string());
        add(path("local-hostname"), instance.hostname.clone());
        for (name, addresses) in [("local-ipv4s", v4), ("ipv6s", v6)] {
            if !addresses.is_empty() {
                add(path(name), addresses.join("\n"));
            }
        }
    }
    for (number, key) in keys(instance).into_iter().enumerate() {
        add(format!("{PUBLIC_KEYS}/{number}/openssh-key"), key);
    }
    leaves.extend(instance.further.clone());
    leaves
}
