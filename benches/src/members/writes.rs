//! What everybody writes to the API server, by its own counter: with a NIC less without one is what the NIC costs.

use crate::scrape::Counts;
use crate::stage::{PATIENCE, Stage};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

const COUNTER: &str = "apiserver_request_total";
const VERBS: [&str; 5] = ["verb=POST", "verb=PUT", "verb=PATCH", "verb=APPLY", "verb=DELETE"];
/// What is written whether or not a pod starts, and what asks rather than writes.
const NOT_OF_A_POD: [&str; 6] = [
    "resource=leases",
    "resource=nodes",
    "resource=tokenreviews",
    "resource=subjectaccessreviews",
    "resource=selfsubjectaccessreviews",
    "subresource=token",
];
/// At rest: nothing was written for so long.
const REST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq)]
pub(super) struct Writes {
    pub(super) objects: f64,
    pub(super) events: f64,
}

impl Writes {
    /// Once nothing is written any more.
    pub(super) async fn at_rest(stage: &Stage) -> Result<Self> {
        let began = Instant::now();
        let mut last = Self::now(stage).await?;
        while began.elapsed() < PATIENCE {
            tokio::time::sleep(REST).await;
            let now = Self::now(stage).await?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
        bail!("something is written to the API server all the time, after {} s too", PATIENCE.as_secs())
    }

    async fn now(stage: &Stage) -> Result<Self> {
        let page = http::Request::get("/metrics").body(Vec::new())?;
        let text = stage.client.request_text(page).await.context("the API server's metrics")?;
        Ok(Self::of(&text))
    }

    fn of(metrics: &str) -> Self {
        let has = |labels: &str, wanted: &[&str]| labels.split(',').any(|label| wanted.contains(&label));
        let writes = Counts::of(COUNTER, metrics).only(|labels| has(labels, &VERBS) && !has(labels, &NOT_OF_A_POD));
        let events = writes.only(|labels| has(labels, &["resource=events"])).total();
        Self { objects: writes.total() - events, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_leases_are_no_writes_and_events_are_counted_apart() {
        let line = |group: &str, resource: &str, verb: &str, count: u8| {
            format!(
                "{COUNTER}{{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"{group}\",resource=\"{resource}\",\
                 scope=\"resource\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}} {count}\n"
            )
        };
        let lines = [
            line("metalplane.io", "vnics", "POST", 2),
            line("metalplane.io", "vnics", "GET", 40),
            line("", "pods", "PATCH", 3),
            line("events.k8s.io", "events", "POST", 7),
            line("coordination.k8s.io", "leases", "PUT", 100),
        ];
        let counted = Writes::of(&lines.concat());
        assert!(counted == Writes { objects: 5.0, events: 7.0 }, "{} and {}", counted.objects, counted.events);
    }
}
