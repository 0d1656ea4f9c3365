//! What a bmc.tinkerbell.org Machine says of its BMC: whether the BMC answers, and the power of the host.

use crate::host;
use crate::observed::{BmcProblem, BmcSeen};
use api::tinkerbell::machine::{Connection, Machine, MachineCondition, MachineStatus, PowerState};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const CONTACTABLE: &str = "Contactable";

/// To be written; `None`: the status stands, or nothing is known yet. The time of a condition that says the same as before stays.
pub fn contact(machine: &Machine, seen: &BmcSeen, now: Timestamp) -> Option<MachineStatus> {
    let before = machine.status.clone().unwrap_or_default();
    let (answers, power, message) = match (provider(&machine.spec.connection), &seen.problem, seen.host.last()) {
        (Some(provider), ..) => (false, PowerState::Unknown, Some(not_supported(provider))),
        (None, Some(problem), _) => (false, PowerState::Unknown, Some(reason(problem))),
        (None, None, Some(host)) => (true, power(host.power), None),
        (None, None, None) => return None,
    };
    let mut status = before.clone();
    status.power_state = Some(power);
    let said = if answers { "True" } else { "False" };
    match status.conditions.iter_mut().find(|condition| condition.type_ == CONTACTABLE) {
        Some(old) if old.status == said && old.message == message => {}
        Some(old) => (old.status, old.last_update_time, old.message) = (said.to_owned(), Some(Time(now)), message),
        None => status.conditions.push(MachineCondition {
            type_: CONTACTABLE.to_owned(),
            status: said.to_owned(),
            last_update_time: Some(Time(now)),
            message,
        }),
    }
    (status != before).then_some(status)
}

/// The provider that is asked for in the place of a BMC, which nobody serves.
fn provider(connection: &Connection) -> Option<&'static str> {
    let options = connection.provider_options.as_ref()?;
    let spoken = options.redfish.is_some() || options.ipmitool.is_some() || !options.preferred_order.is_empty();
    let all_amt = options.preferred_order.iter().all(|provider| provider.0.eq_ignore_ascii_case("IntelAMT"));
    if options.rpc.is_some() {
        Some("rpc")
    } else if options.homeassistant.is_some() {
        Some("homeassistant")
    } else if (options.intel_amt.is_some() && !spoken) || (!options.preferred_order.is_empty() && all_amt) {
        Some("IntelAMT")
    } else {
        None
    }
}

fn not_supported(provider: &str) -> String {
    format!(
        "ProviderNotSupported: spec.connection.providerOptions asks for {provider}. Next: where the BMC speaks Redfish, write \
         preferredOrder: [gofish] and take {provider} out"
    )
}

fn reason(problem: &BmcProblem) -> String {
    match problem {
        BmcProblem::NotSpoken { .. } => format!("ProviderNotSupported: {}", problem.message()),
        _ => problem.message(),
    }
}

fn power(power: host::PowerState) -> PowerState {
    match power {
        host::PowerState::On | host::PowerState::PoweringOff => PowerState::On,
        host::PowerState::Off | host::PowerState::PoweringOn => PowerState::Off,
    }
}
