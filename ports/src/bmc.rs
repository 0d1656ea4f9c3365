//! A host's baseboard management controller.

use crate::PortError;
use async_trait::async_trait;
use planner::host::{BootChange, HostObserved, MediumChange, PowerAction};

/// The implementation keeps at most one request to the same BMC under way and bounds each by a time limit.
#[async_trait]
pub trait Bmc: Send + Sync {
    /// Reads power, boot configuration, medium and identity, uncached; and what this BMC lacks, as it shows of itself. A verb that needs
    /// what is lacking is `Unsupported`.
    async fn observe(&self) -> Result<HostObserved, PortError>;

    /// Sends one power action and returns when the BMC has accepted it, not when it has taken effect. Never retries
    /// by itself: after `Unreachable` the caller must observe before it may ask again. Nothing happens for `On` when the
    /// host is on, and for `SoftOff` and `ForceOff` when it is off; `WarmReset` of a host that is off is a `Conflict`.
    async fn power(&self, action: PowerAction) -> Result<(), PortError>;

    /// Changes the boot configuration. The caller reads it back with [`Bmc::observe`]: in force at once, or as what is
    /// pending until the next POST, which is no failure. It is so already: nothing happens. An option that is not in the boot
    /// order is `NotFound`, an override that the BMC does not take `Unsupported`. What the BMC refuses for now, as many do
    /// while POST runs, is `Busy`. `First` and `Restore` end an override of either kind; `Restore` leaves out options that
    /// are gone.
    async fn configure_boot(&self, change: &BootChange) -> Result<(), PortError>;

    /// Changes what is in the virtual CD or DVD drive, and returns when the BMC has accepted it. The caller reads it back with
    /// [`Bmc::observe`], which may tell nothing of the drive before somebody has asked for a change. It is so already: nothing happens. Another image is ejected first; a BMC that needs time for that is
    /// `Busy`. A URL that the BMC does not take is `Invalid`. No message shows the user, the password or the query of a URL.
    async fn change_medium(&self, change: &MediumChange) -> Result<(), PortError>;
}
