//! The condition Ready of a Dpu. Its agent says it; the controller says Unknown over it while the agent does not renew its Lease.
//! So that the two do not write against each other, the agent answers that word only with a renewal that was begun after the
//! agent had found the word, and that the API server has acknowledged: whoever reads the Lease after that finds it renewed.

use crate::observed::DpuSeen;
use crate::reason::{Reason, Waiting};
use api::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The reasons of the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    AgentRunning,
    EmulationUnreachable,
    SwitchUnreachable,
    BridgeNotSecure,
    /// The controller's: the agent does not renew its Lease.
    AgentSilent,
    /// The controller's: the DPU is off with its host.
    HostOff,
}

impl Word {
    const ALL: [Self; 6] = [
        Self::AgentRunning,
        Self::EmulationUnreachable,
        Self::SwitchUnreachable,
        Self::BridgeNotSecure,
        Self::AgentSilent,
        Self::HostOff,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentRunning => "AgentRunning",
            Self::EmulationUnreachable => "EmulationUnreachable",
            Self::SwitchUnreachable => "SwitchUnreachable",
            Self::BridgeNotSecure => "BridgeNotSecure",
            Self::AgentSilent => "AgentSilent",
            Self::HostOff => "HostOff",
        }
    }

    /// The reason that stands in a condition.
    pub fn of(ready: &Condition) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.as_str() == ready.reason)
    }
}

/// The controller says it of an agent that does not renew its Lease.
pub fn is_of_the_controller(ready: &Condition) -> bool {
    matches!(Word::of(ready), Some(Word::AgentSilent | Word::HostOff))
}

/// Why a Dpu cannot be used yet, as it says itself.
pub(crate) fn not_ready(dpu: &DpuSeen) -> Reason {
    let conditions = dpu.dpu.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let message = match conditions::get(conditions, conditions::READY) {
        Some(ready) => format!("{}: {}", ready.reason, ready.message),
        None => "its agent has not reported yet".to_owned(),
    };
    Waiting::DpuNotReady { dpu: dpu.name().to_owned(), message }.into()
}

/// Renewals of the Lease by this process, numbered from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Renewals {
    /// The last that was sent.
    pub begun: u64,
    /// The last that the API server has acknowledged.
    pub acknowledged: u64,
}

/// What the agent keeps between two looks at its Dpu.
#[derive(Debug, Default)]
pub struct Answer {
    /// The last renewal that was sent before the controller's word was found.
    found_at: Option<u64>,
}

impl Answer {
    /// `told`: the condition Ready, as the API server has it. False: the agent leaves it as it is.
    pub fn is_due(&mut self, told: Option<&Condition>, renewals: Renewals) -> bool {
        if !told.is_some_and(is_of_the_controller) {
            self.found_at = None;
            return true;
        }
        renewals.acknowledged > *self.found_at.get_or_insert(renewals.begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::conditions::{ConditionStatus, READY};
    use jiff::Timestamp;

    fn said(status: ConditionStatus, word: Word) -> Option<Condition> {
        let mut all = Vec::new();
        conditions::set(&mut all, READY, status, word.as_str(), "", None, Timestamp::UNIX_EPOCH);
        all.pop()
    }

    #[test]
    fn the_agent_answers_only_with_a_renewal_that_was_begun_after_the_word_and_acknowledged() {
        let at = |begun, acknowledged| Renewals { begun, acknowledged };
        let silent = said(ConditionStatus::Unknown, Word::AgentSilent);
        let mut answer = Answer::default();
        assert!(answer.is_due(None, at(0, 0)), "nothing was said before");
        assert!(answer.is_due(said(ConditionStatus::False, Word::SwitchUnreachable).as_ref(), at(9, 3)));
        assert!(!answer.is_due(silent.as_ref(), at(9, 8)), "the ninth may have been sent before the silence");
        assert!(!answer.is_due(silent.as_ref(), at(9, 9)), "acknowledged late");
        assert!(!answer.is_due(silent.as_ref(), at(10, 9)), "under way");
        assert!(answer.is_due(silent.as_ref(), at(10, 10)));
        assert!(answer.is_due(said(ConditionStatus::True, Word::AgentRunning).as_ref(), at(10, 10)));
        let parked = said(ConditionStatus::Unknown, Word::HostOff);
        assert!(!answer.is_due(parked.as_ref(), at(10, 10)), "the word is a new one");
    }
}
