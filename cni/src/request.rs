//! What a runtime asks: by the environment and by the standard input.

use crate::error::Error;
use proto::interfaces::v1alpha1::Interface;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The capability by which containerd and CRI-O hand over a pod's annotations.
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";
/// The annotations that ask for something.
const ASKING: [&str; 2] = ["metalplane.io/networks", "metalplane.io/subnet"];
/// Members of a configuration that are the runtime's, or that say nothing to us.
const OTHERS: [&str; 6] =
    ["args", "capabilities", "cniVersions", "disableCheck", "disableGC", "loadOnlyInlinedPlugins"];
/// The annotation by which the agent is asked for what a configuration of its own names.
const NETWORKS: &str = ASKING[0];

#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub command: String,
    pub container_id: String,
    pub netns: String,
    pub ifname: String,
    pub args: String,
}

impl Environment {
    pub fn of_process() -> Self {
        let of = |name: &str| std::env::var(name).unwrap_or_default();
        Self {
            command: of("CNI_COMMAND"),
            container_id: of("CNI_CONTAINERID"),
            netns: of("CNI_NETNS"),
            ifname: of("CNI_IFNAME"),
            args: of("CNI_ARGS"),
        }
    }

    /// The sandbox and its interface, by which a file is named.
    pub(crate) fn attachment(&self) -> Result<(&str, &str), Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let named = |name: &str, value: &str| match value {
            "" => Err(Error::environment(format!("{name} is not set"))),
            _ if !value.chars().all(plain) || !value.starts_with(|c: char| c.is_ascii_alphanumeric()) => {
                Err(Error::environment(format!("{name} is '{value}': letters, digits, '_', '.' and '-' are allowed")))
            }
            _ => Ok(()),
        };
        named("CNI_CONTAINERID", &self.container_id)?;
        named("CNI_IFNAME", &self.ifname)?;
        Ok((&self.container_id, &self.ifname))
    }

    pub(crate) fn pod(&self) -> Result<Pod, Error> {
        let of = |key: &str| {
            let pairs = self.args.split(';').filter_map(|pair| pair.split_once('='));
            let value = pairs.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).next();
            value.ok_or_else(|| {
                Error::environment(format!("CNI_ARGS has no {key}, and a pod asks for NICs: the runtime has to set it"))
            })
        };
        Ok(Pod { namespace: of("K8S_POD_NAMESPACE")?, name: of("K8S_POD_NAME")?, uid: of("K8S_POD_UID")? })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

impl Verb {
    pub(crate) fn of(environment: &Environment) -> Result<Self, Error> {
        match environment.command.as_str() {
            "ADD" => Ok(Self::Add),
            "DEL" => Ok(Self::Del),
            "CHECK" => Ok(Self::Check),
            "GC" => Ok(Self::Gc),
            "STATUS" => Ok(Self::Status),
            "VERSION" => Ok(Self::Version),
            other => Err(Error::environment(format!(
                "CNI_COMMAND is '{other}': it is one of ADD, DEL, CHECK, GC, STATUS and VERSION"
            ))),
        }
    }
}

fn socket() -> PathBuf {
    "/run/metalplane/agent.sock".into()
}

/// In memory: sandboxes do not outlive the node's boot.
fn state_directory() -> PathBuf {
    "/run/metalplane/cni".into()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    pub cni_version: String,
    #[serde(default)]
    pub name: String,
    /// The agent's.
    #[serde(default = "socket")]
    pub socket: PathBuf,
    #[serde(default = "state_directory")]
    pub state_directory: PathBuf,
    /// STATUS says that the plugin cannot serve while the agent does not: pods that ask for nothing wait then, too.
    #[serde(default)]
    pub required: bool,
    #[serde(default)]
    pub prev_result: Option<Value>,
    #[serde(default)]
    runtime_config: BTreeMap<String, Value>,
    #[serde(flatten)]
    named: Named,
    #[serde(rename = "cni.dev/valid-attachments", default)]
    pub valid_attachments: Vec<Attachment>,
    #[serde(rename = "type", default)]
    _type: String,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// What a configuration of its own attaches, as the interface that the runtime names (a NetworkAttachmentDefinition). Written into the
/// question to the agent as it is.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(skip_serializing_if = "Option::is_none")]
    subnet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vnic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    security_groups: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configure: Option<bool>,
}

impl Named {
    fn members(&self) -> [(&'static str, bool); 4] {
        [
            ("subnet", self.subnet.is_some()),
            ("vnic", self.vnic.is_some()),
            ("securityGroups", self.security_groups.is_some()),
            ("configure", self.configure.is_some()),
        ]
    }
}

/// As GC is told of one that is in use.
#[derive(Debug, Deserialize)]
pub(crate) struct Attachment {
    #[serde(rename = "containerID")]
    pub container_id: String,
    pub ifname: String,
}

impl Config {
    pub(crate) fn read(stdin: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(stdin).map_err(|error| Error::decode(format!("the network configuration: {error}")))
    }

    /// All of the pod's, if it asks for something by one of them.
    pub(crate) fn asking(&self) -> Option<BTreeMap<String, String>> {
        let annotations = self.runtime_config.get(ANNOTATIONS)?.as_object()?;
        if !ASKING.iter().any(|asking| annotations.contains_key(*asking)) {
            return None;
        }
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        Some(annotations.iter().filter_map(text).collect())
    }

    /// Of its own, and not behind another plugin: it names what it attaches.
    pub(crate) fn is_of_its_own(&self) -> bool {
        self.names_one() && self.prev_result.is_none()
    }

    /// Later verbs are given what ADD answered as `prevResult`, so that this is all there is to see by then.
    pub(crate) fn names_one(&self) -> bool {
        self.named.subnet.is_some() || self.named.vnic.is_some()
    }

    /// What the agent is asked for by a configuration of its own, in the place of annotations.
    pub(crate) fn question(&self, ifname: &str) -> Result<BTreeMap<String, String>, Error> {
        if let Some(device) = self.given("deviceID")?.filter(|device| !device.is_empty()) {
            return Err(Error::invalid(format!(
                "runtimeConfig.deviceID: '{device}': pods are given veth devices, no functions: leave out the resource of \
                 the network"
            )));
        }
        let mut asked = json!(self.named);
        asked["name"] = json!(ifname);
        let addresses = self.addresses()?;
        if !addresses.is_empty() {
            asked["addresses"] = json!(addresses);
        }
        if let Some(mac) = self.given("mac")? {
            asked["macAddress"] = json!(mac.to_lowercase());
        }
        Ok([(NETWORKS.to_owned(), json!([asked]).to_string())].into())
    }

    /// Of the runtime, by a capability that the configuration declares.
    fn given(&self, capability: &str) -> Result<Option<&str>, Error> {
        match self.runtime_config.get(capability) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Error::invalid(format!("runtimeConfig.{capability}: {other}: a string is expected"))),
        }
    }

    /// Without prefix lengths: those are the Subnet's.
    fn addresses(&self) -> Result<Vec<String>, Error> {
        let wrong = |what: &Value| {
            Error::invalid(format!("runtimeConfig.ips: {what}: a list such as [\"10.20.0.7/24\"] is expected"))
        };
        let all = match self.runtime_config.get("ips") {
            None | Some(Value::Null) => return Ok(vec![]),
            Some(Value::Array(all)) => all,
            Some(other) => return Err(wrong(other)),
        };
        let bare = |ip: &Value| Some(ip.as_str()?.split('/').next()?.to_owned());
        all.iter().map(|ip| bare(ip).ok_or_else(|| wrong(ip))).collect()
    }

    /// What the runtime gives is what the NIC has, or nothing is attached: the NIC was made from the pod and its definitions, which may
    /// say something else.
    pub(crate) fn agrees(&self, interface: &Interface) -> Result<(), Error> {
        let other = |capability: &str, asked: &str, has: &str| {
            Error::invalid(format!(
                "runtimeConfig.{capability}: {asked} is asked for, and interface '{}' of the pod was made with {has}",
                interface.name
            ))
        };
        if let Some(mac) = self.given("mac")?.filter(|mac| mac.to_lowercase() != interface.mac_address) {
            return Err(other("mac", mac, &interface.mac_address));
        }
        let has: Vec<&str> = interface.addresses.iter().filter_map(|address| address.split('/').next()).collect();
        let asked = self.addresses()?;
        match asked.iter().find(|address| !interface.configured_by_pod && !has.contains(&address.as_str())) {
            Some(address) => Err(other("ips", address, &has.join(", "))),
            None => Ok(()),
        }
    }

    /// Looked at for pods that ask for something: one that does not must not fail by a word too many.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !crate::result::VERSIONS.contains(&self.cni_version.as_str()) {
            let all = crate::result::VERSIONS.join(", ");
            return Err(Error::invalid(format!("cniVersion: '{}': write one of {all}", self.cni_version)));
        }
        if let Some(key) =
            self.others.keys().find(|key| !OTHERS.contains(&key.as_str()) && !key.starts_with("cni.dev/"))
        {
            return Err(Error::invalid(format!(
                "{key}: a network configuration of type metalplane has no such member: it has socket, stateDirectory and \
                 required; of its own also subnet, vnic, securityGroups and configure"
            )));
        }
        let named = self.named.members().into_iter().find(|(_, is_there)| *is_there);
        match named.filter(|_| !self.is_of_its_own()) {
            Some((key, _)) => Err(Error::invalid(format!(
                "{key}: behind another plugin this is asked for by the pod's annotation metalplane.io/networks. In a \
                 configuration of its own, without prevResult, write it beside subnet or vnic"
            ))),
            None => Ok(()),
        }
    }

    /// What the plugins before this one said.
    pub(crate) fn previous(&self) -> Result<Value, Error> {
        self.prev_result.clone().ok_or_else(|| {
            Error::invalid(
                "prevResult is missing: write this plugin behind the cluster network's own, in the same list; or name a \
                 subnet or a vnic, in a NetworkAttachmentDefinition",
            )
        })
    }
}
