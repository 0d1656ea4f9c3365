//! Ceph's programs: this machine's own, else Debian's packages unpacked in the cache. Nothing is installed, and no service
//! is started.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::outside;
use crate::preflight::{self, How, Preflight, Row};

/// The first two have services.
const NEEDED: &[Row<'_>] = &[
    ("ceph-mon", "ceph-mon", How::Unpack),
    ("ceph-osd", "ceph-osd", How::Unpack),
    ("ceph", "ceph-common", How::Unpack),
    ("ceph-authtool", "ceph-common", How::Unpack),
    ("rados", "ceph-common", How::Unpack),
    ("rbd", "ceph-common", How::Unpack),
    ("monmaptool", "ceph-common", How::Unpack),
    // QEMU's client, a module that is no command.
    ("/usr/lib/x86_64-linux-gnu/qemu/block-rbd.so", "qemu-block-extra", How::Unpack),
];

/// Where Debian has what programs load while they run, below the root.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Programs {
    preflight: Preflight,
    environment: BTreeMap<String, String>,
    /// The file of the network namespace that they run in.
    network: Option<PathBuf>,
}

impl Programs {
    /// The first time on a machine 50 MB may be downloaded.
    pub async fn find() -> Result<Programs> {
        // Two at a time would unpack into one folder.
        static TURN: Mutex<()> = Mutex::const_new(());
        let _turn = TURN.lock().await;
        let preflight = preflight::get(NEEDED).await?;
        let mut environment = preflight.environment(&[]);
        if let Some(root) = preflight.unpacked() {
            let own = root.join(LIBRARIES).join("ceph");
            environment.entry("LD_LIBRARY_PATH".to_owned()).and_modify(|all| *all += &format!(":{}", own.display()));
            let python = root.join("usr/lib/python3/dist-packages");
            environment.insert("PYTHONPATH".to_owned(), python.display().to_string());
            // Compiled files would come to lie among the unpacked ones.
            environment.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
        }
        Ok(Programs { preflight, environment, network: None })
    }

    /// The same, run in a network namespace.
    pub(super) fn inside(&self, network: Option<&Path>) -> Programs {
        Programs { network: network.map(Path::to_owned), ..self.clone() }
    }

    /// The folder with `rbd`, `rados` and `ceph`.
    pub fn folder(&self) -> Result<PathBuf> {
        let rbd = self.preflight.find("rbd").context("there is no program rbd")?;
        Ok(rbd.parent().context("a program lies in a folder")?.to_owned())
    }

    /// What a program needs to find Ceph's programs and libraries.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// The variables with which QEMU finds its own client of Ceph; `None`: there is none that fits this QEMU.
    pub async fn qemu_module(&self) -> Option<BTreeMap<String, String>> {
        let mut environment = self.environment.clone();
        if let Some(root) = self.preflight.unpacked() {
            let modules = root.join(LIBRARIES).join("qemu");
            environment.insert("QEMU_MODULE_DIR".to_owned(), modules.display().to_string());
        }
        let mut command = Command::new("qemu-system-x86_64");
        // An image that nobody has: only whether the driver is known shows.
        command.args(["-machine", "none", "-display", "none", "-blockdev"]);
        command.arg("driver=rbd,node-name=n,pool=none,image=none,conf=/nonexistent/ceph.conf");
        command.envs(&environment).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(LIMIT, command.output()).await.ok()?.ok()?;
        let said = String::from_utf8_lossy(&output.stderr);
        (!said.contains("Unknown driver") && !said.contains("does not accept value 'rbd'")).then_some(environment)
    }

    /// The folder of plugins, as Ceph's settings name them.
    pub(super) fn plugins(&self) -> Vec<(&'static str, PathBuf)> {
        let unpacked = self.preflight.unpacked().map(|root| root.join(LIBRARIES));
        let libraries = unpacked.filter(|root| root.join("rados-classes").is_dir());
        let libraries = libraries.unwrap_or_else(|| Path::new("/").join(LIBRARIES));
        vec![
            ("plugin_dir", libraries.join("ceph")),
            ("erasure_code_dir", libraries.join("ceph/erasure-code")),
            ("osd_class_dir", libraries.join("rados-classes")),
        ]
    }

    pub(super) fn command(&self, program: &str, config: &Path) -> Command {
        let found = self.preflight.find(program).unwrap_or_else(|| program.into());
        let mut command = match &self.network {
            // It becomes the program: there is one process, which can be waited for and ended.
            Some(network) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net={}", network.display())).arg(found);
                command
            }
            None => Command::new(found),
        };
        command.envs(&self.environment).env("CEPH_CONF", config).kill_on_drop(true);
        command
    }

    pub(super) async fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        config: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        let mut command = self.command(program, config);
        command.args(arguments);
        outside::finish_within(command, None, LIMIT).await
    }
}
