//! OVN: both databases and northd in the control plane's network, and a controller on every node.
//!
//! ```text
//!  cp:     Metalplane's controller ──> NB :6641 ── ovn-northd ── SB :6642, and :6643, which only tells
//!  node-N: ovn-controller ──> SB :6642, and its own Open vSwitch: br-int is a chassis, Geneve from br-phy to every other one
//! ```
//!
//! A chassis is called as its node is. Without a logical port nothing passes `br-int`. Connections are by TLS, both ends with
//! certificates of one authority; northd and OVN's commands in `cp` use the databases' unix sockets. SB holds a chassis to its own
//! rows, by the name in its certificate (the role `ovn-controller`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use tokio::process::Command;

use crate::cluster::{Site, openvswitch, pki};
use crate::layout::{API_ADDRESS, CONTROL_PLANE, Layout, NodeId};
use crate::outside;
use crate::supervisor::process::ProcessSpec;

pub const NORTHD: &str = "control-plane/ovn-northd";

/// The desired network.
pub const NORTH_BOUND: Database = Database {
    process: "control-plane/ovn-nb",
    name: "nb",
    schema: "ovn/ovn-nb.ovsschema",
    port: 6641,
    readers_port: 6641,
    roles: None,
    variable: "OVN_NB_DB",
};
/// What northd makes of it for the chassis, and what they report.
pub const SOUTH_BOUND: Database = Database {
    process: "control-plane/ovn-sb",
    name: "sb",
    schema: "ovn/ovn-sb.ovsschema",
    port: 6642,
    readers_port: 6643,
    roles: Some("OVN_Southbound,SB_Global"),
    variable: "OVN_SB_DB",
};

/// One of OVN's two databases, and its server.
pub struct Database {
    pub process: &'static str,
    /// Of its files in the sandbox's folder.
    name: &'static str,
    schema: &'static str,
    port: u16,
    /// For Metalplane's controller.
    readers_port: u16,
    /// The database and the table whose column `connections` says who may do what.
    roles: Option<&'static str>,
    /// Where OVN's commands look for its address.
    variable: &'static str,
}

impl Database {
    /// Its address for chassis, on every node.
    fn remote(&self) -> String {
        format!("ssl:{API_ADDRESS}:{}", self.port)
    }

    /// Its address for Metalplane's controller.
    pub fn readers_remote(&self) -> String {
        format!("ssl:{API_ADDRESS}:{}", self.readers_port)
    }

    /// Chassis by one connection, which holds each to its own rows; readers by another.
    async fn give_roles(&self, site: &Site) -> Result<()> {
        let socket = self.socket(&site.layout);
        let there = || async { socket.exists() };
        site.table.until(self.process, "its socket is there", there).await?;
        let [chassis, readers] = [self.port, self.readers_port].map(|port| format!("pssl:{port}:{API_ADDRESS}"));
        let set = ["set-connection", "role=ovn-controller", &chassis, "read-only", "role=", &readers];
        let init = ["--timeout=10", "init", "--"];
        command(site, "ovn-sbctl", init.into_iter().chain(set)).await
    }

    /// Its unix socket, which no namespace hides.
    pub fn socket(&self, layout: &Layout) -> PathBuf {
        layout.ovn().join(format!("{}.sock", self.name))
    }

    fn local_remote(&self, layout: &Layout) -> String {
        format!("unix:{}", self.socket(layout).display())
    }

    async fn start(&self, site: &Site) -> Result<()> {
        let file = site.layout.ovn().join(format!("{}.db", self.name));
        openvswitch::create_database(site, &file, self.schema).await?;
        let pki = |name: &str| site.layout.pki().join(name).display().to_string();
        let mut args = vec![
            file.display().to_string(),
            format!("--remote=punix:{}", self.socket(&site.layout).display()),
            format!("--private-key={}", pki(&format!("{}.key", pki::OVN_SERVER))),
            format!("--certificate={}", pki(&format!("{}.crt", pki::OVN_SERVER))),
            format!("--ca-cert={}", pki(&format!("{}.crt", pki::OVN_AUTHORITY))),
        ];
        args.push(match self.roles {
            // What a connection may do stands in the database.
            Some(table) => format!("--remote=db:{table},connections"),
            None => format!("--remote=pssl:{}:{API_ADDRESS}", self.port),
        });
        site.table.start(central_process(site, self.process, "ovsdb-server", &args))?;
        if self.roles.is_some() {
            self.give_roles(site).await?;
        }
        let address = (API_ADDRESS, self.port).into();
        let listens = || async { site.dialer.connect(address).await.is_ok() };
        site.table.until(self.process, "it listens", listens).await
    }
}

/// Runs one of OVN's commands on the databases.
async fn command<A: AsRef<std::ffi::OsStr>>(
    site: &Site,
    program: &str,
    args: impl IntoIterator<Item = A>,
) -> Result<()> {
    let mut command = Command::new(program);
    command.args(args).envs(site.programs.environment()).envs(environment(&site.layout));
    outside::finish(command, None).await.map(drop)
}

/// What OVN's commands need to find the databases, from wherever they are run.
pub fn environment(layout: &Layout) -> BTreeMap<&'static str, String> {
    [NORTH_BOUND, SOUTH_BOUND].map(|database| (database.variable, database.local_remote(layout))).into()
}

/// Starts the databases and northd, and waits until what is written to NB arrives in SB.
pub async fn start_central(site: &Site) -> Result<()> {
    std::fs::create_dir_all(site.layout.ovn())?;
    tokio::try_join!(NORTH_BOUND.start(site), SOUTH_BOUND.start(site))?;
    let databases = [
        format!("--ovnnb-db={}", NORTH_BOUND.local_remote(&site.layout)),
        format!("--ovnsb-db={}", SOUTH_BOUND.local_remote(&site.layout)),
    ];
    site.table.start(central_process(site, NORTHD, "ovn-northd", &databases))?;
    let translates = || async { command(site, "ovn-nbctl", ["--timeout=10", "--wait=sb", "sync"]).await.is_ok() };
    site.table.until(NORTHD, "SB follows NB", translates).await?;
    site.progress.step("OVN: SB follows NB");
    Ok(())
}

/// Makes a node whose Open vSwitch runs a chassis.
pub async fn start_chassis(site: &Site, node: &NodeId) -> Result<()> {
    let pki = |name: String| site.layout.pki().join(name).display().to_string();
    let own = pki::chassis(node);
    let mut set = vec!["set-ssl".to_owned(), pki(format!("{own}.key")), pki(format!("{own}.crt"))];
    set.extend([pki(format!("{}.crt", pki::OVN_AUTHORITY)), "--".into()]);
    set.extend(["set", "Open_vSwitch", "."].map(str::to_owned));
    for (key, value) in [
        ("ovn-remote", SOUTH_BOUND.remote()),
        ("ovn-encap-type", "geneve".into()),
        ("ovn-encap-ip", node.tunnel_address().to_string()),
        ("ovn-bridge-datapath-type", openvswitch::DATAPATH.into()),
        ("ovn-bridge-mappings", "physnet1:br-ex".into()),
    ] {
        set.push(format!("external-ids:{key}={value}"));
    }
    openvswitch::vsctl(site, node, &set).await?;
    site.table.start(openvswitch::process(node, "ovn-controller", &["unix:/run/openvswitch/db.sock"]))?;
    Ok(())
}

/// Waits until the node's controller has a session with SB. Both must run.
pub async fn chassis_connected(site: &Site, node: &NodeId) -> Result<()> {
    let name = format!("{}/ovn-controller", node.name);
    let connected = || async {
        let ask = ["ovn-appctl", "--timeout=10", "-t", "ovn-controller", "connection-status"];
        site.in_node(node, ask).await.is_ok_and(|status| status.trim() == "connected")
    };
    site.table.until(&name, "it is connected to SB", connected).await
}

fn central_process(site: &Site, name: &str, program: &str, args: &[String]) -> ProcessSpec {
    let dir = site.layout.ovn();
    // Their own files are named after the process: two are the same program.
    let file = |suffix: &str| dir.join(name.rsplit('/').next().unwrap_or(name)).with_extension(suffix);
    let mut argv = vec![program.to_owned()];
    argv.extend_from_slice(args);
    argv.push(format!("--pidfile={}", file("pid").display()));
    argv.push(format!("--unixctl={}", file("ctl").display()));
    argv.extend(openvswitch::LOG_TO_STDERR.map(str::to_owned));
    ProcessSpec::new(name, argv).enter(CONTROL_PLANE)
}
