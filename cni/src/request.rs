//! What a runtime asks: by the environment and by the standard input.

use crate::error::Error;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The capability by which containerd and CRI-O hand over a pod's annotations.
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";
/// The annotations that ask for something.
const ASKING: [&str; 2] = ["metalplane.io/networks", "metalplane.io/subnet"];
/// Members of a configuration that are the runtime's, or that say nothing to us.
const OTHERS: [&str; 6] =
    ["args", "capabilities", "cniVersions", "disableCheck", "disableGC", "loadOnlyInlinedPlugins"];

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
    #[serde(rename = "cni.dev/valid-attachments", default)]
    pub valid_attachments: Vec<Attachment>,
    #[serde(rename = "type", default)]
    _type: String,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
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

    /// Looked at for pods that ask for something: one that does not must not fail by a word too many.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !crate::result::VERSIONS.contains(&self.cni_version.as_str()) {
            let all = crate::result::VERSIONS.join(", ");
            return Err(Error::invalid(format!("cniVersion: '{}': write one of {all}", self.cni_version)));
        }
        match self.others.keys().find(|key| !OTHERS.contains(&key.as_str()) && !key.starts_with("cni.dev/")) {
            Some(key) => Err(Error::invalid(format!(
                "{key}: a network configuration of type metalplane has no such member: it has socket, stateDirectory and \
                 required. Subnet and groups are asked for by the pod's annotation metalplane.io/networks"
            ))),
            None => Ok(()),
        }
    }

    /// What the plugins before this one said.
    pub(crate) fn previous(&self) -> Result<Value, Error> {
        self.prev_result.clone().ok_or_else(|| {
            Error::invalid(
                "prevResult is missing: write this plugin behind the cluster network's own, in the same list",
            )
        })
    }
}
