//! The controller's metrics, as it serves them, and pages of other programs of ours.

use crate::stage::Story;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Of the controller to the API server, by method and resource; and of its work, by kind.
pub const REQUESTS: &str = "rest_client_requests_total";
pub const RECONCILES: &str = "controller_runtime_reconcile_total";
/// How many rows of a counter are shown.
const ROWS: usize = 20;

/// As lines.
pub async fn metrics(at: SocketAddr) -> Result<String> {
    get(at, "/metrics").await.context("the controller's metrics")
}

/// A page of a program of ours, with its head.
pub async fn get(at: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(at).await.context("connect")?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    ensure!(text.starts_with("HTTP/1.1 200"), "{path}: {}", text.lines().next().unwrap_or(""));
    Ok(text)
}

/// A counter of the controller's metrics, by its labels.
pub struct Counts(pub BTreeMap<String, f64>);

impl Counts {
    pub fn of(counter: &str, metrics: &str) -> Self {
        let lines = metrics.lines().filter_map(|line| line.strip_prefix(counter)?.strip_prefix('{'));
        let mut all = BTreeMap::new();
        for (labels, count) in lines.filter_map(|line| line.rsplit_once("} ")) {
            *all.entry(labels.replace('"', "")).or_default() += count.parse::<f64>().unwrap_or_default();
        }
        Self(all)
    }

    /// What was added since.
    pub fn since(self, before: &Self) -> Self {
        let less = |(labels, count): (String, f64)| {
            let count = count - before.0.get(&labels).copied().unwrap_or_default();
            (labels, count)
        };
        Self(self.0.into_iter().map(less).filter(|(_, count)| *count > 0.0).collect())
    }

    pub fn total(&self) -> f64 {
        self.0.values().sum()
    }

    /// Of labels that are so.
    pub fn only(&self, is_so: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|(all, _)| is_so(all)).map(|(all, count)| (all.clone(), *count)).collect())
    }

    /// The greatest of them, divided among so many.
    pub fn show(&self, story: &Story, what: &str, among: f64) {
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_by(|a, b| b.1.total_cmp(a.1));
        story.say(&format!("{:.1} {what}", self.total() / among));
        for (labels, count) in rows.into_iter().take(ROWS) {
            story.say(&format!("    {:6.2} {labels}", count / among));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_read_since_a_moment() {
        let before =
            Counts::of(REQUESTS, "rest_client_requests_total{method=\"GET\",resource=\"pods\",code=\"200\"} 3\n");
        let text = "# TYPE x counter\nrest_client_requests_total{method=\"GET\",resource=\"pods\",code=\"200\"} 5\n\
                    rest_client_requests_total{method=\"PUT\",resource=\"holds\",code=\"409\"} 1\nother 9\n";
        let since = Counts::of(REQUESTS, text).since(&before);
        assert_eq!((since.total(), since.0.len()), (3.0, 2));
        assert_eq!(since.0["method=GET,resource=pods,code=200"], 2.0);
    }
}
