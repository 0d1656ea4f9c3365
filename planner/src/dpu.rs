//! One DPU: let in by its administrator, given a namespace and an identity, and watched for silence.

use crate::host::{HostObserved, PowerState};
use crate::machine::BmcNeed;
use crate::seen::Seen;
use api::conditions::{self, ConditionStatus};
use api::dpu::PowerDomain;
use api::{Dpu, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::sync::Arc;

/// Reasons of the controller's own conditions of a Dpu.
pub const AGENT_SILENT: &str = "AgentSilent";
pub const HOST_OFF: &str = "HostOff";

#[derive(Debug, Clone)]
pub struct Observed {
    pub dpu: Arc<Dpu>,
    /// Its agent's Lease has not changed for five seconds of the controller's monotonic clock.
    pub silent: bool,
    /// Of the host that it shares power with.
    pub host: Seen<HostObserved>,
    /// Namespace, account and roles were made by this process, for this generation.
    pub prepared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Namespace, ServiceAccount `agent`, RoleBinding, ClusterRole and its binding.
    Prepare,
    /// The bindings go: the agent may do nothing any more.
    Revoke,
}

/// What the controller says about a Dpu; the agent says the rest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    pub namespace: Option<String>,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub action: Option<Action>,
    /// None: it is so already.
    pub status: Option<Status>,
    pub bmc: BmcNeed,
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let dpu = &o.dpu;
    let before = dpu.status.clone().unwrap_or_default();
    let approved = dpu.spec.approved;
    let namespace = match (approved, o.prepared) {
        (true, true) => Some(names::dpu_namespace(dpu.metadata.name.as_deref().unwrap_or_default())),
        _ => before.namespace.clone(),
    };
    let mut conditions = before.conditions.clone();
    let generation = dpu.metadata.generation;
    let mut ours = vec![conditions::APPROVED, conditions::PARKED];
    let mut set = |type_: &str, status: ConditionStatus, reason: &str, message: &str| {
        conditions::set(&mut conditions, type_, status, reason, message, generation, now);
    };
    match approved {
        true => set(conditions::APPROVED, ConditionStatus::True, "Approved", ""),
        false => set(conditions::APPROVED, ConditionStatus::False, "NotApproved", "spec.approved is not true"),
    }
    let shares_power = dpu.spec.power_domain == PowerDomain::Host;
    let host_off = o.host.last().is_some_and(|host| host.power == PowerState::Off);
    let parked = shares_power && o.silent && host_off;
    match parked {
        true => set(conditions::PARKED, ConditionStatus::True, HOST_OFF, "it shares its host's power, which is off"),
        false => set(conditions::PARKED, ConditionStatus::False, "NotParked", ""),
    }
    let ready = conditions::get(&before.conditions, conditions::READY);
    if o.silent && before.boot_id.is_some() {
        let (reason, message) = match parked {
            true => (HOST_OFF, "it is off with its host"),
            false => (AGENT_SILENT, "its agent has not renewed its Lease for five seconds"),
        };
        set(conditions::READY, ConditionStatus::Unknown, reason, message);
        ours.push(conditions::READY);
    } else if ready.is_some_and(|ready| [AGENT_SILENT, HOST_OFF].contains(&ready.reason.as_str())) {
        // Until the agent has said again how it is.
        ours.push(conditions::READY);
    }
    let status =
        Status { namespace, conditions: conditions.into_iter().filter(|c| ours.contains(&c.type_.as_str())).collect() };
    let same = status.namespace == before.namespace
        && status.conditions.iter().all(|c| conditions::get(&before.conditions, &c.type_) == Some(c));
    let action = match (approved, o.prepared) {
        (true, false) => Some(Action::Prepare),
        (false, false) if before.namespace.is_some() => Some(Action::Revoke),
        _ => None,
    };
    Plan {
        action,
        status: (!same).then_some(status),
        bmc: if shares_power && o.silent { BmcNeed::Slow } else { BmcNeed::None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::{DpuSpec, DpuStatus};

    fn observed(power_domain: PowerDomain, silent: bool, power: Option<PowerState>) -> Observed {
        let mut dpu = Dpu::new("dpu-1", DpuSpec { approved: true, power_domain, ..DpuSpec::default() });
        dpu.status = Some(DpuStatus { boot_id: Some("b1".into()), ..DpuStatus::default() });
        let host = |power| HostObserved {
            power,
            boot: crate::host::BootConfiguration::default(),
            serial_number: None,
            model: None,
            manufacturer: None,
        };
        let host = power.map_or(Seen::Unknown, |power| Seen::Fresh(host(power)));
        Observed { dpu: Arc::new(dpu), silent, host, prepared: true }
    }

    fn word(plan: &Plan, type_: &str) -> String {
        let status = plan.status.as_ref().expect("something is new");
        conditions::get(&status.conditions, type_).map_or("none".into(), |c| format!("{} {}", c.status, c.reason))
    }

    #[test]
    fn a_silent_agent_is_unknown_and_with_its_host_off_parked() {
        let now = Timestamp::UNIX_EPOCH;
        let alive = plan(&observed(PowerDomain::Host, false, Some(PowerState::On)), now);
        assert_eq!(word(&alive, conditions::READY), "none", "that is the agent's word");
        let silent = plan(&observed(PowerDomain::Standby, true, Some(PowerState::Off)), now);
        assert_eq!(word(&silent, conditions::READY), "Unknown AgentSilent");
        assert_eq!(word(&silent, conditions::PARKED), "False NotParked");
        let parked = plan(&observed(PowerDomain::Host, true, Some(PowerState::Off)), now);
        assert_eq!(word(&parked, conditions::PARKED), "True HostOff");
        let unread = plan(&observed(PowerDomain::Host, true, None), now);
        assert_eq!(word(&unread, conditions::PARKED), "False NotParked", "unknown is not off");
        assert_eq!(unread.bmc, BmcNeed::Slow);
    }

    #[test]
    fn a_status_that_is_so_already_is_not_written_again() {
        let now = Timestamp::UNIX_EPOCH;
        let mut o = observed(PowerDomain::Standby, false, None);
        let status = plan(&o, now).status.expect("new");
        let mut dpu = Dpu::clone(&o.dpu);
        let before = dpu.status.get_or_insert_default();
        before.namespace = status.namespace;
        before.conditions = status.conditions;
        o.dpu = Arc::new(dpu);
        assert!(plan(&o, now).status.is_none());
    }
}
