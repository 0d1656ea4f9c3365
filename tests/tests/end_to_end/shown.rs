//! What kubectl shows of objects that controller and agents write: the tables of every kind, Events, and what can be waited for.

use super::machine::Machine;
use anyhow::{Context, Result, ensure};

/// Of a terminal.
const WIDTH: usize = 80;
/// In the names of our definitions, and of Tinkerbell's: of `bmc.tinkerbell.org` too.
const GROUPS: [&str; 2] = [".metalplane.io", ".tinkerbell.org"];
/// The name of an AddressHold is a hash of 35 characters: with an IPv6 address there is no room for who has that.
const WIDER: &str = "addressholds.metalplane.io";
/// What a running machine with one NIC has around it, by the condition that says that all is well.
const WAITED_FOR: [(&str, &str); 5] =
    [("bmm", "Ready"), ("vnic", "InForce"), ("subnet", "Ready"), ("vpc", "InForce"), ("sg", "InForce")];

pub async fn all(machine: &Machine<'_>) -> Result<()> {
    for (kind, condition) in WAITED_FOR {
        let condition = format!("--for=condition={condition}");
        machine.kubectl(&["wait", &condition, kind, "--all", "--timeout=30s"]).await.context(kind)?;
    }
    tables(machine).await?;
    let told = machine.kubectl(&["describe", "bmm", machine.name]).await?;
    let events = told.split_once("Events:").context("describe has Events")?.1;
    ensure!(events.contains("metalplane"), "no Event is the controller's: {told}");
    Ok(())
}

/// Within a terminal's width, and no column is empty of which kubectl could not read the path.
async fn tables(machine: &Machine<'_>) -> Result<()> {
    let definitions = machine.site.kubectl(&["get", "crd", "-o", "jsonpath={.items[*].metadata.name}"]).await?;
    let ours = definitions.split_whitespace().filter(|name| GROUPS.iter().any(|group| name.ends_with(group)));
    let (mut shown, mut wide) = (Vec::new(), Vec::new());
    for kind in ours {
        // Those without a namespace are of all tests: their names are the site's.
        let table = machine.kubectl(&["get", kind, "--ignore-not-found"]).await?;
        let fits = table.lines().all(|line| line.trim_end().chars().count() <= WIDTH);
        if kind != WIDER && !fits {
            wide.push(format!("kubectl get {kind}:\n{table}"));
        }
        ensure!(!table.contains("<unknown>") && !table.contains("<invalid>"), "kubectl get {kind}:\n{table}");
        if !table.is_empty() {
            shown.push(kind);
        }
    }
    ensure!(wide.is_empty(), "more than {WIDTH} columns:\n{}", wide.join("\n"));
    let least =
        ["baremetalmachines", "vnics", "subnets", "vpcs", "securitygroups", "dpus", "volumeholds", "addressholds"];
    for kind in least.map(|kind| format!("{kind}.metalplane.io")) {
        ensure!(shown.contains(&kind.as_str()), "{kind} is not among those shown: {}", shown.join(", "));
    }
    Ok(())
}
