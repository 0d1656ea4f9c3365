//! `bmctl timeline`: the steps of the last start, with their lengths.

use crate::args::Form;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::structured;
use crate::table::Table;
use api::machine::TimelineEntry;

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
    }
    table.render()
}
