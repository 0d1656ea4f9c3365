//! The figures of one run: each step's milliseconds and our share, in `target/demo/report.json`.

use super::Story;
use crate::shares::{Shares, milliseconds};
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::path::PathBuf;

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/demo/report.json"))
}

pub(super) fn write(story: &Story, machine: &Value, applied: Timestamp, answered: Timestamp) -> Result<()> {
    let shares = Shares::of(machine, applied)?;
    let (before_power, after_packet) = (shares.apply_to_power_on_sent, shares.first_packet_to_guest_reachable);
    let total = milliseconds(applied, answered);
    let step = |(step, at): &(String, i64)| json!({"step": step, "millisecondsAfterApply": at});
    let steps: Vec<Value> = shares.steps.iter().map(step).collect();
    let report = json!({
        "applied": applied.to_string(), "answeredPing": answered.to_string(),
        "totalMilliseconds": total, "oursMilliseconds": shares.ours(),
        "applyToPowerOnSentMilliseconds": before_power, "firstPacketToGuestReachableMilliseconds": after_packet,
        "steps": steps,
    });
    let path = path();
    std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    std::fs::write(&path, serde_json::to_vec_pretty(&report)?).with_context(|| format!("write {}", path.display()))?;
    story.say(&format!(
        "ours: {before_power} ms from apply to power-on, {after_packet} ms from the first packet to GuestReachable"
    ));
    Ok(())
}

/// The demo's last line.
pub(super) fn last_line() -> Result<()> {
    let report: Value = serde_json::from_slice(&std::fs::read(path())?)?;
    let seconds = |field: &str| report[field].as_f64().unwrap_or_default() / 1000.0;
    println!("demo: ok apply→ping {:.1}s (ours {:.1}s)", seconds("totalMilliseconds"), seconds("oursMilliseconds"));
    Ok(())
}
