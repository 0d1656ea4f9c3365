//! One interface of a running machine, as the API server, the DPU's Open vSwitch, OVN and QEMU have it: whatever the agent believes.

use super::gate::Gate;
use crate::machine::Machine;
use anyhow::{Context, Result, ensure};
use api::{conditions, labels};
use planner::exposure::{ExposureId, FunctionKind};
use qemu::names;
use qemu::qmp::Qmp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// What the agent has done of a NIC's way up, and not undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Done {
    /// `status.fence` is written, and the finalizer is there.
    Claimed,
    /// The host was not asked to release the function.
    Presented,
    /// The host has the function.
    OnHost,
    Port,
    Link,
    /// It is said so. What is said of a NIC that is being taken away is no step.
    Connected,
}

#[derive(Debug, Default)]
pub struct Seen {
    pub done: BTreeSet<Done>,
    /// OVN has installed the flows of the port, as of this very grant.
    pub in_force: bool,
    /// The reason of `Connected`.
    pub reason: String,
}

impl Seen {
    pub fn has(&self, done: Done) -> bool {
        self.done.contains(&done)
    }
}

/// By what the NIC is known outside of its NicAttachment, which it outlives.
#[derive(Debug, Clone)]
struct Known {
    id: ExposureId,
    logical_port: String,
    mac: String,
}

pub struct Nic<'a> {
    machine: &'a Machine<'a>,
    interface: &'static str,
    host: Qmp,
    known: Option<Known>,
}

/// What the host has.
struct Host {
    devices: Value,
    /// As QEMU prints it: back ends and NICs.
    network: String,
}

/// The name of a network device, and what Open vSwitch knows of it.
type Interfaces = Vec<(String, BTreeMap<String, String>)>;

impl<'a> Nic<'a> {
    pub fn new(machine: &'a Machine<'a>, interface: &'static str, gate: &Gate) -> Self {
        Self { machine, interface, host: Qmp::new(gate.behind(), LIMIT), known: None }
    }

    pub async fn look(&mut self, gate: &Gate) -> Result<Seen> {
        let (attachment, interfaces, host) = tokio::try_join!(self.attachment(), self.interfaces(), self.host())?;
        if let Some(attachment) = &attachment {
            self.known = known(attachment).or(self.known.take());
        }
        let Some(Known { id, .. }) = &self.known else { return Ok(Seen::default()) };
        let attachment = attachment.unwrap_or_default();
        let metadata = &attachment["metadata"];
        let finalizers = metadata["finalizers"].as_array();
        let is_held = finalizers.is_some_and(|all| all.iter().any(|one| *one == labels::FINALIZER_EXPOSED));
        let connected = condition(&attachment, conditions::CONNECTED);
        let device = names::device(FunctionKind::Nic, id);
        let on_host = host.devices.as_array().into_iter().flatten().any(|one| one["name"] == *device);
        let port = interfaces.iter().find(|(_, notes)| notes.get("metalplane-uid") == Some(&id.uid));
        let note = |key: &str| port.and_then(|(_, notes)| notes.get(key)).map(String::as_str);
        let steps = [
            (Done::Claimed, is_held && attachment["status"]["fence"]["epoch"] == id.epoch),
            (Done::Presented, on_host && !gate.is_released(&device)),
            (Done::OnHost, on_host),
            (Done::Port, port.is_some()),
            (Done::Link, host.back_end(id).is_some_and(|back_end| gate.is_up(back_end))),
            (Done::Connected, connected["status"] == "True" || metadata["deletionTimestamp"].is_string()),
        ];
        Ok(Seen {
            done: steps.into_iter().filter_map(|(done, is_done)| is_done.then_some(done)).collect(),
            in_force: note("ovn-installed") == Some("true") && note("iface-id-ver") == Some(id.version().as_str()),
            reason: connected["reason"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// All that there is of a NIC that is up, in words that are the same for every NIC.
    pub async fn whole(&self) -> Result<Vec<String>> {
        let attachment = self.attachment().await?.context("there is no NicAttachment")?;
        let Known { id, logical_port, mac } = known(&attachment).context("it is not granted")?;
        let status = &attachment["status"];
        let tap = status["representor"].as_str().context("no representor is told")?;
        let bridge = self.on_dpu(&["ovs-vsctl", "port-to-br", tap]).await?;
        let mut lines = vec![
            format!("phase {}, fence {}", status["phase"], status["fence"]["identity"]),
            format!("port on {}", bridge.trim()),
            format!("row {}", self.row(&logical_port).await?),
        ];
        for type_ in [conditions::CONNECTED, conditions::EXPOSED] {
            let said = condition(&attachment, type_);
            lines.push(format!("{type_} {} {}", said["status"], said["reason"]));
        }
        let interfaces = self.interfaces().await?;
        let (_, notes) = interfaces.iter().find(|(name, _)| name == tap).context("the switch has no such port")?;
        for key in ["metalplane-uid", "metalplane-epoch", "iface-id", "iface-id-ver", "attached-mac", "ovn-installed"] {
            lines.push(format!("{key} {:?}", notes.get(key)));
        }
        let host = self.host().await?;
        lines.push(format!("back end {:?}", host.back_end(&id)));
        let objects = self.ask("qom-list", json!({"path": "/objects"})).await?;
        for (what, all, name) in [
            ("function", &host.devices, names::device(FunctionKind::Nic, &id)),
            ("link up", &objects, names::link(&id)),
        ] {
            lines.push(format!("{what} {}", all.as_array().into_iter().flatten().any(|one| one["name"] == *name)));
        }
        let own = [(id.uid.as_str(), "UID"), (tap, "TAP"), (logical_port.as_str(), "PORT"), (mac.as_str(), "MAC")];
        let in_words = |line: String| own.iter().fold(line, |line, (own, word)| line.replace(own, word));
        Ok(lines.into_iter().map(in_words).collect())
    }

    /// What is left of one that went; nothing: nothing.
    pub async fn left(&self) -> Result<Vec<String>> {
        let Known { id, logical_port, .. } = self.known.as_ref().context("the NIC was never there")?;
        let (attachment, interfaces, host) = tokio::try_join!(self.attachment(), self.interfaces(), self.host())?;
        let row = self.row(logical_port).await?;
        let left = [
            ("the NicAttachment", attachment.is_some()),
            ("the port", interfaces.iter().any(|(_, notes)| notes.values().any(|note| note.contains(&id.uid)))),
            ("the function", host.devices.to_string().contains(&id.uid)),
            ("the back end", host.back_end(id).is_some()),
            ("the row", row != "[]"),
        ];
        Ok(left.into_iter().filter(|(_, is_left)| *is_left).map(|(what, _)| what.to_owned()).collect())
    }

    /// Its MAC address and its first address.
    pub async fn addresses(&self) -> Result<[String; 2]> {
        let attachment = self.attachment().await?.context("there is no NicAttachment")?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("it has an address");
        Ok([text(&attachment["spec"]["macAddress"])?, text(&attachment["spec"]["addresses"][0])?])
    }

    async fn attachment(&self) -> Result<Option<Value>> {
        // Without discovery, which would be most of the time that it takes.
        let namespace = format!("metalplane-dpu-{}", self.machine.on().dpu());
        let path = format!("/apis/metalplane.io/v1alpha1/namespaces/{namespace}/nicattachments");
        let all: Value = serde_json::from_str(&self.machine.site.kubectl(&["get", "--raw", &path]).await?)?;
        let mut all = all["items"].as_array().cloned().unwrap_or_default().into_iter();
        Ok(all.find(|one| one["spec"]["interfaceName"] == self.interface))
    }

    async fn interfaces(&self) -> Result<Interfaces> {
        let list = ["ovs-vsctl", "--format=json", "--columns=name,external_ids", "list", "Interface"];
        let told: Value = serde_json::from_str(&self.on_dpu(&list).await?).context("read what ovs-vsctl says")?;
        let read = |row: &Value| {
            // A map is ["map", [[KEY, VALUE], …]].
            let notes: Vec<(String, String)> = serde_json::from_value(row[1][1].clone())?;
            anyhow::Ok((row[0].as_str().context("a name")?.to_owned(), notes.into_iter().collect()))
        };
        told["data"].as_array().context("ovs-vsctl told of no row")?.iter().map(read).collect()
    }

    /// Of the logical port in the north-bound database; `[]`: there is none.
    async fn row(&self, logical_port: &str) -> Result<String> {
        let named = format!("name={logical_port}");
        let find = ["--format=json", "--columns=up,options", "find", "Logical_Switch_Port", &named];
        let told: Value = serde_json::from_str(&self.machine.site.nbctl(&find).await?).context("read what OVN says")?;
        ensure!(told["data"].is_array(), "ovn-nbctl told of no row: {told}");
        Ok(told["data"].to_string())
    }

    async fn on_dpu(&self, command: &[&str]) -> Result<String> {
        self.machine.site.enter(&self.machine.on().dpu(), command).await
    }

    async fn host(&self) -> Result<Host> {
        let devices = self.ask("qom-list", json!({"path": "/machine/peripheral"})).await?;
        let network = self.ask("human-monitor-command", json!({"command-line": "info network"})).await?;
        Ok(Host { devices, network: network.as_str().unwrap_or_default().to_owned() })
    }

    async fn ask(&self, command: &str, arguments: Value) -> Result<Value> {
        self.host.execute(command, arguments).await.with_context(|| format!("ask the host: {command}"))
    }
}

impl Host {
    /// The name of the NIC's back end.
    fn back_end(&self, id: &ExposureId) -> Option<&str> {
        let prefix = names::netdev_prefix(id);
        self.network.split([' ', ':', '\r', '\n']).find(|word| word.starts_with(&prefix))
    }
}

fn known(attachment: &Value) -> Option<Known> {
    let spec = &attachment["spec"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let id = ExposureId { uid: text(&attachment["metadata"]["uid"])?, epoch: spec["grant"]["epoch"].as_u64()? };
    Some(Known { id, logical_port: text(&spec["logicalPort"])?, mac: text(&spec["macAddress"])? })
}

fn condition<'a>(attachment: &'a Value, type_: &str) -> &'a Value {
    let mut all = attachment["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}
