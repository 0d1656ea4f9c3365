//! How far each step of a machine's life is.

use crate::reason::Reason;
use api::conditions;

/// The steps in the order in which they become true; each is a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    HardwareClaimed,
    VolumesReady,
    DisksAttached,
    NicsAttached,
    /// Only of a machine that a workflow installs.
    Installed,
    BootConfigured,
    PoweredOn,
    GuestReachable,
}

impl Step {
    pub const ALL: [Step; 8] = [
        Step::HardwareClaimed,
        Step::VolumesReady,
        Step::DisksAttached,
        Step::NicsAttached,
        Step::Installed,
        Step::BootConfigured,
        Step::PoweredOn,
        Step::GuestReachable,
    ];

    pub fn condition(self) -> &'static str {
        match self {
            Self::HardwareClaimed => conditions::HARDWARE_CLAIMED,
            Self::VolumesReady => conditions::VOLUMES_READY,
            Self::DisksAttached => conditions::DISKS_ATTACHED,
            Self::NicsAttached => conditions::NICS_ATTACHED,
            Self::Installed => conditions::INSTALLED,
            Self::BootConfigured => conditions::BOOT_CONFIGURED,
            Self::PoweredOn => conditions::POWERED_ON,
            Self::GuestReachable => conditions::GUEST_REACHABLE,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// False, and meant to be: the machine shall be off.
    Off,
    Not(Reason),
    /// What would decide it cannot be seen now.
    Unseen(Reason),
    /// An earlier step comes first.
    Later,
}

impl Outcome {
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Not(reason) | Self::Unseen(reason) => Some(reason),
            Self::Done | Self::Off | Self::Later => None,
        }
    }

    /// Done if there is no reason against it; the gravest reason otherwise.
    pub fn of(reasons: impl IntoIterator<Item = Reason>) -> Self {
        // `max_by_key` takes the last of equals; the first is what stands first in the spec.
        let mut worst: Option<Reason> = None;
        for reason in reasons {
            if worst.as_ref().is_none_or(|w| reason.kind() > w.kind()) {
                worst = Some(reason);
            }
        }
        worst.map_or(Self::Done, Self::Not)
    }
}

/// One outcome per step.
#[derive(Debug, Clone)]
pub struct Steps([Outcome; 8]);

impl Default for Steps {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Outcome::Later))
    }
}

impl Steps {
    pub fn set(&mut self, step: Step, outcome: Outcome) {
        self.0[step as usize] = outcome;
    }

    pub fn get(&self, step: Step) -> &Outcome {
        &self.0[step as usize]
    }

    pub fn done(&self, step: Step) -> bool {
        self.get(step).is_done()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Step, &Outcome)> {
        Step::ALL.into_iter().map(|step| (step, self.get(step)))
    }
}
