//! What a step does to the world, or the class of its failure.

use super::{DEVICE, World};
use crate::agent::*;
use crate::exposure::{Exposure, ExposureId, FunctionKind, Limits, Presence};

impl World {
    fn needs(down: bool) -> Result<(), FailureClass> {
        if down { Err(FailureClass::Unreachable) } else { Ok(()) }
    }

    fn show(&mut self, id: &ExposureId, kind: FunctionKind, limits: Limits) -> Result<(), FailureClass> {
        Self::needs(self.is_down(kind))?;
        self.one_epoch(id);
        self.record.get_mut(&id.uid).ok_or(FailureClass::NotFound)?.shown = true;
        let size_bytes = (kind == FunctionKind::Disk).then_some(self.volume_bytes);
        if !self.exposures.iter().any(|e| e.id == *id) {
            let presence = Presence::Present;
            let limits = if self.can_limit(limits) { limits } else { Limits::default() };
            let link_up = (kind == FunctionKind::Nic).then_some(false);
            let id = id.clone();
            let representor = (kind == FunctionKind::Nic).then(|| DEVICE.to_owned());
            self.exposures.push(Exposure { id, kind, presence, size_bytes, limits, representor, link_up });
        }
        Ok(())
    }

    fn set_link(&mut self, id: &ExposureId, up: bool) -> Result<(), FailureClass> {
        Self::needs(self.is_down(FunctionKind::Nic))?;
        self.exposures.iter_mut().find(|e| e.id == *id).ok_or(FailureClass::NotFound)?.link_up = Some(up);
        Ok(())
    }

    fn can_limit(&self, limits: Limits) -> bool {
        !self.limits_no_reading || limits.read_mib.is_none()
    }

    fn claim(&mut self, key: &Key, id: &ExposureId, shown: bool) -> Result<(), FailureClass> {
        Self::needs(self.api_down)?;
        let boot_id = self.boot_id();
        let truth = self.attachments.get_mut(&key.uid).ok_or(FailureClass::NotFound)?;
        if truth.epoch != Some(id.epoch) || truth.deleting {
            return Err(FailureClass::Conflict);
        }
        let function = truth.function.clone().map_err(|_| FailureClass::Invalid)?;
        let identity = format!("{}.{}", id.uid, id.epoch);
        let (id, limits) = (id.clone(), truth.limits);
        let key = key.clone();
        let entry = Entry { key, id, boot_id, identity, function, limits, import_done: None, shown };
        self.record.insert(entry.id.uid.clone(), entry);
        Ok(())
    }

    pub(super) fn take(&mut self, step: &Step) -> Result<(), FailureClass> {
        match step {
            Step::Claim { key, id, shown } => self.claim(key, id, *shown)?,
            Step::Connect { id, .. } => {
                Self::needs(self.storage_down)?;
                self.one_epoch(id);
                self.connections.push(Connected { id: id.clone(), size_bytes: self.volume_bytes });
            }
            Step::WriteSeed { id, .. } => {
                Self::needs(self.api_down)?;
                self.seeds.insert(id.uid.clone());
            }
            // What it is made of is on the DPU.
            Step::WriteEraser { id, .. } | Step::WriteHoldDisk { id, .. } => drop(self.seeds.insert(id.uid.clone())),
            Step::ExposeDisk { id, limits, .. } => self.show(id, FunctionKind::Disk, *limits)?,
            Step::ExposeNic { id, .. } => self.show(id, FunctionKind::Nic, Limits::default())?,
            Step::Plug { id, .. } => {
                self.one_epoch(id);
                self.plug(id);
            }
            Step::LinkUp { id } => self.set_link(id, true)?,
            Step::LinkDown { id } => self.set_link(id, false)?,
            Step::Resize { id, size_bytes } => {
                Self::needs(self.emulation_down)?;
                if self.resizes_offline_only {
                    return Err(FailureClass::Unsupported);
                }
                let shown = self.exposures.iter_mut().find(|e| e.id == *id).ok_or(FailureClass::NotFound)?;
                shown.size_bytes = Some(*size_bytes);
            }
            Step::Limit { id, asked, limits } => {
                self.record.get_mut(&id.uid).ok_or(FailureClass::NotFound)?.limits = *asked;
                Self::needs(self.emulation_down)?;
                if !self.can_limit(*limits) {
                    return Err(FailureClass::Unsupported);
                }
                self.exposures.iter_mut().find(|e| e.id == *id).ok_or(FailureClass::NotFound)?.limits = *limits;
            }
            Step::StartImport { id, .. } => drop(self.imports.insert(id.uid.clone(), ImportRun { bytes_written: 0 })),
            Step::StopImport { id } => drop(self.imports.remove(&id.uid)),
            Step::Hide { id, kind } => {
                Self::needs(self.is_down(*kind))?;
                let shown = self.exposures.iter_mut().filter(|e| e.id == *id);
                shown.for_each(|e| e.presence = Presence::Leaving);
                self.hidden_at.insert(id.uid.clone(), self.now);
            }
            Step::NoteRelease { id } => drop(self.released.insert(id.clone())),
            Step::Unplug { id } => self.ports.retain(|p| p.id != *id),
            Step::Disconnect { id, .. } => {
                Self::needs(self.storage_down)?;
                self.connections.retain(|c| c.id != *id);
            }
            Step::RemoveSeed { uid } => drop(self.seeds.remove(uid)),
            Step::Forget { uid } => drop(self.record.remove(uid)),
            Step::Finish { key } => {
                Self::needs(self.api_down)?;
                self.record.remove(&key.uid);
                self.attachments.remove(&key.uid);
                self.finished.push(key.uid.clone());
            }
        }
        Ok(())
    }
}
