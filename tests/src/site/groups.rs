//! SecurityGroups that are edited, and machines' interfaces that are put into others, until OVN has it.

use super::{Site, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(150);

impl Site {
    /// The group lets this in, and every chassis that matters has it; tells how long that took, from the start of kubectl.
    pub async fn edit_ingress(&self, namespace: &str, group: &str, ingress: &Value) -> Result<Duration> {
        let (began, change) = (Instant::now(), json!({"spec": {"ingress": ingress}}).to_string());
        self.kubectl(&["patch", "sg", group, "-n", namespace, "--type=merge", "-p", &change]).await?;
        let limit = format!("--timeout={}s", SOON.as_secs());
        self.kubectl(&["wait", &format!("sg/{group}"), "-n", namespace, "--for=condition=InForce", &limit]).await?;
        let took = began.elapsed();
        let edited = self.get(&["sg", group, "-n", namespace]).await?.context("the group no longer exists")?;
        let said = edited["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "InForce");
        let is_newest = said.is_some_and(|said| said["observedGeneration"] == edited["metadata"]["generation"]);
        ensure!(is_newest, "InForce was waited for, and is said of another generation: {}", edited["status"]);
        Ok(took)
    }

    /// The first interface of a machine, `eth0`, is in these groups (null: in its Vpc's), and OVN has been told.
    pub async fn regroup(&self, namespace: &str, machine: &str, groups: &Value) -> Result<()> {
        let op = if groups.is_null() { "remove" } else { "add" };
        let change = json!([{"op": op, "path": "/spec/interfaces/0/securityGroups", "value": groups}]).to_string();
        self.kubectl(&["patch", "bmm", machine, "-n", namespace, "--type=json", "-p", &change]).await?;
        until("OVN is told of the groups", SOON, async || {
            let vnic = self.get(&["vnic", &format!("{machine}-eth0"), "-n", namespace]).await?;
            let vnic = vnic.context("the VNic no longer exists")?;
            let is_told = vnic["status"]["conditions"].as_array().into_iter().flatten().any(|said| {
                let is_current = said["observedGeneration"] == vnic["metadata"]["generation"];
                said["type"] == "Programmed" && said["status"] == "True" && is_current
            });
            let is_it = vnic["spec"]["securityGroups"] == *groups;
            Ok(if is_told && is_it { Ok(()) } else { Err(vnic.to_string()) })
        })
        .await
    }
}
