//! The kinds of work, each with a queue of its own. Which function does it is told by `run::reconcile`.

use runtime::queue::Queue;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Machine,
    /// What a machine that was deleted has left, by its UID.
    MachineLeftovers,
    /// What an image that was deleted has left, by its UID.
    ImageLeftovers,
    Dpu,
    /// Of Tinkerbell's: requests to one BMC.
    Job,
    /// A bmc.tinkerbell.org Machine: whether its BMC answers.
    Contact,
    /// Of Tinkerbell's, while its boot options are at work.
    Workflow,
    Image,
    Hold,
    HolderPod,
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
    pub const ALL: [Self; 21] = [
        Self::Machine,
        Self::MachineLeftovers,
        Self::ImageLeftovers,
        Self::Dpu,
        Self::Job,
        Self::Contact,
        Self::Workflow,
        Self::Image,
        Self::Hold,
        Self::HolderPod,
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
            Self::MachineLeftovers => "leftovers",
            Self::ImageLeftovers => "image-leftovers",
            Self::Dpu => "dpu",
            Self::Job => "job",
            Self::Contact => "contact",
            Self::Workflow => "workflow",
            Self::Image => "image",
            Self::Hold => "hold",
            Self::HolderPod => "holder-pod",
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
