//! What a pod asks for by its annotations.

use api::labels;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What names of NICs are made of, where a pod gives none.
const PREFIX: &str = "net";
/// IFNAMSIZ - 1.
const NAME: usize = 15;
const MOST: usize = 8;

/// One NIC of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// In the pod. Left out: net1, net2, … by its place in the list.
    #[serde(default)]
    pub name: String,
    /// In the pod's namespace; empty where a VNic is named.
    #[serde(default)]
    pub subnet: String,
    /// One that exists, in the pod's namespace, in place of one that is made for the pod.
    #[serde(default)]
    pub vnic: Option<String>,
    /// Left out: chosen, where the Subnet can choose.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Left out: made from the UID of the VNic.
    #[serde(default)]
    pub mac_address: Option<String>,
    /// Left out: those of the Vpc.
    #[serde(default)]
    pub security_groups: Option<Vec<String>>,
    /// False: the device is the pod's to configure, for a virtual machine in it has the MAC address and the addresses.
    #[serde(default = "yes")]
    pub configure: bool,
}

fn yes() -> bool {
    true
}

impl Request {
    /// Of the name that its place in the list gives it.
    pub(super) fn of_subnet(subnet: String) -> Self {
        let (addresses, mac_address, security_groups) = (vec![], None, None);
        Self { name: String::new(), subnet, vnic: None, addresses, mac_address, security_groups, configure: true }
    }
}

/// The NICs that a pod with these annotations asks for; or which annotation is wrong, and what to write.
pub fn requests(annotations: &BTreeMap<String, String>) -> Result<Vec<Request>, String> {
    let (list, one) = (annotations.get(labels::NETWORKS), annotations.get(labels::SUBNET));
    let mut all = match (list, one) {
        (Some(_), Some(_)) => {
            return Err(format!("annotations {} and {}: write one of the two", labels::NETWORKS, labels::SUBNET));
        }
        (Some(list), None) => serde_json::from_str::<Vec<Request>>(list).map_err(|error| {
            let example = r#"[{"name": "net1", "subnet": "blue"}]"#;
            format!("annotation {}: {error}: write a JSON list such as {example}", labels::NETWORKS)
        })?,
        (None, Some(subnet)) => {
            vec![Request::of_subnet(subnet.trim().to_owned())]
        }
        (None, None) => vec![],
    };
    if all.len() > MOST {
        return Err(format!("annotation {}: {} NICs: write {MOST} at most", labels::NETWORKS, all.len()));
    }
    let source = if list.is_some() { labels::NETWORKS } else { labels::SUBNET };
    for place in 0..all.len() {
        let request = &mut all[place];
        if request.name.is_empty() {
            request.name = format!("{PREFIX}{}", place + 1);
        }
        check(request).map_err(|wrong| match list {
            Some(_) => format!("annotation {source}[{place}].{wrong}"),
            None => format!("annotation {source}: {wrong}"),
        })?;
        if all[..place].iter().any(|other| other.name == all[place].name) {
            let name = &all[place].name;
            return Err(format!("annotation {source}[{place}].name: '{name}' is there twice: write another name"));
        }
    }
    Ok(all)
}

pub(super) fn check(request: &Request) -> Result<(), String> {
    let Request { name, subnet, vnic, addresses, mac_address, security_groups, .. } = request;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if name.len() > NAME || !name.chars().all(plain) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(format!("name: '{name}': write at most {NAME} of a-z, 0-9, '-', '_' and '.', a letter first"));
    }
    if ["lo", "eth0"].contains(&name.as_str()) {
        return Err(format!("name: '{name}' is the pod's own: write another, such as net1"));
    }
    if vnic.as_ref().is_some_and(String::is_empty) || vnic.is_none() && subnet.is_empty() {
        return Err("subnet is missing: write the name of a Subnet, or of a vnic, in the pod's namespace".to_owned());
    }
    let has_more = || !subnet.is_empty() || !addresses.is_empty() || mac_address.is_some() || security_groups.is_some();
    if let Some(vnic) = vnic.as_ref().filter(|_| has_more()) {
        return Err(format!(
            "vnic: subnet, addresses, macAddress and securityGroups are those of VNic '{vnic}': leave them out"
        ));
    }
    if let Some(wrong) = addresses.iter().find(|address| address.parse::<IpAddr>().is_err()) {
        return Err(format!("addresses: '{wrong}': write an IP address such as 10.20.0.7, without a prefix length"));
    }
    let octet = |octet: &str| octet.len() == 2 && octet.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let is_mac = |mac: &str| mac.split(':').count() == 6 && mac.split(':').all(octet);
    match mac_address {
        Some(mac) if !is_mac(mac) => Err(format!("macAddress: '{mac}': write it as 02:00:00:00:00:07, in lower case")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(key: &str, value: &str) -> Result<Vec<Request>, String> {
        requests(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn a_pod_asks_by_a_list_or_by_one_subnet() {
        assert_eq!(requests(&BTreeMap::new()), Ok(vec![]));
        let one = asked(labels::SUBNET, "blue").expect("one");
        assert_eq!((one.len(), one[0].name.as_str(), one[0].subnet.as_str()), (1, "net1", "blue"));
        let text =
            r#"[{"subnet":"blue"},{"name":"data","subnet":"red","addresses":["10.0.0.7"],"securityGroups":["web"]}]"#;
        let two = asked(labels::NETWORKS, text).expect("two");
        assert_eq!(two.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["net1", "data"]);
        assert_eq!(two[1].security_groups, Some(vec!["web".to_owned()]));
        let vnic = asked(labels::NETWORKS, r#"[{"vnic":"web","configure":false}]"#).expect("a VNic");
        assert_eq!((vnic[0].vnic.as_deref(), vnic[0].configure, two[0].configure), (Some("web"), false, true));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        for (text, named) in [
            ("blue", "write a JSON list such as"),
            (r#"[{"subnet":"blue","adresses":[]}]"#, "unknown field `adresses`"),
            (r#"[{"subnet":"blue","configure":"no"}]"#, "invalid type: string \"no\", expected a boolean"),
            (r#"[{"name":"net1"}]"#, "[0].subnet is missing"),
            (r#"[{"vnic":""}]"#, "[0].subnet is missing"),
            (r#"[{"vnic":"web","addresses":["10.0.0.7"]}]"#, "are those of VNic 'web': leave them out"),
            (r#"[{"subnet":"a","name":"eth0"}]"#, "[0].name: 'eth0' is the pod's own"),
            (r#"[{"subnet":"a","name":"a/b"}]"#, "[0].name: 'a/b': write"),
            (r#"[{"subnet":"a"},{"subnet":"a","name":"net1"}]"#, "[1].name: 'net1' is there twice"),
            (r#"[{"subnet":"a","addresses":["10.0.0.7/24"]}]"#, "without a prefix length"),
            (r#"[{"subnet":"a","macAddress":"02:00"}]"#, "[0].macAddress: '02:00': write"),
        ] {
            let error = asked(labels::NETWORKS, text).expect_err(text);
            assert!(error.contains(named) && error.starts_with("annotation metalplane.io/networks"), "{error}");
        }
        let both = [labels::NETWORKS, labels::SUBNET].map(|key| (key.to_owned(), "[]".to_owned()));
        assert!(requests(&BTreeMap::from(both)).expect_err("both").contains("one of the two"));
    }
}
