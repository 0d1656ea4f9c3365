//! Shows a machine's conditions as they change, until it runs, or is gone.

use super::{BOOT_LIMIT, Story};
use crate::site::{Site, until};
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    Runs,
    /// And its DPU has seen its guest answer.
    Answers,
}

pub(super) async fn machine(story: &Story, site: &Site, name: &str, wanted: Until) -> Result<()> {
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    let what = match wanted {
        Until::Runs => format!("{name} runs"),
        Until::Answers => format!("{name} runs and its guest answers"),
    };
    until(&what, BOOT_LIMIT, async || {
        let machine = site.get(&["bmm", name]).await?.unwrap_or_default();
        let status = &machine["status"];
        let mut waiting = "not seen by the controller yet".to_owned();
        let (mut running, mut reachable) = (status["state"] == "Running", wanted == Until::Runs);
        for condition in status["conditions"].as_array().into_iter().flatten() {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            let line = format!("{:16} {:8} {}", text("type"), text("status"), text("reason"));
            if shown.insert(text("type"), line.clone()) != Some(line.clone()) {
                story.say(&format!("    {line}"));
            }
            match text("type").as_str() {
                "GuestReachable" => reachable |= text("status") == "True",
                "Ready" => {
                    running &= text("status") == "True";
                    waiting = format!("{}: {}", text("reason"), text("message"));
                }
                _ => {}
            }
        }
        Ok(if running && reachable { Ok(()) } else { Err(waiting) })
    })
    .await
}

/// What it says of one of its conditions.
pub(super) fn condition<'a>(machine: &'a Value, type_: &str) -> &'a Value {
    let mut all = machine["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

/// Its deletion was asked for; what it waits for is shown.
pub(super) async fn until_gone(story: &Story, site: &Site, name: &str) -> Result<()> {
    let mut shown = String::new();
    until(&format!("{name} is gone"), BOOT_LIMIT, async || {
        let Some(machine) = site.get(&["bmm", name]).await? else { return Ok(Ok(())) };
        let ready = condition(&machine, "Ready");
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        let (reason, message) = (text("reason"), text("message"));
        if shown != reason {
            story.say(&format!("    {reason}: {message}"));
            shown.clone_from(&reason);
        }
        Ok(Err(format!("{reason}: {message}")))
    })
    .await
}
