//! The agent's part of the Dpu's status. `namespace`, Approved and Parked are the controller's, and `Ready=Unknown` of a
//! silent agent too: the agent answers it with the next renewal of its Lease that is acknowledged (`planner::dpu::ready`).

use crate::Ports;
use crate::beats::Renewing;
use crate::cluster::{Cluster, apply_status};
use crate::host_privilege;
use crate::placement::Placement;
use crate::watch::Desired;
use api::conditions::{self, ConditionStatus};
use api::dpu::{BootController, ConnectorStatus, Dpu, DpuCapacity, DpuNetwork, DpuType, Orphan};
use api::machine::DiskBus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use planner::agent::{Function, Observed};
use planner::dpu::ready::{Answer, Word};
use planner::exposure::{Bus, FunctionKind, Slot};
use ports::emulation::EmulationCapabilities;
use ports::{PortError, VolumeConnector};
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// How many places a node for pods has left is told with whatever else is new, or once the number has been another one for so long: nothing
/// is chosen by it, and each pod's NIC would cost two writes of the Dpu.
const ROOM: Duration = Duration::from_secs(10);

/// Applied as a whole: what is left out here is not the agent's.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentPart {
    #[serde(rename = "type")]
    type_: DpuType,
    #[serde(rename = "bootID")]
    boot_id: String,
    agent_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_serial_number: Option<String>,
    capacity: Option<DpuCapacity>,
    allocatable: Option<DpuCapacity>,
    buses: Vec<DiskBus>,
    erasers: Vec<String>,
    hold_disks: Vec<String>,
    online_resize_buses: Vec<DiskBus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_controller: Option<BootController>,
    connectors: Vec<ConnectorStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<DpuNetwork>,
    orphans: Vec<Orphan>,
    went_back: u64,
    conditions: Vec<Condition>,
}

/// What it is told from.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub ports: &'a Ports,
    pub placement: &'a Placement,
    pub capabilities: Option<&'a EmulationCapabilities>,
    pub observed: &'a Observed,
    /// For which machines there is an eraser.
    pub erasers: &'a [String],
    /// For which machines there is a hold disk.
    pub hold_disks: &'a [String],
    /// `None`: not known now.
    pub orphans: Option<&'a [Orphan]>,
    /// Devices of an earlier boot for which the switch could forward until this run of the agent.
    pub taken_late: &'a [String],
    /// How often the API server was found to have gone back before all of this was listed; `None`: it is being listed.
    pub went_back: Option<u64>,
}

pub(crate) async fn tell(
    cluster: &Cluster,
    desired: &Desired,
    seen: Seen<'_>,
    (answer, room_since, renewing): (&mut Answer, &mut Option<Instant>, &Renewing),
) -> Result<(), PortError> {
    let Some(dpu) = desired.dpu.single() else { return Ok(()) };
    let said = dpu.status.as_ref().and_then(|status| conditions::get(&status.conditions, conditions::READY));
    let says_ready = answer.is_due(said, renewing.so_far());
    if !says_ready {
        renewing.wait_for_next();
    }
    if seen.orphans.is_none() && dpu.status.as_ref().is_none_or(|status| status.boot_id.is_none()) {
        // The controller grants from the first report on: that tells of orphans, too.
        return Ok(());
    }
    let connectors = futures::future::join_all(seen.ports.connectors.iter().map(|one| connector(one.as_ref()))).await;
    let (chassis, not_secure) = match seen.observed.ports.fresh() {
        Some(_) => (chassis(seen.ports).await, seen.ports.switch.not_secure().await.ok().flatten()),
        // It would be waited for once more.
        None => (Chassis::Unread, None),
    };
    let network = network(&dpu, chassis);
    let boot_controller = boot_controller(&dpu, seen.ports).await;
    let ready = says_ready.then(|| ready(seen.observed, not_secure.as_deref()));
    let part = part(&dpu, connectors, (network, boot_controller), (seen, ready));
    if is_told(&dpu, &part) {
        *room_since = None;
        return Ok(());
    }
    let is_of_pods = seen.ports.pods.is_some();
    if is_of_pods && is_room_alone(&dpu, &part) && room_since.get_or_insert_with(Instant::now).elapsed() < ROOM {
        return Ok(());
    }
    *room_since = None;
    let what = format!("status of Dpu {}", dpu.name_any());
    let uid = dpu.uid().unwrap_or_default();
    let object = apply_status(&cluster.dpus(), &what, (&dpu.name_any(), &uid), None, &part).await?;
    desired.dpu.wrote(object);
    Ok(())
}

async fn connector(connector: &dyn VolumeConnector) -> ConnectorStatus {
    ConnectorStatus {
        driver: connector.driver().to_owned(),
        fence: connector.fence().as_str().to_owned(),
        import_refusal: connector.import_refusal().await,
    }
}

fn part(
    dpu: &Dpu,
    connectors: Vec<ConnectorStatus>,
    (network, boot_controller): (Option<DpuNetwork>, Option<BootController>),
    (seen, ready): (Seen<'_>, Option<Ready<'_>>),
) -> AgentPart {
    let Seen { placement, capabilities, observed, .. } = seen;
    let orphans = orphans(dpu, seen);
    let capacity = capabilities.map(|c| DpuCapacity { disks: c.disks, nics: c.nics, hot_plug_ports: c.hot_plug_ports });
    AgentPart {
        type_: match &seen.ports.pods {
            Some(devices) if devices.are_functions() => DpuType::SmartNIC,
            Some(_) => DpuType::Nic,
            None => DpuType::Dpu,
        },
        boot_id: observed.boot_id.clone(),
        agent_version: runtime::version::VERSION,
        host_serial_number: placement.host_serial_number(),
        allocatable: capacity.as_ref().map(|capacity| allocatable(capacity, observed)),
        capacity,
        buses: capabilities.map(|c| buses(&c.buses)).unwrap_or_default(),
        erasers: seen.erasers.to_vec(),
        hold_disks: seen.hold_disks.to_vec(),
        online_resize_buses: capabilities.map(|c| buses(&c.online_resize)).unwrap_or_default(),
        boot_controller,
        connectors,
        network,
        conditions: own_conditions(dpu, seen, ready, &orphans),
        orphans,
        went_back: went_back(dpu, seen),
    }
}

/// One that cannot be read now is as it was told.
async fn boot_controller(dpu: &Dpu, ports: &Ports) -> Option<BootController> {
    let Ok(seen) = ports.emulation.boot_controller().await else {
        return dpu.status.as_ref().and_then(|status| status.boot_controller.clone());
    };
    seen.map(|seen| BootController {
        serial_number: seen.serial,
        model: seen.model,
        namespace_id: seen.nsid,
        eui64: seen.eui64,
        pci_address: seen.pci_address,
    })
}

/// By which name OVN knows the DPU's switch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Chassis {
    Named(String),
    Unnamed,
    /// It cannot be read now.
    Unread,
}

async fn chassis(ports: &Ports) -> Chassis {
    match ports.switch.chassis().await {
        Ok(Some(name)) => Chassis::Named(name),
        Ok(None) => Chassis::Unnamed,
        Err(_) => Chassis::Unread,
    }
}

/// A switch that cannot be read now has the name that was told.
fn network(dpu: &Dpu, chassis: Chassis) -> Option<DpuNetwork> {
    match chassis {
        Chassis::Named(chassis) => Some(DpuNetwork { chassis }),
        Chassis::Unnamed => None,
        Chassis::Unread => dpu.status.as_ref().and_then(|status| status.network.clone()),
    }
}

/// Told only with what the host has.
fn went_back(dpu: &Dpu, seen: Seen<'_>) -> u64 {
    let told = dpu.status.as_ref().map(|status| status.went_back).unwrap_or_default();
    seen.orphans.and(seen.went_back).unwrap_or(told)
}

/// What is not known now stands as it was told.
fn orphans(dpu: &Dpu, seen: Seen<'_>) -> Vec<Orphan> {
    let told = dpu.status.as_ref().map(|status| status.orphans.as_slice()).unwrap_or_default();
    seen.orphans.unwrap_or(told).to_vec()
}

/// So many orphans are named in a condition; all are in the status.
const NAMED: usize = 8;

/// The agent's own conditions of its Dpu, in this order.
const OWN: [&str; 5] = [
    conditions::READY,
    conditions::HOST_RESTRICTED,
    conditions::SHARED_STORAGE_CREDENTIAL,
    conditions::ORPHANS_HELD,
    conditions::BOOT_WINDOW,
];

/// `ready`: nothing where it stands as it was told.
fn own_conditions(dpu: &Dpu, seen: Seen<'_>, ready: Option<Ready<'_>>, orphans: &[Orphan]) -> Vec<Condition> {
    let Seen { ports, placement, observed, taken_late, .. } = seen;
    let (generation, mut own) = (dpu.metadata.generation, told(dpu));
    let is_same_boot = dpu.status.as_ref().is_some_and(|status| status.boot_id.as_ref() == Some(&observed.boot_id));
    // Another run of the agent has told it of this boot.
    let is_window_told = is_same_boot && conditions::get(&own, conditions::BOOT_WINDOW).is_some();
    let mut set = |type_: &str, status: ConditionStatus, reason: &str, message: &str| {
        conditions::set(&mut own, type_, status, reason, message, generation, observed.now);
    };
    if let Some((word, message)) = ready {
        set(conditions::READY, (word == Word::AgentRunning).into(), word.as_str(), message);
    }
    let (restricted, reason, message) = host_privilege::condition(placement.host_privilege().as_deref());
    set(conditions::HOST_RESTRICTED, restricted, reason, &message);
    let shared = ports.connectors.iter().find_map(|connector| connector.shared_credential());
    match shared {
        Some(why) => set(conditions::SHARED_STORAGE_CREDENTIAL, ConditionStatus::True, "Shared", why),
        None => set(conditions::SHARED_STORAGE_CREDENTIAL, ConditionStatus::False, "NotShared", ""),
    }
    match orphans {
        [] => set(conditions::ORPHANS_HELD, ConditionStatus::False, "NoOrphans", ""),
        some => set(conditions::ORPHANS_HELD, ConditionStatus::True, "OrphansHeld", &held(&dpu.name_any(), some)),
    }
    match taken_late {
        [] if is_window_told => {}
        [] => set(conditions::BOOT_WINDOW, ConditionStatus::False, "NothingForwarded", ""),
        late => set(conditions::BOOT_WINDOW, ConditionStatus::True, "PortsTakenLate", &window(late)),
    }
    own.sort_by_key(|condition| OWN.iter().position(|type_| *type_ == condition.type_));
    own
}

fn window(devices: &[String]) -> String {
    format!(
        "after this boot the switch had ports of the boot before, and could forward for them, until the agent took them out: {}. Next: \
         run `dpu-agent --sanitize` between ovsdb-server and ovs-vswitchd",
        devices.join(", ")
    )
}

fn held(dpu: &str, orphans: &[Orphan]) -> String {
    let name = |orphan: &Orphan| match &orphan.attachment_name {
        Some(name) => format!("{} '{name}' ({})", orphan.kind.as_str(), orphan.uid),
        None => format!("{} {}", orphan.kind.as_str(), orphan.uid),
    };
    let all: Vec<String> = orphans.iter().take(NAMED).map(name).collect();
    let more = orphans.len().checked_sub(NAMED).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    format!(
        "the host has {}{more}, and no attachment explains them: the agent keeps them until the BMC reports the host powered \
         off. Next: power the host off; or bmctl dpu forget {dpu} UID, which takes one from the host while it runs",
        all.join(", ")
    )
}

/// What is said, why, and what there is to know about it.
type Ready<'a> = (Word, &'a str);

fn ready<'a>(observed: &Observed, not_secure: Option<&'a str>) -> Ready<'a> {
    if observed.exposures.fresh().is_none() {
        (Word::EmulationUnreachable, "the agent cannot read what the host is shown: see the agent's log")
    } else if observed.ports.fresh().is_none() {
        (Word::SwitchUnreachable, "the agent cannot read the virtual switch: see the agent's log")
    } else if let Some(why) = not_secure {
        (Word::BridgeNotSecure, why)
    } else {
        (Word::AgentRunning, "")
    }
}

/// Of those conditions, what the API server has.
fn told(dpu: &Dpu) -> Vec<Condition> {
    let all = dpu.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    OWN.iter().filter_map(|type_| conditions::get(all, type_).cloned()).collect()
}

fn is_told(dpu: &Dpu, part: &AgentPart) -> bool {
    let Some(status) = &dpu.status else { return false };
    status.type_ == Some(part.type_)
        && status.boot_id.as_deref() == Some(&part.boot_id)
        && status.agent_version.as_deref() == Some(part.agent_version)
        && status.host_serial_number == part.host_serial_number
        && status.capacity == part.capacity
        && status.allocatable == part.allocatable
        && status.buses == part.buses
        && status.erasers == part.erasers
        && status.hold_disks == part.hold_disks
        && status.online_resize_buses == part.online_resize_buses
        && status.boot_controller == part.boot_controller
        && status.connectors == part.connectors
        && status.network == part.network
        && status.orphans == part.orphans
        && status.went_back == part.went_back
        && told(dpu) == part.conditions
}

/// All else was told.
fn is_room_alone(dpu: &Dpu, part: &AgentPart) -> bool {
    let told = dpu.status.as_ref().and_then(|status| status.allocatable.clone());
    told.is_some() && is_told(dpu, &AgentPart { allocatable: told, ..part.clone() })
}

fn allocatable(capacity: &DpuCapacity, observed: &Observed) -> DpuCapacity {
    let exposures = observed.exposures.last().map(Vec::as_slice).unwrap_or_default();
    let count = |kind| u32::try_from(exposures.iter().filter(|e| e.kind == kind).count()).unwrap_or(u32::MAX);
    let fixed = observed.record.values().filter(|entry| {
        let presentation = match &entry.function {
            Function::Disk { presentation, .. } => Some(presentation),
            function => function.made(),
        };
        presentation.is_some_and(|presentation| presentation.slot != Slot::HotPlug)
            && exposures.iter().any(|e| e.id == entry.id)
    });
    let fixed = u32::try_from(fixed.count()).unwrap_or(u32::MAX);
    let (disks, nics) = (count(FunctionKind::Disk), count(FunctionKind::Nic));
    let hot_plug_ports = capacity.hot_plug_ports.saturating_sub((disks + nics).saturating_sub(fixed));
    DpuCapacity {
        disks: capacity.disks.saturating_sub(disks).min(hot_plug_ports + 2),
        nics: capacity.nics.saturating_sub(nics).min(hot_plug_ports),
        hot_plug_ports,
    }
}

fn buses(all: &[Bus]) -> Vec<DiskBus> {
    let bus = |bus: &Bus| match bus {
        Bus::NVMe => DiskBus::NVMe,
        Bus::VirtioBlk => DiskBus::VirtioBlk,
    };
    all.iter().map(bus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::DpuStatus;

    #[test]
    fn the_chassis_stands_while_the_switch_cannot_be_read() {
        let told = |name: &str| Some(DpuNetwork { chassis: name.to_owned() });
        let mut dpu = Dpu::default();
        assert_eq!(network(&dpu, Chassis::Unread), None);
        dpu.status = Some(DpuStatus { network: told("a"), ..DpuStatus::default() });
        assert_eq!(network(&dpu, Chassis::Unread), told("a"));
        assert_eq!(network(&dpu, Chassis::Named("b".to_owned())), told("b"));
        assert_eq!(network(&dpu, Chassis::Unnamed), None, "OVN has no name for it");
    }
}
