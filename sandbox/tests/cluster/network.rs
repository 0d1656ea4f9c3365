//! The logical network between the nodes. A guest is an internal port of its node's `br-int`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox::Sandbox;
use tokio::process::Command;

use crate::{NODES, output, until};

const SWITCH: &str = "guests";
const DEVICE: &str = "guest0";
/// What Geneve over IPv4 leaves of the underlay's 1500.
const MTU: u16 = 1442;
/// So large is a packet of ping beside its payload.
const PING_HEADERS: u16 = 28;
const SOON: Duration = Duration::from_secs(90);

fn address(node: &str) -> String {
    let index = NODES.iter().position(|known| *known == node).unwrap_or_default();
    format!("10.9.0.{}", index + 1)
}

fn mac(node: &str) -> String {
    format!("02:00:{}", address(node).split('.').map(|byte| format!("{byte:0>2}")).collect::<Vec<_>>().join(":"))
}

fn logical_port(node: &str) -> String {
    format!("guest-of-{node}")
}

pub async fn nothing_leads_out(sandbox: &Sandbox) -> Result<()> {
    for namespace in NODES.iter().chain(&["cp", "outside"]) {
        for family in ["-4", "-6"] {
            let routes = output(sandbox.enter(namespace).args(["ip", family, "route", "show", "default"])).await?;
            ensure!(routes.is_empty(), "{namespace} has {routes}");
        }
    }
    Ok(())
}

pub async fn nothing_passes_but_between_logical_ports(sandbox: &Sandbox) -> Result<()> {
    for node in NODES {
        let mode = output(sandbox.enter(node).args(["ovs-vsctl", "get-fail-mode", "br-int"])).await?;
        ensure!(mode.trim() == "secure", "br-int of {node} is {mode}");
        plug(sandbox, node).await?;
    }
    nbctl(sandbox, &["ls-add", SWITCH]).await?;
    for node in NODES {
        let (port, addresses) = (logical_port(node), format!("{} {}", mac(node), address(node)));
        let add = ["lsp-add", SWITCH, &port, "--", "lsp-set-addresses", &port, &addresses];
        nbctl(sandbox, &[&add[..], &["--", "lsp-set-port-security", &port, &addresses]].concat()).await?;
    }
    is_not_heard(sandbox, "node-1").await.context("no port is bound")?;
    bind(sandbox, "dpu-1").await?;
    is_not_heard(sandbox, "node-1").await.context("the port that asks is not bound")?;
    guests_reach_each_other(sandbox).await
}

/// The kernel of a node sees what comes in on a representor, for the switch only has a copy: it must not take part.
pub async fn a_guest_meets_the_switch_alone(sandbox: &Sandbox) -> Result<()> {
    let script = "ip netns add guest
        ip link add mptest0 address 02:00:00:00:98:01 type veth peer name eth0 address 02:00:00:00:98:02 netns guest
        ip address add 10.98.0.1/24 dev mptest0
        ip link set mptest0 up
        ip -n guest address add 10.98.0.2/24 dev eth0
        ip -n guest link set eth0 up";
    output(sandbox.enter("dpu-1").args(["sh", "-ec", script])).await?;
    let ask = ["ip", "netns", "exec", "guest", "ping", "-c", "2", "-i", "0.2", "-W", "1", "10.98.0.1"];
    is_not_answered(sandbox.enter("dpu-1").args(ask)).await.context("ARP, then IP")?;
    let neighbour = ["ip", "-n", "guest", "neigh", "show", "10.98.0.1"];
    let neighbour = output(sandbox.enter("dpu-1").args(neighbour)).await?;
    ensure!(!neighbour.contains("lladdr"), "ARP is answered: {neighbour}");
    let script = "ip neigh replace 10.98.0.2 lladdr 02:00:00:00:98:02 dev mptest0
        ip -n guest neigh replace 10.98.0.1 lladdr 02:00:00:00:98:01 dev eth0";
    output(sandbox.enter("dpu-1").args(["sh", "-ec", script])).await?;
    is_not_answered(sandbox.enter("dpu-1").args(ask)).await.context("IP")?;
    output(sandbox.enter("dpu-1").args(["ip", "netns", "delete", "guest"])).await.map(drop)
}

/// Makes what is missing of it: a node that was off has the port, but no address on it.
pub async fn guests_reach_each_other(sandbox: &Sandbox) -> Result<()> {
    for node in NODES {
        plug(sandbox, node).await?;
        bind(sandbox, node).await?;
    }
    for node in &NODES[1..] {
        // An ordinary packet, and the largest.
        for payload in [56, MTU - PING_HEADERS] {
            let ask = ["-c", "2", "-i", "0.2", "-M", "do", "-s", &payload.to_string()].map(str::to_owned);
            until(SOON, || async {
                let ping = sandbox.enter("dpu-1").arg("ping").args(&ask).args(["-W", "3", &address(node)]).output();
                let said = ping.await?;
                ensure!(said.status.success(), "{payload} bytes to {node}: {}", String::from_utf8_lossy(&said.stdout));
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}

/// What was programmed stays in force without OVN's processes; what is written when they are there again comes through.
pub async fn guests_outlive_the_control_of_their_network(sandbox: &Sandbox) -> Result<()> {
    let processes =
        ["control-plane/ovn-nb", "control-plane/ovn-sb", "control-plane/ovn-northd", "dpu-1/ovn-controller"];
    for process in processes {
        sandbox.kill_process(process).await?;
    }
    let ask = ["ping", "-c", "1", "-W", "3", &address("node-1")];
    output(sandbox.enter("dpu-1").args(ask)).await.context("killed")?;
    for process in processes {
        sandbox.start_process(process).await?;
    }
    until(SOON, || async { nbctl(sandbox, &["--wait=hv", "sync"]).await.map(drop) }).await.context("started")?;
    let deny = ["--wait=hv", "acl-add", SWITCH, "to-lport", "1", "icmp4", "drop"];
    nbctl(sandbox, &deny).await?;
    is_not_heard(sandbox, "node-1").await.context("an ACL forbids it")?;
    nbctl(sandbox, &["--wait=hv", "acl-del", SWITCH]).await?;
    output(sandbox.enter("dpu-1").args(ask)).await.map(drop)
}

async fn plug(sandbox: &Sandbox, node: &str) -> Result<()> {
    let interface = format!("type=internal mtu_request={MTU} mac=\"{}\"", mac(node));
    let add =
        format!("ovs-vsctl --timeout=20 --may-exist add-port br-int {DEVICE} -- set interface {DEVICE} {interface}");
    output(sandbox.enter(node).args(add.split(' '))).await?;
    let address = format!("{}/24", address(node));
    output(sandbox.enter(node).args(["ip", "address", "replace", &address, "dev", DEVICE])).await?;
    output(sandbox.enter(node).args(["ip", "link", "set", DEVICE, "up"])).await.map(drop)
}

/// Gives the guest its logical port, and waits until OVN has it there.
async fn bind(sandbox: &Sandbox, node: &str) -> Result<()> {
    let port = logical_port(node);
    let identity = format!("external-ids:iface-id={port}");
    output(sandbox.enter(node).args(["ovs-vsctl", "--timeout=20", "set", "interface", DEVICE, &identity])).await?;
    nbctl(sandbox, &["wait-until", "Logical_Switch_Port", &port, "up=true"]).await?;
    nbctl(sandbox, &["--wait=hv", "sync"]).await.map(drop)
}

/// Asks the guest of dpu-1.
async fn is_not_heard(sandbox: &Sandbox, node: &str) -> Result<()> {
    let ask = ["ping", "-c", "2", "-i", "0.2", "-W", "1", &address("dpu-1")];
    is_not_answered(sandbox.enter(node).args(ask)).await.context(node.to_owned())
}

/// An answer to this ping is an error. So is a question that could not be asked.
async fn is_not_answered(ping: &mut Command) -> Result<()> {
    let output = ping.output().await?;
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}: {said}{error}", output.status);
    Ok(())
}

async fn nbctl(sandbox: &Sandbox, args: &[&str]) -> Result<String> {
    output(sandbox.enter("cp").args(["ovn-nbctl", "--timeout=30"]).args(args)).await
}
