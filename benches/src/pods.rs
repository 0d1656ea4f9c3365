//! What our plugin adds to the start and the end of a pod that asks for nothing: the process itself, from its start to its answer, behind
//! a recorded answer of ptp, while no agent of ours runs. By turns with a program that does nothing, which is what any plugin costs.
//! And what it is on a node where nobody has started it for long: its size, and a start for which all of it is read from the disk.

use crate::Figures;
use crate::args::Pods;
use crate::figure::{Figure, Unit};
use anyhow::{Context, Result, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Names the plugin's program, as it ships.
const PLUGIN: &str = "METALPLANE_BENCH_PLUGIN";
const VERBS: [(&str, &str); 3] = [("ADD", "quietAdd"), ("CHECK", "quietCheck"), ("DEL", "quietDelete")];

/// As containerd hands it over, for a pod with annotations of somebody else.
fn config(folder: &Path) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "metalplane",
        "capabilities": {"io.kubernetes.cri.pod-annotations": true},
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "api"}},
        "socket": folder.join("agent.sock"), "stateDirectory": folder.join("state"),
        "prevResult": {
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "veth7d2c1f03", "mac": "fe:1c:26:07:bb:4e"},
                {"name": "eth0", "mac": "f2:05:2e:80:c1:5a", "sandbox": "/run/netns/pod"},
            ],
            "ips": [{"address": "10.244.1.7/32", "gateway": "10.244.1.1", "interface": 1}],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dns": {},
        },
    })
}

pub fn measure(options: &Pods) -> Result<Figures> {
    let plugin =
        std::env::var(PLUGIN).with_context(|| format!("{PLUGIN} names the plugin: `cargo xtask bench pods`"))?;
    let folder = tempfile::tempdir().context("make a folder for the plugin's state")?;
    let stdin = config(folder.path()).to_string();
    let mut samples: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..options.times {
        samples.entry("process").or_default().push(timed(&mut Command::new("true"), "")?);
        for (verb, figure) in VERBS {
            let took = timed(&mut call(&plugin, verb), &stdin).with_context(|| format!("the plugin's {verb}"))?;
            samples.entry(figure).or_default().push(took);
        }
    }
    for _ in 0..options.cold {
        forget(Path::new(&plugin))?;
        let took = timed(&mut call(&plugin, "ADD"), &stdin).context("the plugin's ADD, from the disk")?;
        samples.entry("coldAdd").or_default().push(took);
    }
    let size = std::fs::metadata(&plugin).with_context(|| format!("measure {plugin}"))?.len();
    let mut figures = Figures::new();
    figures.insert("size".to_owned(), Figure::one(Unit::Mebibytes, size as f64 / f64::from(1 << 20)));
    for (name, times) in samples {
        figures.insert(name.to_owned(), Figure::of(Unit::Milliseconds, &times).context("it was measured")?);
    }
    Ok(figures)
}

fn call(plugin: &str, verb: &str) -> Command {
    let mut call = Command::new(plugin);
    call.env_clear().env("CNI_COMMAND", verb).env("CNI_CONTAINERID", "c").env("CNI_IFNAME", "eth0");
    call.env("CNI_NETNS", "/run/netns/pod").env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b");
    call
}

/// What the kernel has of a file in memory; it keeps what is not on the disk yet, and what runs.
fn forget(file: &Path) -> Result<()> {
    let open = File::open(file).with_context(|| format!("open {}", file.display()))?;
    open.sync_all().with_context(|| format!("write {} to the disk", file.display()))?;
    posix_fadvise(&open, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).context("take a file out of the page cache")
}

/// Milliseconds from before its start until it has ended, well.
fn timed(command: &mut Command, stdin: &str) -> Result<f64> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
    // Who does not read has ended.
    drop(child.stdin.take().context("its input")?.write_all(stdin.as_bytes()));
    let output = child.wait_with_output().context("wait for it")?;
    let took = began.elapsed().as_secs_f64() * 1000.0;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stdout));
    Ok(took)
}
