//! `make demo`: machines from `kubectl apply` to deletion, live, with their figures. It has [`Part`]s; without a choice all are shown.
//!
//! | module | what it shows |
//! |---|---|
//! | [`machine`] | a Debian by a cloud disk, a rule of a SecurityGroup, hot-plug, the way out of its Vpc and in |
//! | [`rules`] | of that, a port that is opened, and closed under an open connection |
//! | [`hot_plug`], [`second_nic`] | of that, a disk and a NIC |
//! | [`network`] | two Vpcs with the same addresses, a machine without a cloud-init disk, pods, a virtual machine in a pod |
//! | [`members`] | of that, who reaches whom, and who hears nothing |
//! | [`workflow`] | a server without a DPU, installed over the network |
//! | [`leftovers`] | that nothing is left of any of them |

mod hot_plug;
mod leftovers;
mod machine;
mod members;
mod network;
mod report;
mod rules;
mod second_nic;
mod watch;
mod way_out;
mod workflow;

use crate::site::{Agents, Site, bare};
use anyhow::{Result, bail};
use clap::ValueEnum;
use sandbox::handle::Options;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The sandbox's name.
const NAME: &str = "demo";
const NAMESPACE: &str = "default";
/// Under emulation a Debian takes about a minute to its first packet.
const BOOT_LIMIT: Duration = Duration::from_secs(300);

/// What is shown.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One machine by a cloud disk, with all that is plugged in and out of it
    Machine,
    /// Vpcs; a machine, pods and a virtual machine in them
    Network,
    /// A server without a DPU, installed by a Tinkerbell workflow
    Workflow,
}

pub fn logs() -> PathBuf {
    sandbox::layout::Layout::root().join(NAME).join("logs")
}

/// After so long without a line the reader is told what is still under way.
const QUIET: Duration = Duration::from_secs(20);

/// Prints each step with the seconds since the start.
struct Story {
    began: Instant,
    /// The last step, and when something was last printed.
    last: Mutex<(String, Instant)>,
}

impl Story {
    fn new() -> Self {
        let began = Instant::now();
        Self { began, last: Mutex::new((String::new(), began)) }
    }

    fn say(&self, text: &str) {
        self.print(text);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (text.trim().to_owned(), Instant::now());
    }

    fn print(&self, text: &str) {
        println!("[{:6.1} s] {text}", self.began.elapsed().as_secs_f64());
    }

    /// What is still under way, if nothing was printed for so long.
    fn overdue(&self, now: Instant) -> Option<String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = !last.0.is_empty() && now.saturating_duration_since(last.1) >= QUIET;
        quiet.then(|| {
            last.1 = now;
            format!("    still: {}", last.0)
        })
    }

    /// Does `work`, and tells what is still under way while nothing else is told.
    async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            if let Ok(done) = tokio::time::timeout(Duration::from_secs(1), work.as_mut()).await {
                return done;
            }
            if let Some(text) = self.overdue(Instant::now()) {
                self.print(&text);
            }
        }
    }
}

pub async fn run(keep: bool, agents: Agents, part: Option<Part>) -> Result<()> {
    if sandbox::Sandbox::connect(NAME).await.is_ok() {
        bail!("a demo runs already: end it with `make demo-clean`");
    }
    let story = Story::new();
    let parts = part.map_or_else(|| Part::value_variants().to_vec(), |part| vec![part]);
    let mut options = Options { keep, server_memory_mib: 1024, server_vcpus: 2, ..Options::default() };
    if parts.contains(&Part::Workflow) {
        options.servers.push(workflow::SERVER.to_owned());
        options.personalities.push(bare(workflow::SERVER));
    }
    if parts.contains(&Part::Network) && agents == Agents::DaemonSet {
        options.nodes.push(network::VM_NODE.to_owned());
    }
    tokio::select! {
        result = story.during(show(&story, keep, agents, options, &parts)) => result,
        _ = tokio::signal::ctrl_c() => {
            story.say("interrupted: ending the sandbox");
            end_what_started().await;
            bail!("interrupted")
        }
    }
}

/// A sandbox that is not kept ends with this process; one that is kept has to be told.
async fn end_what_started() {
    if let Ok(site) = Site::connect(NAME).await
        && let Err(error) = site.down().await
    {
        eprintln!("demo: the sandbox did not end: {error:#}");
    }
}

async fn show(story: &Story, keep: bool, agents: Agents, options: Options, parts: &[Part]) -> Result<()> {
    report::begin()?;
    let site = match Site::start(NAME, options, agents, &|text| story.say(text)).await {
        Ok(site) => site,
        Err(error) => {
            end_what_started().await;
            return Err(error);
        }
    };
    let result = tell(story, &site, keep, parts).await;
    if keep && result.is_ok() {
        let kubeconfig = site.sandbox.kubeconfig();
        println!("\nEverything keeps running. Look at it from your own shell:\n");
        println!("export KUBECONFIG={}", kubeconfig.display());
        println!("\nand end it with: make demo-clean");
    } else {
        story.say("ending the cluster");
        let ended = site.down().await;
        result?;
        ended?;
    }
    if parts.len() > 1 {
        println!(
            "\nmake demo PART=workflow shows more of servers without a DPU: a reinstallation, and a release with its disks erased\n"
        );
    }
    report::last_lines(parts.contains(&Part::Machine))
}

async fn tell(story: &Story, site: &Site, keep: bool, parts: &[Part]) -> Result<()> {
    let before = prepare(story, site, parts).await?;
    for part in parts {
        match part {
            Part::Machine => machine::show(story, site).await?,
            Part::Network => network::show(story, site).await?,
            Part::Workflow => workflow::show(story, site).await?,
        }
    }
    if parts == [Part::Workflow] {
        workflow::show_more(story, site).await?;
    }
    if !keep {
        remove(story, site).await?;
        leftovers::none(story, site, &before).await?;
    }
    Ok(())
}

/// What is there before any machine; of it nothing has to go.
async fn prepare(story: &Story, site: &Site, parts: &[Part]) -> Result<leftovers::Count> {
    for part in parts {
        match part {
            Part::Machine => machine::image(story, site).await?,
            Part::Network => network::image(story, site).await?,
            Part::Workflow => workflow::rack(story, site).await?,
        }
    }
    leftovers::count(site).await
}

/// Everything that the parts have made, in an order in which nothing waits for what is deleted later.
async fn remove(story: &Story, site: &Site) -> Result<()> {
    story.say("kubectl delete bmm --all, pods, and the networks that were made for them");
    network::remove_pods(site).await?;
    way_out::remove(site).await?;
    site.kubectl(&["delete", "bmm", "--all", "-n", NAMESPACE, "--timeout=180s"]).await?;
    network::remove_networks(site).await?;
    workflow::remove(site).await
}

/// `make demo-clean`.
pub async fn clean() -> Result<()> {
    let story = Story::new();
    let site = match Site::connect(NAME).await {
        Ok(site) => site,
        Err(error) => {
            println!("demo-clean: nothing runs ({error:#})");
            return Ok(());
        }
    };
    let result = story.during(clean_all(&story, &site)).await;
    story.say("ending the cluster");
    story.during(site.down()).await?;
    result?;
    println!("demo-clean: ok");
    Ok(())
}

async fn clean_all(story: &Story, site: &Site) -> Result<()> {
    remove(story, site).await?;
    leftovers::none(story, site, &leftovers::Count::default()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_step_is_told_again_and_again() {
        let story = Story::new();
        let at = |seconds| story.began + Duration::from_secs(seconds);
        assert_eq!(story.overdue(at(100)), None, "nothing is under way");
        story.say("importing");
        let said = story.last.lock().expect("not poisoned").1;
        let still = Some("    still: importing".to_owned());
        assert_eq!(story.overdue(said + QUIET / 2), None);
        assert_eq!(story.overdue(said + QUIET), still);
        assert_eq!(story.overdue(said + QUIET + QUIET / 2), None);
        assert_eq!(story.overdue(said + 2 * QUIET), still);
    }
}
