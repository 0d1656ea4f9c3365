//! The kinds of work, each with a queue of its own. Which function does it is told by `run::reconcile`.

use runtime::queue::Queue;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Machine,
    /// What an owner that was deleted, a machine or an image, has left: by the UID of the owner.
    Leftovers,
    Dpu,
    /// Of Tinkerbell's: requests to one BMC.
    Job,
    /// A bmc.tinkerbell.org Machine: whether its BMC answers.
    Contact,
    /// Of Tinkerbell's, while its boot options are at work; of one that no machine has made, its Events.
    Workflow,
    /// Of a server whose agent has reported: its Hardware, if there is none, and the Workflow that a rule set asks for. By its report.
    Enrolment,
    Image,
    Hold,
    /// That asks for NICs, by its UID.
    Pod,
    VNic,
    Vpc,
    Subnet,
    SecurityGroup,
    ProviderNetwork,
    NatGateway,
    FloatingIP,
    MachineSnapshot,
    MachineRestore,
    MachineMigration,
}

impl Work {
    pub const ALL: [Self; 20] = [
        Self::Machine,
        Self::Leftovers,
        Self::Dpu,
        Self::Job,
        Self::Contact,
        Self::Workflow,
        Self::Enrolment,
        Self::Image,
        Self::Hold,
        Self::Pod,
        Self::VNic,
        Self::Vpc,
        Self::Subnet,
        Self::SecurityGroup,
        Self::ProviderNetwork,
        Self::NatGateway,
        Self::FloatingIP,
        Self::MachineSnapshot,
        Self::MachineRestore,
        Self::MachineMigration,
    ];

    /// As logs and metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Leftovers => "leftovers",
            Self::Dpu => "dpu",
            Self::Job => "job",
            Self::Contact => "contact",
            Self::Workflow => "workflow",
            Self::Enrolment => "enrolment",
            Self::Image => "image",
            Self::Hold => "hold",
            Self::Pod => "pod",
            Self::VNic => "vnic",
            Self::Vpc => "vpc",
            Self::Subnet => "subnet",
            Self::SecurityGroup => "securitygroup",
            Self::ProviderNetwork => "providernetwork",
            Self::NatGateway => "natgateway",
            Self::FloatingIP => "floatingip",
            Self::MachineSnapshot => "machinesnapshot",
            Self::MachineRestore => "machinerestore",
            Self::MachineMigration => "machinemigration",
        }
    }
}

#[derive(Default)]
pub struct Queues([Arc<Queue>; Work::ALL.len()]);

impl Queues {
    pub fn of(&self, work: Work) -> &Arc<Queue> {
        &self.0[work as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_work_has_its_own_place() {
        for (place, work) in Work::ALL.into_iter().enumerate() {
            assert_eq!(work as usize, place, "{work:?}");
        }
    }
}
