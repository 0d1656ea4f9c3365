//! Open vSwitch of one node, in user space: a database server and a switch, as on a real node at the usual places.
//!
//! `br-phy` has the uplink and the tunnel's address, which must sit on a bridge for a user-space tunnel to find it.
//! `br-ex` has the cable to the network outside, which OVN's chassis maps as physnet1.
//! `br-int` is where our agent plugs guests. It has no flow of its own: nothing passes that OVN does not let through.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::cluster::Site;
use crate::layout::NodeId;
use crate::outside;
use crate::supervisor::process::{ProcessSpec, State};

/// Open vSwitch's own, in user space: the kernel's module is not everywhere.
pub const DATAPATH: &str = "netdev";
/// The supervisor keeps what a process writes there.
pub const LOG_TO_STDERR: [&str; 3] = ["-vsyslog:off", "-vfile:off", "-vconsole:info"];

const LOOK: Duration = Duration::from_secs(1);
/// By `abort(3)`, as the table tells it.
const ABORTED: &str = "signal: 6 ";

pub async fn start(site: &Site, node: &NodeId) -> Result<()> {
    let dir = site.layout.node_dir(&node.name);
    create_database(site, &dir.join("lib/openvswitch/conf.db"), "openvswitch/vswitch.ovsschema").await?;
    let server = process(
        node,
        "ovsdb-server",
        &[
            "/var/lib/openvswitch/conf.db",
            "--remote=punix:/run/openvswitch/db.sock",
            "--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
        ],
    );
    let server_name = server.name.clone();
    site.table.start(server)?;
    let socket = dir.join("run/openvswitch/db.sock");
    let listens = || async { socket.exists() };
    site.table.until(&server_name, "it listens", listens).await?;
    let identity = format!("external-ids:system-id={}", node.name);
    vsctl(site, node, &["--no-wait", "init", "--", "set", "Open_vSwitch", ".", &identity]).await?;
    let before = site.layout.before_switch(&node.name);
    if before.exists() {
        site.in_node(node, [&before]).await?;
    }
    site.table.start(process(node, "ovs-vswitchd", &["unix:/run/openvswitch/db.sock"]))?;
    add_bridges(site, node).await?;
    addresses(site, node).await
}

/// What the network configuration of a node does: the switch's own devices are new whenever it starts.
async fn addresses(site: &Site, node: &NodeId) -> Result<()> {
    let netns = site.layout.netns(&node.name);
    let address = format!("address replace {}/24 dev br-phy\n", node.tunnel_address());
    let script = format!("{address}link set br-phy up\nlink set br-int up\n");
    outside::run_with_input("ip", ["-netns", &netns, "-batch", "-"], &script).await.map(drop)
}

/// A switch that an assertion of its own ends is started again, as `--monitor` and the service manager do on a node (Debian's 3.1 has
/// one in `lib/conntrack.c` that a run meets now and then). One that somebody kills or stops stays ended: for ever.
pub async fn watch(site: Arc<Site>) {
    loop {
        tokio::time::sleep(LOOK).await;
        for listed in site.table.list() {
            let State::Exited { how } = &listed.state else { continue };
            let Some(node) = listed.name.strip_suffix("/ovs-vswitchd").filter(|_| how.starts_with(ABORTED)) else {
                continue;
            };
            tracing::warn!(process = listed.name, how, log = %listed.log.display(), "ended by itself: started again");
            if let Err(error) = again(&site, &listed.name, node).await {
                tracing::warn!("{}: {error:#}", listed.name);
            }
        }
    }
}

async fn again(site: &Site, process: &str, node: &str) -> Result<()> {
    site.table.start_again(process)?;
    let node = NodeId::parse(node)?;
    let has_devices = || async { addresses(site, &node).await.is_ok() };
    site.table.until(process, "it has its devices", has_devices).await
}

async fn add_bridges(site: &Site, node: &NodeId) -> Result<()> {
    let bridge = |name: &str| format!("--may-exist add-br {name} -- set bridge {name} datapath_type={DATAPATH}");
    let (uplink, secure) = ("--may-exist add-port br-phy uplink", "set-fail-mode br-int secure");
    let cable = "--may-exist add-port br-ex outside0";
    let line = [&bridge("br-phy"), uplink, &bridge("br-ex"), cable, &bridge("br-int"), secure].join(" -- ");
    vsctl(site, node, &line.split_ascii_whitespace().collect::<Vec<_>>()).await
}

/// Makes the file of a database that is not there yet.
pub async fn create_database(site: &Site, file: &Path, schema: &str) -> Result<()> {
    if file.exists() {
        return Ok(());
    }
    let schema = site.programs.shared_file(schema)?;
    let mut create = tokio::process::Command::new("ovsdb-tool");
    create.arg("create").args([file, schema.as_path()]).envs(site.programs.environment());
    outside::finish(create, None).await.map(drop)
}

/// Changes the node's Open vSwitch, which must run.
pub async fn vsctl<A: AsRef<str>>(site: &Site, node: &NodeId, args: &[A]) -> Result<()> {
    let command = ["ovs-vsctl", "--timeout=20"].into_iter().chain(args.iter().map(AsRef::as_ref));
    site.in_node(node, command).await.map(drop)
}

/// A process of Open vSwitch or OVN on the node.
pub fn process(node: &NodeId, program: &str, args: &[&str]) -> ProcessSpec {
    let mut argv = vec![program];
    argv.extend(args);
    argv.push("--pidfile");
    argv.extend(LOG_TO_STDERR);
    let mut spec = ProcessSpec::new(format!("{}/{program}", node.name), argv).enter(&node.name);
    for (name, value) in [
        ("OVS_RUNDIR", "/run/openvswitch"),
        ("OVS_DBDIR", "/var/lib/openvswitch"),
        ("OVS_LOGDIR", "/var/log"),
        ("OVS_SYSCONFDIR", "/var/lib/openvswitch"),
        ("OVN_RUNDIR", "/run/ovn"),
    ] {
        spec = spec.env(name, value);
    }
    spec
}
