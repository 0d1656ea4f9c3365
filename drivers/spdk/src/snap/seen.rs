//! What SNAP has now, and what of it is ours.

use crate::names;
use crate::rpc::methods::bdev::{Bdev, GetBdevs};
use crate::rpc::methods::snap::{Controller, Function, ListFunctions, ListSubsystems, Namespace, Subsystem};
use crate::rpc::{Rpc, RpcError};
use planner::exposure::ExposureId;

#[derive(Debug)]
pub(super) struct Seen {
    pub functions: Vec<Function>,
    pub subsystems: Vec<Subsystem>,
    pub bdevs: Vec<Bdev>,
    /// Of the host's first function. A disk that is hot-plugged has a subsystem of its own, whose name starts so.
    nqn: String,
}

/// What SNAP says of a function that the host has not enumerated.
const NOWHERE: &str = "00:00.0";

/// A disk on a function of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plugged<'a> {
    pub subsystem: &'a Subsystem,
    pub namespace: Option<&'a Namespace>,
    pub controller: Option<&'a Controller>,
}

impl Seen {
    pub(super) async fn read(rpc: &Rpc, nqn: &str) -> Result<Self, RpcError> {
        let functions = rpc.call(&ListFunctions { all: true }).await?;
        let subsystems = rpc.call(&ListSubsystems {}).await?;
        let bdevs = rpc.call(&GetBdevs { name: None }).await?;
        Ok(Self { functions, subsystems, bdevs, nqn: nqn.to_owned() })
    }

    pub(super) fn subsystem(&self) -> Option<&Subsystem> {
        self.subsystems.iter().find(|subsystem| subsystem.nqn == self.nqn)
    }

    /// The lowest static NVMe function: the host has it before any other.
    pub(super) fn first_function(&self) -> Option<&Function> {
        self.functions.iter().filter(|f| !f.hotplugged && f.is_nvme()).min_by_key(|f| f.pf_index)
    }

    /// The controller of the host's first function. The list of functions may be behind.
    pub(super) fn controller(&self) -> Option<&Controller> {
        let function = self.first_function()?;
        let mut all = self.subsystem()?.controllers.iter();
        all.find(|there| {
            there.ctrl_id == function.ctrl_id || (there.vhca_id.is_some() && there.vhca_id == function.vhca_id)
        })
        .or_else(|| self.subsystem()?.controllers.first())
    }

    /// The function has a controller of a subsystem that is not ours.
    pub(super) fn taken_by_another(&self) -> Option<&str> {
        let ctrl_id = self.first_function().map(|function| function.ctrl_id.as_str()).filter(|id| !id.is_empty())?;
        let mut others = self.subsystems.iter().filter(|subsystem| subsystem.nqn != self.nqn);
        let has = |subsystem: &&Subsystem| subsystem.controllers.iter().any(|there| there.ctrl_id == ctrl_id);
        others.find(has).map(|subsystem| subsystem.nqn.as_str())
    }

    pub(super) fn is_started(&self) -> bool {
        self.controller().is_some_and(Controller::is_started)
    }

    /// The host runs, or its firmware does: it knows where its functions are.
    pub(super) fn is_enumerated(&self) -> bool {
        self.place().is_some()
    }

    /// Where the host has its first function.
    pub(super) fn place(&self) -> Option<String> {
        let place = self.first_function().map(|function| function.pci_bdf.clone());
        place.filter(|place| !place.is_empty() && !place.ends_with(NOWHERE))
    }

    /// On the host's first function, by their bdev.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = (ExposureId, &Namespace)> {
        let all = self.subsystem().into_iter().flat_map(|subsystem| &subsystem.namespaces);
        all.filter_map(|namespace| Some((names::parse_bdev(&namespace.bdev)?, namespace)))
    }

    /// Disks that have a function of their own.
    pub(super) fn plugged(&self) -> impl Iterator<Item = (ExposureId, Plugged<'_>)> {
        self.subsystems.iter().filter_map(|subsystem| {
            let bdev = subsystem.nqn.strip_prefix(&self.nqn)?.strip_prefix(':')?;
            let id = names::parse_bdev(bdev)?;
            let (namespace, controller) = (subsystem.namespaces.first(), subsystem.controllers.first());
            Some((id, Plugged { subsystem, namespace, controller }))
        })
    }

    pub(super) fn bdev(&self, name: &str) -> Option<&Bdev> {
        self.bdevs.iter().find(|bdev| bdev.name == name)
    }

    /// Bdevs of ours on which nothing stands.
    pub(super) fn unused(&self) -> impl Iterator<Item = &Bdev> {
        let used = |bdev: &Bdev| {
            self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces).any(|ns| ns.bdev == bdev.name)
        };
        self.bdevs.iter().filter(move |bdev| names::parse_bdev(&bdev.name).is_some() && !used(bdev))
    }
}
