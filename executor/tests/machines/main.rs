//! Machines in a world that stands still between two rounds: the plans of `planner::machine`, carried out by the requests that
//! ship ([`requests`]), on the model of the API server that the schedules have too. What goes on beside, agents, BMCs, guests,
//! kubelets, is written down in [`world`] and [`outside`]; servers without a DPU are in [`bare`].

mod bare;
mod boot;
mod deleted;
mod erased;
mod examples;
mod exchange;
mod growth;
mod inventory;
mod lacks;
mod limits;
mod lost;
mod maintenance;
mod migration;
mod outside;
mod pods;
mod post;
mod power;
mod properties;
mod requests;
mod setup;
mod timeline;
mod verify;
mod workers;
mod world;

const USER: &str = "team";
const INVENTORY: &str = "inventory";
const SEEDS: &str = "seeds";
