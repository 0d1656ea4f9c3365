//! An administrator's upgrade by helm, and the way back.

use super::{SYSTEM_NAMESPACE, Site, until};
use anyhow::Result;
use std::collections::BTreeSet;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(240);

impl Site {
    /// With these values besides those of before: every pod is another one then, and ready.
    pub async fn upgrade(&self, values: &[&str]) -> Result<()> {
        let flags = values.iter().map(|value| format!("--set={value}"));
        let flags: Vec<String> = ["--reuse-values".to_owned()].into_iter().chain(flags).collect();
        self.replaced(self.chart("metalplane", &flags)).await
    }

    /// To the values before the last upgrade.
    pub async fn roll_back(&self) -> Result<()> {
        self.replaced(self.run_helm(&["rollback", "metalplane", "--namespace", SYSTEM_NAMESPACE])).await
    }

    async fn replaced(&self, change: impl Future<Output = Result<()>>) -> Result<()> {
        let before = self.pod_uids().await?;
        change.await?;
        let workloads = self.kubectl(&["get", "deploy,ds,sts", "-n", SYSTEM_NAMESPACE, "-o", "name"]).await?;
        let limit = format!("--timeout={}s", PATIENCE.as_secs());
        for workload in workloads.lines() {
            self.kubectl(&["rollout", "status", workload, "-n", SYSTEM_NAMESPACE, &limit]).await?;
        }
        until("no pod of before is there", PATIENCE, async || {
            let left: Vec<String> = self.pod_uids().await?.intersection(&before).cloned().collect();
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("left: {}", left.join(", "))) })
        })
        .await?;
        self.wait_for_workloads().await
    }

    async fn pod_uids(&self) -> Result<BTreeSet<String>> {
        let list = self.get(&["pods", "-n", SYSTEM_NAMESPACE]).await?.unwrap_or_default();
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        Ok(pods.iter().map(|pod| format!("{} {}", pod["metadata"]["name"], pod["metadata"]["uid"])).collect())
    }
}
