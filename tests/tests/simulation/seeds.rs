//! A run depends on its seed alone: not on the machine, its load, or what ran before in the process. Where the test fails, the journals of two
//! runs (`SIM_JOURNAL`) show the first effect that differs.

use super::simulate;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use tests::sim::api::watch::Manners;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::random::Random;
use tests::sim::{Simulation, life, lives, passing};

/// The scenario and the seed that a child process runs.
const CHILD: &str = "SIM_DIGEST_OF";
const SCENARIOS: [(&str, u64); 5] = [("storm", 7), ("leaders", 20261122), ("gone", 1), ("schedule", 3), ("import", 5)];

/// What a run did, in one word.
fn digest(scenario: &str, seed: u64) -> String {
    simulate(async {
        tests::sim::begin(seed);
        let until = runtime::clock::now() + jiff::SignedDuration::from_secs(150);
        let faults = vec![Fault::Crash, Fault::LoseAnswer, Fault::Refuse, Fault::CrashBefore, Fault::Late];
        let plan = match scenario {
            "storm" => Plan::Storm { per_mille: 60, faults, until },
            _ => Plan::None,
        };
        let hosts = if scenario == "schedule" { 2 } else { 1 };
        let mut s = Simulation::start(hosts, seed, plan);
        if scenario == "leaders" {
            s.start_controller("controller-2", "default");
            s.scene.watches(Who::Controller, Manners::Late(std::time::Duration::from_secs(2)));
        }
        if scenario == "gone" {
            s.scene.watches(Who::Controller, Manners::Gone);
            s.scene.watches(Who::Agent, Manners::Gone);
        }
        let ended = match scenario {
            "schedule" => {
                let dice = Random::new(seed);
                passing::schedule(&mut s, &dice, "fast").await
            }
            "import" => lives::import(&s).await.map(drop),
            _ => life::whole(&s).await.map(drop),
        };
        // What a run that failed did is to be the same, too.
        if let Ok(path) = std::env::var("SIM_JOURNAL") {
            std::fs::write(path, s.whole_journal()).expect("SIM_JOURNAL names a file that can be written");
        }
        format!("{scenario} {seed} {} {}", s.digest(), if ended.is_ok() { "ended well" } else { "went wrong" })
    })
}

fn start(scenario: &str, seed: u64) -> Child {
    let exe = std::env::current_exe().expect("a test has a program");
    let name = "seeds::a_run_depends_on_its_seed_alone";
    let mut child = Command::new(exe);
    child.args([name, "--exact", "--nocapture"]).env(CHILD, format!("{scenario} {seed}"));
    child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the test's own program runs")
}

fn told(child: Child) -> String {
    let output = child.wait_with_output().expect("its output is read");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("digest: ")).map(|(_, digest)| digest.to_owned());
    line.unwrap_or_else(|| panic!("a child told no digest: {text}"))
}

/// Ends with this, also when a child fails.
struct Load<'a>(&'a AtomicBool);

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn a_run_depends_on_its_seed_alone() {
    if let Ok(child) = std::env::var(CHILD) {
        let (scenario, seed) = child.split_once(' ').expect("a scenario and a seed");
        println!("\ndigest: {}", digest(scenario, seed.parse().expect("a number")));
        return;
    }
    let here: Vec<String> = SCENARIOS.iter().map(|(scenario, seed)| digest(scenario, *seed)).collect();
    // In other processes, all at once, beside two threads that leave them no processor.
    let busy = AtomicBool::new(true);
    let elsewhere: Vec<String> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _load = Load(&busy);
        let children: Vec<Child> = SCENARIOS.iter().map(|(scenario, seed)| start(scenario, *seed)).collect();
        children.into_iter().map(told).collect()
    });
    eprintln!("{}", here.join("\n"));
    assert_eq!(here, elsewhere, "the same seed, and another run");
}
