//! Open vSwitch of one DPU, in user space: a database server and a switch, as on a real DPU at the usual places.
//!
//! `br-phy` has the uplink and the tunnel's address, which must sit on a bridge for a user-space tunnel to find it.
//! `br-int` is where our agent plugs guests; a VXLAN port to every other DPU makes all of them one flat network.

use anyhow::Result;

use crate::cluster::{Site, words};
use crate::layout::NodeId;
use crate::outside;
use crate::supervisor::process::ProcessSpec;

/// Of the one flat network between the DPUs.
const TUNNEL_KEY: u32 = 100;

pub async fn start(site: &Site, node: &NodeId) -> Result<()> {
    let dir = site.layout.node_dir(&node.name);
    let database = dir.join("lib/openvswitch/conf.db");
    if !database.exists() {
        let schema = site.programs.shared_file("openvswitch/vswitch.ovsschema")?;
        let mut create = tokio::process::Command::new("ovsdb-tool");
        create.arg("create").args([&database, &schema]).envs(site.programs.environment());
        outside::finish(create, None).await?;
    }
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
    site.table.start(process(node, "ovs-vswitchd", &["unix:/run/openvswitch/db.sock"]))?;
    add_bridges(site, node).await?;
    let netns = site.layout.netns(&node.name);
    let address = format!("address replace {}/24 dev br-phy\n", node.tunnel_address());
    let script = format!("{address}link set br-phy up\nlink set br-int up\n");
    outside::run_with_input("ip", ["-netns", &netns, "-batch", "-"], &script).await?;
    Ok(())
}

async fn add_bridges(site: &Site, node: &NodeId) -> Result<()> {
    let mut steps: Vec<String> = Vec::new();
    for bridge in ["br-phy", "br-int"] {
        steps.push(format!("--may-exist add-br {bridge} -- set bridge {bridge} datapath_type=netdev"));
    }
    steps.push("--may-exist add-port br-phy uplink".into());
    for other in site.nodes.iter().filter(|other| other.is_dpu() && *other != node) {
        let port = format!("vx-{}", other.name);
        let remote = other.tunnel_address();
        steps.push(format!("--may-exist add-port br-int {port}"));
        steps.push(format!(
            "set interface {port} type=vxlan options:remote_ip={remote} options:key={TUNNEL_KEY} \
             external-ids:metalplane-sandbox=tunnel"
        ));
        // What came through one tunnel never goes out by another: with three DPUs that would be a loop.
        steps.push(format!("set port {port} protected=true"));
    }
    let line = steps.join(" -- ");
    let args: Vec<&str> = line.split_ascii_whitespace().collect();
    vsctl(site, node, &args).await
}

async fn vsctl(site: &Site, node: &NodeId, args: &[&str]) -> Result<()> {
    let mut command = words(["ovs-vsctl".as_ref(), "--timeout=20".as_ref()]);
    command.extend(args.iter().map(Into::into));
    site.in_node(node, command).await.map(drop)
}

fn process(node: &NodeId, program: &str, args: &[&str]) -> ProcessSpec {
    let mut argv = vec![program];
    argv.extend(args);
    argv.extend(["--pidfile", "-vsyslog:off", "-vfile:off", "-vconsole:info"]);
    let mut spec = ProcessSpec::new(format!("{}/{program}", node.name), argv).enter(&node.name);
    for (name, value) in [
        ("OVS_RUNDIR", "/run/openvswitch"),
        ("OVS_DBDIR", "/var/lib/openvswitch"),
        ("OVS_LOGDIR", "/var/log"),
        ("OVS_SYSCONFDIR", "/var/lib/openvswitch"),
    ] {
        spec = spec.env(name, value);
    }
    spec
}
