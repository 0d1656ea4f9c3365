//! What the DPU presents: block nodes, network back ends, devices, links and objects, kept while the host is off and on.
//!
//! While the host is off this is all there is: it takes the commands, refuses what QEMU would refuse in QEMU's own
//! words, and answers the queries. While the host is on it follows what QEMU accepted. At power-on it is replayed.

use serde_json::{Value, json};

use super::qmp::{Answer, Arguments, Refusal};
use super::{ports, throttle};

const DEVICES: [&str; 3] = ["nvme", "virtio-blk-pci", "virtio-net-pci"];
const LONGEST_NODE_NAME: usize = 31;

/// A recorded object: its name and the arguments that made it.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    name: String,
    arguments: Arguments,
}

/// See the module's documentation. Order is kept: the replay repeats it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Record {
    nodes: Vec<Entry>,
    backends: Vec<Entry>,
    devices: Vec<Entry>,
    /// By the device that each limits.
    limits: Vec<Entry>,
    /// By the back end or device whose link was set.
    links: Vec<Entry>,
    /// Objects that no device needs: how a driver remembers something.
    objects: Vec<Entry>,
    /// Devices whose removal the guest has been asked for and has not granted yet.
    leaving: Vec<String>,
}

/// A command of the replay.
pub struct Step {
    pub command: &'static str,
    pub name: String,
    pub arguments: Arguments,
}

/// A required string argument, or QEMU's complaint.
pub fn text<'a>(arguments: &'a Arguments, key: &str) -> Result<&'a str, Refusal> {
    match arguments.get(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Refusal::generic(format!("Invalid parameter type for '{key}', expected: string"))),
        None => Err(Refusal::generic(format!("Parameter '{key}' is missing"))),
    }
}

/// The file behind a `blockdev-add`, however the driver nests it.
pub fn file_of(arguments: &Arguments) -> Option<&str> {
    let nested = arguments.get("file").and_then(Value::as_object);
    let layer = nested.unwrap_or(arguments);
    layer.get("filename").or_else(|| arguments.get("filename")).and_then(Value::as_str)
}

/// An image of a Ceph cluster, or what another process exports: only QEMU opens it, when the host starts.
fn is_image(arguments: &Arguments) -> bool {
    let driver = arguments.get("file").and_then(|layer| layer.get("driver"));
    matches!(driver.and_then(Value::as_str), Some("rbd" | "nbd"))
}

fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.name == name)
}

impl Record {
    /// Takes a command while the host is off.
    pub fn take(&mut self, command: &str, arguments: &Arguments) -> Answer {
        match command {
            "blockdev-add" => self.check_node(arguments)?,
            "netdev_add" => self.check_backend(arguments)?,
            "device_add" => self.check_device(arguments)?,
            "blockdev-del" => self.check_node_is_free(text(arguments, "node-name")?)?,
            "netdev_del" => self.check_backend_is_free(text(arguments, "id")?)?,
            "device_del" => self.device(text(arguments, "id")?).map(drop)?,
            "set_link" => self.check_link(arguments)?,
            "object-add" => self.check_object(arguments)?,
            "object-del" => self.check_object_is_there(text(arguments, "id")?)?,
            "block_set_io_throttle" => {
                self.device(throttle::device(arguments)?)?;
                throttle::check(arguments)?;
            }
            other => return Err(Refusal::command_not_found(other)),
        }
        self.accepted(command, arguments);
        if command == "device_del" {
            self.gone(text(arguments, "id")?);
        }
        Ok(json!({}))
    }

    /// Follows a command that QEMU, or [`Record::take`], accepted.
    pub fn accepted(&mut self, command: &str, arguments: &Arguments) {
        let name = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let entry = |key: &str| Entry { name: name(key), arguments: arguments.clone() };
        match command {
            "blockdev-add" => self.nodes.push(entry("node-name")),
            "netdev_add" => self.backends.push(entry("id")),
            "device_add" => self.devices.push(entry("id")),
            "blockdev-del" => self.nodes.retain(|node| node.name != name("node-name")),
            "netdev_del" => {
                self.backends.retain(|backend| backend.name != name("id"));
                self.links.retain(|link| link.name != name("id"));
            }
            "device_del" => self.leaving.push(name("id")),
            "object-add" => self.objects.push(entry("id")),
            "object-del" => self.objects.retain(|object| object.name != name("id")),
            "set_link" => {
                self.links.retain(|link| link.name != name("name"));
                self.links.push(entry("name"));
            }
            "block_set_io_throttle" => {
                let name = throttle::device(arguments).unwrap_or_default().to_owned();
                self.limits.retain(|limit| limit.name != name);
                self.limits.push(Entry { name, arguments: arguments.clone() });
            }
            _ => {}
        }
    }

    /// A device has left the host.
    pub fn gone(&mut self, device: &str) {
        self.devices.retain(|entry| entry.name != device);
        self.limits.retain(|entry| entry.name != device);
        self.links.retain(|entry| entry.name != device);
        self.leaving.retain(|name| name != device);
    }

    /// The host went off: whatever was about to leave has left. Gives the names.
    pub fn host_off(&mut self) -> Vec<String> {
        let left = std::mem::take(&mut self.leaving);
        self.devices.retain(|entry| !left.contains(&entry.name));
        self.limits.retain(|entry| !left.contains(&entry.name));
        self.links.retain(|entry| !left.contains(&entry.name));
        left
    }

    /// Forgets an object that could not be replayed.
    pub fn lose(&mut self, step: &Step) {
        let entries = match step.command {
            "blockdev-add" => &mut self.nodes,
            "netdev_add" => &mut self.backends,
            "block_set_io_throttle" => &mut self.limits,
            "set_link" => &mut self.links,
            "object-add" => &mut self.objects,
            _ => &mut self.devices,
        };
        entries.retain(|entry| entry.name != step.name);
    }

    /// Forgets everything; gives the tap interfaces that stand for the lost back ends.
    pub fn clear(&mut self) -> Vec<String> {
        let taps = self.taps();
        *self = Record::default();
        taps
    }

    /// Everything, in an order in which QEMU takes it.
    pub fn replay(&self) -> Vec<Step> {
        let kinds = [
            ("blockdev-add", &self.nodes),
            ("netdev_add", &self.backends),
            ("device_add", &self.devices),
            ("block_set_io_throttle", &self.limits),
            // The host's processors do not run yet: no link was up that is down here.
            ("set_link", &self.links),
            ("object-add", &self.objects),
        ];
        let steps = kinds.into_iter().flat_map(|(command, entries)| {
            entries.iter().map(move |entry| Step {
                command,
                name: entry.name.clone(),
                arguments: entry.arguments.clone(),
            })
        });
        steps.collect()
    }

    /// Bus and id of each device, for the boot order.
    pub fn placed(&self) -> Vec<(String, String)> {
        let bus = |entry: &Entry| entry.arguments.get("bus").and_then(Value::as_str).map(str::to_owned);
        self.devices.iter().filter_map(|entry| Some((bus(entry)?, entry.name.clone()))).collect()
    }

    pub fn driver(&self, device: &str) -> Option<&str> {
        find(&self.devices, device)?.arguments.get("driver")?.as_str()
    }

    /// The tap interface behind a back end.
    pub fn tap(&self, backend: &str) -> Option<String> {
        let arguments = &find(&self.backends, backend)?.arguments;
        arguments.get("ifname").and_then(Value::as_str).map(str::to_owned)
    }

    pub fn taps(&self) -> Vec<String> {
        self.backends.iter().filter_map(|entry| self.tap(&entry.name)).collect()
    }

    /// Answers a query from the record.
    pub fn answer(&self, command: &str, arguments: &Arguments) -> Answer {
        match command {
            "query-status" => Ok(json!({ "running": false, "singlestep": false, "status": "shutdown" })),
            "qom-list" => self.list(text(arguments, "path")?),
            "qom-get" => self.property(text(arguments, "path")?, text(arguments, "property")?),
            "human-monitor-command" => Ok(json!(self.info_network())),
            "query-block" => Ok(self.describe_drives()),
            "query-blockstats" => Ok(self.count_drives()),
            other => Err(Refusal::command_not_found(other)),
        }
    }

    /// `info network` as QEMU prints it: a back end with a NIC stands below that NIC.
    fn info_network(&self) -> String {
        let lines = self.backends.iter().map(|backend| {
            let tap = self.tap(&backend.name).unwrap_or_default();
            let line = format!("{}: index=0,type=tap,ifname={tap}\r\n", backend.name);
            match self.user_of("netdev", &backend.name) {
                Some(nic) => format!("{}: index=0,type=nic\r\n \\ {line}", nic.name),
                None => line,
            }
        });
        lines.collect()
    }

    fn describe_drives(&self) -> Value {
        let drive = |device: &Entry| {
            let word = |key: &str| device.arguments.get(key).and_then(Value::as_str);
            let set = find(&self.limits, &device.name).map(|limit| &limit.arguments);
            Some(throttle::describe(&device.name, word("driver")?, word("drive")?, set))
        };
        self.devices.iter().filter_map(drive).collect()
    }

    /// Nothing was done to them yet.
    fn count_drives(&self) -> Value {
        let nodes = self.devices.iter().filter_map(|device| device.arguments.get("drive"));
        let none = json!({"rd_operations": 0, "rd_bytes": 0, "rd_total_time_ns": 0, "wr_operations": 0, "wr_bytes": 0, "wr_total_time_ns": 0});
        nodes.map(|node| json!({"node-name": node, "stats": none})).collect()
    }

    fn device(&self, id: &str) -> Result<&Entry, Refusal> {
        find(&self.devices, id).ok_or_else(|| Refusal::device_not_found(format!("Device '{id}' not found")))
    }

    fn user_of(&self, property: &str, value: &str) -> Option<&Entry> {
        self.devices.iter().find(|device| device.arguments.get(property).and_then(Value::as_str) == Some(value))
    }

    fn check_node(&self, arguments: &Arguments) -> Result<(), Refusal> {
        text(arguments, "driver")?;
        let name = text(arguments, "node-name")?;
        if name.len() > LONGEST_NODE_NAME {
            return Err(Refusal::generic("Node name too long"));
        }
        if find(&self.nodes, name).is_some() {
            return Err(Refusal::generic(format!("Duplicate nodes with node-name='{name}'")));
        }
        let is_there = is_image(arguments) || file_of(arguments).is_some();
        if is_there { Ok(()) } else { Err(Refusal::generic("A block device must be specified for \"file\"")) }
    }

    fn check_backend(&self, arguments: &Arguments) -> Result<(), Refusal> {
        let kind = text(arguments, "type")?;
        if kind != "tap" {
            return Err(Refusal::generic(format!("Parameter 'type' does not accept value '{kind}'")));
        }
        text(arguments, "ifname")?;
        let id = text(arguments, "id")?;
        match find(&self.backends, id) {
            Some(_) => Err(Refusal::generic(format!("Duplicate ID '{id}' for netdev"))),
            None => Ok(()),
        }
    }

    /// What QEMU would say to a device_add, from the model to the slot.
    fn check_device(&self, arguments: &Arguments) -> Result<(), Refusal> {
        let driver = text(arguments, "driver")?;
        if !DEVICES.contains(&driver) {
            return Err(Refusal::generic(format!("'{driver}' is not a valid device model name")));
        }
        let id = text(arguments, "id")?;
        if find(&self.devices, id).is_some() || ports::all().any(|port| port == id) {
            return Err(Refusal::generic(format!("Duplicate device ID '{id}'")));
        }
        let bus = text(arguments, "bus")?;
        if !ports::all().any(|port| port == bus) {
            return Err(Refusal::generic(format!("Bus '{bus}' not found")));
        }
        if let Some(other) = self.user_of("bus", bus) {
            let model = other.arguments.get("driver").and_then(Value::as_str).unwrap_or_default();
            let desc =
                format!("PCI: slot 0 function 0 not available for {driver}, in use by {model},id={}", other.name);
            return Err(Refusal::generic(desc));
        }
        if driver == "virtio-net-pci" { self.check_nic(arguments) } else { self.check_disk(driver, arguments) }
    }

    fn check_disk(&self, driver: &str, arguments: &Arguments) -> Result<(), Refusal> {
        if driver == "nvme" && arguments.get("serial").and_then(Value::as_str).is_none() {
            return Err(Refusal::generic("serial property not set"));
        }
        let Some(drive) = arguments.get("drive").and_then(Value::as_str) else {
            // An NVMe controller may come without a namespace.
            return if driver == "nvme" { Ok(()) } else { Err(Refusal::generic("drive property not set")) };
        };
        if find(&self.nodes, drive).is_none() {
            return Err(Refusal::generic(format!("Property '{driver}.drive' can't find value '{drive}'")));
        }
        if self.user_of("drive", drive).is_some() {
            return Err(Refusal::generic(format!("Drive '{drive}' is already in use by another device")));
        }
        Ok(())
    }

    fn check_nic(&self, arguments: &Arguments) -> Result<(), Refusal> {
        let Some(backend) = arguments.get("netdev").and_then(Value::as_str) else { return Ok(()) };
        if find(&self.backends, backend).is_none() {
            return Err(Refusal::generic(format!("Property 'virtio-net-pci.netdev' can't find value '{backend}'")));
        }
        match self.user_of("netdev", backend) {
            Some(_) => {
                let desc = format!("Property 'virtio-net-pci.netdev' can't take value '{backend}', it's in use");
                Err(Refusal::generic(desc))
            }
            None => Ok(()),
        }
    }

    fn check_node_is_free(&self, name: &str) -> Result<(), Refusal> {
        if find(&self.nodes, name).is_none() {
            return Err(Refusal::generic(format!("Failed to find node with node-name='{name}'")));
        }
        match self.user_of("drive", name) {
            Some(_) => Err(Refusal::generic(format!("Node {name} is in use"))),
            None => Ok(()),
        }
    }

    fn check_link(&self, arguments: &Arguments) -> Result<(), Refusal> {
        let name = text(arguments, "name")?;
        if arguments.get("up").and_then(Value::as_bool).is_none() {
            return Err(Refusal::generic("Parameter 'up' is missing"));
        }
        match find(&self.backends, name).or(find(&self.devices, name)) {
            Some(_) => Ok(()),
            None => Err(Refusal::device_not_found(format!("Device '{name}' not found"))),
        }
    }

    fn check_object(&self, arguments: &Arguments) -> Result<(), Refusal> {
        text(arguments, "qom-type")?;
        let id = text(arguments, "id")?;
        match find(&self.objects, id) {
            Some(_) => {
                Err(Refusal::generic(format!("attempt to add duplicate property '{id}' to object (type 'container')")))
            }
            None => Ok(()),
        }
    }

    fn check_object_is_there(&self, id: &str) -> Result<(), Refusal> {
        find(&self.objects, id).map(drop).ok_or_else(|| Refusal::generic(format!("object '{id}' not found")))
    }

    fn check_backend_is_free(&self, id: &str) -> Result<(), Refusal> {
        find(&self.backends, id).map(drop).ok_or_else(|| Refusal::device_not_found(format!("Device '{id}' not found")))
    }

    /// The block nodes, with the sizes of their files. A raw node is as large as its file.
    pub fn describe_nodes(&self, sizes: &[Option<u64>]) -> Value {
        self.nodes.iter().zip(sizes).map(|(node, size)| describe_node(node, *size)).collect()
    }

    /// The file behind each block node.
    pub fn files(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| file_of(&node.arguments).unwrap_or_default()).collect()
    }

    /// Whether the node is of an image, which has its size at its cluster.
    pub fn is_image(&self, node: &str) -> bool {
        find(&self.nodes, node).is_some_and(|node| is_image(&node.arguments))
    }

    /// The file behind one block node.
    pub fn file(&self, node: &str) -> Result<&str, Refusal> {
        let found = find(&self.nodes, node).and_then(|node| file_of(&node.arguments));
        found.ok_or_else(|| Refusal::generic(format!("Cannot find device='' nor node-name='{node}'")))
    }

    fn list(&self, path: &str) -> Answer {
        let child = |entry: &Entry, key: &str| {
            let model = entry.arguments.get(key).and_then(Value::as_str).unwrap_or_default();
            json!({ "name": entry.name, "type": format!("child<{model}>") })
        };
        if path == "/objects" {
            return Ok(self.objects.iter().map(|object| child(object, "qom-type")).collect());
        }
        let Some(id) = device_path(path) else {
            let devices = self.devices.iter().map(|device| child(device, "driver"));
            let ports = ports::all().map(|port| json!({ "name": port, "type": "child<pcie-root-port>" }));
            return Ok(ports.chain(devices).collect());
        };
        let device = self.device(id)?;
        Ok(device.arguments.keys().map(|name| json!({ "name": name, "type": "str" })).collect())
    }

    fn property(&self, path: &str, property: &str) -> Answer {
        let device = self.device(device_path(path).unwrap_or_default())?;
        let arguments = &device.arguments;
        match property {
            "type" => Ok(arguments.get("driver").cloned().unwrap_or_default()),
            "parent_bus" => {
                let bus = text(arguments, "bus")?;
                Ok(json!(format!("/machine/peripheral/{bus}/{bus}")))
            }
            "serial" | "drive" | "mac" | "netdev" => Ok(arguments.get(property).cloned().unwrap_or(json!(""))),
            other => arguments.get(other).cloned().ok_or_else(|| {
                let driver = arguments.get("driver").and_then(Value::as_str).unwrap_or_default();
                Refusal::generic(format!("Property '{driver}.{other}' not found"))
            }),
        }
    }
}

/// The device's id in `/machine/peripheral/<id>`; none for the folder itself.
fn device_path(path: &str) -> Option<&str> {
    path.trim_end_matches('/').strip_prefix("/machine/peripheral/")
}

fn describe_node(node: &Entry, size: Option<u64>) -> Value {
    let file = file_of(&node.arguments).unwrap_or_default();
    let driver = node.arguments.get("driver").cloned().unwrap_or_default();
    let read_only = node.arguments.get("read-only").and_then(Value::as_bool).unwrap_or(false);
    json!({
        "node-name": node.name,
        "drv": driver,
        "file": file,
        "ro": read_only,
        "image": { "filename": file, "format": driver, "virtual-size": size.unwrap_or_default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: Value) -> Arguments {
        value.as_object().expect("arguments are an object").clone()
    }

    fn node(name: &str) -> Arguments {
        let file = json!({ "driver": "file", "filename": "/pool/disk" });
        arguments(json!({ "driver": "raw", "node-name": name, "file": file }))
    }

    fn nvme(id: &str, drive: &str, bus: &str) -> Arguments {
        arguments(json!({ "driver": "nvme", "id": id, "drive": drive, "serial": "S", "bus": bus }))
    }

    fn refused(answer: Answer) -> String {
        answer.expect_err("QEMU would refuse this").description
    }

    #[test]
    fn what_is_in_use_is_not_given_twice_nor_taken_away() {
        let mut record = Record::default();
        record.take("blockdev-add", &node("n1")).expect("first node");
        assert!(refused(record.take("blockdev-add", &node("n1"))).contains("Duplicate nodes"));
        record.take("device_add", &nvme("a", "n1", "hp0")).expect("first device");
        assert!(refused(record.take("device_add", &nvme("a", "n1", "hp1"))).contains("Duplicate device ID"));
        assert!(refused(record.take("device_add", &nvme("b", "n1", "hp1"))).contains("already in use"));
        assert!(refused(record.take("device_add", &nvme("b", "n1", "hp0"))).contains("in use by nvme,id=a"));
        assert!(refused(record.take("device_add", &nvme("b", "n2", "hp1"))).contains("can't find value 'n2'"));
        assert!(refused(record.take("device_add", &nvme("b", "n1", "hp99"))).contains("Bus 'hp99' not found"));
        assert!(refused(record.take("blockdev-del", &arguments(json!({ "node-name": "n1" })))).contains("in use"));
        record.take("device_del", &arguments(json!({ "id": "a" }))).expect("the host is off: gone at once");
        record.take("blockdev-del", &arguments(json!({ "node-name": "n1" }))).expect("free");
        assert_eq!(record, Record::default());
    }

    #[test]
    fn a_device_that_was_leaving_is_gone_when_the_host_is_off() {
        let mut record = Record::default();
        record.take("blockdev-add", &node("n1")).expect("node");
        record.take("device_add", &nvme("a", "n1", "hp0")).expect("device");
        record.accepted("device_del", &arguments(json!({ "id": "a" })));
        assert_eq!(record.replay().len(), 2, "the guest has not let go yet");
        assert_eq!(record.host_off(), ["a"]);
        assert_eq!(record.replay().len(), 1);
    }

    #[test]
    fn limits_stay_with_their_device() {
        let mut record = Record::default();
        record.take("blockdev-add", &node("n1")).expect("node");
        let limit = |id: &str, iops: u64, bps_rd: u64, bps: u64| {
            arguments(
                json!({ "id": id, "iops": iops, "iops_rd": 0, "iops_wr": 0, "bps": bps, "bps_rd": bps_rd, "bps_wr": 0 }),
            )
        };
        let path = "/machine/peripheral/a";
        assert!(refused(record.take("block_set_io_throttle", &limit(path, 1, 0, 0))).contains("'a' not found"));
        record.take("device_add", &nvme("a", "n1", "hp0")).expect("device");
        record.take("block_set_io_throttle", &limit(path, 5000, 0, 0)).expect("limited");
        record.take("block_set_io_throttle", &limit(path, 7000, 9, 0)).expect("limited anew");
        assert!(refused(record.take("block_set_io_throttle", &limit(path, 0, 1, 1))).contains("at the same time"));
        let told = record.answer("query-block", &Arguments::new()).expect("answer");
        let told = (&told[0]["inserted"]["node-name"], &told[0]["inserted"]["iops"], &told[0]["inserted"]["bps_rd"]);
        assert_eq!(told, (&json!("n1"), &json!(7000), &json!(9)));
        let last = record.replay().pop().expect("steps");
        assert_eq!((last.command, last.name.as_str()), ("block_set_io_throttle", "a"), "after the device, once");
        record.take("device_del", &arguments(json!({ "id": "a" }))).expect("the host is off: gone at once");
        record.take("device_add", &nvme("a", "n1", "hp0")).expect("device");
        assert_eq!(record.answer("query-block", &Arguments::new()).expect("answer")[0]["inserted"]["iops"], 0);
    }

    #[test]
    fn a_link_stays_as_it_was_set_until_its_nic_is_gone() {
        let mut record = Record::default();
        let set = |name: &str, up: bool| arguments(json!({ "name": name, "up": up }));
        assert!(refused(record.take("set_link", &set("net", false))).contains("'net' not found"));
        record.take("netdev_add", &arguments(json!({ "type": "tap", "id": "net", "ifname": "mp0" }))).expect("tap");
        let nic = json!({ "driver": "virtio-net-pci", "id": "nic", "netdev": "net", "bus": "hp0" });
        record.take("device_add", &arguments(nic)).expect("device");
        for up in [false, true, false] {
            record.take("set_link", &set("net", up)).expect("set");
        }
        let object = arguments(json!({ "qom-type": "rng-builtin", "id": "o" }));
        record.take("object-add", &object).expect("object");
        assert!(refused(record.take("object-add", &object)).contains("duplicate"));
        let replayed: Vec<_> = record.replay().into_iter().map(|step| (step.command, step.arguments)).collect();
        let commands: Vec<_> = replayed.iter().map(|(command, _)| *command).collect();
        assert_eq!(commands, ["netdev_add", "device_add", "set_link", "object-add"], "the last word alone");
        assert_eq!(replayed[2].1["up"], false);
        let listed = record.answer("qom-list", &arguments(json!({ "path": "/objects" }))).expect("answer");
        assert_eq!(listed, json!([{ "name": "o", "type": "child<rng-builtin>" }]));
        record.take("object-del", &arguments(json!({ "id": "o" }))).expect("there");
        assert!(refused(record.take("object-del", &arguments(json!({ "id": "o" })))).contains("not found"));
        record.take("device_del", &arguments(json!({ "id": "nic" }))).expect("the host is off: gone at once");
        record.take("netdev_del", &arguments(json!({ "id": "net" }))).expect("free");
        assert_eq!(record, Record::default());
    }

    #[test]
    fn queries_tell_what_was_presented() {
        let mut record = Record::default();
        record.take("blockdev-add", &node("n1")).expect("node");
        record.take("device_add", &nvme("a", "n1", "boot")).expect("device");
        assert_eq!(record.files(), ["/pool/disk"]);
        let nodes = record.describe_nodes(&[Some(1 << 20)]);
        assert_eq!(nodes[0]["image"]["virtual-size"], 1 << 20);
        assert_eq!(nodes[0]["file"], "/pool/disk");
        let get = |property: &str| {
            record.answer("qom-get", &arguments(json!({ "path": "/machine/peripheral/a", "property": property })))
        };
        assert_eq!(get("serial"), Ok(json!("S")));
        assert_eq!(get("drive"), Ok(json!("n1")));
        assert_eq!(get("parent_bus"), Ok(json!("/machine/peripheral/boot/boot")));
        assert!(get("nonsense").is_err());
        let listed = record.answer("qom-list", &arguments(json!({ "path": "/machine/peripheral" }))).expect("answer");
        let names: Vec<&str> =
            listed.as_array().expect("list").iter().filter_map(|entry| entry["name"].as_str()).collect();
        assert!(names.contains(&"a") && names.contains(&"hp13"));
    }
}
