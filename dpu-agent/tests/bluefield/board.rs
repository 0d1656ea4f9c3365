//! A BlueField as its agent finds it: NVIDIA's services by their fakes, a real Open vSwitch, network devices of the kernel; and the agent, started
//! with what the chart has in its DaemonSet for the values that the page for operators gives.

use crate::dpu::{has_device, host_sees_link, ip};
use crate::lab::OpenVSwitchLab;
use crate::recorded::{Recorded, port};
use crate::site::until;
use crate::storage::Lab;
use clap::Parser;
use dpu_agent::args::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::chart::{self, Helm};
use sandbox::spdk::Fake;
use sandbox::spdk::world::World;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const BOOT: &str = "boot-1";
/// The DPU's first static NVMe function.
pub const FUNCTION: &str = "MT2328XZ17DFNVMES0D0F2";
/// Ports of the DPU's PCIe switch.
const PORTS: usize = 31;
/// Ends at a signal, whatever it does just then.
const END: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nics {
    /// The agent is in this process: devlink is a recording, and all else as in the program.
    Static,
    /// The program as it is built.
    Virtnet,
}

enum Agent {
    Here { stop: oneshot::Sender<()>, task: JoinHandle<anyhow::Result<()>> },
    Program(Child),
}

pub struct Board {
    pub lab: Lab,
    pub switch: OpenVSwitchLab,
    nics: Nics,
    devlink: Recorded,
    folder: TempDir,
    flags: Vec<String>,
    agent: Option<Agent>,
}

impl Board {
    pub async fn new(helm: &Helm, nics: Nics, node: &str, kubeconfig: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (lab, switch) = (Lab::fake(1), OpenVSwitchLab::switch().await);
        switch.vsctl(&["set-fail-mode", "br-int", "secure"]);
        let devlink = Recorded::new(vec![
            port(0xffff).physical("p0"),
            port(0x0_0000).pf("local", 0, 0, false),
            port(0x3_0000).pf("pf0hpf", 1, 0, true),
        ]);
        if nics == Nics::Static {
            devlink.add_devices();
        }
        let mut board = Self { lab, switch, nics, devlink, folder, flags: Vec::new(), agent: None };
        std::fs::write(board.path("boot-id"), format!("{BOOT}\n")).expect("write");
        let run_dir = board.run_dir();
        board.snap().with(|world| {
            world.outside.functions.push(FUNCTION.to_owned());
            world.outside.dpu.ports = PORTS;
            // SPDK 23.01, and a container that has the agent's folder and no other.
            world.outside.is_old = true;
            world.outside.sees_only = Some(run_dir);
        });
        if nics == Nics::Virtnet {
            std::os::unix::fs::symlink(virtnet().expect("it was looked for"), board.path("virtnet")).expect("a link");
            // What the pod has mounted as /host.
            std::os::unix::fs::symlink("/", board.path("host")).expect("a link");
            let dpu = json!({"ports": PORTS, "ports_of_others": 1, "host": "off", "newer": true});
            std::fs::write(board.path("virtnet.json"), dpu.to_string()).expect("write");
        }
        board.flags = board.rendered(helm, node);
        // In the pod: its service account.
        board.flags.push(format!("--kubeconfig={}", kubeconfig.display()));
        board
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    pub fn snap(&self) -> &Fake {
        self.lab.dpu().fake()
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        self.snap().with(act)
    }

    /// The values of the page, with this DPU's folders in the place of a BlueField's.
    fn rendered(&self, helm: &Helm, node: &str) -> Vec<String> {
        let socket = self.snap().socket();
        let folder = |path: &Path| path.display().to_string();
        let values = [
            ("agent.runDirectory", folder(&self.run_dir())),
            ("agent.slotsDirectory", folder(&self.path("slots"))),
            ("agent.bootIdFile", folder(&self.path("boot-id"))),
            ("agent.spdkDirectory", folder(socket.parent().expect("a folder"))),
            ("agent.spdkSocket", "rpc.sock".to_owned()),
            ("agent.openvswitchDirectory", folder(self.switch.directory())),
            ("agent.virtnet.program", folder(&self.path("virtnet"))),
            ("agent.nicsBy", if self.nics == Nics::Static { "static" } else { "virtnet" }.to_owned()),
        ];
        let page = chart::documented("bluefield.md", "6. Install").expect("the page's values");
        let set = values.iter().map(|(name, value)| format!("--set={name}={value}"));
        let flags: Vec<String> = std::iter::once("--show-only=templates/agent.yaml".to_owned()).chain(set).collect();
        let output = helm.template(&page, &flags).expect("helm runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        let flags = text.lines().filter_map(|line| line.trim().strip_prefix("- --"));
        let host = format!("--virtnet-root={}", self.path("host").display());
        let flags: Vec<String> = flags
            .map(|flag| format!("--{flag}").replace("$(NODE_NAME)", node).replace("--virtnet-root=/host", &host))
            .collect();
        assert!(flags.contains(&"--disks-by=snap".to_owned()), "{flags:?}");
        flags
    }

    pub fn start(&mut self) {
        self.agent = Some(match self.nics {
            Nics::Static => {
                let args =
                    Args::try_parse_from(std::iter::once("dpu-agent").chain(self.flags.iter().map(String::as_str)));
                let args = args.unwrap_or_else(|error| panic!("{error}"));
                let ports = dpu_agent::wire_up::ports_by(&args, self.devlink.clone()).expect("ports");
                let (stop, stopped) = oneshot::channel::<()>();
                let task = tokio::spawn(async move {
                    Box::pin(dpu_agent::run(&args, ports, async {
                        let _ = stopped.await;
                    }))
                    .await
                });
                Agent::Here { stop, task }
            }
            Nics::Virtnet => {
                let log = File::options().create(true).append(true).open(self.path("agent.log")).expect("a log");
                let mut command = Command::new(env!("CARGO_BIN_EXE_dpu-agent"));
                command.args(&self.flags).stdin(Stdio::null()).kill_on_drop(true);
                command.stdout(log.try_clone().expect("a second handle")).stderr(log);
                Agent::Program(command.spawn().expect("the agent starts"))
            }
        });
    }

    /// As kubelet ends it.
    pub async fn stop(&mut self) {
        match self.agent.take().expect("it runs") {
            Agent::Here { stop, task } => {
                stop.send(()).expect("it runs");
                task.await.expect("it does not panic").expect("it ends well");
            }
            Agent::Program(mut child) => {
                let id = child.id().expect("it runs").cast_signed();
                kill(Pid::from_raw(id), Signal::SIGTERM).expect("it runs");
                let ended = tokio::time::timeout(END, child.wait()).await.expect("it ends").expect("a child");
                assert!(ended.success(), "{ended}: {}", self.log());
            }
        }
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.path("agent.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Of the host's NICs: how many there can be.
    pub fn nics(&self) -> u32 {
        match self.nics {
            Nics::Static => 1,
            Nics::Virtnet => 30,
        }
    }

    pub fn representor(&self) -> &'static str {
        match self.nics {
            Nics::Static => "pf0hpf",
            Nics::Virtnet => "en3f0pf0sf1001",
        }
    }

    pub fn host_has_link(&self) -> bool {
        host_sees_link(match self.nics {
            Nics::Static => "pf0hpf-h",
            Nics::Virtnet => "v1",
        })
    }

    /// The MAC address that the host's function has.
    pub fn mac(&self) -> Option<String> {
        match self.nics {
            Nics::Static => self.devlink.mac("pf0hpf"),
            Nics::Virtnet => self.virtnet(&self.turn())["devices"][0]["mac"].as_str().map(str::to_ascii_lowercase),
        }
    }

    /// Nothing of a NIC is left, and the host sees none that works.
    pub async fn until_no_nic(&self) {
        assert_eq!(self.switch.vsctl(&["list-ports", "br-int"]), "");
        match self.nics {
            Nics::Static => {
                // Open vSwitch in user space restores flags of the device as it last read them when it closes the port, which may be after the
                // agent's last word: the agent takes a function of nobody's down whenever it looks, every 10 s at least.
                until("the link is down", async || {
                    let shown = ip(&["link", "show", self.representor()]);
                    if self.host_has_link() { Err(shown) } else { Ok(()) }
                })
                .await;
                assert!(!ip(&["-d", "link", "show", "pf0hpf"]).contains("alias metalplane"));
            }
            Nics::Virtnet => {
                assert!(!has_device(self.representor()));
                assert_eq!(self.virtnet(&self.turn())["devices"], json!([]));
            }
        }
    }

    /// The program writes its file in place, in a turn that is taken here too.
    fn turn(&self) -> File {
        let turn = File::options().create(true).append(true).open(self.path("virtnet.lock")).expect("open");
        turn.lock().expect("a turn");
        turn
    }

    fn virtnet(&self, _turn: &File) -> Value {
        let text = std::fs::read_to_string(self.path("virtnet.json")).expect("read");
        serde_json::from_str(&text).expect("JSON")
    }

    /// The host, as each of NVIDIA's services sees it.
    fn tell_virtnet(&self, host: &str) {
        if self.nics == Nics::Virtnet {
            let turn = self.turn();
            let mut dpu = self.virtnet(&turn);
            dpu["host"] = json!(host);
            std::fs::write(self.path("virtnet.json"), dpu.to_string()).expect("write");
        }
    }

    pub fn start_host(&self) {
        self.tell_virtnet("running");
        self.with(World::start_host);
    }

    pub fn stop_host(&self) {
        self.tell_virtnet("off");
        self.with(World::stop_host);
    }

    /// In the place of ovn-controller: everything for the port is installed, and then the network as a whole.
    pub async fn ovn_installs(&self, logical_port: &str) {
        let device = self.representor();
        let id = |name: &str| {
            let column = format!("external_ids:{name}");
            self.switch.vsctl(&["--if-exists", "get", "interface", device, &column]).trim_matches('"').to_owned()
        };
        let is = async |name: &str, wanted: &str| {
            let seen = id(name);
            (seen == wanted).then_some(()).ok_or(seen)
        };
        until("the port is plugged", async || is("iface-id", logical_port).await).await;
        self.switch.vsctl(&["set", "bridge", "br-int", "external_ids:ovn-nb-cfg=1"]);
        self.switch.vsctl(&["set", "interface", device, "external_ids:ovn-installed=true"]);
        until("it is seen to be installed", async || is("metalplane-installed-at", "1@").await).await;
        assert!(!self.host_has_link(), "a NIC is up only once its rules are in force");
        self.switch.vsctl(&["set", "bridge", "br-int", "external_ids:ovn-nb-cfg=2"]);
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent's log, where it is a program of its own, ends with:\n{}", self.log());
            eprintln!("the last calls of SNAP: {:?}", self.snap().calls().iter().rev().take(20).collect::<Vec<_>>());
        }
    }
}

/// The sandbox's program of that name, which is built with it.
pub fn virtnet() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let program = own.parent()?.parent()?.join("virtnet");
    program.exists().then_some(program)
}
