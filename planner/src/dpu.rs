//! One DPU: its namespace and identity once it is approved, and what a silent agent means.

use crate::host::PowerState;
use crate::seen::Seen;
use api::Dpu;
use api::conditions::{self, APPROVED, ConditionStatus, PARKED, READY};
use api::dpu::{DpuStatus, PowerDomain};
use api::names;
use jiff::Timestamp;

/// Everything that a plan for one DPU rests on.
#[derive(Debug, Clone)]
pub struct Observed {
    pub dpu: Dpu,
    /// The namespace, the ServiceAccount and its bindings are there.
    pub identity: bool,
    /// The agent's Lease has not changed for the time that it promises to renew it in.
    pub silent: bool,
    /// Its host's power, where the controller reads that BMC.
    pub host: Seen<PowerState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Makes the namespace, the ServiceAccount `agent` and its bindings; what is there already is left.
    GiveIdentity { namespace: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// Only what is the controller's: `namespace`, Approved, Parked, and Ready=Unknown of a silent agent.
    pub status: DpuStatus,
}

/// What to do for this DPU now.
pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let mut status = o.dpu.status.clone().unwrap_or_default();
    let mut actions = Vec::new();
    let name = o.dpu.metadata.name.clone().unwrap_or_default();
    let namespace = names::dpu_namespace(&name);
    if o.dpu.spec.approved && o.dpu.metadata.deletion_timestamp.is_none() {
        if !o.identity {
            actions.push(Action::GiveIdentity { namespace: namespace.clone() });
        }
        // The agent asks for its token once it sees the namespace: only when all of it is there.
        if o.identity {
            status.namespace = Some(namespace);
        }
    }
    let generation = o.dpu.metadata.generation;
    let mut set = |type_: &str, is: ConditionStatus, reason: &str, message: String| {
        conditions::set(&mut status.conditions, type_, is, reason, &message, generation, now);
    };
    if o.dpu.spec.approved {
        set(APPROVED, ConditionStatus::True, "Approved", "an administrator let it in".to_owned());
    } else {
        let message = format!(
            "an administrator must let it in: kubectl patch dpu {name} --type merge -p '{{\"spec\":{{\"approved\":true}}}}'"
        );
        set(APPROVED, ConditionStatus::False, "NotApproved", message);
    }
    let parked = o.silent && o.dpu.spec.power_domain == PowerDomain::Host && o.host.fresh() == Some(&PowerState::Off);
    if parked {
        set(PARKED, ConditionStatus::True, "HostOff", "it is off with its host".to_owned());
    } else if conditions::get(&o.dpu.status.clone().unwrap_or_default().conditions, PARKED).is_some() {
        set(PARKED, ConditionStatus::False, "HostOn", "its host has power".to_owned());
    }
    if o.silent && o.dpu.spec.approved && o.dpu.status.as_ref().is_some_and(|s| s.namespace.is_some()) {
        let message = "its agent has not renewed its lease for 5 s".to_owned();
        set(READY, ConditionStatus::Unknown, "AgentSilent", message);
    }
    Plan { actions, status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::DpuSpec;

    fn observed(approved: bool, identity: bool, silent: bool) -> Observed {
        let mut dpu = Dpu::new("dpu-1", DpuSpec { approved, ..DpuSpec::default() });
        dpu.status =
            Some(DpuStatus { namespace: identity.then(|| "metalplane-dpu-dpu-1".into()), ..DpuStatus::default() });
        Observed { dpu, identity, silent, host: Seen::Unknown }
    }

    #[test]
    fn a_dpu_gets_an_identity_only_when_approved() {
        assert!(plan(&observed(false, false, false), Timestamp::UNIX_EPOCH).actions.is_empty());
        let first = plan(&observed(true, false, false), Timestamp::UNIX_EPOCH);
        assert_eq!(first.actions, [Action::GiveIdentity { namespace: "metalplane-dpu-dpu-1".into() }]);
        assert_eq!(first.status.namespace, None, "not told before all of it is there");
        assert!(plan(&observed(true, true, false), Timestamp::UNIX_EPOCH).actions.is_empty());
    }

    #[test]
    fn a_silent_agent_is_unknown_and_parked_only_with_its_host_off() {
        let ready = |plan: &Plan| conditions::get(&plan.status.conditions, READY).map(|c| c.status.clone());
        let silent = plan(&observed(true, true, true), Timestamp::UNIX_EPOCH);
        assert_eq!(ready(&silent).as_deref(), Some("Unknown"));
        let mut off = observed(true, true, true);
        off.host = Seen::Fresh(PowerState::Off);
        assert!(
            !conditions::is_true(&plan(&off, Timestamp::UNIX_EPOCH).status.conditions, PARKED),
            "Standby never parks"
        );
        off.dpu.spec.power_domain = PowerDomain::Host;
        assert!(conditions::is_true(&plan(&off, Timestamp::UNIX_EPOCH).status.conditions, PARKED));
    }
}
