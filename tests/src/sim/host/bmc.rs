//! The BMCs of a server and of the DPU in it.

use super::{Host, State, serial_number};
use async_trait::async_trait;
use planner::host::{
    BootChange, BootConfiguration, BootOverride, BootSource, HostObserved, Lack, Medium, MediumChange, PowerAction,
    PowerState,
};
use ports::{Bmc, ErrorClass, PortError};
use std::sync::Arc;
use std::time::Duration;

/// How the BMC treats who talks to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manners {
    #[default]
    Good,
    Unreachable,
    Unauthorized,
    Slow(Duration),
    /// Accepts everything and does nothing.
    Lies,
    /// Switches the host on so long after it has accepted that.
    LateOn(Duration),
    /// Its answers make the driver panic.
    Panics,
}

impl Host {
    async fn answers(&self) -> Result<Manners, PortError> {
        let manners = self.state().manners;
        tokio::time::sleep(Duration::from_millis(20 + self.random.below(20))).await;
        match manners {
            Manners::Unreachable => Err(PortError::new(ErrorClass::Unreachable, format!("{}: no answer", self.name))),
            Manners::Unauthorized => {
                Err(PortError::new(ErrorClass::Unauthorized, format!("{}: the password is refused", self.name)))
            }
            Manners::Slow(by) => {
                tokio::time::sleep(by).await;
                Ok(manners)
            }
            Manners::Panics => panic!("{}: the answer makes no sense", self.name),
            Manners::Good | Manners::Lies | Manners::LateOn(_) => Ok(manners),
        }
    }
}

impl State {
    fn shown_boot(&self) -> BootConfiguration {
        let mut boot = self.boot.clone();
        if self.lacks.contains(&Lack::BootOrder) {
            (boot.order, boot.pending) = (Vec::new(), None);
        }
        if self.lacks.contains(&Lack::BootOptions) {
            boot.options.clear();
        }
        boot
    }

    fn shown_medium(&self) -> Medium {
        if self.lacks.contains(&Lack::VirtualMedia) { Medium::Unknown } else { self.medium.clone() }
    }
}

/// The BMC of the DPU, on power of its own. Nobody has any business commanding it.
pub struct DpuBmc(pub Arc<Host>);

#[async_trait]
impl Bmc for DpuBmc {
    async fn observe(&self) -> Result<HostObserved, PortError> {
        tokio::time::sleep(Duration::from_millis(20 + self.0.random.below(20))).await;
        let on = self.0.running.borrow().is_some();
        Ok(HostObserved {
            serial_number: Some(serial_number(&self.0.dpu_name)),
            model: Some("Simulated DPU".to_owned()),
            manufacturer: Some("Metalplane".to_owned()),
            ..HostObserved::with_power(if on { PowerState::On } else { PowerState::Off })
        })
    }

    async fn power(&self, action: PowerAction) -> Result<(), PortError> {
        panic!("{}: {action:?} sent to a DPU's own BMC", self.0.dpu_name)
    }

    async fn configure_boot(&self, change: &BootChange) -> Result<(), PortError> {
        panic!("{}: {change:?} sent to a DPU's own BMC", self.0.dpu_name)
    }

    async fn change_medium(&self, change: &MediumChange) -> Result<(), PortError> {
        panic!("{}: {change:?} sent to a DPU's own BMC", self.0.dpu_name)
    }
}

/// Nobody compares it: what boots from the network here sends none.
const SYSTEM_UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// The BMC's side of a host; an orphan rule keeps the port from `Arc<Host>` itself.
pub struct HostBmc(pub Arc<Host>);

#[async_trait]
impl Bmc for HostBmc {
    async fn observe(&self) -> Result<HostObserved, PortError> {
        self.0.answers().await?;
        let state = self.0.state();
        Ok(HostObserved {
            boot: state.shown_boot(),
            serial_number: Some(state.serial_number.clone()),
            system_uuid: Some(SYSTEM_UUID.to_owned()),
            model: Some("Simulation".to_owned()),
            manufacturer: Some("Metalplane".to_owned()),
            medium: state.shown_medium(),
            lacks: state.lacks.clone(),
            ..HostObserved::with_power(state.power)
        })
    }

    async fn power(&self, action: PowerAction) -> Result<(), PortError> {
        match self.0.answers().await? {
            Manners::Lies => Ok(()),
            Manners::LateOn(by) if action == PowerAction::On => {
                let host = self.0.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    // Of a host that is on by then nothing is changed.
                    let _ = host.act(action);
                });
                Ok(())
            }
            _ => self.0.act(action),
        }
    }

    async fn configure_boot(&self, change: &BootChange) -> Result<(), PortError> {
        if self.0.answers().await? == Manners::Lies {
            return Ok(());
        }
        let mut state = self.0.state();
        if state.lacks.contains(&Lack::BootOrder) && matches!(change, BootChange::First { .. }) {
            return Err(PortError::new(ErrorClass::Unsupported, format!("{}: no boot order", self.0.name)));
        }
        let (pends, boot) = (state.order_is_pending, &mut state.boot);
        let mut order = boot.coming().to_vec();
        let taken = |allowed: &[BootSource], source: &BootSource| match allowed.contains(source) {
            true => Ok(()),
            false => {
                Err(PortError::new(ErrorClass::Unsupported, format!("{}: no override to {source:?}", self.0.name)))
            }
        };
        match change {
            BootChange::First { reference } => {
                let place = order.iter().position(|option| option == reference);
                let missing = || PortError::new(ErrorClass::NotFound, format!("{}: no {reference}", self.0.name));
                let place = place.ok_or_else(missing)?;
                order[..=place].rotate_right(1);
                (boot.next, boot.always) = (None, None);
            }
            BootChange::Restore { order: before } => {
                let known = |option: &&String| boot.options.iter().any(|known| known.reference == **option);
                if !before.is_empty() {
                    // New ones come last.
                    order.retain(|reference| !before.contains(reference));
                    order.splice(..0, before.iter().filter(known).cloned());
                }
                (boot.next, boot.always) = (None, None);
            }
            BootChange::Next { source, mode } => {
                taken(&boot.allowed_next, source)?;
                (boot.next, boot.always) = (Some(BootOverride { source: *source, mode: Some(*mode) }), None);
            }
            BootChange::Always { source, mode } => {
                taken(&boot.allowed_always, source)?;
                (boot.next, boot.always) = (None, Some(BootOverride { source: *source, mode: Some(*mode) }));
            }
        }
        match pends {
            true => boot.pending = Some(order).filter(|order| *order != boot.order),
            false => boot.order = order,
        }
        Ok(())
    }

    async fn change_medium(&self, change: &MediumChange) -> Result<(), PortError> {
        if self.0.answers().await? == Manners::Lies {
            return Ok(());
        }
        let mut state = self.0.state();
        if state.lacks.contains(&Lack::VirtualMedia) {
            return Err(PortError::new(ErrorClass::Unsupported, format!("{}: no virtual drive", self.0.name)));
        }
        state.medium = match change {
            MediumChange::Insert(url) => Medium::Inserted(Some(url.clone())),
            MediumChange::Eject => Medium::Ejected,
        };
        Ok(())
    }
}
