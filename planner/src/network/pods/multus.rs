//! What a pod asks for by NetworkAttachmentDefinitions (the de facto standard of the Network Plumbing Working Group, version 1.3):
//! Multus calls our plugin for each that is of type `metalplane`, and the controller makes the NIC that it will ask for.

use super::request::{self, Request};
use crate::machine::observed::name;
use crate::reason::Blocked;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The annotation by which Multus is asked (section 4.1 of the standard).
pub(super) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The type of our plugin.
const TYPE: &str = "metalplane";

/// Of NetworkAttachmentDefinitions, by namespace and name: the configuration. `None`: there is no such object.
pub type Definitions = BTreeMap<(String, String), Option<String>>;

/// One element of the annotation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    pub namespace: String,
    pub name: String,
    interface: String,
    addresses: Vec<String>,
    mac_address: Option<String>,
}

/// As the standard writes it (section 4.1.2.1); what else it may have is not ours.
#[derive(Deserialize)]
struct Element {
    name: String,
    namespace: Option<String>,
    interface: Option<String>,
    #[serde(default)]
    ips: Vec<String>,
    mac: Option<String>,
}

/// What of a configuration we look at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    #[serde(default)]
    subnet: String,
    vnic: Option<String>,
    security_groups: Option<Vec<String>>,
    configure: Option<bool>,
}

/// The definitions that a pod names.
pub fn selections(pod: &ObjectMeta) -> Result<BTreeSet<(String, String)>, String> {
    Ok(elements(pod)?.into_iter().map(|selection| (selection.namespace, selection.name)).collect())
}

fn elements(pod: &ObjectMeta) -> Result<Vec<Selection>, String> {
    let Some(text) = pod.annotations.as_ref().and_then(|all| all.get(NETWORKS)) else { return Ok(vec![]) };
    let elements: Vec<Element> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(|error| format!("annotation {NETWORKS}: {error}"))?
    } else {
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(short).collect()
    };
    let own = pod.namespace.clone().unwrap_or_default();
    let numbered = elements.into_iter().enumerate().map(|(place, element)| Selection {
        namespace: element.namespace.unwrap_or_else(|| own.clone()),
        name: element.name,
        // As Multus names those that have no name.
        interface: element.interface.unwrap_or_else(|| format!("net{}", place + 1)),
        addresses: element.ips.iter().map(|ip| ip.split('/').next().unwrap_or_default().to_owned()).collect(),
        mac_address: element.mac.map(|mac| mac.to_lowercase()),
    });
    Ok(numbered.collect())
}

/// `[NAMESPACE/]NAME[@INTERFACE]` (section 4.1.1).
fn short(word: &str) -> Element {
    let (object, interface) = match word.split_once('@') {
        Some((object, interface)) => (object, Some(interface.to_owned())),
        None => (word, None),
    };
    let (namespace, name) = match object.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, object),
    };
    Element { name: name.to_owned(), namespace, interface, ips: vec![], mac: None }
}

/// Those of our type. A definition that is not there is waited for only where the pod has nothing but ours to wait for: Multus says
/// it, too.
pub(super) fn requests(pod: &ObjectMeta, definitions: &Definitions) -> Result<Vec<Request>, Blocked> {
    let invalid = |message| Blocked::PodNetworksInvalid { pod: name(pod).to_owned(), message };
    let mut all = Vec::new();
    for selection in elements(pod).map_err(invalid)? {
        let at = format!("NetworkAttachmentDefinition '{}/{}'", selection.namespace, selection.name);
        let Some(Some(text)) = definitions.get(&(selection.namespace.clone(), selection.name.clone())) else {
            return Err(Blocked::NetworkDefinitionMissing { namespace: selection.namespace, name: selection.name });
        };
        let Some(config) = ours(text).map_err(|error| invalid(format!("{at}: spec.config: {error}")))? else {
            continue;
        };
        let request = Request {
            name: selection.interface,
            subnet: config.subnet,
            vnic: config.vnic,
            addresses: selection.addresses,
            mac_address: selection.mac_address,
            security_groups: config.security_groups,
            configure: config.configure.unwrap_or(true),
        };
        request::check(&request).map_err(|wrong| invalid(format!("{at}: {wrong}")))?;
        all.push(request);
    }
    Ok(all)
}

/// What the configuration of a definition names in the namespace of the pod.
pub enum Named {
    VNic(String),
    Subnet(String),
}

/// `None`: it is not of our type, or cannot be read.
pub fn named_by(config: &str) -> Option<Named> {
    let own = ours(config).ok()??;
    Some(own.vnic.map_or(Named::Subnet(own.subnet), Named::VNic))
}

/// Of a list the plugin of our type, where there is one.
fn ours(text: &str) -> Result<Option<Configuration>, serde_json::Error> {
    // Multus takes a definition without a configuration from a file of the node: that one is not ours.
    if text.trim().is_empty() {
        return Ok(None);
    }
    let config: Value = serde_json::from_str(text)?;
    let plugins = match config["plugins"].as_array() {
        Some(plugins) => plugins.clone(),
        None => vec![config],
    };
    let own = plugins.into_iter().find(|plugin| plugin["type"] == TYPE);
    own.map(serde_json::from_value).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(networks: &str) -> ObjectMeta {
        let annotations = Some([(NETWORKS.to_owned(), networks.to_owned())].into());
        let (namespace, name) = (Some("team".to_owned()), Some("web".to_owned()));
        ObjectMeta { namespace, name, annotations, ..ObjectMeta::default() }
    }

    fn definitions() -> Definitions {
        let of = |namespace: &str, name: &str, config: &str| {
            ((namespace.to_owned(), name.to_owned()), Some(config.to_owned()))
        };
        let list = r#"{"cniVersion":"1.0.0","plugins":[{"type":"metalplane","vnic":"web-1","configure":false}]}"#;
        let plain = r#"{"type":"metalplane","subnet":"blue","securityGroups":["web"]}"#;
        [of("team", "blue", plain), of("net", "vm", list), of("team", "other", r#"{"type":"macvlan"}"#)].into()
    }

    #[test]
    fn both_ways_of_writing_name_the_same() {
        let short = requests(&pod("other, blue, net/vm@data"), &definitions()).expect("well formed");
        let names: Vec<_> = short.iter().map(|request| request.name.as_str()).collect();
        assert_eq!(names, ["net2", "data"], "the place in the list counts, as for Multus");
        assert_eq!((short[1].vnic.as_deref(), short[1].configure), (Some("web-1"), false));
        let text = r#"[{"name":"blue","interface":"net7","ips":["10.20.0.7/24"],"mac":"02:00:00:00:00:0A"}]"#;
        let long = requests(&pod(text), &definitions()).expect("well formed");
        assert_eq!((long[0].name.as_str(), long[0].subnet.as_str()), ("net7", "blue"));
        assert_eq!(long[0].addresses, ["10.20.0.7"]);
        assert_eq!(long[0].mac_address.as_deref(), Some("02:00:00:00:00:0a"));
        assert_eq!(long[0].security_groups, Some(vec!["web".to_owned()]));
    }

    #[test]
    fn what_is_wrong_names_the_definition() {
        let said = |networks: &str| requests(&pod(networks), &definitions()).expect_err(networks);
        assert!(matches!(said("green"), Blocked::NetworkDefinitionMissing { name, .. } if name == "green"));
        let told = |networks: &str| crate::reason::Reason::from(said(networks)).told();
        let fixed = told(r#"[{"name":"vm","namespace":"net","ips":["10.20.0.7"]}]"#);
        assert!(fixed.contains("NetworkAttachmentDefinition 'net/vm': vnic: subnet, addresses"), "{fixed}");
        assert!(told("[{]").contains("annotation k8s.v1.cni.cncf.io/networks"));
    }
}
