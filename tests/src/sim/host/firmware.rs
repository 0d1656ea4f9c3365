//! What the firmware of a host does in a POST: what it boots, and which disks it lists.

use super::{Host, NIC, SLOT, State, slot};
use planner::exposure::Slot;
use planner::host::{BootOverride, BootSource, Medium, PowerState};
use std::sync::Arc;

/// How a firmware comes to list the disk of its DPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// It has seen the disk before.
    Known,
    /// From the next POST on.
    New,
    Never,
    /// As `New`, and an override to the setup is ignored: it boots whatever there is.
    WithoutSetup,
    /// As `New`, and a POST in which the disk is not there takes it off the list.
    Forgetful,
}

impl Host {
    /// Somebody presses its button, or its power is back.
    pub fn is_switched_on(self: &Arc<Self>) {
        let mut state = self.state();
        if state.power == PowerState::Off {
            state.power = PowerState::PoweringOn;
            self.rise(&mut state);
        }
    }
}

impl State {
    pub(super) fn posts(&mut self, dpu: &str) {
        self.posted = Some(self.turn);
        if let Some(order) = self.boot.pending.take() {
            self.boot.order = order;
        }
        let follows = |next: &BootOverride| !self.ignores_once || next.source != BootSource::Pxe;
        let next = self.boot.next.take().filter(follows).or(self.boot.always);
        let has_medium = matches!(self.medium, Medium::Inserted(_));
        self.booted = next.map(|next| next.source).filter(|source| match source {
            BootSource::Pxe => true,
            BootSource::Cd => has_medium,
            _ => false,
        });
        let overridden = next.is_some();
        if !overridden && self.boot.order.first().map(String::as_str) == Some(NIC) {
            self.booted = Some(BootSource::Pxe);
        }
        self.booted = self.booted.filter(|source| !self.knows_no_network || *source != BootSource::Pxe);
        let first = !overridden && self.boot.order.first().map(String::as_str) == Some(SLOT);
        // One with another serial number is another boot option.
        let serial = api::names::boot_serial(dpu);
        let is_there = self.dpu.disks().iter().any(|disk| disk.slot == Slot::Boot && disk.serial == serial);
        let falls_through = overridden && self.listing == Listing::WithoutSetup;
        self.found = (first || falls_through) && is_there && self.own_disk.is_none();
        self.strays += u32::from(!overridden && !self.found);
        self.list(dpu, is_there);
    }

    fn list(&mut self, dpu: &str, is_there: bool) {
        let is_listed = self.boot.order.iter().any(|reference| reference == SLOT);
        match self.listing {
            Listing::Forgetful if !is_there => self.forget_the_slot(),
            Listing::New | Listing::WithoutSetup | Listing::Forgetful if is_there && !is_listed => {
                self.boot.options.push(slot(dpu));
                self.boot.order.push(SLOT.to_owned());
            }
            _ => {}
        }
    }

    pub(super) fn forget_the_slot(&mut self) {
        self.boot.options.retain(|option| option.reference != SLOT);
        self.boot.order.retain(|reference| reference != SLOT);
    }
}
