//! Where a volume can be had: on the nodes that have its pool.
//!
//! A node says of each of its pools `pool.csi.metalplane.io/<pool>: "true"`; kubelet makes labels of the Node of it. A
//! volume says the same of its own pool, and external-provisioner writes it into the PersistentVolume: the scheduler then
//! puts a pod on no node that lacks the pool. A DPU that opens the image itself is chosen by other means and needs no label.

use crate::{pool::Pool, pools::Pools};
use proto::csi::v1::{Topology, TopologyRequirement};

const PREFIX: &str = "pool.csi.metalplane.io/";
const HERE: &str = "true";

pub(crate) fn of_pool(pool: &Pool) -> Topology {
    Topology { segments: [(key(pool), HERE.into())].into() }
}

pub(crate) fn of_node(pools: &Pools) -> Topology {
    Topology { segments: pools.iter().map(|pool| (key(pool), HERE.into())).collect() }
}

/// Whether the nodes of this topology have the pool.
pub(crate) fn has(topology: &Topology, pool: &Pool) -> bool {
    topology.segments.get(&key(pool)).is_some_and(|value| value == HERE)
}

/// Whether a volume of this pool can be had where a caller needs it. Nothing asked for is anywhere.
pub(crate) fn admits(requirement: Option<&TopologyRequirement>, pool: &Pool) -> bool {
    let Some(requirement) = requirement else { return true };
    // What is preferred is part of what is requisite, unless nothing is.
    let any = if requirement.requisite.is_empty() { &requirement.preferred } else { &requirement.requisite };
    any.is_empty() || any.iter().any(|topology| has(topology, pool))
}

fn key(pool: &Pool) -> String {
    format!("{PREFIX}{}", pool.name())
}
