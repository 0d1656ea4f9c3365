//! A NIC's way up and down (docs/design/network.md, 7): there is no moment in which a NIC is up without its ACLs.
//!
//! - *Up*: the function is presented with its link down; its port is plugged; OVN has installed everything for the port;
//!   only then the link goes up.
//! - *Down*: the link first, then the port, then the function. A port whose NIC is up and that somebody has taken away
//!   takes the link with it, before it is plugged again.
//! - A port that is in force no more keeps its NIC's link: OVN lets the old flows stand or nothing pass, and the guest
//!   sees no flapping. It is said, and nothing is done.

use super::presence::{emulation_unknown, presence};
use super::{Nic, Observed, Plugged, Stage, Step, Stuck, Waiting};
use crate::exposure::{Exposure, ExposureId, FunctionKind, Presence};
use std::time::Duration;

/// OVN takes milliseconds for a port, on a large site seconds: what takes longer needs somebody to look.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn up(observed: &Observed, id: &ExposureId, nic: &Nic) -> Stage {
    if !observed.exposures.tells(FunctionKind::Nic) {
        return emulation_unknown();
    }
    let Some(exposure) = observed.exposure(id).filter(|e| e.kind == FunctionKind::Nic) else {
        return Stage::Act(Step::ExposeNic { id: id.clone(), nic: nic.clone() });
    };
    if exposure.presence == Presence::Leaving {
        return presence(Presence::Leaving).map_or(Stage::Done, Stage::Stuck);
    }
    if observed.ports.fresh().is_none() {
        return switch_unknown();
    }
    let Some(device) = &exposure.representor else {
        let message = "what presents the NIC has not told yet which network device of the DPU stands for it";
        return Stage::Stuck(Stuck::waiting(Waiting::EmulationUnknown, message));
    };
    let plug = || Stage::Act(Step::Plug { id: id.clone(), nic: nic.clone(), device: device.clone() });
    match observed.port(id) {
        None if is_up(exposure) => Stage::Act(Step::LinkDown { id: id.clone() }),
        None => plug(),
        // The function was made anew, and another device stands for it.
        Some(port) if port.device != *device && is_up(exposure) => Stage::Act(Step::LinkDown { id: id.clone() }),
        Some(port) if port.device != *device => Stage::Act(Step::Unplug { id: id.clone() }),
        Some(port) if port.version != id.version() => plug(),
        Some(port) if !port.forwarding => {
            let cause = port.error.as_deref().unwrap_or("it says no reason yet");
            let message = format!("the switch does not forward on {device}: {cause}");
            Stage::Stuck(Stuck::waiting(Waiting::PortNotForwarding, message))
        }
        Some(port) if !port.in_force => Stage::Stuck(not_in_force(observed, port, nic)),
        Some(_) if !is_up(exposure) => Stage::Act(Step::LinkUp { id: id.clone() }),
        Some(_) => presence(exposure.presence).map_or(Stage::Done, Stage::Stuck),
    }
}

/// What has to be done before the host is asked to let go of what `goes`; `None`: nothing is left of it.
pub(super) fn down(observed: &Observed, goes: impl Fn(&ExposureId) -> bool) -> Option<Stage> {
    let shown = observed.exposures.last().into_iter().flatten().filter(|e| goes(&e.id));
    let mut nics = shown.filter(|e| e.kind == FunctionKind::Nic && e.presence != Presence::Leaving).peekable();
    let is_shown = nics.peek().is_some();
    if let Some(nic) = nics.find(|nic| is_up(nic)) {
        return Some(Stage::Act(Step::LinkDown { id: nic.id.clone() }));
    }
    if let Some(port) = observed.all_ports().find(|port| goes(&port.id)) {
        return Some(Stage::Act(Step::Unplug { id: port.id.clone() }));
    }
    (is_shown && observed.ports.fresh().is_none()).then(switch_unknown)
}

/// Whether packets pass as they should; `None`: not known now.
pub(super) fn works(observed: &Observed, id: &ExposureId) -> Option<bool> {
    let serves = |port: &Plugged| port.id == *id && port.forwarding && port.in_force;
    if !observed.ports.fresh()?.iter().any(serves) {
        return Some(false);
    }
    observed.exposures.tells(FunctionKind::Nic).then(|| observed.exposure(id).is_some_and(is_up))
}

fn is_up(exposure: &Exposure) -> bool {
    exposure.link_up == Some(true)
}

pub(super) fn switch_unknown() -> Stage {
    Stage::Stuck(Stuck::waiting(Waiting::SwitchUnknown, "the agent cannot read the ports of Open vSwitch now"))
}

/// How long the port may still take; zero: longer than OVN should need.
pub(super) fn rest(observed: &Observed, uid: &str) -> Duration {
    let since = observed.not_in_force_since.get(uid).copied().unwrap_or(observed.now);
    let waited = observed.now.duration_since(since).max(jiff::SignedDuration::ZERO).unsigned_abs();
    PATIENCE.saturating_sub(waited)
}

fn not_in_force(observed: &Observed, port: &Plugged, nic: &Nic) -> Stuck {
    let (logical_port, device) = (&nic.logical_port, &port.device);
    let (waiting, what, next) = match port.installed {
        false => (
            Waiting::NotBound,
            "OVN has not bound it on this node yet",
            format!("is ovn-controller running on this node? ovn-sbctl find Port_Binding logical_port={logical_port}"),
        ),
        true => (
            Waiting::NotInForce,
            "OVN has bound it and has not said yet that all flows for it are installed",
            "ovs-vsctl get bridge br-int external_ids:ovn-nb-cfg on this node; if the number does not grow, look at ovn-controller's log".to_owned(),
        ),
    };
    let limit = PATIENCE.as_secs();
    let message = match rest(observed, &port.id.uid) {
        Duration::ZERO => {
            format!("logical port '{logical_port}' ({device}): {what}, for more than {limit} s. Next: {next}")
        }
        _ => format!("logical port '{logical_port}' ({device}): {what}; that should take {limit} s at most"),
    };
    Stuck::waiting(waiting, message)
}
