//! Recovery: every controller again on the function that it had, suspended; all of its namespaces; then it is resumed, once.
//!
//! Whatever an interrupted attempt left is taken up: what is there with the same identity stays, and what no host has seen and nobody wants goes.

use super::seen::Seen;
use super::{SnapEmulation, State, port_error};
use crate::names;
use crate::rpc::methods::snap::{AttachNamespace, CreateController, HotPlug, ResumeController};
use planner::exposure::Slot;
use ports::emulation::DiskFunction;
use ports::{ErrorClass, PortError};

impl SnapEmulation {
    pub(super) async fn recover_all(
        &self,
        state: &mut State,
        wanted: &[DiskFunction],
        partial: bool,
    ) -> Result<(), PortError> {
        let step = "presenting all disks of the host";
        let seen = self.see(step).await?;
        if seen.is_started() {
            return Ok(());
        }
        // First those with a function of their own: the host has them beside the first function, each whole by itself.
        let is_plugged = |state: &State, disk: &DiskFunction| state.functions.of(&disk.id).is_some();
        let (own, first): (Vec<_>, Vec<_>) = wanted.iter().partition(|disk| is_plugged(state, disk));
        for disk in own {
            let recovered = self.recover_function(state, &seen, disk).await;
            unless_left_out(partial, disk, recovered)?;
        }
        self.recover_first(state, &first, partial).await
    }

    async fn recover_function(&self, state: &mut State, seen: &Seen, disk: &DiskFunction) -> Result<(), PortError> {
        let object = names::bdev(&disk.id);
        let there = seen.plugged().find(|(id, _)| *id == disk.id).and_then(|(_, plugged)| plugged.controller);
        if there.is_some_and(|controller| controller.is_started()) {
            return Ok(());
        }
        let vuid = self.function_of(state, seen, &disk.id, &object).await?;
        let ctrl_id = self.back(seen, disk, &vuid, &object).await?;
        self.call(&ResumeController { ctrl_id: &ctrl_id }, &object).await?;
        // A function that the host still has is plugged already, and says so.
        match self.rpc.call(&HotPlug { ctrl_id: &ctrl_id, wait_for_done: false }).await {
            Err(error) if error.class() == ErrorClass::Unreachable => Err(error.at(&object)),
            _ => Ok(()),
        }
    }

    async fn recover_first(&self, state: &mut State, wanted: &[&DiskFunction], partial: bool) -> Result<(), PortError> {
        let step = "presenting all disks of the host";
        let mut seen = self.see(step).await?;
        let nqn = self.config.nqn.as_str();
        if seen.subsystem().is_none() {
            self.make_subsystem(nqn, &self.config.serial, nqn).await?;
        }
        let unwanted: Vec<_> = seen
            .namespaces()
            .filter(|(id, _)| !wanted.iter().any(|disk| disk.id == *id))
            .map(|(_, namespace)| namespace.clone())
            .collect();
        for namespace in &unwanted {
            self.destroy(nqn, namespace).await?;
        }
        for disk in wanted {
            seen = self.see(step).await?;
            let recovered = self.recover_namespace(state, &seen, disk).await;
            unless_left_out(partial, disk, recovered)?;
        }
        seen = self.see(step).await?;
        let ctrl_id = match (seen.controller(), seen.first_function()) {
            (Some(controller), _) => controller.ctrl_id.clone(),
            (None, Some(function)) => {
                let create = CreateController { nqn, suspended: true, vuid: &function.vuid };
                self.call(&create, nqn).await?.ctrl_id
            }
            (None, None) => return Err(port_error(ErrorClass::Unsupported, step, super::NO_FUNCTION)),
        };
        for (_, namespace) in seen.namespaces().filter(|(_, namespace)| namespace.controllers.is_empty()) {
            let attach = AttachNamespace { ctrl_id: &ctrl_id, nsid: namespace.nsid };
            self.call(&attach, &namespace.bdev).await?;
        }
        self.call(&ResumeController { ctrl_id: &ctrl_id }, nqn).await?;
        Ok(())
    }

    async fn recover_namespace(&self, state: &mut State, seen: &Seen, disk: &DiskFunction) -> Result<(), PortError> {
        if seen.namespaces().any(|(id, _)| id == disk.id) {
            return Ok(());
        }
        let object = names::bdev(&disk.id);
        let nsid = self.nsid(seen, &state.places, disk, &object)?;
        if disk.slot == Slot::HotPlug {
            let kept = state.places.keep(&disk.id, nsid);
            kept.map_err(|e| port_error(ErrorClass::Busy, &object, format!("writing down its place: {e}")))?;
        }
        self.make_namespace(seen, disk, &self.config.nqn, nsid, &object).await
    }
}

/// A disk that SNAP refuses is left out of a partial set; nothing is, while SNAP does not answer.
fn unless_left_out(partial: bool, disk: &DiskFunction, recovered: Result<(), PortError>) -> Result<(), PortError> {
    match recovered {
        Err(error) if partial && error.class != ErrorClass::Unreachable => {
            tracing::warn!(disk = disk.id.uid, %error, "SNAP refuses this disk: the host gets its other disks");
            Ok(())
        }
        other => other,
    }
}
