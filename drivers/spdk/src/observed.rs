//! What the target has now, of ours and of others.

use crate::{
    host::Host,
    names,
    rpc::{
        Rpc, RpcError,
        methods::{
            bdev::{Bdev, GetBdevs},
            nvmf::{GetControllers, GetSubsystems, Namespace, Subsystem},
        },
    },
};
use planner::exposure::ExposureId;

#[derive(Debug)]
pub struct Observed {
    pub subsystems: Vec<Subsystem>,
    pub bdevs: Vec<Bdev>,
    /// The host has its controller open.
    pub connected: bool,
    pub(crate) nqn: String,
}

impl Observed {
    pub async fn read(rpc: &Rpc, host: &Host) -> Result<Self, RpcError> {
        let (subsystems, bdevs) =
            tokio::try_join!(rpc.call(&GetSubsystems {}), async { rpc.call(&GetBdevs { name: None }).await })?;
        let mut observed = Self { subsystems, bdevs, connected: false, nqn: host.nqn.clone() };
        if observed.subsystem().is_some() {
            observed.connected = !rpc.call(&GetControllers { nqn: &host.nqn }).await?.is_empty();
        }
        Ok(observed)
    }

    pub fn subsystem(&self) -> Option<&Subsystem> {
        self.subsystems.iter().find(|s| s.nqn == self.nqn)
    }

    pub fn namespaces(&self) -> &[Namespace] {
        self.subsystem().map(|s| s.namespaces.as_slice()).unwrap_or_default()
    }

    pub fn bdev(&self, name: &str) -> Option<&Bdev> {
        self.bdevs.iter().find(|b| b.is_called(name))
    }

    /// Our disks that the host has, with their namespaces.
    pub fn disks(&self) -> impl Iterator<Item = (ExposureId, &Namespace)> {
        self.namespaces().iter().filter_map(|ns| Some((names::parse_bdev(&ns.bdev_name)?, ns)))
    }

    /// Bdevs of ours that no namespace shows: what an interrupted `expose` or `hide` left behind.
    pub fn unused(&self) -> impl Iterator<Item = (ExposureId, &Bdev)> {
        let shown =
            |bdev: &Bdev| self.subsystems.iter().flat_map(|s| &s.namespaces).any(|ns| ns.bdev_name == bdev.name);
        self.bdevs.iter().filter_map(|b| Some((names::parse_bdev(&b.name)?, b))).filter(move |(_, b)| !shown(b))
    }
}
