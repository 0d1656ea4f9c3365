//! `bmctl explain`: why a machine is not ready.

use crate::args::Output;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::structured;
use api::BareMetalMachine;
use api::conditions::{self, READY};
use kube::ResourceExt;

pub async fn run(cluster: &Cluster, name: &str, output: Option<Output>) -> Result<String, Failure> {
    let machine = cluster.machine(name).await?;
    match output {
        Some(output @ (Output::Json | Output::Yaml)) => {
            Ok(structured(output, &machine.status.map(|s| s.conditions).unwrap_or_default())?)
        }
        _ => Ok(tree(&machine)),
    }
}

fn tree(machine: &BareMetalMachine) -> String {
    let status = machine.status.clone().unwrap_or_default();
    let mut text = format!("{}\n", machine.name_any());
    let Some(ready) = conditions::get(&status.conditions, READY) else {
        return format!("{text}└─ the controller has not looked at it yet: is it running?\n");
    };
    text.push_str(&format!("├─ Ready={} {}: {}\n", ready.status, ready.reason, ready.message));
    let others: Vec<_> = status.conditions.iter().filter(|c| c.type_ != READY).collect();
    for (i, condition) in others.iter().enumerate() {
        let branch = if i + 1 == others.len() { "└─" } else { "├─" };
        text.push_str(&format!("{branch} {}={} {}", condition.type_, condition.status, condition.reason));
        if condition.status != "True" && !condition.message.is_empty() {
            text.push_str(&format!(": {}", condition.message));
        }
        text.push('\n');
    }
    text
}
