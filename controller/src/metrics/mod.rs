//! Numbers for /metrics, in OpenMetrics; in the names that dashboards of controller-runtime and client-go know where there
//! is one. docs/operator/monitoring.md explains each.
//!
//! Labels come from closed sets only: kinds, reasons of `planner::reason`, names of actions. No object's name is one, but for
//! Subnets', of which each has its own addresses.

mod client;
mod network;
mod world;

pub(crate) use client::counted;
pub(crate) use network::{Writing, Written};

use crate::network::Logical;
use crate::world::World;
use planner::machine::Action;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt::{self, Debug, Write};
use std::time::Duration;

const SUCCESS: &str = "success";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciled {
    controller: &'static str,
    /// `success`, or the class of the error.
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Acted {
    action: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BmcCall {
    call: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BmcResult {
    call: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Power {
    action: &'static str,
}

pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<Reconciled, Counter>,
    times: Family<Controller, Histogram>,
    actions: Family<Acted, Counter>,
    power: Family<Power, Counter>,
    bmc_times: Family<BmcCall, Histogram>,
    bmc_results: Family<BmcResult, Counter>,
    requests: client::Requests,
    written: Written,
    leads: Family<Named, Gauge>,
    fencing_token: Gauge,
}

/// From the fastest call that is worth a look to what is certainly wrong.
fn seconds() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            reconciles: Family::default(),
            times: Family::new_with_constructor(seconds),
            actions: Family::default(),
            power: Family::default(),
            bmc_times: Family::new_with_constructor(seconds),
            bmc_results: Family::default(),
            requests: client::Requests::default(),
            written: Written::default(),
            leads: Family::default(),
            fencing_token: Gauge::default(),
        };
        metrics.register();
        metrics.leads.get_or_create(&Named { name: api::labels::CONTROLLER }).set(0);
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("controller_runtime_reconcile", "Reconciles by result", self.reconciles.clone());
        r.register("controller_runtime_reconcile_time_seconds", "How long reconciles took", self.times.clone());
        r.register("metalplane_actions", "Actions of machines' plans, carried out", self.actions.clone());
        r.register("metalplane_power_actions", "Power actions sent to hosts", self.power.clone());
        r.register("metalplane_bmc_call_seconds", "How long calls of BMCs took", self.bmc_times.clone());
        r.register("metalplane_bmc_calls", "Calls of BMCs by result", self.bmc_results.clone());
        r.register("leader_election_master_status", "1: this process leads", self.leads.clone());
        r.register("metalplane_fencing_token", "The token of this leader's term", self.fencing_token.clone());
        self.requests.register(r);
        self.written.register(r);
    }

    /// Nothing of one controller's is missing before it happened first: an alert on an increase needs the zero.
    pub(crate) fn controller(&self, controller: &'static str) {
        drop(self.reconciles.get_or_create(&Reconciled { controller, result: SUCCESS }));
    }

    pub(crate) fn reconciled(&self, controller: &'static str, took: Duration, error: Option<&'static str>) {
        self.reconciles.get_or_create(&Reconciled { controller, result: error.unwrap_or(SUCCESS) }).inc();
        self.times.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
    }

    pub(crate) fn acted(&self, action: &Action, error: Option<&'static str>) {
        let acted = Acted { action: variant(action), result: error.unwrap_or(SUCCESS) };
        self.actions.get_or_create(&acted).inc();
    }

    pub(crate) fn power(&self, action: &'static str) {
        self.power.get_or_create(&Power { action }).inc();
    }

    pub(crate) fn bmc(&self, call: &'static str, took: Duration, error: Option<&'static str>) {
        self.bmc_times.get_or_create(&BmcCall { call }).observe(took.as_secs_f64());
        self.bmc_results.get_or_create(&BmcResult { call, result: error.unwrap_or(SUCCESS) }).inc();
    }

    /// The driver ended in a panic instead of a result.
    pub(crate) fn bmc_panicked(&self, call: &'static str) {
        self.bmc_results.get_or_create(&BmcResult { call, result: "Panicked" }).inc();
    }

    pub(crate) fn leads(&self, token: u64) {
        self.leads.get_or_create(&Named { name: api::labels::CONTROLLER }).set(1);
        self.fencing_token.set(i64::try_from(token).unwrap_or(i64::MAX));
    }

    pub(crate) fn requests(&self) -> client::Requests {
        self.requests.clone()
    }

    pub(crate) fn written(&self) -> Written {
        self.written.clone()
    }

    /// The text of a scrape: what was counted, and how the world is now.
    pub(crate) fn text(&self, world: &World, network: &Logical, hosts: usize) -> Result<String, fmt::Error> {
        let mut now = Registry::default();
        world::register(world, hosts, &mut now);
        network::register(world, network, &mut now);
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &now)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// The name of an enum's variant: the first word of what its derived `Debug` writes.
fn variant(value: &impl Debug) -> String {
    struct FirstWord(String);
    impl Write for FirstWord {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for letter in text.chars() {
                if !letter.is_alphanumeric() {
                    return Err(fmt::Error);
                }
                self.0.push(letter);
            }
            Ok(())
        }
    }
    let mut word = FirstWord(String::new());
    // The error ends the writing: all that was wanted is there.
    let _ = write!(word, "{value:?}");
    word.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Work;
    use api::Subnet;
    use planner::machine::plan::Target;
    use ports::north_bound::NorthBoundError;
    use serde_json::json;

    #[test]
    fn a_variant_is_named_without_its_fields() {
        assert_eq!(variant(&Action::AddMachineFinalizer), "AddMachineFinalizer");
        assert_eq!(variant(&Action::ReleaseDisk { target: Target::default() }), "ReleaseDisk");
        assert_eq!(variant(&Some(7)), "Some");
    }

    #[test]
    fn a_scrape_has_what_was_counted_and_ends() {
        let metrics = Metrics::default();
        metrics.controller("dpu");
        metrics.reconciled("machine", Duration::from_millis(20), None);
        metrics.reconciled("machine", Duration::from_millis(20), Some("Conflict"));
        metrics.acted(&Action::AddMachineFinalizer, None);
        metrics.bmc("observe", Duration::from_secs(7), Some("Unreachable"));
        metrics.leads(7);
        let written = metrics.written();
        written.transaction(Writing::Number, &Err::<u64, _>(NorthBoundError::Contended(String::new())));
        written.transaction(Writing::Token, &Ok(()));
        written.repaired(3);
        written.in_force(Work::SecurityGroup, Duration::from_millis(40));
        let world = World::new(0);
        let subnet = |name: &str, spec: serde_json::Value| {
            let mut subnet = Subnet::new(name, serde_json::from_value(spec).expect("a spec"));
            subnet.metadata.namespace = Some("team".to_owned());
            subnet.metadata.uid = Some(name.to_owned());
            subnet
        };
        let blue = subnet("blue", json!({"cidr": "10.20.0.0/29", "ipv6Cidr": "fd00:20::/120"}));
        world.subnets.put(blue.clone());
        world.subnets.put(subnet("red", json!({"cidr": "10.30.0.0/24"})));
        let network = Logical::new(None, metrics.written());
        let text = metrics.text(&world, &network, 3).expect("text");
        for line in [
            "controller_runtime_reconcile_total{controller=\"dpu\",result=\"success\"} 0",
            "controller_runtime_reconcile_total{controller=\"machine\",result=\"Conflict\"} 1",
            "controller_runtime_reconcile_time_seconds_count{controller=\"machine\"} 2",
            "metalplane_actions_total{action=\"AddMachineFinalizer\",result=\"success\"} 1",
            "metalplane_bmc_calls_total{call=\"observe\",result=\"Unreachable\"} 1",
            "metalplane_bmc_call_seconds_bucket{le=\"10.0\",call=\"observe\"} 1",
            "leader_election_master_status{name=\"metalplane-controller\"} 1",
            "metalplane_fencing_token 7",
            "metalplane_bmcs_watched 3",
            "workqueue_depth{name=\"machine\"} 0",
            "metalplane_ovn_transactions_total{what=\"rows\",result=\"Conflict\"} 0",
            "metalplane_ovn_transactions_total{what=\"nb_cfg\",result=\"Conflict\"} 1",
            "metalplane_ovn_transactions_total{what=\"token\",result=\"success\"} 1",
            "metalplane_ovn_repaired_rows_total 3",
            "metalplane_ovn_in_force_seconds_bucket{le=\"0.05\",controller=\"securitygroup\"} 1",
            "metalplane_ovn_sent_bytes_total 0",
            "metalplane_subnet_free_addresses{namespace=\"team\",subnet=\"blue\",family=\"IPv4\"} 5.0",
            "metalplane_subnet_free_addresses{namespace=\"team\",subnet=\"blue\",family=\"IPv6\"} 254.0",
        ] {
            assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert!(!text.contains("metalplane_ovn_reachable{"), "there is no OVN\n{text}");
        world.subnets.forget(&blue.metadata);
        let text = metrics.text(&world, &network, 3).expect("text");
        assert!(!text.contains("blue") && text.contains("subnet=\"red\""), "a deleted Subnet has no number\n{text}");
    }
}
