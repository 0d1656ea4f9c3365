//! Our share of a start, from the machine's timeline.
//!
//! *Ours* = (apply → power-on sent) + (the guest's first packet → `GuestReachable`); the rest is firmware and guest.

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

/// One start, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    pub apply_to_power_on_sent: i64,
    pub first_packet_to_guest_reachable: i64,
    /// Each step that has ended, by its time after the apply.
    pub steps: Vec<(String, i64)>,
}

impl Shares {
    pub fn of(machine: &Value, applied: Timestamp) -> Result<Self> {
        let timeline = machine["status"]["timeline"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ended = |entry: &Value| -> Option<(String, Timestamp)> {
            let at = entry["finishedAt"].as_str()?.parse().ok()?;
            Some((entry["step"].as_str()?.to_owned(), at))
        };
        let ended: Vec<(String, Timestamp)> = timeline.iter().filter_map(ended).collect();
        let at = |step: &str| -> Result<Timestamp> {
            let found = ended.iter().rev().find(|(name, _)| name == step);
            Ok(found.with_context(|| format!("the timeline has no finished step {step}: {timeline:?}"))?.1)
        };
        Ok(Self {
            apply_to_power_on_sent: milliseconds(applied, at("PowerOnSent")?),
            first_packet_to_guest_reachable: milliseconds(at("FirstPacket")?, at("GuestReachable")?),
            steps: ended.iter().map(|(step, at)| (step.clone(), milliseconds(applied, *at))).collect(),
        })
    }

    pub fn ours(&self) -> i64 {
        self.apply_to_power_on_sent + self.first_packet_to_guest_reachable
    }

    /// When a step had ended.
    pub fn step(&self, name: &str) -> Option<i64> {
        self.steps.iter().rev().find(|(step, _)| step == name).map(|(_, at)| *at)
    }
}

/// One cold migration, in milliseconds. *Ours* is what the guest's shutdown, its firmware and its start do not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    pub all: i64,
    pub asked_to_power_off_sent: i64,
    pub off_to_power_on_sent: i64,
    pub first_packet_to_end: i64,
}

impl Move {
    /// `machine`: as it is when the migration has ended.
    pub fn of(migration: &Value, machine: &Value, asked: Timestamp) -> Result<Self> {
        let at = |value: &Value| -> Result<Timestamp> {
            let text = value.as_str().with_context(|| format!("a time is missing: {migration}"))?;
            text.parse().with_context(|| format!("{text} is no time"))
        };
        let timeline = machine["status"]["timeline"].as_array().map(Vec::as_slice).unwrap_or_default();
        let first = timeline.iter().find(|entry| entry["step"] == "FirstPacket");
        let first = at(&first.context("no first packet in the timeline")?["finishedAt"])?;
        let status = &migration["status"];
        let end = at(&status["finishedAt"])?;
        Ok(Self {
            all: milliseconds(asked, end),
            asked_to_power_off_sent: milliseconds(asked, at(&status["powerOffSentAt"])?),
            off_to_power_on_sent: milliseconds(at(&status["poweredOffAt"])?, at(&status["powerOnSentAt"])?),
            first_packet_to_end: milliseconds(first, end),
        })
    }

    pub fn ours(&self) -> i64 {
        self.asked_to_power_off_sent + self.off_to_power_on_sent + self.first_packet_to_end
    }
}

pub fn milliseconds(from: Timestamp, to: Timestamp) -> i64 {
    i64::try_from(to.duration_since(from).as_millis()).unwrap_or_default().max(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_move_the_shutdown_and_the_start_are_the_guests() {
        let at = |second: &str| format!("2026-01-01T10:00:{second}Z");
        let status = json!({"powerOffSentAt": at("01"), "poweredOffAt": at("05"), "powerOnSentAt": at("07"), "finishedAt": at("30")});
        let machine = json!({"status": {"timeline": [{"step": "FirstPacket", "finishedAt": at("29.5")}]}});
        let share =
            Move::of(&json!({"status": status}), &machine, at("00").parse().expect("a time")).expect("complete");
        assert_eq!((share.ours(), share.all), (1000 + 2000 + 500, 30_000));
        let missing = Move::of(&json!({}), &machine, at("00").parse().expect("a time")).expect_err("nothing is known");
        assert!(missing.to_string().contains("a time is missing"), "{missing}");
    }

    #[test]
    fn ours_is_what_the_firmware_and_the_guest_do_not_take() {
        let entry =
            |step: &str, second: &str| json!({"step": step, "finishedAt": format!("2026-01-01T10:00:{second}Z")});
        let machine = json!({"status": {"timeline": [
            entry("VolumesReady", "00.500"),
            entry("PowerOnSent", "01.250"),
            entry("FirstPacket", "11.000"),
            entry("GuestReachable", "11.100"),
            {"step": "PoweredOn"},
        ]}});
        let applied = "2026-01-01T10:00:00Z".parse().expect("a time");
        let shares = Shares::of(&machine, applied).expect("all steps are there");
        assert_eq!((shares.ours(), shares.step("VolumesReady"), shares.steps.len()), (1350, Some(500), 4));
        let error = Shares::of(&json!({}), applied).expect_err("no timeline");
        assert!(error.to_string().contains("PowerOnSent"), "{error}");
    }
}
