//! NVIDIA's program `virtnet`: what it is asked, and the JSON that it answers. Fields that one version has and another has not are
//! optional; numbers stand as numbers or as text.

use ports::{ErrorClass, PortError};
use serde::Deserialize;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// A plug waits for the DPU's firmware.
const LIMIT: Duration = Duration::from_secs(60);

/// How `virtnet` is started.
#[derive(Debug, Clone)]
pub struct Program {
    pub file: PathBuf,
    /// Before its own arguments.
    pub arguments: Vec<String>,
}

/// What `virtnet list` says.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Listed {
    #[serde(default)]
    pub controller: Value,
    #[serde(default)]
    pub devices: Vec<Device>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Device {
    #[serde(default)]
    pf_id: Value,
    /// `hotplug PF`, `static PF`, `VF`.
    #[serde(default)]
    function_type: String,
    #[serde(default)]
    vuid: String,
    #[serde(default)]
    mac: String,
    #[serde(default)]
    sf_rep_net_device: String,
}

/// What `virtnet hotplug` and `virtnet unplug` say.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    errno: Value,
    #[serde(default)]
    errstr: String,
    #[serde(default)]
    pub sf_rep_net_device: String,
}

impl Listed {
    /// How many functions may be hot-plugged at a time; `None`: this version does not tell.
    pub(super) fn most(&self) -> Option<u32> {
        number(&self.controller["max_hotplug_devices"])
    }

    pub(super) fn hot_plugged(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.function_type.to_ascii_lowercase().contains("hotplug"))
    }
}

impl Device {
    /// Lower case, colons.
    pub(super) fn mac(&self) -> String {
        self.mac.to_ascii_lowercase()
    }

    pub(super) fn representor(&self) -> Option<&str> {
        Some(self.sf_rep_net_device.as_str()).filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("null"))
    }

    /// What names it to `virtnet unplug`: the VUID stays, the number does not.
    fn selector(&self) -> Vec<String> {
        match (self.vuid.as_str(), number(&self.pf_id)) {
            ("", number) => vec!["-p".to_owned(), number.unwrap_or_default().to_string()],
            (vuid, _) => vec!["-u".to_owned(), vuid.to_owned()],
        }
    }
}

fn number(value: &Value) -> Option<u32> {
    let text = value.as_str().and_then(|text| text.trim().parse().ok());
    text.or_else(|| value.as_u64().and_then(|number| u32::try_from(number).ok()))
}

impl Program {
    pub(super) async fn list(&self) -> Result<Listed, PortError> {
        let said = self.run("virtnet list", &["list".to_owned()]).await?;
        parse("virtnet list", &said)
    }

    pub(super) async fn hot_plug(
        &self,
        parent: &str,
        mac: &str,
        mtu: u16,
        queues: Queues,
    ) -> Result<Answer, PortError> {
        let what = format!("virtnet hotplug -m {mac}");
        let mtu = mtu.to_string();
        let words = ["hotplug", "-i", parent, "-m", mac, "-t", mtu.as_str(), "-n"].map(str::to_owned);
        let queues = [queues.pairs.to_string(), "-s".to_owned(), queues.length.to_string()];
        let said = self.run(&what, &[words.as_slice(), queues.as_slice()].concat()).await?;
        parse::<Answer>(&what, &said)?.check(&what)
    }

    /// Asks the host to let go of it.
    pub(super) async fn unplug(&self, device: &Device) -> Result<(), PortError> {
        let selector = device.selector();
        let what = format!("virtnet unplug {}", selector.join(" "));
        let said = self.run(&what, &[["unplug".to_owned()].as_slice(), selector.as_slice()].concat()).await?;
        // Some versions say nothing of a success.
        if said.trim().is_empty() {
            return Ok(());
        }
        parse::<Answer>(&what, &said)?.check(&what).map(drop)
    }

    async fn run(&self, what: &str, arguments: &[String]) -> Result<String, PortError> {
        let mut command = Command::new(&self.file);
        command.args(&self.arguments).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let error = |class, cause: String| PortError::new(class, format!("{what}: {cause}"));
        let ended = tokio::time::timeout(LIMIT, command.output()).await;
        let ended = ended.map_err(|_| error(ErrorClass::Unreachable, format!("no answer in {} s", LIMIT.as_secs())))?;
        let output = ended.map_err(|cause| {
            let next = "is NVIDIA's virtio-net-controller installed, and does --virtnet name its program?";
            error(ErrorClass::Unreachable, format!("start {}: {cause}. Next: {next}", self.file.display()))
        })?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // A refusal is told in JSON, whatever the exit status is.
        if output.status.success() || said.trim_start().starts_with('{') {
            return Ok(said);
        }
        let cause = String::from_utf8_lossy(&output.stderr);
        let cause = cause.trim().lines().last().unwrap_or_default().to_owned();
        Err(error(
            ErrorClass::Unreachable,
            format!("{}: {cause}. Next: systemctl status virtio-net-controller", output.status),
        ))
    }
}

/// Makes this folder the root directory of this process: for a process that then becomes a program of the DPU's own system.
pub fn enter(root: &Path) -> io::Result<()> {
    nix::unistd::chroot(root)?;
    std::env::set_current_dir("/")
}

/// Of each function.
#[derive(Debug, Clone, Copy)]
pub struct Queues {
    /// As `virtnet hotplug -n` counts them.
    pub pairs: u16,
    pub length: u16,
}

fn parse<'a, T: Deserialize<'a>>(what: &str, said: &'a str) -> Result<T, PortError> {
    let parsed = serde_json::from_str(said);
    parsed.map_err(|error| {
        PortError::new(ErrorClass::Invalid, format!("{what}: the answer cannot be understood: {error}"))
    })
}

impl Answer {
    fn check(self, what: &str) -> Result<Self, PortError> {
        let errno = self.errno.as_i64().or_else(|| self.errno.as_str().and_then(|text| text.trim().parse().ok()));
        let errno = errno.unwrap_or_default().unsigned_abs();
        if errno == 0 && (self.errstr.is_empty() || self.errstr.eq_ignore_ascii_case("success")) {
            return Ok(self);
        }
        let class = match errno {
            // errno(3): ENOSPC, EBUSY, EAGAIN, ENOMEM.
            28 | 16 | 11 | 12 => ErrorClass::Busy,
            19 | 2 => ErrorClass::NotFound,
            17 => ErrorClass::Conflict,
            95 => ErrorClass::Unsupported,
            _ => ErrorClass::Invalid,
        };
        Err(PortError::new(class, format!("{what}: {} ({errno})", self.errstr)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_older_and_newer_versions_are_understood() {
        let older = r#"{"bdf": "84:0.0", "id": 1, "transitional": 0, "sf_rep_net_device": "en3f0pf0sf1001", "mac": "0C:C4:7A:FF:22:93"}"#;
        let newer = r#"{"bdf": "84:0.0", "vuid": "MT1VNETS1D0F0", "id": 1, "sf_rep_net_device": "en3f0pf0sf1001", "errno": 0, "errstr": "Success"}"#;
        for said in [older, newer] {
            let answer = parse::<Answer>("plug", said).and_then(|answer| answer.check("plug")).expect(said);
            assert_eq!(answer.sf_rep_net_device, "en3f0pf0sf1001");
        }
        let full = r#"{"errno": -28, "errstr": "No space left on device"}"#;
        let refused = parse::<Answer>("plug", full).and_then(|answer| answer.check("plug")).expect_err("full");
        assert_eq!(refused.class, ErrorClass::Busy, "{refused}");
    }

    #[test]
    fn a_list_tells_what_is_hot_plugged() {
        let said = r#"{
            "controller": {"emulation_manager": "mlx5_0", "max_hotplug_devices": "31"},
            "devices": [
                {"pf_id": 0, "function_type": "static PF", "vuid": "MT1VNETS0D0F2", "mac": "0C:C4:7A:FF:22:98", "sf_rep_net_device": "en3f0pf0sf1000"},
                {"pf_id": 1, "function_type": "hotplug PF", "vuid": "MT1VNETS1D0F0", "mac": "02:6D:70:00:00:28", "sf_rep_net_device": "en3f0pf0sf1001"}
            ]}"#;
        let listed: Listed = parse("list", said).expect("a list");
        assert_eq!(listed.most(), Some(31));
        let all: Vec<_> = listed.hot_plugged().collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].mac().as_str(), all[0].representor()), ("02:6d:70:00:00:28", Some("en3f0pf0sf1001")));
        assert_eq!(all[0].selector(), ["-u", "MT1VNETS1D0F0"]);
    }
}
