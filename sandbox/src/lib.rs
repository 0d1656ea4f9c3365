//! The sandbox: a whole Metalplane site on one machine, made of the real programs.
//!
//! A sandbox is a Kubernetes control plane, nodes with kubelet and containerd (two of them stand for DPUs and have
//! Open vSwitch), shared storage and virtual servers (QEMU with a BMC). Every part is a process of one *supervisor*,
//! every node has its own network and mount namespace, and nothing has a route to the machine's own network.
//!
//! | module | what it is |
//! |---|---|
//! | [`supervisor`] | the process table, the control socket, the end of everything |
//! | [`cluster`] | namespaces, control plane, nodes, storage pool: how a sandbox comes up |
//! | [`server`] | the virtual server: QEMU behind a BMC and a slots socket |
//! | [`guest`] | images that virtual servers boot |
//! | [`file_server`] | hands golden images to the agents that import them |
//! | [`relay`] | joins two sockets: into a guest, which has the network of its DPU alone |
//! | [`handle`] | start and drive a sandbox from a test or the demo |
//! | [`ceph`] | a Ceph of one node |
//! | [`chart`] | the chart as it is shipped |
//! | [`spdk`] | a fake SPDK, and where a real one is found |
//! | [`architecture`] | what Metalplane is built for |
//! | [`oci`] | writes container images without a container engine |
//! | [`packages`] | Debian packages of any architecture, unpacked |
//! | [`source_offer`] | where the source of Debian's files is that we pass on |

pub mod architecture;
pub mod args;
pub mod ceph;
pub mod chart;
pub mod cluster;
pub mod file_server;
pub mod guest;
pub mod handle;
pub mod layout;
pub mod oci;
pub mod outside;
pub mod packages;
pub mod preflight;
pub mod programs;
pub mod registry;
pub mod relay;
pub mod server;
pub mod source_offer;
pub mod spdk;
pub mod supervisor;
mod whole;

pub use handle::Sandbox;
