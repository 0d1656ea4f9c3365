//! What controller and agents do, as an operator would tell it: `scenarios/*.txt`, compared line by line. A change of behaviour shows there as
//! a difference that a person can judge; `SCENARIOS=write` writes the files anew.

use super::simulate;
use std::path::PathBuf;
use std::time::Duration;
use tests::sim::faults::Plan;
use tests::sim::host::Manners;
use tests::sim::life::{self, condition};
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

/// One story on so many servers.
fn scenario(name: &str, what: &str, hosts: usize, run: impl AsyncFn(&mut Simulation, &Story) -> Result<(), String>) {
    let story = simulate(async {
        tests::sim::begin(SEED);
        let mut s = Simulation::start(hosts, SEED, Plan::None);
        quiet(&s).await.unwrap_or_else(|error| panic!("{name}: {error}"));
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

#[test]
fn start() {
    scenario("start", "A machine is created, and runs.", 1, async |s, _| life::create(s, "bm-01", 7).await);
}

#[test]
fn start_with_a_slow_bmc() {
    scenario(
        "start-slow-bmc",
        "A machine is created; the BMC of its server takes six seconds for each answer.",
        1,
        async |s, told| {
            told.note("the BMC of 'server-1' is slow");
            s.scene.hosts[0].behave(Manners::Slow(Duration::from_secs(6)));
            life::create(s, "bm-01", 7).await
        },
    );
}

#[test]
fn a_bmc_stops_answering_during_a_start() {
    scenario(
        "start-bmc-lost",
        "A BMC stops answering before the host is powered on, for two minutes.",
        1,
        async |s, told| {
            s.create(life::MACHINES, tests::sim::simulation::USER, life::machine("bm-01", 7));
            says(s, "bm-01", "HardwareClaimed").await?;
            told.note("the BMC of 'server-1' does not answer");
            s.scene.hosts[0].behave(Manners::Unreachable);
            tokio::time::sleep(Duration::from_secs(120)).await;
            told.note("the BMC of 'server-1' answers");
            s.scene.hosts[0].behave(Manners::Good);
            s.until("the machine runs", |s| life::runs(s, "bm-01")).await
        },
    );
}

#[test]
fn an_unresponsive_dpu_is_fenced() {
    let what =
        "A DPU is cut off from the API server with a volume on its host. The user gives the volume to another machine.";
    scenario("dpu-unresponsive", what, 2, async |s, told| {
        passing::start(s, "fast").await?;
        told.note("the agent of 'dpu-1' is cut off");
        s.scene.cut("dpu-1", true);
        passing::pass(s, "bm-01", "bm-02");
        s.until("the other has it", |s| passing::has(s, "bm-02")).await?;
        told.note("the agent of 'dpu-1' is back");
        s.scene.cut("dpu-1", false);
        s.until("both are well", |s| life::is_ready(s, "bm-01") && life::is_ready(s, "bm-02")).await?;
        tokio::time::sleep(Duration::from_secs(30)).await;
        Ok(())
    });
}

#[test]
fn hot_plug() {
    scenario(
        "hot-plug",
        "A disk and an interface are added to a machine that runs, and taken away again.",
        1,
        async |s, told| {
            life::create(s, "bm-01", 7).await?;
            told.note("the machine runs");
            life::plug(s, "bm-01").await?;
            life::unplug(s, "bm-01").await
        },
    );
}

#[test]
fn expansion() {
    scenario("expansion", "A disk of a machine that runs is made larger.", 1, async |s, told| {
        life::create(s, "bm-01", 7).await?;
        life::plug(s, "bm-01").await?;
        told.note("the machine runs with two disks");
        life::expand(s, "bm-01").await
    });
}

#[test]
fn migration() {
    scenario("migration", "A machine moves to another server.", 2, async |s, told| {
        life::create(s, "bm-01", 7).await?;
        told.note("the machine runs");
        verbs::migrate(s, "bm-01", "move").await
    });
}

#[test]
fn delete_in_the_middle_of_a_start() {
    scenario("delete-during-start", "A machine is deleted before its host is powered on.", 1, async |s, _| {
        s.create(life::MACHINES, tests::sim::simulation::USER, life::machine("bm-01", 7));
        says(s, "bm-01", "VolumesReady").await?;
        life::delete(s, "bm-01").await
    });
}

#[test]
fn delete_with_the_bmc_away() {
    scenario(
        "delete-bmc-away",
        "A machine that runs is deleted while the BMC of its server does not answer, for five minutes.",
        1,
        async |s, told| {
            life::create(s, "bm-01", 7).await?;
            told.note("the BMC of 'server-1' does not answer");
            s.scene.hosts[0].behave(Manners::Unreachable);
            s.delete(life::MACHINES, tests::sim::simulation::USER, "bm-01");
            tokio::time::sleep(Duration::from_secs(300)).await;
            told.note("the BMC of 'server-1' answers");
            s.scene.hosts[0].behave(Manners::Good);
            s.until("nothing is left", life::is_clean).await
        },
    );
}

#[test]
fn import() {
    scenario("import", "An image is imported from the web, and deleted.", 1, async |s, _| {
        lives::create_image(s);
        lives::image_is_ready(s).await?;
        lives::delete_image(s).await
    });
}
