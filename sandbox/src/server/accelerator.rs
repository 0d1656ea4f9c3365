//! Which accelerator QEMU gets. KVM only counts if a guest of ours reaches its first program with it: on some
//! machines `/dev/kvm` is there and no stock kernel boots on it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::config::{Accelerator, Config};
use crate::guest;

const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// What the tiny guest's first program prints when its kernel was told `mp.probe`.
const MARKER: &str = "MP-PROBE-OK";

/// The word for QEMU's `-accel`. Never fails: emulation always works.
pub async fn choose(config: &Config, cache: &Path) -> &'static str {
    if config.accelerator == Accelerator::Tcg || !Path::new("/dev/kvm").exists() {
        return "tcg";
    }
    match remembered_or_probed(&config.qemu, cache).await {
        Ok(true) => "kvm",
        Ok(false) => "tcg",
        Err(error) => {
            tracing::warn!("cannot try KVM, so emulation it is: {error:#}");
            "tcg"
        }
    }
}

/// One probe per start of this machine; the answer is kept in the cache under the machine's boot id.
async fn remembered_or_probed(qemu: &Path, cache: &Path) -> Result<bool> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read this machine's boot id")?;
    let memory = cache.join(format!("kvm-probe-{}", boot.trim()));
    if let Ok(answer) = std::fs::read_to_string(&memory) {
        return Ok(answer.trim() == "works");
    }
    let works = probe(qemu, cache).await?;
    std::fs::write(&memory, if works { "works" } else { "fails" })
        .with_context(|| format!("write {}", memory.display()))?;
    tracing::info!("KVM {} on this machine", if works { "works" } else { "does not work" });
    Ok(works)
}

async fn probe(qemu: &Path, cache: &Path) -> Result<bool> {
    let cache = cache.to_owned();
    let build = tokio::task::spawn_blocking(move || guest::boot_files(&cache));
    let files = build.await.context("the builder ended early")??;
    let machine = "-nodefaults -no-user-config -display none -no-reboot -machine q35 -accel kvm -m 256 -serial stdio";
    let mut command = Command::new(qemu);
    command.args(machine.split(' ')).arg("-kernel").arg(files.kernel).arg("-initrd").arg(files.initramfs);
    command.args(["-append", "console=ttyS0 mp.probe"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().context("start QEMU")?;
    let output = child.stdout.take().context("QEMU's output is piped")?;
    let seen = timeout(PROBE_WITHIN, says(output, MARKER)).await.unwrap_or(false);
    child.kill().await.context("end QEMU")?;
    Ok(seen)
}

/// Whether the marker comes before the output ends.
async fn says(output: impl tokio::io::AsyncRead + Unpin, marker: &str) -> bool {
    let mut output = BufReader::new(output);
    let mut said = String::new();
    let mut block = [0; 4096];
    while let Ok(read @ 1..) = output.read(&mut block).await {
        said.push_str(&String::from_utf8_lossy(&block[..read]));
        if said.contains(marker) {
            return true;
        }
    }
    false
}
