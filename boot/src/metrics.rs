//! Numbers for Prometheus, in OpenMetrics, on the address that `--metrics` names; docs/operator/monitoring.md explains each. Without the
//! flag nothing is served.

use crate::identity::Identity;
use crate::world::World;
use anyhow::Context;
use api::report::{AgentRefusedReason, NetbootStage};
use planner::netboot::report::Sight;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use runtime::http::{self, Page};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Seen {
    what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct About {
    version: &'static str,
    agents: String,
}

#[derive(Default)]
pub struct Metrics {
    seen: Family<Seen, Counter>,
    dropped: Counter,
}

impl Metrics {
    pub fn saw(&self, sight: &Sight) {
        self.seen.get_or_create(&Seen { what: what(sight) }).inc();
    }

    /// More was seen at once than is written down.
    pub fn dropped(&self) {
        self.dropped.inc();
    }

    fn text(&self, states: impl Iterator<Item = String>, identity: &Identity) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        let (workflows, about) = (Family::<State, Gauge>::default(), Family::<About, Gauge>::default());
        for state in states {
            workflows.get_or_create(&State { state }).inc();
        }
        about.get_or_create(&About { version: runtime::version::VERSION, agents: format!("{identity:?}") }).set(1);
        registry.register("metalplane_boot_seen", "What was seen of servers", self.seen.clone());
        registry.register("metalplane_boot_seen_dropped", "What was seen and not written down", self.dropped.clone());
        registry.register("metalplane_boot_workflows", "Workflows by state", workflows);
        registry.register("metalplane_boot", "The version, and how agents are known", about);
        let mut text = String::new();
        encode_registry(&mut text, &registry)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

fn what(sight: &Sight) -> &'static str {
    match sight {
        Sight::Asked { .. } => "Dhcp",
        Sight::Came(stage) | Sight::Turned { stage, .. } => match stage {
            NetbootStage::Dhcp => "Dhcp",
            NetbootStage::Program => "Program",
            NetbootStage::Script => "Script",
            NetbootStage::Kernel => "Kernel",
            NetbootStage::Agent => "Agent",
            NetbootStage::LocalDisk => "LocalDisk",
            NetbootStage::Refused => "Refused",
        },
        Sight::Agent { .. } => "Agent",
        Sight::AgentRefused { reason: AgentRefusedReason::TokenUsedTwice, .. } => "TokenUsedTwice",
        Sight::AgentRefused { reason: AgentRefusedReason::TlsRequired, .. } => "TLSRequired",
        Sight::Unserved { .. } => "Unserved",
        Sight::Heard { .. } => "Guest",
    }
}

/// For ever; without an address nothing is served.
pub async fn serve(
    address: Option<SocketAddr>,
    metrics: Arc<Metrics>,
    world: Arc<World>,
    identity: Identity,
) -> anyhow::Result<()> {
    let Some(address) = address else { return std::future::pending().await };
    let page = move |path: String| {
        let states = world.workflows().into_iter().map(|workflow| {
            let state = workflow.status.as_ref().and_then(|status| status.state.clone());
            state.unwrap_or_default()
        });
        std::future::ready(match path.as_str() {
            // Writing to a text cannot fail.
            "/metrics" => Page::metrics(metrics.text(states, &identity).unwrap_or_default()),
            _ => Page::not_found("/metrics"),
        })
    };
    let never = http::serve(address, page).await.with_context(|| format!("serve on {address}"))?;
    match never {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_counted_and_workflows_are_told_by_state() {
        let metrics = Metrics::default();
        for sight in [Sight::Came(NetbootStage::Script), Sight::Came(NetbootStage::Script)] {
            metrics.saw(&sight);
        }
        let (address, why) = (None, String::new());
        metrics.saw(&Sight::AgentRefused { address, reason: AgentRefusedReason::TokenUsedTwice, why });
        let states = ["RUNNING", "RUNNING", "SUCCESS"].map(str::to_owned).into_iter();
        let text = metrics.text(states, &Identity::Open).expect("text");
        for line in [
            "metalplane_boot_seen_total{what=\"Script\"} 2",
            "metalplane_boot_seen_total{what=\"TokenUsedTwice\"} 1",
            "metalplane_boot_seen_dropped_total 0",
            "metalplane_boot_workflows{state=\"RUNNING\"} 2",
            "agents=\"open\"} 1",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
