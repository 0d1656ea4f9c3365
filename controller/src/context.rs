//! What the work of every kind shares.

use crate::bmc::Hosts;
use crate::events::Events;
use crate::fences::Fences;
use crate::memory::{Asked, FirstSeen, Passing, Prepared, SentTasks, ToldPods, ToldWorkflows};
use crate::metrics::Metrics;
use crate::network::Logical;
use crate::objects::Objects;
use crate::volumes::Volumes;
use crate::world::World;
use executor::Confirmed;
use planner::host::InstallerIso;
use std::sync::Arc;

pub struct Controller {
    pub objects: Objects,
    pub world: Arc<World>,
    pub hosts: Arc<Hosts>,
    pub events: Events,
    pub volumes: Volumes,
    pub(crate) confirmed: Confirmed,
    pub(crate) metrics: Arc<Metrics>,
    pub prepared: Prepared,
    pub first_seen: FirstSeen,
    pub asked: Asked,
    pub(crate) passing: Passing,
    pub told_pods: ToldPods,
    pub(crate) told_workflows: ToldWorkflows,
    pub(crate) sent: SentTasks,
    /// The controller's own namespace.
    pub namespace: String,
    pub inventory: String,
    /// Of the Secrets by which installed systems are told about themselves.
    pub seeds: String,
    pub holder_image: String,
    pub holder_pull_secrets: Vec<String>,
    /// Whether Hardware is made of servers that nobody has written down.
    pub discovers: bool,
    /// Where BMCs read the installer's ISO.
    pub installer_iso: Option<InstallerIso>,
    /// Boot options are looked for when a server joins.
    pub discover_boot_options: bool,
    pub fences: Fences,
    pub network: Logical,
}
