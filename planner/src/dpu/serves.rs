//! A Dpu that was assigned to a server which a machine has claimed to be installed there: nothing of the Dpu is used before the machine
//! has released the server (`crate::machine::situation`, *is_bare*), and the Dpu says so.

use super::Observed;
use crate::install;
use crate::meta::name;
use api::machine::BootStrategy;

pub(super) const REASON: &str = "ClaimedAsWorkflow";

/// The message of the condition ServesHost, which is false. `None`: nothing is in the way.
pub(super) fn refused(o: &Observed) -> Option<String> {
    let hardware = &o.hardware.as_ref()?.metadata;
    if install::strategy(hardware) != Some(BootStrategy::Workflow) {
        return None;
    }
    let (dpu, server, claimer) = (name(&o.dpu.metadata), name(hardware), install::claimer(hardware)?);
    Some(format!(
        "{claimer} has claimed Hardware '{server}' with boot.strategy: Workflow, to run from a disk of the server itself; Dpu '{dpu}' presents \
         nothing to that host until the Hardware is released. Next: kubectl get bmm -A, and delete the machine where the DPU is to be used"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{observed, word};
    use super::super::{Observed, plan};
    use api::conditions::{self, SERVES_HOST};
    use api::dpu::{HardwareReference, PowerDomain};
    use api::tinkerbell::Hardware;
    use api::{Dpu, labels};
    use jiff::Timestamp;
    use std::sync::Arc;

    fn assigned(strategy: Option<&str>) -> Observed {
        let mut o = observed(PowerDomain::Standby, false, None);
        let mut dpu = Dpu::clone(&o.dpu);
        dpu.spec.hardware_ref = Some(HardwareReference { name: "server-1".to_owned(), serial_number: None });
        o.dpu = Arc::new(dpu);
        let mut hardware = Hardware::default();
        hardware.metadata.name = Some("server-1".to_owned());
        let claim = [(labels::CLAIMED_BY, "uid-1"), (labels::CLAIMED_BY_NAME, "team-a/bm-03")];
        let claim =
            strategy.into_iter().flat_map(|strategy| claim.into_iter().chain([(labels::BOOT_STRATEGY, strategy)]));
        hardware.metadata.annotations = Some(claim.map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
        o.hardware = Some(Arc::new(hardware));
        o
    }

    #[test]
    fn a_dpu_says_that_its_server_is_installed_by_a_workflow_for_as_long_as_that_is_so() {
        let now = Timestamp::UNIX_EPOCH;
        let mut o = assigned(Some("Workflow"));
        let said = plan(&o, now);
        assert_eq!(word(&said, SERVES_HOST), "False ClaimedAsWorkflow");
        let status = said.status.expect("something is new");
        let condition = conditions::get(&status.conditions, SERVES_HOST).expect("it is there");
        for part in ["team-a/bm-03", "'server-1'", "'dpu-1'", "Next: kubectl get bmm"] {
            assert!(condition.message.contains(part), "{}", condition.message);
        }
        let mut dpu = Dpu::clone(&o.dpu);
        let before = dpu.status.get_or_insert_default();
        (before.namespace, before.conditions) = (status.namespace, status.conditions);
        o.dpu = Arc::new(dpu);
        assert!(plan(&o, now).status.is_none(), "it is said once");
        o.hardware = assigned(None).hardware;
        let released = plan(&o, now);
        assert_eq!(word(&released, SERVES_HOST), "none", "it is taken back");
    }

    #[test]
    fn a_dpu_of_a_server_that_nobody_installs_says_nothing_of_it() {
        for strategy in [None, Some("CloudDisk"), Some(labels::DISCOVERY)] {
            assert_eq!(word(&plan(&assigned(strategy), Timestamp::UNIX_EPOCH), SERVES_HOST), "none", "{strategy:?}");
        }
        let mut unassigned = assigned(Some("Workflow"));
        unassigned.hardware = None;
        assert_eq!(word(&plan(&unassigned, Timestamp::UNIX_EPOCH), SERVES_HOST), "none");
    }
}
