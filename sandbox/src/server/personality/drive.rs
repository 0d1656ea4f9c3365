//! The virtual CD drive of a BMC, as kinds of servers have it.

use crate::server::boot::OverrideTarget;

/// Whose virtual media it is among: the system's, or the manager's as before Redfish's release 2020.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Manager,
    System,
}

/// How a medium is inserted and ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    ByActions,
    /// By actions, of which the drive shows the one that can be taken now.
    ByActionsInTurn,
    /// As any other resource is changed: the drive has no actions.
    ByPatch,
}

#[derive(Debug, Clone, Copy)]
pub struct VirtualDrive {
    pub owner: Owner,
    pub id: &'static str,
    pub types: &'static [&'static str],
    pub changed: Changed,
    /// The boot source that it is.
    pub target: OverrideTarget,
}

pub const CD: VirtualDrive = VirtualDrive {
    owner: Owner::System,
    id: "Cd",
    types: &["CD", "DVD"],
    changed: Changed::ByActions,
    target: OverrideTarget::Cd,
};
