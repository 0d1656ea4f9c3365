//! A client of the slots socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

pub struct Slots {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    pub events: Vec<Value>,
}

impl Slots {
    pub fn connect(path: &Path) -> Slots {
        let writer = UnixStream::connect(path).expect("connect to the slots socket");
        writer.set_read_timeout(Some(Duration::from_secs(60))).expect("set a time limit");
        let reader = BufReader::new(writer.try_clone().expect("second handle of the socket"));
        let mut slots = Slots { reader, writer, events: Vec::new() };
        assert!(slots.message().get("QMP").is_some(), "the socket greets");
        slots.accepted("qmp_capabilities", json!({}));
        slots
    }

    pub fn execute(&mut self, command: &str, arguments: Value) -> Value {
        let request = json!({ "execute": command, "arguments": arguments, "id": "t" });
        self.writer.write_all(format!("{request}\n").as_bytes()).expect("send a command");
        loop {
            let message = self.message();
            if message.get("event").is_some() {
                self.events.push(message);
            } else {
                assert_eq!(message["id"], "t");
                return message;
            }
        }
    }

    pub fn accepted(&mut self, command: &str, arguments: Value) -> Value {
        let answer = self.execute(command, arguments);
        answer.get("return").cloned().unwrap_or_else(|| panic!("{command} was refused: {answer}"))
    }

    pub fn refused(&mut self, command: &str, arguments: Value) -> String {
        let answer = self.execute(command, arguments);
        answer["error"]["desc"].as_str().unwrap_or_else(|| panic!("{command} was accepted: {answer}")).to_owned()
    }

    /// Waits for an event about a device.
    pub fn wait_for_event(&mut self, name: &str, device: &str) {
        let wanted = |event: &Value| event["event"] == name && event["data"]["device"] == device;
        while !self.events.iter().any(wanted) {
            let message = self.message();
            self.events.push(message);
        }
    }

    /// Presents a raw file as an NVMe disk.
    pub fn disk(&mut self, id: &str, file: &Path, bus: &str) {
        let layer = json!({ "driver": "file", "filename": file });
        self.accepted("blockdev-add", json!({ "driver": "raw", "node-name": format!("n-{id}"), "file": layer }));
        let drive = format!("n-{id}");
        self.accepted("device_add", json!({ "driver": "nvme", "id": id, "drive": drive, "serial": id, "bus": bus }));
    }

    /// Presents a seed disk.
    pub fn seed(&mut self, file: &Path) {
        let layer = json!({ "driver": "file", "filename": file });
        let node = json!({ "driver": "raw", "node-name": "n-seed", "read-only": true, "file": layer });
        self.accepted("blockdev-add", node);
        self.accepted(
            "device_add",
            json!({ "driver": "virtio-blk-pci", "id": "seed-1", "drive": "n-seed", "bus": "seed" }),
        );
    }

    /// The ids of the devices whose name starts with a prefix.
    pub fn devices(&mut self, prefix: &str) -> Vec<String> {
        let listed = self.accepted("qom-list", json!({ "path": "/machine/peripheral" }));
        let names = listed.as_array().expect("a list").iter().filter_map(|entry| entry["name"].as_str());
        names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
    }

    pub fn property(&mut self, device: &str, property: &str) -> Value {
        self.accepted("qom-get", json!({ "path": format!("/machine/peripheral/{device}"), "property": property }))
    }

    fn message(&mut self) -> Value {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).expect("read from the slots socket");
        assert!(read > 0, "the slots socket was closed");
        serde_json::from_str(&line).expect("a line of JSON")
    }
}
