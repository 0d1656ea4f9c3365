//! What a host feels of the agent's work: the longest time in which no operation on its disk was done, while another disk comes and
//! goes, the disk grows, or the agent starts anew.
//!
//! The host writes by vfio-user to a disk that our driver presents, as `spdk-target io` on a core of its own. Each of its runs
//! has one kind of work in its middle, kinds by turns; one has none. An operation that fails ends the measurement.

use crate::Figures;
use crate::args::Stall;
use crate::figure::{Figure, Unit};
use anyhow::{Context, Result, ensure};
use planner::exposure::{Bus, ExposureId, FunctionKind, Limits, Slot};
use ports::Emulation;
use ports::emulation::{Backend, DiskFunction};
use sandbox::spdk::operations::{Operator, file};
use sandbox::spdk::real::{self, Target};
use serde_json::{Value, json};
use spdk::SpdkEmulation;
use spdk::door::Door;
use spdk::host::Host;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BYTES: u64 = 1 << 30;
const GROWS_BY: u64 = 64 << 20;
const NQN: &str = "nqn.2026-01.io.metalplane:stall";
/// The second core; targets of the sandbox have the first.
const HOST_CORE: &str = "0x2";
/// A run: long enough for a host to start and to have the work in its middle.
const SECONDS: &str = "--seconds=4";
/// SPDK starts, connects and warms up.
const BEFORE: Duration = Duration::from_millis(3000);
/// A disk leaves when the host's last operation on it has come back.
const LEAVES: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    None,
    HotPlug,
    Resize,
    Restart,
}

impl Work {
    const ALL: [Self; 4] = [Self::None, Self::HotPlug, Self::Resize, Self::Restart];

    /// The figures: the longest pause, and how long the work itself took.
    fn names(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::None => ("pause", None),
            Self::HotPlug => ("pauseHotPlug", Some("hotPlug")),
            Self::Resize => ("pauseResize", Some("resize")),
            Self::Restart => ("pauseRestart", Some("restart")),
        }
    }
}

struct Bench {
    folder: TempDir,
    target: Target,
    operator: Operator,
    disk: DiskFunction,
    size: u64,
}

pub async fn measure(options: &Stall) -> Result<Figures> {
    let cores = std::thread::available_parallelism()?.get();
    ensure!(cores >= 2, "a host and a target need a core each, and there is one");
    let program = real::own_target().map_err(anyhow::Error::msg)?;
    // On a disk: /tmp may be memory.
    let folder = tempfile::Builder::new().prefix("metalplane-bench-").tempdir_in("/var/tmp")?;
    let operator = Operator { program: program.clone(), folder: folder.path().to_owned(), cores: HOST_CORE };
    let image = sized(folder.path(), "image", BYTES)?;
    // A hole is read without the disk.
    operator.run(&file("bdev", &image), "bdev", &["--workload=write-pattern", "--io-size=1048576"]).await?;
    let target = Target::start(&program, folder.path()).await?;
    let mut bench = Bench { folder, target, operator, disk: disk(1, Slot::Boot, image), size: BYTES };
    bench.agent()?.expose_disk(&bench.disk).await?;
    let mut samples: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..options.times {
        for work in Work::ALL {
            let (pause, took) = bench.round(work).await.with_context(|| format!("{work:?}"))?;
            eprintln!("{work:?}: no operation for {pause:.1} ms at most; the work took {took:?}");
            let (of_pause, of_work) = work.names();
            samples.entry(of_pause).or_default().push(pause);
            if let Some(name) = of_work {
                samples.entry(name).or_default().push(took.as_secs_f64() * 1000.0);
            }
        }
    }
    bench.target.kill().await?;
    let figure = |samples: &[f64]| Figure::of(Unit::Milliseconds, samples).context("there are rounds");
    samples.into_iter().map(|(name, samples)| Ok((name.to_owned(), figure(&samples)?))).collect()
}

impl Bench {
    /// The agent's driver, as after a start of the agent.
    fn agent(&self) -> Result<SpdkEmulation> {
        let door = Door::VfioUser { folder: self.door() };
        let host = Host { nqn: NQN.to_owned(), serial: "MPSTALL".to_owned(), door, hot_plug: 4 };
        Ok(SpdkEmulation::new(self.target.socket(), host, self.folder.path().join("state"))?)
    }

    fn door(&self) -> PathBuf {
        self.folder.path().join("vfio-user")
    }

    /// The longest pause in milliseconds, and how long the work took.
    async fn round(&mut self, work: Work) -> Result<(f64, Duration)> {
        let attach = json!({"name": "Host", "trtype": "VFIOUSER", "traddr": self.door(), "subnqn": NQN});
        let attach: Value = json!({"method": "bdev_nvme_attach_controller", "params": attach});
        let size = self.size;
        let words = ["--workload=random-write", "--queue-depth=32", SECONDS];
        let host = self.operator.run(&attach, "Hostn1", &words);
        let (done, took) = tokio::join!(host, self.work(work));
        if work == Work::Resize {
            self.size = size + GROWS_BY;
        }
        Ok((done?.longest_pause_milliseconds, took?))
    }

    async fn work(&self, work: Work) -> Result<Duration> {
        let agent = self.agent()?;
        // When the host is in the middle of its run.
        tokio::time::sleep(BEFORE).await;
        let began = Instant::now();
        match work {
            Work::None => {}
            Work::HotPlug => {
                let image = sized(self.folder.path(), "hot", GROWS_BY)?;
                let hot = disk(2, Slot::HotPlug, image);
                agent.expose_disk(&hot).await?;
                agent.hide(&hot.id, FunctionKind::Disk).await?;
                while agent.list().await?.iter().any(|shown| shown.id == hot.id) {
                    ensure!(began.elapsed() < LEAVES, "the disk does not leave within {LEAVES:?}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Work::Resize => {
                let size = self.size + GROWS_BY;
                sized(self.folder.path(), "image", size)?;
                agent.resize_disk(&self.disk.id, size).await?;
            }
            Work::Restart => {
                drop(agent);
                let agent = self.agent()?;
                let shown = agent.list().await?;
                ensure!(shown.iter().any(|shown| shown.id == self.disk.id), "the disk is not found again");
                agent.expose_disk(&self.disk).await?;
            }
        }
        Ok(began.elapsed())
    }
}

fn sized(folder: &Path, name: &str, bytes: u64) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::File::options().write(true).create(true).truncate(false).open(&path)?.set_len(bytes)?;
    Ok(path)
}

fn disk(number: u8, slot: Slot, path: PathBuf) -> DiskFunction {
    let uid = format!("5f0c1c9e-58a4-4b1c-9a63-{number:012}");
    DiskFunction {
        uuid: uid.clone(),
        id: ExposureId { uid, epoch: 1 },
        bus: Bus::NVMe,
        slot,
        serial: format!("MP{number}"),
        backend: Backend::Path(path),
        read_only: false,
        limits: Limits::default(),
    }
}
