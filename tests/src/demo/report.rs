//! The figures of one run, in `target/demo/report.json`: each step of a start in milliseconds and our share, and what the network takes.

use super::Story;
use crate::shares::{Shares, milliseconds};
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Milliseconds by name: of a rule, a VNic with `nodeName`, a NIC and a pod.
const NETWORK: &str = "networkMilliseconds";

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/demo/report.json"))
}

fn read() -> Result<Value> {
    let path = path();
    let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
}

fn save(report: &Value) -> Result<()> {
    let path = path();
    std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    std::fs::write(&path, serde_json::to_vec_pretty(report)?).with_context(|| format!("write {}", path.display()))
}

/// What an earlier run has left is none of this one's.
pub(super) fn begin() -> Result<()> {
    save(&json!({}))
}

pub(super) fn start(story: &Story, machine: &Value, applied: Timestamp, answered: Timestamp) -> Result<()> {
    let shares = Shares::of(machine, applied)?;
    let (before_power, after_packet) = (shares.apply_to_power_on_sent, shares.first_packet_to_guest_reachable);
    let step = |(step, at): &(String, i64)| json!({"step": step, "millisecondsAfterApply": at});
    let steps: Vec<Value> = shares.steps.iter().map(step).collect();
    let mut report = read()?;
    report["applied"] = json!(applied.to_string());
    report["answeredPing"] = json!(answered.to_string());
    report["totalMilliseconds"] = json!(milliseconds(applied, answered));
    report["oursMilliseconds"] = json!(shares.ours());
    report["applyToPowerOnSentMilliseconds"] = json!(before_power);
    report["firstPacketToGuestReachableMilliseconds"] = json!(after_packet);
    report["steps"] = json!(steps);
    save(&report)?;
    story.say(&format!(
        "ours: {before_power} ms from apply to power-on, {after_packet} ms from the first packet to GuestReachable"
    ));
    Ok(())
}

/// One figure of the network; its milliseconds.
pub(super) fn network(what: &str, took: Duration) -> Result<u64> {
    let took = u64::try_from(took.as_millis()).context("it took longer than there are milliseconds")?;
    let mut report = read()?;
    report[NETWORK][what] = json!(took);
    save(&report)?;
    Ok(took)
}

/// The demo's last lines; `has_machine`: a machine's start was measured.
pub(super) fn last_lines(has_machine: bool) -> Result<()> {
    let report = read()?;
    let figures = report[NETWORK].as_object().into_iter().flatten();
    let figures: Vec<String> = figures.map(|(what, took)| format!("{what} {took} ms")).collect();
    if !figures.is_empty() {
        println!("network: {}", figures.join(", "));
    }
    let seconds = |field: &str| report[field].as_f64().unwrap_or_default() / 1000.0;
    match has_machine {
        true => {
            println!(
                "demo: ok apply→ping {:.1}s (ours {:.1}s)",
                seconds("totalMilliseconds"),
                seconds("oursMilliseconds")
            );
        }
        false => println!("demo: ok"),
    }
    Ok(())
}
