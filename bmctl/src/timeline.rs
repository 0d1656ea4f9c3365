//! `bmctl timeline`: the steps of the last start, with their lengths; and of an installation its actions, below it.

use crate::args::Form;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::structured;
use crate::table::Table;
use api::machine::{TimelineAction, TimelineEntry};
use jiff::{SignedDuration, Timestamp};

pub async fn run(cluster: &Cluster, machine: &str, output: Option<Form>) -> Result<String, Failure> {
    let timeline = cluster.machine(machine).await?.status.map(|s| s.timeline).unwrap_or_default();
    match output {
        Some(form) => Ok(structured(form.into(), &timeline)?),
        _ => Ok(table(&timeline)),
    }
}

fn table(timeline: &[TimelineEntry]) -> String {
    let begin = timeline.iter().filter_map(|e| e.started_at.as_ref().or(e.finished_at.as_ref())).map(|t| t.0).min();
    let mut table = Table::new(&["STEP", "AFTER", "TOOK"]);
    for entry in timeline {
        let started = entry.started_at.as_ref().map(|t| t.0);
        let finished = entry.finished_at.as_ref().map(|t| t.0);
        let after = finished.or(started).zip(begin).map(|(at, begin)| at.duration_since(begin).as_millis());
        let took = finished.zip(started).map(|(f, s)| f.duration_since(s).as_millis());
        let milliseconds = |value: Option<i128>| value.map(|ms| format!("{ms} ms")).unwrap_or_default();
        table.row(vec![entry.step.clone(), milliseconds(after), milliseconds(took)]);
        for action in &entry.actions {
            let after = until(action).zip(begin).map(|(at, begin)| at.duration_since(begin).as_millis());
            let took = action.seconds.map_or_else(|| action.state.clone(), |seconds| format!("{seconds} s"));
            let failed = !matches!(action.state.as_str(), "SUCCESS" | "RUNNING");
            let state = if failed { format!(" {}", action.state) } else { String::new() };
            table.row(vec![format!("  {}{state}", action.name), milliseconds(after), took]);
        }
    }
    table.render()
}

/// When an action ended, or began that has not.
fn until(action: &TimelineAction) -> Option<Timestamp> {
    let took = SignedDuration::from_secs(action.seconds.unwrap_or_default());
    action.started_at.as_ref()?.0.checked_add(took).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn actions_stand_below_the_installation_with_their_seconds() {
        let at = |seconds: u32| format!("2026-01-01T00:00:{seconds:02}.000000Z");
        let timeline: Vec<TimelineEntry> = serde_json::from_value(json!([
            {"step": "HardwareClaimed", "startedAt": at(0), "finishedAt": at(1)},
            {"step": "Installed", "startedAt": at(1), "actions": [
                {"name": "look", "state": "SUCCESS", "startedAt": at(20), "seconds": 2},
                {"name": "image", "state": "TIMEOUT", "startedAt": at(23), "seconds": 9},
                {"name": "restart", "state": "RUNNING", "startedAt": at(40)},
            ]},
        ]))
        .expect("a timeline");
        assert_eq!(
            table(&timeline),
            "STEP              AFTER      TOOK\n\
             HardwareClaimed   1000 ms    1000 ms\n\
             Installed         1000 ms    <none>\n  \
               look            22000 ms   2 s\n  \
               image TIMEOUT   32000 ms   9 s\n  \
               restart         40000 ms   RUNNING\n"
        );
    }
}
