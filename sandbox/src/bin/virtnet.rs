//! NVIDIA's `virtnet`, as its user guide and README have its arguments and its JSON. What the DPU has is in the file `virtnet.json` beside the
//! program: a test puts a link to this program into a folder, and looks at the file and changes it.
//!
//! It misbehaves as the real one was described to do: the names of representors are its own; it takes any MAC address, twice too; the ports of the
//! PCIe switch are shared with others; a running host lets go of a function later, or never; a plug during POST breaks POST, which is told in
//! the file; versions differ in what they say.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Dpu {
    ports: usize,
    ports_of_others: usize,
    devices: Vec<Device>,
    /// `off`, `post`, `running`.
    host: String,
    post_broken: bool,
    /// It says VUIDs, and `errno` with each answer.
    newer: bool,
    /// The service does not run.
    stopped: bool,
    made: usize,
    calls: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Device {
    number: usize,
    mac: String,
    mtu: String,
    representor: String,
    leaving: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let own = arguments.first().map(String::as_str).unwrap_or_default();
    let file = Path::new(own).with_file_name("virtnet.json");
    match run(&file, &arguments[1..]) {
        Ok(said) => {
            println!("{said:#}");
            ExitCode::SUCCESS
        }
        Err(said) => {
            eprintln!("{said}");
            ExitCode::FAILURE
        }
    }
}

fn run(file: &Path, arguments: &[String]) -> Result<Value, String> {
    let turn = File::options().create(true).append(true).open(file.with_extension("lock"));
    let turn = turn.map_err(|error| error.to_string())?;
    turn.lock().map_err(|error| error.to_string())?;
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut dpu: Dpu = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    dpu.calls.push(arguments.first().cloned().unwrap_or_default());
    let said =
        if dpu.stopped { Err("Failed to connect to virtio-net-controller".to_owned()) } else { dpu.take(arguments) };
    let text = serde_json::to_string_pretty(&dpu).map_err(|error| error.to_string())?;
    fs::write(file, text).map_err(|error| error.to_string())?;
    said
}

impl Dpu {
    fn take(&mut self, arguments: &[String]) -> Result<Value, String> {
        let option = |name: &str| {
            let place = arguments.iter().position(|there| there == name);
            place.and_then(|place| arguments.get(place + 1)).map(String::as_str)
        };
        match arguments.first().map(String::as_str) {
            Some("list") => Ok(self.list()),
            Some("hotplug") => {
                for name in ["-i", "-m", "-t", "-n", "-s"] {
                    option(name).ok_or_else(|| {
                        format!("virtnet hotplug: error: the following arguments are required: {name}")
                    })?;
                }
                self.hot_plug(option("-m").unwrap_or_default(), option("-t").unwrap_or_default())
            }
            Some("unplug") => self.unplug(option("-p"), option("-u")),
            other => Err(format!("virtnet: error: invalid choice: {other:?}")),
        }
    }

    fn vuid(device: &Device) -> String {
        format!("MT2306XZ00BNVNETS{}D0F0", device.number)
    }

    fn list(&self) -> Value {
        let of = |device: &Device| {
            let mut told = json!({
                "pf_id": device.number, "function_type": "hotplug PF", "transitional": 0, "pci_bdf": format!("{:x}:00.0", 0x84 + device.number),
                "num_msix": 64, "mac": device.mac.to_ascii_uppercase(), "net_mtu": device.mtu,
                "sf_num": 1000 + device.number, "sf_parent_device": "mlx5_0", "sf_rep_net_device": device.representor,
            });
            if self.newer {
                told["vuid"] = json!(Self::vuid(device));
            }
            told
        };
        let fixed = json!({
            "pf_id": 0, "function_type": "static PF", "pci_bdf": "84:00.2", "mac": "0C:C4:7A:FF:22:98", "sf_rep_net_device": "en3f0pf0sf1000",
        });
        let most = self.ports - self.ports_of_others;
        let devices: Vec<Value> = [fixed].into_iter().chain(self.devices.iter().map(of)).collect();
        json!({
            "controller": {"emulation_manager": "mlx5_0", "max_hotplug_devices": most.to_string(), "max_virtq": "64"},
            "devices": devices,
        })
    }

    fn refuse(&self, errno: i64, said: &str) -> Result<Value, String> {
        if self.newer { Ok(json!({"errno": -errno, "errstr": said})) } else { Err(format!("Error: {said}")) }
    }

    fn hot_plug(&mut self, mac: &str, mtu: &str) -> Result<Value, String> {
        if self.devices.len() + self.ports_of_others >= self.ports {
            return self.refuse(28, "No space left on device");
        }
        self.post_broken |= self.host == "post";
        self.made += 1;
        let representor = format!("en3f0pf0sf{}", 1000 + self.made);
        ip(&["link", "add", &representor, "type", "veth", "peer", "name", &format!("v{}", self.made)])?;
        ip(&["link", "set", &format!("v{}", self.made), "up"])?;
        // The system sets up what appears.
        ip(&["link", "set", &representor, "up"])?;
        let (mac, mtu) = (mac.to_owned(), mtu.to_owned());
        let device = Device { number: self.made, mac, mtu, representor, leaving: false };
        let mut told = json!({
            "bdf": format!("{:x}:0.0", 0x84 + device.number), "id": device.number, "transitional": 0,
            "sf_rep_net_device": device.representor, "mac": device.mac.to_ascii_uppercase(),
        });
        if self.newer {
            told["vuid"] = json!(Self::vuid(&device));
            told["errno"] = json!(0);
            told["errstr"] = json!("Success");
        }
        self.devices.push(device);
        Ok(told)
    }

    fn unplug(&mut self, number: Option<&str>, vuid: Option<&str>) -> Result<Value, String> {
        let is_it = |device: &&mut Device| match vuid {
            Some(vuid) => Self::vuid(device) == vuid,
            None => number.is_some_and(|number| number == device.number.to_string()),
        };
        let off = self.host == "off";
        let Some(device) = self.devices.iter_mut().find(is_it) else { return self.refuse(19, "No such device") };
        device.leaving = true;
        if off {
            let gone = device.representor.clone();
            ip(&["link", "del", &gone])?;
            self.devices.retain(|device| device.representor != gone);
        }
        Ok(if self.newer { json!({"errno": 0, "errstr": "Success"}) } else { json!({}) })
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let ended = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&ended.stderr))),
    }
}
