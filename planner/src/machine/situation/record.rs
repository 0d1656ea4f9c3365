//! What is on record of the last power action: it is written before the action is sent.

use crate::host::{PowerAction, PowerState};
use crate::machine::observed::{Belongings, name};
use api::BareMetalMachine;
use api::machine::PowerStatus;
use api::tinkerbell::Hardware;
use jiff::Timestamp;

/// What was recorded about the last action.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::machine) struct Record<'a> {
    pub action: Option<PowerAction>,
    pub at: Option<Timestamp>,
    accepted_at: Option<Timestamp>,
    pub started_boot_id: Option<&'a str>,
    /// The Workflow for which the host was last started from the network.
    pub started_for: Option<&'a str>,
    /// By what its BMC was asked for that.
    pub netboot_by: Option<&'a str>,
    pub attempts: u32,
    pub boot_disk_reads: Option<&'a str>,
    /// It was powered off because it had not read its boot disk, and nobody has asked for another start.
    pub booted_elsewhere: bool,
    /// It was powered on into its firmware's setup, and was not off since.
    pub in_setup: bool,
    pub setup_starts: u32,
    /// How often it was powered off because the agent of [`Self::started_for`] was no longer heard.
    pub agent_resets: u32,
    /// The state that was last read, and since when it is so.
    state: Option<&'a str>,
    since: Option<Timestamp>,
}

/// What a machine's status says of its Hardware, and how many attempts there were: what was done to one that it left says nothing.
pub(in crate::machine) fn of_machine<'a>(
    machine: &'a BareMetalMachine,
    current: Option<&Hardware>,
) -> (Option<&'a PowerStatus>, u32) {
    let hardware = current.map(|hardware| name(&hardware.metadata));
    let same = |recorded: &String| hardware.is_none_or(|hardware| hardware == recorded);
    let status = machine.status.as_ref().filter(|status| status.hardware_name.as_ref().is_none_or(same));
    let attempts = status.map(|status| status.power_on_attempts).unwrap_or_default();
    (status.and_then(|status| status.power.as_ref()), attempts)
}

/// When an action was last accepted, as far as the status or this process knows. Whole microseconds: that is what status
/// keeps.
pub(in crate::machine) fn accepted_at(own: &Belongings, power: Option<&PowerStatus>) -> Option<Timestamp> {
    let told = power.and_then(|power| power.last_action_accepted_at.as_ref()).map(|at| at.0);
    let sent = power.and_then(|power| power.last_action_at.as_ref()).map(|at| at.0);
    let seen = own.bmc.accepted_at.and_then(|at| Timestamp::from_microsecond(at.as_microsecond()).ok());
    // What was accepted before was another machine's, or an action before this one.
    told.max(seen.filter(|seen| sent.is_some_and(|sent| *seen >= sent)))
}

fn action(name: &str) -> Option<PowerAction> {
    [PowerAction::On, PowerAction::SoftOff, PowerAction::ForceOff, PowerAction::WarmReset]
        .into_iter()
        .find(|action| action_name(*action) == name)
}

pub fn action_name(action: PowerAction) -> &'static str {
    match action {
        PowerAction::On => "On",
        PowerAction::SoftOff => "SoftOff",
        PowerAction::ForceOff => "ForceOff",
        PowerAction::WarmReset => "WarmReset",
    }
}

pub fn state_name(state: PowerState) -> &'static str {
    match state {
        PowerState::On => "On",
        PowerState::Off => "Off",
        PowerState::PoweringOn => "PoweringOn",
        PowerState::PoweringOff => "PoweringOff",
    }
}

impl<'a> Record<'a> {
    pub(super) fn of(own: &Belongings, power: Option<&'a PowerStatus>, attempts: u32) -> Self {
        Self {
            action: power.and_then(|p| p.last_action.as_deref()).and_then(action),
            at: power.and_then(|p| p.last_action_at.as_ref()).map(|at| at.0),
            accepted_at: accepted_at(own, power),
            started_boot_id: power.and_then(|p| p.started_boot_id.as_deref()),
            started_for: power.and_then(|p| p.started_for.as_deref()),
            netboot_by: power.and_then(|p| p.netboot_by.as_deref()),
            attempts,
            boot_disk_reads: power.and_then(|p| p.boot_disk_reads.as_deref()),
            booted_elsewhere: power.is_some_and(|p| p.booted_elsewhere),
            in_setup: power.is_some_and(|p| p.in_setup),
            setup_starts: power.map_or(0, |p| p.setup_starts),
            agent_resets: power.map_or(0, |p| p.agent_resets),
            state: power.map(|p| p.state.as_str()),
            since: power.map(|p| p.observed_at.0),
        }
    }

    /// The host was on after the last action and is off now.
    pub(in crate::machine) fn went_off(&self) -> bool {
        match self.state {
            Some("Off") => self.since > self.at,
            Some("On" | "PoweringOff") => true,
            _ => false,
        }
    }

    pub(in crate::machine) fn off_since(&self, now: Timestamp) -> Timestamp {
        match self.state {
            Some("Off") => self.since.unwrap_or(now),
            _ => now,
        }
    }

    /// Whether the last action, a reset without which nothing is booted, may never have been sent: its record is written
    /// before, and power says nothing about it.
    pub(in crate::machine) fn reset_may_be_lost(&self) -> bool {
        self.action == Some(PowerAction::WarmReset) && self.accepted_at < self.at
    }

    pub(in crate::machine) fn asked_on(&self) -> bool {
        matches!(self.action, Some(PowerAction::On | PowerAction::WarmReset))
    }
}
