//! Numbers for Prometheus, in OpenMetrics, on the address that `--metrics` names; docs/operator/monitoring.md explains
//! each. Without the flag nothing is served: an agent has its DPU's network, where anybody may listen in.

mod disks;

use crate::serve::View;
use anyhow::Context;
use disks::Disks;
use planner::agent::{Observed, Step};
use ports::emulation::DiskStatistics;
use ports::{Emulation, PortError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use runtime::http::{self, Page};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Prometheus waits 10 s by default.
const STATISTICS: Duration = Duration::from_secs(5);
const SUCCESS: &str = "success";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Taken {
    step: String,
    /// `success`, or the class of the error.
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Renewed {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Part {
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attached {
    kind: &'static str,
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Version {
    version: &'static str,
}

pub(crate) struct Metrics {
    registry: Registry,
    steps: Family<Taken, Counter>,
    rounds: Histogram,
    renewals: Family<Renewed, Counter>,
    parts: Family<Part, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            steps: Family::default(),
            rounds: Histogram::new([0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0]),
            renewals: Family::default(),
            parts: Family::default(),
        };
        let r = &mut metrics.registry;
        r.register("metalplane_agent_steps", "Steps taken for attachments, by result", metrics.steps.clone());
        r.register("metalplane_agent_round_seconds", "How long rounds took", metrics.rounds.clone());
        r.register("metalplane_agent_lease_renewals", "Renewals of the Lease by result", metrics.renewals.clone());
        r.register("metalplane_agent_part_readable", "1: that part of the DPU could be read", metrics.parts.clone());
        let info = Family::<Version, Gauge>::default();
        info.get_or_create(&Version { version: runtime::version::VERSION }).set(1);
        r.register("metalplane_agent", "The agent's version", info);
        metrics
    }
}

impl Metrics {
    pub(crate) fn took(&self, step: &Step, result: &Result<(), PortError>) {
        let result = result.as_ref().err().map_or(SUCCESS, |error| error.class.as_str());
        self.steps.get_or_create(&Taken { step: format!("{:?}", step.kind()), result }).inc();
    }

    pub(crate) fn renewed<T>(&self, result: &Result<T, PortError>) {
        let result = result.as_ref().err().map_or(SUCCESS, |error| error.class.as_str());
        self.renewals.get_or_create(&Renewed { result }).inc();
    }

    pub(crate) fn round(&self, took: Duration, observed: &Observed) {
        self.rounds.observe(took.as_secs_f64());
        let connected = observed.connections.values().all(|seen| seen.fresh().is_some());
        for (part, readable) in [
            ("emulation", observed.exposures.fresh().is_some()),
            ("connectors", connected),
            ("switch", observed.ports.fresh().is_some()),
        ] {
            self.parts.get_or_create(&Part { part }).set(readable.into());
        }
    }

    fn text(&self, view: &View, disks: Vec<DiskStatistics>) -> Result<String, fmt::Error> {
        let attached = Family::<Attached, Gauge>::default();
        for (kind, phase) in view.phases() {
            attached.get_or_create(&Attached { kind, phase }).inc();
        }
        let mut now = Registry::default();
        now.register("metalplane_agent_attachments", "Attachments of this DPU by phase", attached);
        now.register_collector(Box::new(Disks(disks)));
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &now)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// For ever; without an address nothing is served.
pub(crate) async fn serve(
    address: Option<SocketAddr>,
    metrics: Arc<Metrics>,
    view: Arc<View>,
    emulation: Arc<dyn Emulation>,
) -> anyhow::Result<()> {
    let Some(address) = address else { return std::future::pending().await };
    let page = move |path: String| {
        let (metrics, view, emulation) = (metrics.clone(), view.clone(), emulation.clone());
        async move {
            if path != "/metrics" {
                return Page::not_found("/metrics");
            }
            // A scrape tells the rest while the disks' numbers cannot be had.
            let disks = tokio::time::timeout(STATISTICS, emulation.statistics()).await;
            let disks = disks.ok().and_then(Result::ok).unwrap_or_default();
            // Writing to a text cannot fail.
            Page::metrics(metrics.text(&view, disks).unwrap_or_default())
        }
    };
    let never = http::serve(address, page).await.with_context(|| format!("serve on {address}"))?;
    match never {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::agent::Exposures;
    use planner::exposure::ExposureId;
    use planner::seen::Seen;
    use ports::ErrorClass;
    use ports::emulation::Traffic;

    #[test]
    fn a_scrape_has_what_was_counted() {
        let metrics = Metrics::default();
        let id = ExposureId { uid: "u".to_owned(), epoch: 1 };
        metrics.took(&Step::Unplug { id: id.clone() }, &Ok(()));
        metrics.took(&Step::Unplug { id }, &Err(PortError::new(ErrorClass::Busy, "not now")));
        metrics.renewed(&Ok(()));
        let nothing = Seen::Fresh(Vec::new());
        let observed = Observed { exposures: Exposures::new(&nothing, &nothing), ..Observed::default() };
        metrics.round(Duration::from_millis(2), &observed);
        let disk = DiskStatistics {
            id: ExposureId { uid: "d".to_owned(), epoch: 2 },
            read: Traffic { operations: 5, bytes: 2560, busy: Duration::from_millis(4) },
            written: Traffic { operations: 3, bytes: 1536, busy: Duration::from_millis(1) },
            latencies: Some([4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3]),
        };
        let text = metrics.text(&View::new("dpu-1", "boot-1"), vec![disk]).expect("text");
        for line in [
            "metalplane_agent_steps_total{step=\"Unplug\",result=\"success\"} 1",
            "metalplane_agent_steps_total{step=\"Unplug\",result=\"Busy\"} 1",
            "metalplane_agent_lease_renewals_total{result=\"success\"} 1",
            "metalplane_agent_part_readable{part=\"emulation\"} 1",
            "metalplane_agent_part_readable{part=\"switch\"} 0",
            "metalplane_agent_round_seconds_count 1",
            "metalplane_agent_disk_operations_total{attachment=\"d\",direction=\"read\"} 5",
            "metalplane_agent_disk_bytes_total{attachment=\"d\",direction=\"write\"} 1536",
            "metalplane_agent_disk_latency_seconds_sum{attachment=\"d\"} 0.005",
            "metalplane_agent_disk_latency_seconds_count{attachment=\"d\"} 8",
            "metalplane_agent_disk_latency_seconds_bucket{le=\"0.001\",attachment=\"d\"} 5",
            "metalplane_agent_disk_latency_seconds_bucket{le=\"+Inf\",attachment=\"d\"} 8",
        ] {
            assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
        }
    }
}
