//! The figures of one run: each step's milliseconds and our share, in `target/demo/report.json`.

use super::Story;
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::path::PathBuf;

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/demo/report.json"))
}

/// Ours = (apply → power-on sent) + (the guest's first packet → GuestReachable); the rest is firmware and guest.
pub(super) fn write(story: &Story, machine: &Value, applied: Timestamp, answered: Timestamp) -> Result<()> {
    let timeline = machine["status"]["timeline"].as_array().cloned().unwrap_or_default();
    let finished = |step: &str| -> Result<Timestamp> {
        let entry = timeline.iter().rev().find(|entry| entry["step"] == step);
        let at = entry.and_then(|entry| entry["finishedAt"].as_str());
        let at = at.with_context(|| format!("the timeline has no finished step {step}: {timeline:?}"))?;
        at.parse().with_context(|| format!("the time of {step}"))
    };
    let milliseconds = |from: Timestamp, to: Timestamp| (to.duration_since(from).as_millis() as i64).max(0);
    let before_power = milliseconds(applied, finished("PowerOnSent")?);
    let after_packet = milliseconds(finished("FirstPacket")?, finished("GuestReachable")?);
    let total = milliseconds(applied, answered);
    let ours = before_power + after_packet;
    let steps: Vec<Value> = timeline
        .iter()
        .filter_map(|entry| {
            let at: Timestamp = entry["finishedAt"].as_str()?.parse().ok()?;
            Some(json!({"step": entry["step"], "millisecondsAfterApply": milliseconds(applied, at)}))
        })
        .collect();
    let report = json!({
        "applied": applied.to_string(), "answeredPing": answered.to_string(),
        "totalMilliseconds": total, "oursMilliseconds": ours,
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
