//! What controller and agents do, as an operator would tell it: `scenarios/*.txt`, compared line by line. A change of behaviour shows there as
//! a difference that a person can judge; `SCENARIOS=write` writes the files anew.

use super::simulate;
use std::path::PathBuf;
use std::time::Duration;
use tests::sim::faults::Plan;
use tests::sim::host::Manners;
use tests::sim::life::{self, condition};
use tests::sim::simulation::USER;
use tests::sim::told::Story;
use tests::sim::{Simulation, lives, passing, verbs};

/// The files are of this run.
const SEED: u64 = 1;
const WRITE: &str = "SCENARIOS";

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios").join(format!("{name}.txt"))
}

/// All DPUs have agents that have told what they can do.
async fn quiet(s: &Simulation) -> Result<(), String> {
    s.until("the DPUs are ready", |s| {
        s.scene.server.list("metalplane.io/dpus").iter().all(|dpu| condition(dpu, "Ready") == "True")
    })
    .await
}

async fn says(s: &Simulation, machine: &str, type_: &str) -> Result<(), String> {
    let is_so = |s: &Simulation| s.machine(machine).is_some_and(|machine| condition(&machine, type_) == "True");
    s.until(&format!("{type_} of {machine}"), is_so).await
}

/// One story on so many servers. What `before` does is not told.
fn scenario(
    (name, what): (&str, &str),
    hosts: usize,
    before: impl AsyncFn(&Simulation) -> Result<(), String>,
    run: impl AsyncFn(&mut Simulation, &Story) -> Result<(), String>,
) {
    let story = simulate(async {
        tests::sim::begin(SEED);
        let mut s = Simulation::start(hosts, SEED, Plan::None);
        quiet(&s).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        before(&s).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let told = Story::begin(&s);
        run(&mut s, &told).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let lines = told.lines(&s).join("\n");
        format!("{what}\n\n{lines}\n")
    });
    let path = file(name);
    if std::env::var(WRITE).as_deref() == Ok("write") {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for the scenarios");
        std::fs::write(&path, &story).expect("a file that can be written");
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let first = known.lines().zip(story.lines()).position(|(known, told)| known != told);
    let first = first.unwrap_or_else(|| known.lines().count().min(story.lines().count()));
    let line = |text: &str| text.lines().nth(first).unwrap_or("(the end)").to_owned();
    assert!(
        known == story,
        "scenarios/{name}.txt tells another story from line {} on:\n- {}\n+ {}\nIf the new one is meant: {WRITE}=write cargo test \
         --workspace --test simulation scenarios, and look at the difference.",
        first + 1,
        line(&known),
        line(&story),
    );
}

async fn nothing(_: &Simulation) -> Result<(), String> {
    Ok(())
}

async fn runs(s: &Simulation) -> Result<(), String> {
    life::create(s, "bm-01", 7).await
}

fn create(s: &Simulation) {
    s.create(life::MACHINES, USER, life::machine("bm-01", 7));
}

fn bmc(s: &Simulation, told: &Story, manners: Manners) {
    told.note(match manners {
        Manners::Slow(_) => "the BMC of 'server-1' takes six seconds for each answer",
        Manners::Unreachable => "the BMC of 'server-1' does not answer",
        _ => "the BMC of 'server-1' answers",
    });
    s.scene.hosts[0].behave(manners);
}

#[test]
fn start() {
    scenario(("start", "A machine is created, and runs."), 1, nothing, async |s, _| runs(s).await);
}

#[test]
fn start_with_a_slow_bmc() {
    let what = "A machine is created on a server whose BMC is slow.";
    scenario(("start-slow-bmc", what), 1, nothing, async |s, told| {
        bmc(s, told, Manners::Slow(Duration::from_secs(6)));
        runs(s).await
    });
}

#[test]
fn a_bmc_stops_answering_during_a_start() {
    let what = "The BMC of a machine's server stops answering before the host is powered on, for two minutes.";
    scenario(("start-bmc-lost", what), 1, nothing, async |s, told| {
        create(s);
        says(s, "bm-01", "HardwareClaimed").await?;
        bmc(s, told, Manners::Unreachable);
        tokio::time::sleep(Duration::from_secs(120)).await;
        bmc(s, told, Manners::Good);
        s.until("the machine runs", |s| life::runs(s, "bm-01")).await
    });
}

#[test]
fn an_unresponsive_dpu_is_fenced() {
    let what =
        "A Dpu is cut off from the API server with a volume on its host. The user gives the volume to another machine.";
    let before = async |s: &Simulation| {
        passing::start(s, "fast").await?;
        s.until("both guests answer", |s| life::runs(s, "bm-01") && life::runs(s, "bm-02")).await
    };
    scenario(("dpu-unresponsive", what), 2, before, async |s, told| {
        told.note("the agent of 'dpu-1' is cut off from the API server");
        s.scene.cut("dpu-1", true);
        passing::pass(s, "bm-01", "bm-02");
        s.until("the other has it", |s| passing::has(s, "bm-02")).await?;
        tokio::time::sleep(Duration::from_secs(30)).await;
        told.note("the agent of 'dpu-1' reaches the API server");
        s.scene.cut("dpu-1", false);
        s.until("both are well", |s| life::is_ready(s, "bm-01") && life::is_ready(s, "bm-02")).await?;
        tokio::time::sleep(Duration::from_secs(30)).await;
        Ok(())
    });
}

#[test]
fn hot_plug() {
    let what = "A disk and an interface are added to a machine that runs, and removed; then the user deletes the disk's claim.";
    scenario(("hot-plug", what), 1, runs, async |s, _| {
        life::plug(s, "bm-01").await?;
        life::unplug(s, "bm-01").await
    });
}

#[test]
fn expansion() {
    let before = async |s: &Simulation| {
        runs(s).await?;
        life::plug(s, "bm-01").await
    };
    let what = "A disk of a machine that runs is expanded.";
    scenario(("expansion", what), 1, before, async |s, _| life::expand(s, "bm-01").await);
}

#[test]
fn migration() {
    let what = "A machine that runs moves to another server.";
    scenario(("migration", what), 2, runs, async |s, _| verbs::migrate(s, "bm-01", "move").await);
}

#[test]
fn delete_in_the_middle_of_a_start() {
    let what = "A machine is deleted before its host is powered on.";
    scenario(("delete-during-start", what), 1, nothing, async |s, _| {
        create(s);
        says(s, "bm-01", "VolumesReady").await?;
        life::delete(s, "bm-01").await
    });
}

#[test]
fn delete_with_the_bmc_away() {
    let what = "A machine that runs is deleted while the BMC of its server does not answer, for five minutes.";
    scenario(("delete-bmc-away", what), 1, runs, async |s, told| {
        bmc(s, told, Manners::Unreachable);
        s.delete(life::MACHINES, USER, "bm-01");
        tokio::time::sleep(Duration::from_secs(300)).await;
        bmc(s, told, Manners::Good);
        s.until("nothing is left", life::is_clean).await
    });
}

#[test]
fn import() {
    scenario(("import", "An image is imported from the web, and deleted."), 1, nothing, async |s, _| {
        lives::create_image(s);
        lives::image_is_ready(s).await?;
        lives::delete_image(s).await
    });
}
