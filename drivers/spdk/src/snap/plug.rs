//! A disk that comes once the host runs: a function of its own, made, backed and plugged; and its way back.

use super::functions::Kept;
use super::seen::{Plugged, Seen};
use super::{SnapEmulation, State, port_error};
use crate::names;
use crate::rpc::methods::snap::{
    AttachNamespace, CreateController, CreateFunction, DestroyController, DestroyFunction, DestroySubsystem, Function,
    HotPlug, HotUnplug, ResumeController,
};
use planner::exposure::{ExposureId, Presence};
use ports::emulation::DiskFunction;
use ports::{ErrorClass, PortError};

/// The only namespace of such a function.
pub(super) const NSID: u32 = 1;

pub(super) fn presence(state: &State, id: &ExposureId, plugged: &Plugged<'_>) -> Presence {
    let leaving = state.functions.of(id).is_some_and(|kept| kept.leaving);
    match (leaving, plugged.controller.is_some_and(|controller| controller.plugged)) {
        (true, _) => Presence::Leaving,
        (false, true) => Presence::Present,
        (false, false) => Presence::Appearing,
    }
}

impl SnapEmulation {
    pub(super) fn disk_nqn(&self, object: &str) -> String {
        format!("{}:{object}", self.config.nqn)
    }

    /// Which function the disk gets: the one that it had, one that a crash left without a controller, or a new one.
    pub(super) async fn function_of(
        &self,
        state: &mut State,
        seen: &Seen,
        id: &ExposureId,
        object: &str,
    ) -> Result<String, PortError> {
        if let Some(kept) = state.functions.of(id)
            && seen.functions.iter().any(|function| function.vuid == kept.vuid)
        {
            return Ok(kept.vuid.clone());
        }
        let is_idle =
            |f: &&Function| f.hotplugged && f.is_nvme() && f.ctrl_id.is_empty() && !state.functions.is_kept(&f.vuid);
        let vuid = match seen.functions.iter().find(is_idle) {
            Some(idle) => idle.vuid.clone(),
            None => {
                let taken = seen.functions.iter().filter(|function| function.hotplugged).count();
                if taken >= usize::try_from(self.config.switch_ports).unwrap_or(usize::MAX) {
                    return Err(self.no_place(object, "SNAP's own functions have them"));
                }
                match self.rpc.call(&CreateFunction {}).await {
                    Ok(made) => made.vuid,
                    Err(error) if error.class() == ErrorClass::Busy => return Err(self.no_place(object, &error)),
                    Err(error) => return Err(error.at(object)),
                }
            }
        };
        let kept = state.functions.keep(id, Kept { vuid: vuid.clone(), leaving: false });
        kept.map_err(|e| port_error(ErrorClass::Busy, object, format!("writing down its function: {e}")))?;
        Ok(vuid)
    }

    fn no_place(&self, object: &str, why: impl std::fmt::Display) -> PortError {
        let ports = self.config.switch_ports;
        let what = format!(
            "no port of the DPU's PCIe switch is free ({ports} for disks and NICs together): {why}. A disk that is asked for before \
             the host starts needs none"
        );
        port_error(ErrorClass::Busy, object, what)
    }

    pub(super) async fn plug(
        &self,
        state: &mut State,
        seen: &Seen,
        disk: &DiskFunction,
        object: &str,
    ) -> Result<(), PortError> {
        let vuid = self.function_of(state, seen, &disk.id, object).await?;
        let ctrl_id = self.back(seen, disk, &vuid, object).await?;
        self.call(&ResumeController { ctrl_id: &ctrl_id }, object).await?;
        state.plugging.insert(disk.id.clone());
        self.call(&HotPlug { ctrl_id: &ctrl_id, wait_for_done: false }, object).await.map(drop)
    }

    /// A suspended controller on the function, with its namespace. Whatever of it is there already stays.
    pub(super) async fn back(
        &self,
        seen: &Seen,
        disk: &DiskFunction,
        vuid: &str,
        object: &str,
    ) -> Result<String, PortError> {
        let nqn = self.disk_nqn(object);
        let there = seen.plugged().find(|(id, _)| *id == disk.id).map(|(_, plugged)| plugged);
        if there.is_none() {
            self.make_subsystem(&nqn, &disk.serial, object).await?;
        }
        let namespace = there.and_then(|plugged| plugged.namespace);
        if namespace.is_none() {
            self.make_namespace(seen, disk, &nqn, NSID, object).await?;
        }
        let ctrl_id = match there.and_then(|plugged| plugged.controller) {
            Some(controller) => controller.ctrl_id.clone(),
            None => self.call(&CreateController { nqn: &nqn, suspended: true, vuid }, object).await?.ctrl_id,
        };
        if namespace.is_none_or(|namespace| namespace.controllers.is_empty()) {
            self.call(&AttachNamespace { ctrl_id: &ctrl_id, nsid: NSID }, object).await?;
        }
        Ok(ctrl_id)
    }

    /// Asks the host to let go of it.
    pub(super) async fn unplug(
        &self,
        state: &mut State,
        seen: &Seen,
        id: &ExposureId,
        plugged: &Plugged<'_>,
        object: &str,
    ) -> Result<(), PortError> {
        let vuid = state.functions.of(id).map(|kept| kept.vuid.clone());
        let vuid = vuid.or_else(|| function_behind(seen, plugged)).unwrap_or_default();
        // First: what is not plugged and not leaving either is on its way to the host.
        let kept = state.functions.keep(id, Kept { vuid, leaving: true });
        kept.map_err(|e| port_error(ErrorClass::Busy, object, format!("writing down that it leaves: {e}")))?;
        match plugged.controller.filter(|controller| controller.plugged) {
            Some(controller) => {
                self.call(&HotUnplug { ctrl_id: &controller.ctrl_id, wait_for_done: false }, object).await?;
            }
            None => self.finish_unplug(state, id, plugged).await?,
        }
        Ok(())
    }

    /// Destroys what the host has let go of, and what an interrupted plug left half made; plugs what is whole and was not plugged yet. Whether there
    /// was anything.
    pub(super) async fn finish_unplugs(&self, state: &mut State, seen: &Seen) -> Result<bool, PortError> {
        let mut any = false;
        for (id, plugged) in seen.plugged() {
            let leaving = presence(state, &id, &plugged) == Presence::Leaving;
            if plugged.controller.is_some_and(|controller| controller.plugged) {
                state.plugging.remove(&id);
                continue;
            }
            if state.plugging.contains(&id) && !leaving {
                continue;
            }
            any = true;
            let started = plugged.controller.filter(|controller| controller.is_started());
            let attached = plugged.namespace.is_some_and(|namespace| !namespace.controllers.is_empty());
            match started.filter(|_| attached && !leaving) {
                Some(controller) => {
                    state.plugging.insert(id.clone());
                    let plug = HotPlug { ctrl_id: &controller.ctrl_id, wait_for_done: false };
                    match self.rpc.call(&plug).await {
                        Err(error) if error.class() == ErrorClass::Unreachable => {
                            return Err(error.at(&names::bdev(&id)));
                        }
                        // Refused: it is on its way to the host.
                        _ => {}
                    }
                }
                None => self.finish_unplug(state, &id, &plugged).await?,
            }
        }
        Ok(any)
    }

    async fn finish_unplug(&self, state: &mut State, id: &ExposureId, plugged: &Plugged<'_>) -> Result<(), PortError> {
        let object = names::bdev(id);
        let nqn = plugged.subsystem.nqn.as_str();
        if let Some(namespace) = plugged.namespace {
            self.destroy(nqn, namespace).await?;
        }
        if let Some(controller) = plugged.controller {
            self.call(&DestroyController { ctrl_id: &controller.ctrl_id, force: true }, &object).await?;
        }
        self.call(&DestroySubsystem { nqn }, &object).await?;
        if let Some(kept) = state.functions.of(id).filter(|kept| !kept.vuid.is_empty()) {
            match self.rpc.call(&DestroyFunction { vuid: &kept.vuid }).await {
                // The host has had it since before SNAP was started anew: the disk may still come back on it.
                Err(error) if error.class() == ErrorClass::Busy && !kept.leaving => return Ok(()),
                Err(error) if !matches!(error.class(), ErrorClass::NotFound | ErrorClass::Invalid) => {
                    return Err(error.at(&object));
                }
                // It is gone already, or is found without a controller and used again.
                _ => {}
            }
        }
        state.plugging.remove(id);
        let forgotten = state.functions.forget(id);
        forgotten.map_err(|e| port_error(ErrorClass::Busy, &object, format!("forgetting its function: {e}")))
    }
}

fn function_behind(seen: &Seen, plugged: &Plugged<'_>) -> Option<String> {
    let ctrl_id = &plugged.controller?.ctrl_id;
    seen.functions.iter().find(|function| function.ctrl_id == *ctrl_id).map(|function| function.vuid.clone())
}
