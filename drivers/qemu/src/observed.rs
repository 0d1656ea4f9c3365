//! What QEMU presents now, read with `qom-list`, `qom-get`, `query-named-block-nodes` and `query-block`.

use crate::{
    names,
    qmp::{Qmp, QmpError},
    throttle,
};
use planner::exposure::{ExposureId, FunctionKind, Limits};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const PERIPHERAL: &str = "/machine/peripheral";
const OBJECTS: &str = "/objects";

/// Everything below `/machine/peripheral`, and the block nodes.
#[derive(Debug, Default)]
pub struct Observed {
    /// PCIe ports by name, with the device that sits in each.
    pub ports: BTreeMap<String, Option<String>>,
    pub functions: Vec<Function>,
    /// Our block nodes with their sizes in bytes: what the host can read, not what the file has grown to since.
    pub nodes: BTreeMap<String, u64>,
    /// What devices are held to, by their block node.
    pub limits: BTreeMap<String, Limits>,
    /// NICs whose link is up.
    pub links: BTreeSet<ExposureId>,
}

#[derive(Debug)]
pub struct Function {
    pub id: ExposureId,
    pub kind: FunctionKind,
    /// QEMU's device model, for example `nvme`.
    pub model: String,
    /// The port it sits in.
    pub port: String,
    /// Disks: the block node. NICs: the back end.
    pub backend: String,
}

impl Observed {
    pub async fn read(qmp: &Qmp) -> Result<Self, QmpError> {
        let (nodes, limits, links) = (nodes(qmp).await?, limits(qmp).await?, links(qmp).await?);
        let mut observed = Self { nodes, limits, links, ..Self::default() };
        let mut occupied = Vec::new();
        for (name, model) in children(qmp, PERIPHERAL).await? {
            if model == "pcie-root-port" {
                observed.ports.insert(name, None);
                continue;
            }
            let Some(bus) = property(qmp, &name, "parent_bus").await? else { continue };
            let port = bus.rsplit('/').next().unwrap_or_default().to_owned();
            if let Some((kind, id)) = names::parse_device(&name) {
                let backend = match kind {
                    FunctionKind::Disk => property(qmp, &name, "drive").await?,
                    FunctionKind::Nic => property(qmp, &name, "netdev").await?,
                };
                let backend = backend.unwrap_or_default();
                observed.functions.push(Function { id, kind, model, port: port.clone(), backend });
            }
            occupied.push((port, name));
        }
        for (port, name) in occupied {
            if let Some(occupant) = observed.ports.get_mut(&port) {
                *occupant = Some(name);
            }
        }
        Ok(observed)
    }

    pub fn function(&self, kind: FunctionKind, uid: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.kind == kind && f.id.uid == uid)
    }

    /// Of a block node. `None`: it is not known, as that of an image while the host is off: whoever opens it then sees how
    /// large it is, and nobody can make it larger before.
    pub fn size(&self, node: &str) -> Option<u64> {
        self.nodes.get(node).copied().filter(|size| *size > 0)
    }

    /// Whether anything is left of a device of ours: itself, or its block node.
    pub fn still_has(&self, device: &str) -> bool {
        let Some((kind, id)) = names::parse_device(device) else { return false };
        let is_disk = kind == FunctionKind::Disk;
        self.functions.iter().any(|f| f.kind == kind && f.id == id)
            || is_disk && self.function(kind, &id.uid).is_none() && self.nodes.contains_key(&names::node(&id.uid))
    }

    /// `hp0`, `hp1`, …: the pool that disks and NICs share, in order.
    pub fn hot_plug_ports(&self) -> Vec<(&String, &Option<String>)> {
        let number = |name: &str| name.strip_prefix("hp").and_then(|n| n.parse::<u32>().ok());
        let mut ports: Vec<_> = self.ports.iter().filter(|(name, _)| number(name).is_some()).collect();
        ports.sort_by_key(|(name, _)| number(name));
        ports
    }

    /// NICs that have left, and whose link is still noted to be up.
    pub fn links_of_nobody(&self) -> Vec<ExposureId> {
        let is_there = |id: &ExposureId| self.functions.iter().any(|f| f.kind == FunctionKind::Nic && f.id == *id);
        self.links.iter().filter(|id| !is_there(id)).cloned().collect()
    }

    /// Block nodes of ours that no device uses: what an interrupted `expose` or a finished unplug left behind.
    pub fn unused_nodes(&self) -> Vec<String> {
        let used = |node: &String| self.functions.iter().any(|f| f.kind == FunctionKind::Disk && &f.backend == node);
        self.nodes.keys().filter(|node| !used(node)).cloned().collect()
    }
}

async fn children(qmp: &Qmp, folder: &str) -> Result<Vec<(String, String)>, QmpError> {
    let listed = qmp.execute("qom-list", json!({"path": folder})).await?;
    let entry = |entry: &Value| {
        let model = entry["type"].as_str()?.strip_prefix("child<")?.strip_suffix('>')?;
        Some((entry["name"].as_str()?.to_owned(), model.to_owned()))
    };
    Ok(listed.as_array().into_iter().flatten().filter_map(entry).collect())
}

/// What the host reads as the disk's serial number.
pub async fn serial(qmp: &Qmp, device: &str) -> Result<Option<String>, QmpError> {
    Ok(property(qmp, device, "serial").await?.filter(|serial| !serial.is_empty()))
}

/// `None` when the device went away in between, or has no such property.
async fn property(qmp: &Qmp, device: &str, property: &str) -> Result<Option<String>, QmpError> {
    let path = format!("{PERIPHERAL}/{device}");
    match qmp.execute("qom-get", json!({"path": path, "property": property})).await {
        Ok(value) => Ok(value.as_str().map(str::to_owned)),
        Err(QmpError::Refused { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

async fn nodes(qmp: &Qmp) -> Result<BTreeMap<String, u64>, QmpError> {
    let listed = qmp.execute("query-named-block-nodes", json!({"flat": true})).await?;
    let entry = |node: &Value| {
        let name = node["node-name"].as_str().filter(|name| names::is_node(name))?;
        Some((name.to_owned(), node["image"]["virtual-size"].as_u64().unwrap_or(0)))
    };
    Ok(listed.as_array().into_iter().flatten().filter_map(entry).collect())
}

async fn links(qmp: &Qmp) -> Result<BTreeSet<ExposureId>, QmpError> {
    Ok(children(qmp, OBJECTS).await?.iter().filter_map(|(name, _)| names::parse_link(name)).collect())
}

/// Throttling belongs to a device's way to its block node, so `query-named-block-nodes` knows nothing of it.
async fn limits(qmp: &Qmp) -> Result<BTreeMap<String, Limits>, QmpError> {
    let listed = qmp.execute("query-block", json!({})).await?;
    let entry = |device: &Value| {
        let inserted = &device["inserted"];
        let node = inserted["node-name"].as_str().filter(|name| names::is_node(name))?;
        Some((node.to_owned(), throttle::read(inserted)))
    };
    Ok(listed.as_array().into_iter().flatten().filter_map(entry).collect())
}

/// NIC back ends of ours that no NIC uses. QEMU has no typed query for them; where the socket offers no human monitor,
/// none are known.
pub async fn unused_netdevs(qmp: &Qmp) -> Result<Vec<String>, QmpError> {
    match qmp.execute("human-monitor-command", json!({"command-line": "info network"})).await {
        Ok(text) => Ok(parse_unused_netdevs(text.as_str().unwrap_or_default())),
        Err(QmpError::Refused { .. }) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// A back end with a NIC is printed below it, indented and after a backslash; one without starts a line.
fn parse_unused_netdevs(text: &str) -> Vec<String> {
    let name = |line: &str| line.split_once(": ").map(|(name, _)| name.to_owned());
    text.lines().filter_map(name).filter(|name| names::parse_netdev(name).is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_back_ends_without_a_nic_are_unused() {
        let text = "nic-u-1: index=0,type=nic,model=virtio-net-pci,macaddr=02:00:00:00:00:01\r\n \\ \
                    net-u-1.mpabc: index=0,type=tap,ifname=mpabc\r\nnet-v-2.mpdef: index=0,type=tap,ifname=mpdef\r\n\
                    other: index=0,type=tap\r\n";
        assert_eq!(parse_unused_netdevs(text), ["net-v-2.mpdef"]);
    }

    /// One of 0 bytes would be made larger, for ever.
    #[test]
    fn what_nobody_has_opened_has_no_size() {
        let nodes = [("n1".to_owned(), 4096), ("n2".to_owned(), 0)].into();
        let observed = Observed { nodes, ..Observed::default() };
        assert_eq!(["n1", "n2", "n3"].map(|node| observed.size(node)), [Some(4096), None, None]);
    }

    #[test]
    fn hot_plug_ports_are_ordered_by_number() {
        let ports = ["boot", "hp10", "hp2", "hp0", "hpx"].map(|p| (p.to_owned(), None)).into();
        let observed = Observed { ports, ..Observed::default() };
        let names: Vec<_> = observed.hot_plug_ports().into_iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["hp0", "hp2", "hp10"]);
    }
}
