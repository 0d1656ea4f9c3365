//! What vfio-user costs: operations of a host on a bdev that a target presents, against the same operations on the same bdev
//! used directly.
//!
//! Both runs of a pair are `spdk-target io` on the same core, right behind each other. The target has a core of its own, and
//! runs for its half of the pair only: a target that polls takes time from the other's.

use crate::Figures;
use crate::args::Spdk;
use crate::figure::{Figure, Unit};
use anyhow::{Context, Result, ensure};
use sandbox::spdk::operations::{Operator, file};
use sandbox::spdk::real::{self, Target};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 1024 * MIB;
const MEMORY_BYTES: u64 = 64 * MIB;
const NQN: &str = "nqn.2026-01.io.metalplane:bench";
/// The second core; targets of the sandbox have the first.
const HOST_CORE: &str = "0x2";
const WORKLOADS: [(&str, &str); 2] = [("RandomRead", "random-read"), ("RandomWrite", "random-write")];
const QUEUE_DEPTHS: [u16; 2] = [32, 128];

struct Site {
    folder: TempDir,
    program: PathBuf,
    operator: Operator,
    seconds: u16,
}

pub async fn measure(options: &Spdk) -> Result<Figures> {
    let cores = std::thread::available_parallelism()?.get();
    ensure!(cores >= 2, "a host and a target need a core each, and there is one");
    let program = real::own_target().map_err(anyhow::Error::msg)?;
    // On a disk: /tmp may be memory.
    let folder = tempfile::Builder::new().prefix("metalplane-bench-").tempdir_in("/var/tmp")?;
    let operator = Operator { program: program.clone(), folder: folder.path().to_owned(), cores: HOST_CORE };
    let site = Site { folder, program, operator, seconds: options.seconds };
    let image = site.image();
    std::fs::File::create(&image)?.set_len(FILE_BYTES)?;
    // A hole is read without the disk.
    site.operator.run(&file("bdev", &image), "bdev", &["--workload=write-pattern", "--io-size=1048576"]).await?;
    let memory = json!({"num_blocks": MEMORY_BYTES / 512, "block_size": 512, "name": "bdev"});
    let memory = json!({"method": "bdev_malloc_create", "params": memory});
    let mut figures = Figures::new();
    for (name, bdev) in [("aio", file("bdev", &image)), ("malloc", memory)] {
        for (named, workload) in WORKLOADS {
            for depth in QUEUE_DEPTHS {
                let (mut ratios, mut directly) = (Vec::new(), Vec::new());
                for _ in 0..options.pairs {
                    let direct = site.operations(&bdev, "bdev", workload, depth).await?;
                    let through = site.through_vfio_user(&bdev, workload, depth).await?;
                    eprintln!("{name} {workload} {depth}: {through:.0} of {direct:.0} per second");
                    ratios.push(through / direct);
                    directly.push(direct);
                }
                let mut keep = |name: String, samples: &[f64]| -> Result<()> {
                    figures.insert(name, Figure::of(Unit::Count, samples).context("there are pairs")?);
                    Ok(())
                };
                keep(format!("{name}{named}{depth}"), &ratios)?;
                keep(format!("{name}{named}{depth}Direct"), &directly)?;
            }
        }
    }
    Ok(figures)
}

impl Site {
    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    async fn operations(&self, method: &Value, bdev: &str, workload: &str, depth: u16) -> Result<f64> {
        let words =
            [format!("--workload={workload}"), format!("--queue-depth={depth}"), format!("--seconds={}", self.seconds)];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(self.operator.run(method, bdev, &words).await?.operations_per_second)
    }

    async fn through_vfio_user(&self, bdev: &Value, workload: &str, depth: u16) -> Result<f64> {
        let folder = tempfile::tempdir_in(self.folder.path())?;
        let mut target = Target::start(&self.program, folder.path()).await?;
        present(target.socket(), bdev, folder.path()).await?;
        let attach = json!({"name": "Host", "trtype": "VFIOUSER", "traddr": folder.path(), "subnqn": NQN});
        let attach = json!({"method": "bdev_nvme_attach_controller", "params": attach});
        let done = self.operations(&attach, "Hostn1", workload, depth).await;
        target.kill().await?;
        done
    }
}

async fn present(target: &Path, bdev: &Value, folder: &Path) -> Result<()> {
    let listen = json!({"trtype": "VFIOUSER", "traddr": folder});
    let method = bdev["method"].as_str().context("a bdev is made by a method")?;
    for (method, params) in [
        (method, bdev["params"].clone()),
        ("nvmf_create_transport", json!({"trtype": "VFIOUSER"})),
        ("nvmf_create_subsystem", json!({"nqn": NQN, "allow_any_host": true, "serial_number": "MPBENCH"})),
        ("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": {"bdev_name": "bdev"}})),
        ("nvmf_subsystem_add_listener", json!({"nqn": NQN, "listen_address": listen})),
    ] {
        real::ask(target, method, params).await.with_context(|| method.to_owned())?;
    }
    Ok(())
}
