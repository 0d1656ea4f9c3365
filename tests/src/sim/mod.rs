//! The simulation: the real controller, the real agent, the real boot service, and the real installer but for its actions, over an API
//! server, storage, BMCs and DPUs in this process, on a paused clock. A run depends on its seed alone: [`begin`] sets the clocks, identifiers and jitter follow from the seed, nothing that takes
//! simulated time waits for a thread, and who is woken first is never left to chance.
//!
//! | file | what |
//! |---|---|
//! | `api/` | an API server in memory under `kube::Client` |
//! | `signal.rs` | a value that many wait for, woken in order |
//! | `addresses.rs` | one address and two machines that ask for it; Subnets under a machine |
//! | `storage.rs` | the actor that stands for the storage system and its sidecars |
//! | `groups.rs` | the same for snapshots of several volumes at one moment |
//! | `host.rs`, `host/bmc.rs` | a server with its BMC and its DPU |
//! | `parts.rs`, `bmcs.rs` | the ports as a process reaches them |
//! | `north_bound.rs` | OVN's databases as a controller reaches them |
//! | `process.rs`, `restarts.rs`, `faults.rs` | lives of controllers and agents, and what goes wrong with their effects |
//! | `scene.rs` | all of it together, and the invariants |
//! | `web.rs` | a web server with a golden image |
//! | `passing.rs` | a volume that passes from one DPU to another, and what may happen meanwhile |
//! | `simulation.rs` | starts processes, changes objects, waits, compares |
//! | `csi.rs` | the node plug-in of other people's CSI driver, which misbehaves |
//! | `kubelet.rs` | the kubelets that run holder pods |
//! | `life.rs`, `lives.rs` | what a machine goes through; what an image and a Dpu go through |
//! | `events.rs` | what users are told of NICs |
//! | `drawn/` | networks drawn by dice, in any order |
//! | `held.rs`, `once.rs` | who has which address, at every moment |
//! | `in_force.rs` | what is said to be in force, at every moment |
//! | `foreign.rs` | rows of others in OVN |
//! | `elsewhere.rs` | hosts that do not boot from their boot disk |
//! | `leftovers.rs` | what a machine that is gone has left |
//! | `orphans.rs` | what a host has and the API server does not know of any more |
//! | `limits.rs` | another VolumeAttributesClass for the disk of a machine that runs |
//! | `network.rs` | Vpcs, Subnets and SecurityGroups, and what goes wrong with OVN |
//! | `says_why/` | what an object of the network lacks is said, and heals, at once |
//! | `lagging.rs` | a chassis that has stopped, while everything changes |
//! | `emptied.rs`, `unresponsive.rs` | an empty database in the place of OVN's; a DPU that does not answer, and its NIC's address |
//! | `counted.rs` | what a controller counts of it |
//! | `token.rs` | the token of OVN after a restore of etcd |
//! | `shared.rs` | one address is at one port; virtual IPs |
//! | `boot.rs` | replicas of the boot service, and their network |
//! | `netboot.rs` | a server without a DPU: its firmware, the installer, the system on its disk |
//! | `bare.rs` | a machine on such a server |
//! | `meddled.rs` | the same, while somebody deletes what it rests on |
//! | `auto.rs` | a machine that could be installed, on a server whose DPU is unwell |
//! | `runs.rs` | Workflows on servers that no machine has |
//! | `capt.rs` | the same, as Cluster API's provider for Tinkerbell makes them |
//! | `secrets.rs` | what nobody is told, wherever it might be |
//! | `choice.rs` | machines that find no server |
//! | `dismissed.rs` | Subnets whose finalizer was taken away by force |
//! | `bmc_objects.rs` | what an administrator writes about BMCs |
//! | `told.rs` | a run as an operator would tell it |
//! | `unserved.rs` | servers that DHCP does not serve |
//! | `upkeep.rs` | what an administrator does to the server and the DPU under it |
//! | `vlan.rs` | two ProviderNetworks of one VLAN |
//! | `verbs.rs` | what is done to a whole machine |
//! | `workers.rs` | pods whose node is a machine |
//!
//! What a fault may never lead to is checked after every effect (`scene.rs`). What must come after a fault is judged by
//! comparing with a run without one: same objects, same hosts, no more power actions.

pub mod addresses;
pub mod api;
pub mod auto;
pub mod bare;
pub mod bmc_objects;
mod bmcs;
mod boot;
pub mod boot_discovery;
pub mod capt;
pub mod choice;
pub mod counted;
pub mod csi;
pub mod dismissed;
pub mod drawn;
pub mod elsewhere;
pub mod emptied;
pub mod erased;
pub mod events;
pub mod faults;
mod foreign;
mod groups;
mod held;
pub mod host;
mod in_force;
pub mod jobs;
pub mod kubelet;
pub mod lagging;
pub mod leftovers;
pub mod life;
pub mod limits;
pub mod lives;
pub mod meddled;
pub mod netboot;
pub mod network;
pub mod new_server;
mod north_bound;
mod once;
pub mod orphans;
mod parts;
pub mod passing;
pub mod process;
pub mod random;
mod restarts;
pub mod runs;
pub mod says_why;
pub mod scene;
pub mod secrets;
pub mod shared;
mod signal;
pub mod simulation;
mod storage;
pub mod token;
pub mod told;
pub mod unresponsive;
pub mod unserved;
pub mod upkeep;
pub mod verbs;
pub mod vlan;
pub mod way_out;
mod web;
pub mod workers;

pub use simulation::Simulation;

/// At the start of a run, inside its runtime: the clocks show a moment that follows from the seed.
pub fn begin(seed: u64) {
    const DAY: u64 = 86_400;
    let after = jiff::SignedDuration::from_secs((seed % (365 * DAY)).cast_signed());
    // 2026-01-01.
    let start = jiff::Timestamp::constant(1_767_225_600, 0) + after;
    runtime::clock::simulate(start);
}
