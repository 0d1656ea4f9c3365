//! How the world is at the moment of a scrape: queues, machines and what they wait for, DPUs.

use crate::work::Work;
use crate::world::World;
use api::conditions;
use planner::reason::{ReasonKind, kind_of};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    kind: &'static str,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ready {
    ready: String,
    reason: String,
}

pub(super) fn register(world: &World, hosts: usize, registry: &mut Registry) {
    queues(world, registry);
    machines(world, registry);
    dpus(world, registry);
    let watched = Gauge::<i64>::default();
    watched.set(count(hosts));
    registry.register("metalplane_bmcs_watched", "BMCs that are read", watched);
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn queues(world: &World, registry: &mut Registry) {
    let (depth, running) = (Family::<Name, Gauge>::default(), Family::<Controller, Gauge>::default());
    let retries = Family::<Name, Gauge>::default();
    for (name, queue) in Work::ALL.map(|work| (work.name(), world.queue(work))) {
        depth.get_or_create(&Name { name }).set(count(queue.depth()));
        running.get_or_create(&Controller { controller: name }).set(count(queue.running()));
        retries.get_or_create(&Name { name }).set(count(queue.failing()));
    }
    registry.register("workqueue_depth", "Objects that wait to be worked on", depth);
    registry.register("controller_runtime_active_workers", "Objects that are worked on", running);
    registry.register("metalplane_failing_objects", "Objects whose last reconcile failed", retries);
}

fn machines(world: &World, registry: &mut Registry) {
    let (states, waiting) = (Family::<State, Gauge>::default(), Family::<Why, Gauge>::default());
    for machine in world.machines.all() {
        let status = machine.status.clone().unwrap_or_default();
        states.get_or_create(&State { state: format!("{:?}", status.state) }).inc();
        let ready = conditions::get(&status.conditions, conditions::READY);
        let Some(ready) = ready.filter(|ready| ready.status != "True") else { continue };
        // A word that is not of the closed set is no label: it was written by another version.
        let (kind, reason) = match kind_of(&ready.reason) {
            Some(ReasonKind::Waiting) => ("Waiting", ready.reason.clone()),
            Some(ReasonKind::Blocked) => ("Blocked", ready.reason.clone()),
            Some(ReasonKind::Failed) => ("Failed", ready.reason.clone()),
            None => ("Other", "Other".to_owned()),
        };
        waiting.get_or_create(&Why { kind, reason }).inc();
    }
    registry.register("metalplane_machines", "Machines by state", states);
    registry.register("metalplane_machines_not_ready", "Machines that are not ready, by reason", waiting);
}

fn dpus(world: &World, registry: &mut Registry) {
    let dpus = Family::<Ready, Gauge>::default();
    for dpu in world.dpus.all() {
        let status = dpu.status.clone().unwrap_or_default();
        let ready = conditions::get(&status.conditions, conditions::READY);
        let word = |text: Option<&String>| text.cloned().unwrap_or_else(|| "Unknown".to_owned());
        let ready = Ready { ready: word(ready.map(|c| &c.status)), reason: word(ready.map(|c| &c.reason)) };
        dpus.get_or_create(&ready).inc();
    }
    registry.register("metalplane_dpus", "Dpus by their condition Ready", dpus);
}
