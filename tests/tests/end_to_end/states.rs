//! What `kubectl get wf -w` shows of a Workflow, line by line, from before the Workflow is there.

use anyhow::{Context, Result, ensure};
use std::process::Stdio;
use std::time::Duration;
use tests::site::{INVENTORY_NAMESPACE, Site};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

const STATES: [&str; 7] = ["PREPARING", "PENDING", "RUNNING", "POST", "SUCCESS", "FAILED", "TIMEOUT"];

pub(super) struct Shown {
    lines: Lines<BufReader<ChildStdout>>,
    /// It ends with this value.
    _kubectl: Child,
}

impl Shown {
    pub(super) fn of(site: &Site, workflow: &str) -> Result<Self> {
        let named = format!("metadata.name={workflow}");
        let mut kubectl = site.sandbox.kubectl();
        kubectl.args(["get", "wf", "-n", INVENTORY_NAMESPACE, "--field-selector", &named, "-w", "--no-headers"]);
        kubectl.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut kubectl = kubectl.spawn().context("start kubectl get wf -w")?;
        let out = kubectl.stdout.take().context("its output")?;
        Ok(Self { lines: BufReader::new(out).lines(), _kubectl: kubectl })
    }

    /// As upstream's users see it: what comes before a server is asked for and after its last action aside.
    pub(super) async fn goes_from_pending_to_success(mut self, limit: Duration) -> Result<()> {
        let mut states: Vec<String> = Vec::new();
        while states.last().is_none_or(|state| state != "SUCCESS") {
            let line = tokio::time::timeout(limit, self.lines.next_line()).await;
            let line = line.with_context(|| format!("kubectl get wf -w shows no SUCCESS: {states:?}"))??;
            let line = line.with_context(|| format!("kubectl get wf -w ended: {states:?}"))?;
            states.extend(line.split_whitespace().find(|word| STATES.contains(word)).map(str::to_owned));
        }
        states.retain(|state| !["PREPARING", "POST"].contains(&state.as_str()));
        states.dedup();
        ensure!(states == ["PENDING", "RUNNING", "SUCCESS"], "kubectl get wf -w showed {states:?}");
        Ok(())
    }
}
