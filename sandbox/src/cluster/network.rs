//! Network namespaces and the cables between them.
//!
//! ```text
//!  cp: br-mgmt 10.77.0.1/24 ──── mgmt0 of every node 10.77.0.x     API server, kubelets, BMCs (10.77.0.10N)
//!      br-prov 10.88.0.1/24 ──── prov0 of ordinary nodes 10.88.0.x    provisioning network: with a server without a DPU
//!      br-tunnel (no address) ── uplink of every node              Geneve, ends at br-phy 10.78.0.x inside the node
//!  outside: br-outside 203.0.113.1/24 ── outside0 of every node    a bridge br-ex of its own, the physical network physnet1
//! ```
//!
//! No namespace has a default route and none is joined to the machine's own: nothing can leak either way.

use std::fmt::Write;

use anyhow::Result;
use tokio::process::Command;

use crate::layout::{
    API_ADDRESS, CONTROL_PLANE, Layout, NodeId, OUTSIDE, OUTSIDE_ADDRESSES, PROVISIONING_GATEWAY, PROVISIONING_LEG,
    Provisioned, SERVICE_CIDR, bmc_address,
};
use crate::outside;
use crate::programs::Programs;

/// A switch in user space receives a copy: the kernel has the packet, too, and would answer a guest's ARP from the
/// guest's own port and forward what the guest sends, past all that the switch forbids. `mp…` are representors.
const SWITCH_ALONE: &str = r#"
table arp metalplane-sandbox {
    chain input { type filter hook input priority 0; iifname { "uplink", "outside0", "mp*" } drop; }
}
table inet metalplane-sandbox {
    chain prerouting { type filter hook prerouting priority raw; iifname { "uplink", "outside0", "mp*" } drop; }
}
"#;

/// ETHTOOL_STXCSUM of `br-outside`, off (ethtool(8) is not everywhere): a switch in user space takes packets as they are, and a
/// checksum that is left to hardware would be the end of TCP.
const WHOLE_CHECKSUMS: &str = r#"$off = pack("LL", 0x17, 0); $ask = pack("a16 P", "br-outside", $off);
socket($s, 2, 2, 0) or die $!; ioctl($s, 0x8946, $ask) or die $!"#;

/// Makes all namespaces, bridges, cables and routes. They must not exist yet.
/// `bare`: those of the servers that have a NIC on the provisioning network; without any there is none.
pub async fn create(
    layout: &Layout,
    programs: &Programs,
    nodes: &[NodeId],
    servers: &[String],
    bare: &[String],
) -> Result<()> {
    let mut namespaces = vec![layout.netns(CONTROL_PLANE), layout.netns(OUTSIDE)];
    namespaces.extend(nodes.iter().map(|node| layout.netns(&node.name)));
    for namespace in &namespaces {
        outside::run("ip", ["netns", "add", namespace]).await?;
    }
    let control_plane = layout.netns(CONTROL_PLANE);
    let script = control_plane_script(layout, nodes, servers)? + &provisioning_script(layout, nodes, bare)?;
    batch(&control_plane, &script).await?;
    let outside = layout.netns(OUTSIDE);
    batch(&outside, &outside_script(layout, nodes)?).await?;
    outside::run("ip", ["netns", "exec", &outside, "perl", "-e", WHOLE_CHECKSUMS]).await?;
    let nodes = nodes.iter().map(|node| async {
        let netns = layout.netns(&node.name);
        batch(&netns, &(node_script(node, nodes) + &provisioning_leg(node, bare))).await?;
        let mut rules = Command::new("ip");
        rules.args(["netns", "exec", &netns, "nft", "-f", "-"]).envs(programs.environment());
        outside::finish(rules, Some(SWITCH_ALONE)).await
    });
    futures::future::try_join_all(nodes).await?;
    Ok(())
}

fn control_plane_script(layout: &Layout, nodes: &[NodeId], servers: &[String]) -> Result<String> {
    let mut script = format!(
        "link set lo up\n\
         link add br-mgmt type bridge forward_delay 0\n\
         address add {API_ADDRESS}/24 dev br-mgmt\n\
         link set br-mgmt up\n\
         link add br-tunnel type bridge forward_delay 0\n\
         link set br-tunnel up\n"
    );
    for server in servers {
        writeln!(script, "address add {}/24 dev br-mgmt", bmc_address(server)?)?;
    }
    for node in nodes {
        let (name, netns) = (&node.name, layout.netns(&node.name));
        cable(&mut script, &format!("m-{name}"), "br-mgmt", "mgmt0", &netns)?;
        writeln!(script, "route add {} via {}", node.pod_cidr(), node.address())?;
        cable(&mut script, &format!("t-{name}"), "br-tunnel", "uplink", &netns)?;
    }
    Ok(script)
}

fn outside_script(layout: &Layout, nodes: &[NodeId]) -> Result<String> {
    let mut script = "link set lo up\nlink add br-outside type bridge forward_delay 0\n".to_owned();
    for address in OUTSIDE_ADDRESSES {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        writeln!(script, "address add {address} dev br-outside{nodad}")?;
    }
    writeln!(script, "link set br-outside up")?;
    for node in nodes {
        let netns = layout.netns(&node.name);
        cable(&mut script, &format!("o-{}", node.name), "br-outside", "outside0", &netns)?;
    }
    Ok(script)
}

/// The bridge, with a tap for each server and a cable to each ordinary node.
fn provisioning_script(layout: &Layout, nodes: &[NodeId], bare: &[String]) -> Result<String> {
    let mut script = String::new();
    if bare.is_empty() {
        return Ok(script);
    }
    writeln!(script, "link add br-prov type bridge forward_delay 0")?;
    writeln!(script, "address add {PROVISIONING_GATEWAY}/24 dev br-prov")?;
    writeln!(script, "link set br-prov up")?;
    for server in bare {
        let tap = Provisioned::of(server)?.tap;
        writeln!(script, "tuntap add dev {tap} mode tap")?;
        writeln!(script, "link set {tap} master br-prov")?;
        writeln!(script, "link set {tap} up")?;
    }
    for node in nodes.iter().filter(|node| !node.is_dpu()) {
        cable(&mut script, &format!("p-{}", node.name), "br-prov", PROVISIONING_LEG, &layout.netns(&node.name))?;
    }
    Ok(script)
}

fn provisioning_leg(node: &NodeId, bare: &[String]) -> String {
    if bare.is_empty() || node.is_dpu() {
        return String::new();
    }
    let address = node.provisioning_address();
    format!("address add {address}/24 dev {PROVISIONING_LEG}\nlink set {PROVISIONING_LEG} up\n")
}

fn cable(script: &mut String, here: &str, bridge: &str, there: &str, netns: &str) -> Result<()> {
    writeln!(script, "link add {here} type veth peer name {there} netns {netns}")?;
    writeln!(script, "link set {here} master {bridge}")?;
    writeln!(script, "link set {here} up")?;
    Ok(())
}

fn node_script(node: &NodeId, nodes: &[NodeId]) -> String {
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("address add {}/24 dev mgmt0", node.address()),
        "link set mgmt0 up".to_owned(),
        // Service addresses are rewritten by kube-proxy, but only a packet that has a route gets as far as that.
        format!("route add {SERVICE_CIDR} via {API_ADDRESS}"),
        // 1500 as almost everywhere: a logical network has what Geneve leaves of it.
        "link set uplink mtu 1500 up".to_owned(),
        "link set outside0 mtu 1500 up".to_owned(),
    ];
    for other in nodes.iter().filter(|other| *other != node) {
        lines.push(format!("route add {} via {}", other.pod_cidr(), other.address()));
    }
    lines.join("\n") + "\n"
}

async fn batch(netns: &str, script: &str) -> Result<()> {
    outside::run_with_input("ip", ["-netns", netns, "-batch", "-"], script).await.map(drop)
}

/// Namespaces of the sandbox that exist. The name of another sandbox may begin with this one's: only names that this
/// sandbox can have given count.
pub fn existing(layout: &Layout) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let prefix = layout.netns("");
    let ours = |name: &String| {
        name.strip_prefix(&prefix)
            .is_some_and(|rest| [CONTROL_PLANE, OUTSIDE].contains(&rest) || NodeId::parse(rest).is_ok())
    };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(ours).collect()
}

pub async fn remove(layout: &Layout) -> Result<()> {
    for namespace in existing(layout) {
        outside::run("ip", ["netns", "delete", &namespace]).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_a_way_out() {
        let layout = Layout::new("test").expect("a name");
        let nodes = ["dpu-1", "dpu-2", "node-1"].map(|name| NodeId::parse(name).expect("a node"));
        let servers = ["server-1".to_owned()];
        let mut scripts = vec![control_plane_script(&layout, &nodes, &servers).expect("a script")];
        let provisioning = provisioning_script(&layout, &nodes, &servers).expect("a script");
        assert!(provisioning.contains("peer name prov0 netns mp-test-node-1") && !provisioning.contains("dpu"));
        assert_eq!(provisioning_script(&layout, &nodes, &[]).expect("a script"), "");
        scripts.extend(nodes.iter().map(|node| node_script(node, &nodes)));
        scripts.push(outside_script(&layout, &nodes).expect("a script"));
        scripts.extend([provisioning, provisioning_leg(&nodes[2], &servers)]);
        for script in &scripts {
            assert!(!script.contains("default") && !script.contains("0.0.0.0/0"), "{script}");
        }
        assert!(scripts[0].contains("address add 10.77.0.101/24 dev br-mgmt"));
        assert!(scripts[0].contains("peer name uplink netns mp-test-dpu-2") && scripts[3].contains("uplink"));
        assert!(scripts[1].contains("route add 10.244.12.0/24 via 10.77.0.12"));
    }
}
