//! The other programs as servers, each in its namespace, configured for what is measured and nothing else.

use super::STUCK;
use super::ground::{address, mac};
use super::network::{INTERFACE, NETWORK, Place, RELAY};
use super::parts::Program;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// Where nginx is.
pub const WEB: u16 = 8080;
const LOOK: Duration = Duration::from_millis(20);

pub struct Server {
    name: &'static str,
    child: Child,
}

/// Where a server is heard: the file of /proc, and the port.
#[derive(Clone, Copy)]
pub enum Port {
    Udp(u16),
    Tcp(u16),
}

impl Port {
    /// Of the network namespace that this process is in.
    fn is_heard(self, process: u32) -> bool {
        let (file, port, state) = match self {
            Self::Udp(port) => ("udp", port, None),
            Self::Tcp(port) => ("tcp", port, Some("0A")),
        };
        let text = std::fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let mut words = line.split_ascii_whitespace().skip(1);
            let is_port = words.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
            is_port && state.is_none_or(|state| words.nth(1) == Some(state))
        })
    }
}

impl Server {
    /// Returns when it is heard at its port.
    pub async fn start(name: &'static str, mut command: Command, port: Port, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let process = child.id().context("it was just started")?;
        let began = Instant::now();
        while !port.is_heard(process) {
            if let Some(status) = child.try_wait()? {
                bail!("{name} ended: {status}: see {}", log.display());
            }
            if began.elapsed() > STUCK {
                bail!("{name} is not heard after {} s: see {}", STUCK.as_secs(), log.display());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(Self { name, child })
    }

    pub async fn stop(mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("end {}", self.name))
    }
}

/// With a reservation for each client; what it leased is not written to a file, for `boot` writes none either.
pub async fn dnsmasq(program: &Program, namespace: &str, clients: u16, folder: &Path) -> Result<Server> {
    let hosts = folder.join("dnsmasq.hosts");
    let lines: String = (0..clients).map(|client| format!("{},{}\n", mac(client), address(client))).collect();
    std::fs::write(&hosts, lines)?;
    let mut command = program.inside(namespace);
    command.args([
        "--keep-in-foreground",
        "--no-ping",
        "--port=0",
        "--bind-interfaces",
        "--leasefile-ro",
        "--dhcp-authoritative",
        "--user=root",
        "--conf-file=/dev/null",
        "--pid-file=",
        "--log-facility=-",
        "--dhcp-boot=ipxe.efi",
    ]);
    command.arg(format!("--interface={INTERFACE}"));
    command.arg(format!("--dhcp-range={},static,255.255.0.0,1h", NETWORK.0));
    command.arg(format!("--dhcp-option=option:router,{RELAY}"));
    command.arg(format!("--dhcp-lease-max={}", u32::from(clients) * 2));
    command.arg(format!("--dhcp-hostsfile={}", hosts.display()));
    Server::start("dnsmasq", command, Port::Udp(67), folder).await
}

/// The same of Kea.
pub async fn kea(program: &Program, namespace: &str, clients: u16, folder: &Path) -> Result<Server> {
    let reservations: Vec<_> =
        (0..clients).map(|client| json!({"hw-address": mac(client), "ip-address": address(client)})).collect();
    let server = Place::Kea.address();
    let config = json!({"Dhcp4": {
        "interfaces-config": {"interfaces": [INTERFACE], "dhcp-socket-type": "udp"},
        "lease-database": {"type": "memfile", "persist": false},
        "valid-lifetime": 3600,
        "host-reservation-identifiers": ["hw-address"],
        "subnet4": [{
            "id": 1,
            "subnet": format!("{}/{}", NETWORK.0, NETWORK.1),
            "next-server": server,
            "boot-file-name": "ipxe.efi",
            "option-data": [{"name": "routers", "data": RELAY}],
            "reservations": reservations,
        }],
        "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stdout"}]}],
    }});
    let file = folder.join("kea.json");
    std::fs::write(&file, config.to_string())?;
    let mut command = program.inside(namespace);
    command.arg("-c").arg(&file);
    for variable in ["KEA_PIDFILE_DIR", "KEA_LOCKFILE_DIR", "KEA_DHCP_DATA_DIR"] {
        command.env(variable, folder);
    }
    Server::start("kea", command, Port::Udp(67), folder).await
}

/// tftpd-hpa; `below`: the folder that it serves.
pub async fn tftpd(program: &Program, namespace: &str, below: &Path, folder: &Path) -> Result<Server> {
    let mut command = program.inside(namespace);
    let at = format!("{}:69", Place::Files.address());
    command.args(["--foreground", "--user", "root", "--address", &at, "--secure"]).arg(below);
    Server::start("tftpd", command, Port::Udp(69), folder).await
}

pub async fn atftpd(program: &Program, namespace: &str, below: &Path, folder: &Path) -> Result<Server> {
    let mut command = program.inside(namespace);
    let at = Place::Files.address().to_string();
    command.args(["--daemon", "--no-fork", "--user", "root", "--group", "root", "--logfile", "-"]);
    command.args(["--bind-address", &at]).arg(below);
    Server::start("atftpd", command, Port::Udp(69), folder).await
}

/// As large files are served: sendfile, no log.
pub async fn nginx(program: &Program, namespace: &str, below: &Path, folder: &Path) -> Result<Server> {
    let (below, run) = (below.display(), folder.display());
    let config = format!(
        "daemon off; pid {run}/nginx.pid; error_log stderr; worker_processes 1; user root;\n\
         events {{}}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {run}; proxy_temp_path {run};\n\
         fastcgi_temp_path {run}; uwsgi_temp_path {run}; scgi_temp_path {run};\n\
         server {{ listen {WEB}; root {below}; }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config)?;
    let mut command = program.inside(namespace);
    command.arg("-c").arg(&file).args(["-e", "stderr"]);
    Server::start("nginx", command, Port::Tcp(WEB), folder).await
}
