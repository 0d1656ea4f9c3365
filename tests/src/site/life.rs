//! Processes of this site in pods, found on this machine: to be killed or frozen at a chosen moment.

use super::{SYSTEM_NAMESPACE, Site, until};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::cluster::cgroup::Cgroups;
use sandbox::layout::NodeId;
use sandbox::supervisor::process::State;
use std::time::Duration;

pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A process that does nothing until this is dropped.
pub struct Frozen(Vec<Pid>);

impl Frozen {
    /// Lets the processes go on; gives them.
    pub fn resume(self) -> Vec<Pid> {
        self.0.clone()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            // It may have been killed meanwhile.
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

fn freeze(processes: Vec<Pid>, what: &str) -> Result<Frozen> {
    let frozen = Frozen(processes);
    for pid in &frozen.0 {
        kill(*pid, Signal::SIGSTOP).with_context(|| format!("stop {what}"))?;
    }
    Ok(frozen)
}

impl Site {
    /// Processes with this program that run in pods of one of these nodes.
    fn processes(&self, program: &str, nodes: &[&str]) -> Result<Vec<Pid>> {
        let (layout, groups) = (self.sandbox.layout(), Cgroups::detect()?);
        let members = nodes.iter().flat_map(|node| groups.members(&layout.node_cgroup(node)));
        let is_it = |pid: &i32| {
            // A process may end while we look: then it is none.
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let first = words.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(first).rsplit('/').next() == Some(program)
        };
        Ok(members.filter(is_it).map(Pid::from_raw).collect())
    }

    fn nodes(&self) -> Vec<&str> {
        self.sandbox.ready().nodes.iter().map(|node| node.name.as_str()).collect()
    }

    /// What the network configuration of a node does: the switch's own devices have their addresses, and are up. A switch that starts
    /// anew makes them without.
    pub async fn configure_switch(&self, node: &str) -> Result<()> {
        let tunnel = format!("{}/24", NodeId::parse(node)?.tunnel_address());
        self.enter(node, &["ip", "addr", "replace", &tunnel, "dev", "br-phy"]).await?;
        self.enter(node, &["ip", "link", "set", "br-phy", "up"]).await?;
        self.enter(node, &["ip", "link", "set", "br-int", "up"]).await.map(drop)
    }

    /// Kills what acts, at once; then makes place for the next one: a new pod has no back-off, and no lease to wait for.
    pub async fn kill_controller(&self) -> Result<()> {
        let processes = self.processes("controller", &self.nodes())?;
        ensure!(!processes.is_empty(), "no controller runs");
        for pid in processes {
            kill(pid, Signal::SIGKILL).context("kill the controller")?;
        }
        self.replace_pods("controller").await?;
        let free = r#"{"spec":{"holderIdentity":""}}"#;
        let patch = ["patch", "lease", "metalplane-controller", "-n", SYSTEM_NAMESPACE, "--type=merge", "-p", free];
        self.kubectl(&patch).await.map(drop)
    }

    /// Kills an agent where it stands. Its kubelet starts it again.
    pub fn kill_agent(&self, dpu: &str) -> Result<()> {
        self.kill_in_pods("dpu-agent", dpu)
    }

    /// The same of the SPDK target.
    pub fn kill_target(&self, dpu: &str) -> Result<()> {
        self.kill_in_pods("spdk-target", dpu)
    }

    fn kill_in_pods(&self, program: &str, node: &str) -> Result<()> {
        let processes = self.processes(program, &[node])?;
        ensure!(!processes.is_empty(), "no {program} runs on {node}");
        processes.into_iter().try_for_each(|pid| kill(pid, Signal::SIGKILL).with_context(|| format!("kill {program}")))
    }

    /// Another agent in the place of this one, as an upgrade leaves it: the old pod has ended, and the DPU is Ready again.
    pub async fn replace_agent(&self, dpu: &str) -> Result<()> {
        let (pod, node) = ("app.kubernetes.io/component=dpu-agent", format!("spec.nodeName={dpu}"));
        let delete = ["delete", "pod", "-n", SYSTEM_NAMESPACE, "-l", pod, "--field-selector", &node, "--timeout=120s"];
        self.kubectl(&delete).await?;
        self.wait_for_workloads().await?;
        self.kubectl(&["wait", "--for=condition=Ready", &format!("dpu/{dpu}"), "--timeout=180s"]).await.map(drop)
    }

    /// Stops an agent in the middle of whatever it does.
    pub fn freeze_agent(&self, dpu: &str) -> Result<Frozen> {
        self.freeze("dpu-agent", &[dpu])
    }

    /// Stops every controller that runs.
    pub fn freeze_controller(&self) -> Result<Frozen> {
        self.freeze("controller", &self.nodes())
    }

    /// Stops a process that is none of a pod, such as `dpu-1/ovn-controller`.
    pub async fn freeze_process(&self, name: &str) -> Result<Frozen> {
        let all = self.sandbox.list().await?;
        let found =
            all.into_iter().find(|listed| listed.name == name).with_context(|| format!("there is no {name}"))?;
        let State::Running { pid } = found.state else { bail!("{name} does not run: {:?}", found.state) };
        freeze(vec![Pid::from_raw(pid)], name)
    }

    fn freeze(&self, program: &str, nodes: &[&str]) -> Result<Frozen> {
        let processes = self.processes(program, nodes)?;
        ensure!(!processes.is_empty(), "no {program} runs on {}", nodes.join(", "));
        freeze(processes, program)
    }

    /// None of these controllers runs any more.
    pub async fn controllers_end(&self, stopped: &[Pid], limit: Duration) -> Result<()> {
        until("the controllers that were stopped have ended", limit, async || {
            let running = self.processes("controller", &self.nodes())?;
            let left: Vec<String> = running.iter().filter(|pid| stopped.contains(pid)).map(Pid::to_string).collect();
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("still there: {}", left.join(", "))) })
        })
        .await
    }

    /// An administrator's word that a DPU is down and stays so: both halves of it.
    pub async fn confirm_down(&self, dpu: &str) -> Result<()> {
        let taint = format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute");
        self.kubectl(&["taint", "node", dpu, &taint, "--overwrite"]).await?;
        let uid = self.kubectl(&["get", "dpu", dpu, "-o", "jsonpath={.metadata.uid}"]).await?;
        self.bmctl(&["dpu", "confirm-down", &uid, "--yes"]).await.map(drop)
    }

    /// A DPU that was lost, or given up, is as it was before.
    pub async fn back_in_service(&self, dpu: &str) -> Result<()> {
        let taints = self.kubectl(&["get", "node", dpu, "-o", "jsonpath={.spec.taints[*].key}"]).await?;
        if taints.contains(OUT_OF_SERVICE) {
            self.kubectl(&["taint", "node", dpu, &format!("{OUT_OF_SERVICE}-")]).await?;
        }
        self.sandbox.power(dpu, "on").await?;
        self.wait_for_workloads().await?;
        self.kubectl(&["wait", "--for=condition=Ready", &format!("dpu/{dpu}"), "--timeout=180s"]).await.map(drop)
    }

    async fn replace_pods(&self, component: &str) -> Result<()> {
        let selector = format!("app.kubernetes.io/component={component}");
        let delete = ["delete", "pod", "-n", SYSTEM_NAMESPACE, "-l", &selector, "--grace-period=0", "--force"];
        self.kubectl(&[delete.as_slice(), &["--timeout=120s"]].concat()).await.map(drop)
    }

    /// The agent runs, as another process than before.
    pub async fn agent_is_back(&self, dpu: &str, limit: Duration) -> Result<()> {
        until(&format!("an agent runs on {dpu}"), limit, async || {
            let none = || "none runs".to_owned();
            Ok(if self.processes("dpu-agent", &[dpu])?.is_empty() { Err(none()) } else { Ok(()) })
        })
        .await
    }
}
