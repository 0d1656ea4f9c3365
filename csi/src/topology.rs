//! Where a volume can be had: on the nodes that have its pool.
//!
//! A node says of each of its pools `pool.csi.metalplane.io/<pool>: "true"`; kubelet makes labels of the Node of it. A
//! volume says the same of its own pool, and external-provisioner writes it into the PersistentVolume: the scheduler then
//! puts a pod on no node that lacks the pool. A DPU that opens the image itself is chosen by other means and needs no label.
//! A volume of an lvol pool is on a storage node: DPUs reach it from everywhere, and no node asks for it.

use crate::{pool::Pool, pools::Pools};
use proto::csi::v1::{Topology, TopologyRequirement};

const PREFIX: &str = "pool.csi.metalplane.io/";
const HERE: &str = "true";

/// Nothing: it is to be had everywhere.
pub(crate) fn of_pool(pool: &Pool) -> Vec<Topology> {
    if pool.are_files() { vec![Topology { segments: [(key(pool), HERE.into())].into() }] } else { Vec::new() }
}

pub(crate) fn of_node(pools: &Pools) -> Topology {
    Topology { segments: pools.iter().filter(|pool| pool.are_files()).map(|pool| (key(pool), HERE.into())).collect() }
}

/// Whether the nodes of this topology have the pool.
pub(crate) fn has(topology: &Topology, pool: &Pool) -> bool {
    !pool.are_files() || topology.segments.get(&key(pool)).is_some_and(|value| value == HERE)
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
