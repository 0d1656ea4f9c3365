//! `make demo`: one machine from `kubectl apply` to deletion, live, with its figures.

mod hot_plug;
mod leftovers;
mod report;
mod rules;
mod watch;

use crate::guest::Guest;
use crate::site::{Agents, GuestKind, Place, Site};
use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use sandbox::handle::Options;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The sandbox's name.
const NAME: &str = "demo";
const MACHINE: &str = "bm-01";
const NAMESPACE: &str = "default";
/// The first one behind the gateway's, which is chosen.
const ADDRESS: &str = "10.20.0.2";
/// Under emulation a Debian takes about a minute to its first packet.
const BOOT_LIMIT: Duration = Duration::from_secs(300);

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

pub async fn run(keep: bool, agents: Agents) -> Result<()> {
    if sandbox::Sandbox::connect(NAME).await.is_ok() {
        bail!("a demo runs already: end it with `make demo-clean`");
    }
    let story = Story::new();
    let options = Options { keep, server_memory_mib: 1024, server_vcpus: 2, ..Options::default() };
    tokio::select! {
        result = story.during(show(&story, keep, agents, options)) => result,
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

async fn show(story: &Story, keep: bool, agents: Agents, options: Options) -> Result<()> {
    let site = match Site::start(NAME, options, agents, &|text| story.say(text)).await {
        Ok(site) => site,
        Err(error) => {
            end_what_started().await;
            return Err(error);
        }
    };
    let result = tell(story, &site, keep).await;
    if keep && result.is_ok() {
        let kubeconfig = site.sandbox.kubeconfig();
        println!("\nThe machine keeps running. Look at it from your own shell:\n");
        println!("export KUBECONFIG={}", kubeconfig.display());
        println!("\nand end it with: make demo-clean");
    } else {
        story.say("ending the cluster");
        let ended = site.down().await;
        result?;
        ended?;
    }
    report::last_line()
}

async fn tell(story: &Story, site: &Site, keep: bool) -> Result<()> {
    story.say("golden image: a real Debian 12, imported as MachineImage debian-12 (built once, then cached)");
    site.golden_image(GuestKind::Debian, Some(NAMESPACE), "debian-12").await?;
    let before = leftovers::count(site).await?;

    story.say("kubectl apply -f examples/bm-01.yaml");
    let applied = Timestamp::now();
    site.apply(include_str!("../../../examples/bm-01.yaml")).await?;
    watch::until_running(story, site, BOOT_LIMIT).await?;
    let answered = ping_from_the_other_dpu(story, site).await?;
    let machine = site.get(&["bmm", MACHINE]).await?.context("the machine is gone")?;
    report::write(story, &machine, applied, answered)?;
    println!("{}", site.bmctl(&["timeline", MACHINE]).await?);
    println!("{}", site.kubectl(&["get", "bmm"]).await?);

    rules::show(story, site).await?;

    let server = server_of(site).await?;
    let guest = Guest::new(site.sandbox.layout(), &server);
    story.say("waiting for the guest's console, to look from inside");
    guest.line("the guest has finished its boot", 0, BOOT_LIMIT, |line| line.contains("MP-BOOT")).await?;
    hot_plug::show(story, site, &guest).await?;
    if !keep {
        delete(story, site, &before).await?;
    }
    Ok(())
}

/// Asks from a logical port on the other DPU: the packets cross the tunnel between the two.
async fn ping_from_the_other_dpu(story: &Story, site: &Site) -> Result<Timestamp> {
    let own = site.get(&["bmm", MACHINE]).await?.context("the machine is gone")?;
    let own = own["status"]["disks"][0]["dpuName"].as_str().unwrap_or_default().to_owned();
    let from = Place { namespace: NAMESPACE, subnet: "blue", address: "10.20.0.250/24" };
    let answered = site.ping_from_another_dpu(&own, from, ADDRESS, BOOT_LIMIT).await?;
    story.say(&format!("{ADDRESS} answers ping from another DPU"));
    Ok(answered)
}

/// The virtual server that the machine has claimed.
async fn server_of(site: &Site) -> Result<String> {
    let machine = site.get(&["bmm", MACHINE]).await?.context("the machine is gone")?;
    let hardware = machine["status"]["hardwareName"].as_str().context("no hardware is claimed")?;
    Ok(hardware.replace("rack1-u0", "server-"))
}

async fn delete(story: &Story, site: &Site, before: &leftovers::Count) -> Result<()> {
    story.say(&format!("kubectl delete bmm {MACHINE}"));
    site.kubectl(&["delete", "bmm", MACHINE, "--timeout=180s"]).await?;
    leftovers::none(story, site, before).await
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
    let result = story.during(clean_machine(&story, &site)).await;
    story.say("ending the cluster");
    story.during(site.down()).await?;
    result?;
    println!("demo-clean: ok");
    Ok(())
}

async fn clean_machine(story: &Story, site: &Site) -> Result<()> {
    if site.get(&["bmm", MACHINE]).await?.is_some() {
        story.say(&format!("kubectl delete bmm {MACHINE}"));
        site.kubectl(&["delete", "bmm", MACHINE, "--timeout=180s"]).await?;
    }
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
