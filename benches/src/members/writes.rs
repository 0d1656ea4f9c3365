//! What everybody writes to the API server, by its own counter: with a NIC less without one is what the NIC costs.

use crate::scrape::Counts;
use crate::stage::{PATIENCE, Stage};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt;
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

/// By verb and resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Writes(BTreeMap<String, f64>);

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
        let mut all = BTreeMap::new();
        for (labels, count) in Counts::of(COUNTER, metrics).0 {
            let labels: Vec<&str> = labels.split(',').collect();
            let has = |wanted: &[&str]| labels.iter().any(|label| wanted.contains(label));
            if has(&VERBS) && !has(&NOT_OF_A_POD) {
                let told = |name: &str| labels.iter().find_map(|label| label.strip_prefix(name)).unwrap_or_default();
                let name = format!("{} {}/{}", told("verb="), told("resource="), told("subresource="));
                *all.entry(name.trim_end_matches('/').to_owned()).or_default() += count;
            }
        }
        Self(all)
    }

    /// What was written since then.
    pub(super) fn since(&self, before: &Self) -> Self {
        let less =
            |(name, count): (&String, &f64)| (name.clone(), count - before.0.get(name).copied().unwrap_or_default());
        Self(self.0.iter().map(less).filter(|(_, count)| *count > 0.0).collect())
    }

    /// Of Events, or of everything else.
    pub(super) fn total(&self, of_events: bool) -> f64 {
        self.0.iter().filter(|(name, _)| name.ends_with(" events") == of_events).map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<String> = self.0.iter().map(|(name, count)| format!("{count} {name}")).collect();
        f.write_str(&rows.join(", "))
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
        assert_eq!((counted.total(false), counted.total(true)), (5.0, 7.0), "{counted}");
        let none = counted.since(&counted);
        assert_eq!(none.to_string(), "");
    }
}
