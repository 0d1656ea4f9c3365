//! What is on record of a server's power: in the status of the machine that has it, or at its Hardware where that no longer exists.

use crate::erase::PowerRecord;
use crate::host::{PowerAction, PowerState};
use crate::machine::plan::{Disruptive, PowerOrder};
use crate::machine::power::CALM;
use crate::machine::situation::{Owned, Reading, accepted_at, action_name, state_name};
use api::machine::PowerStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The record after a plan. `adopted`: the boot of the DPU on which the host was found running. `is_stopped`: its user wants it off, and it is.
pub(in crate::machine) fn record(
    o: &Owned<'_>,
    before: PowerRecord,
    adopted: Option<String>,
    (disruptive, is_stopped): (Option<&Disruptive>, bool),
    now: Timestamp,
) -> PowerRecord {
    if o.held().is_empty() {
        return PowerRecord::default();
    }
    let PowerRecord { power: before, mut power_on_attempts } = before;
    let since = |state: &str| match &before {
        Some(old) if old.state == state => old.observed_at.clone(),
        _ => MicroTime(now),
    };
    let state = match (o.reading, &before) {
        (Reading::Fresh(state) | Reading::Old(state), _) => state_name(state).to_owned(),
        (Reading::Rising(_), _) => state_name(PowerState::Off).to_owned(),
        (Reading::None, Some(old)) => old.state.clone(),
        (Reading::None, None) => "Unknown".to_owned(),
    };
    let mut power = PowerStatus {
        observed_at: since(&state),
        last_action: before.as_ref().and_then(|old| old.last_action.clone()),
        last_action_at: before.as_ref().and_then(|old| old.last_action_at.clone()),
        last_action_accepted_at: accepted_at(o, before.as_ref()).map(MicroTime),
        started_boot_id: before.as_ref().and_then(|old| old.started_boot_id.clone()),
        started_for: before.as_ref().and_then(|old| old.started_for.clone()),
        netboot_by: before.as_ref().and_then(|old| old.netboot_by.clone()),
        boot_disk_reads: before.as_ref().and_then(|old| old.boot_disk_reads.clone()),
        booted_elsewhere: before.as_ref().is_some_and(|old| old.booted_elsewhere) && !is_stopped,
        in_setup: o.is_in_setup() && !is_off_again(o),
        setup_starts: before.as_ref().filter(|_| !is_stopped).map_or(0, |old| old.setup_starts),
        agent_resets: before.as_ref().map_or(0, |old| old.agent_resets),
        state,
    };
    let on_since = power.last_action_at.as_ref().map_or(power.observed_at.0, |at| at.0.max(power.observed_at.0));
    if power.state == "On" && now >= on_since + CALM {
        power_on_attempts = 0;
    }
    if let (Some(boot_id), None) = (adopted, &power.started_boot_id) {
        power.started_boot_id = Some(boot_id);
    }
    if let Some(Disruptive::Power(order)) = disruptive {
        sent(order, &mut power, now);
        if order.action != PowerAction::SoftOff {
            power_on_attempts = order.attempts;
        }
    }
    PowerRecord { power: Some(power), power_on_attempts }
}

/// Off after the last action, which was to power it off.
fn is_off_again(o: &Owned<'_>) -> bool {
    matches!(o.record.action, Some(PowerAction::SoftOff | PowerAction::ForceOff)) && o.was_off()
}

/// The record of an action, written before it is sent.
fn sent(order: &PowerOrder, power: &mut PowerStatus, now: Timestamp) {
    power.last_action = Some(action_name(order.action).to_owned());
    power.last_action_at = Some(MicroTime(now));
    match order.action {
        PowerAction::On | PowerAction::WarmReset => {
            power.boot_disk_reads = order.boot_disk_reads.clone();
            power.booted_elsewhere = false;
            power.in_setup = order.into_setup;
            power.setup_starts = match order.restart {
                _ if !order.into_setup => 0,
                // Its user asks anew.
                Some(_) => 1,
                None => power.setup_starts + 1,
            };
        }
        PowerAction::SoftOff | PowerAction::ForceOff => power.booted_elsewhere |= order.booted_elsewhere,
    }
    power.agent_resets += u32::from(order.for_agent);
    if order.started_boot_id.is_some() {
        power.started_boot_id = order.started_boot_id.clone();
    }
    if order.started_for.is_some() {
        if order.started_for != power.started_for {
            power.agent_resets = 0;
        }
        power.started_for = order.started_for.clone();
    }
    // Whoever has it stopped begins with the first way again.
    power.netboot_by = order.netboot_by.clone();
}
