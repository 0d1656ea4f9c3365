//! What is written to OVN, how long it takes to be in force, and how many addresses are free.

use super::{SUCCESS, seconds};
use crate::network::Logical;
use crate::work::Work;
use crate::world::World;
use planner::machine::observed::{name, uid};
use planner::network::subnets;
use ports::north_bound::NorthBoundError;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const CONFLICT: &str = "Conflict";

/// What a transaction is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Writing {
    /// The rows of one object.
    Rows,
    /// The number that chassis tell when they have installed everything up to it.
    Number,
    /// The leader's token.
    Token,
}

impl Writing {
    const ALL: [Self; 3] = [Self::Rows, Self::Number, Self::Token];

    fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Number => "nb_cfg",
            Self::Token => "token",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Transaction {
    what: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Database {
    database: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSubnet {
    namespace: String,
    subnet: String,
    family: &'static str,
}

/// What is counted while it happens.
#[derive(Clone)]
pub(crate) struct Written {
    transactions: Family<Transaction, Counter>,
    repaired: Counter,
    in_force: Family<Controller, Histogram>,
}

impl Default for Written {
    fn default() -> Self {
        let transactions = Family::<Transaction, Counter>::default();
        // An alert on an increase needs the zero.
        for what in Writing::ALL.map(Writing::name) {
            for result in [SUCCESS, CONFLICT] {
                drop(transactions.get_or_create(&Transaction { what, result }));
            }
        }
        Self { transactions, repaired: Counter::default(), in_force: Family::new_with_constructor(seconds) }
    }
}

impl Written {
    pub(crate) fn register(&self, r: &mut Registry) {
        let (transactions, repaired) = (self.transactions.clone(), self.repaired.clone());
        r.register("metalplane_ovn_transactions", "Transactions of OVN's north-bound database by result", transactions);
        r.register("metalplane_ovn_repaired_rows", "Rows put right that somebody else had changed", repaired);
        r.register("metalplane_ovn_in_force_seconds", "From a change to its being in force", self.in_force.clone());
    }

    pub(crate) fn transaction<T>(&self, what: Writing, result: &Result<T, NorthBoundError>) {
        let result = match result {
            Ok(_) => SUCCESS,
            Err(NorthBoundError::NotLeader(_)) => "NotLeader",
            Err(NorthBoundError::Contended(_)) => CONFLICT,
            Err(NorthBoundError::Port(error)) => error.class.as_str(),
        };
        self.transactions.get_or_create(&Transaction { what: what.name(), result }).inc();
    }

    pub(crate) fn repaired(&self, rows: usize) {
        self.repaired.inc_by(u64::try_from(rows).unwrap_or(u64::MAX));
    }

    pub(crate) fn in_force(&self, work: Work, took: Duration) {
        self.in_force.get_or_create(&Controller { controller: work.name() }).observe(took.as_secs_f64());
    }
}

/// How it is at the moment of a scrape.
pub(super) fn register(world: &World, network: &Logical, registry: &mut Registry) {
    let (north_bound, south_bound) = network.reached();
    let reached = Family::<Database, Gauge>::default();
    for (database, is_reached) in [("north-bound", north_bound), ("south-bound", south_bound)] {
        if let Some(is_reached) = is_reached {
            reached.get_or_create(&Database { database }).set(i64::from(is_reached));
        }
    }
    registry.register("metalplane_ovn_reachable", "1: the copy follows that database of OVN", reached);
    let sent = ConstCounter::new(network.sent());
    registry.register("metalplane_ovn_sent_bytes", "Bytes of transactions sent to the north-bound database", sent);
    let free = Family::<OfSubnet, Gauge<f64, AtomicU64>>::default();
    for subnet in world.subnets.all() {
        let meta = &subnet.metadata;
        let provider = subnet.spec.provider_network.as_ref().and_then(|named| world.provider_networks.get("", named));
        let free_of = |pool: &_| subnets::free(&subnet, provider.as_deref(), pool);
        for (family, count) in world.pools.with(uid(meta), free_of) {
            let namespace = meta.namespace.clone().unwrap_or_default();
            let of_subnet = OfSubnet { namespace, subnet: name(meta).to_owned(), family };
            free.get_or_create(&of_subnet).set(count as f64);
        }
    }
    registry.register("metalplane_subnet_free_addresses", "Addresses that can be chosen, by Subnet and family", free);
}
