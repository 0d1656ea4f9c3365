//! What a boot service saw of a server, and what of it goes into the server's HardwareReport. A report changes when a boot comes to
//! another stage, never with every packet: firmware that asks in vain asks for ever.

use super::firmware::Client;
use super::unserved::{self, Unserved, is_refusal, unserved_since};
use api::HardwareReport;
use api::report::{
    AgentRefused, AgentRefusedReason, DhcpUnserved, GuestSeen, HardwareReportStatus, HeardBy, IdentitySeen,
    NetbootSeen, NetbootStage,
};
use api::tinkerbell::Hardware;
use api::tinkerbell::attributes::AgentAttributes;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::net::IpAddr;

/// The same thing, seen again, is said again after this.
const AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// iPXE asks for an address of its own so soon after the firmware that read it. What comes later, or from an earlier stage, is
/// another boot.
const ONE_BOOT: SignedDuration = SignedDuration::from_mins(2);
/// No server comes to ask twice so soon.
const RESTART: SignedDuration = SignedDuration::from_secs(10);
/// A server that is not served for another cause each time is told of so often at most.
const OTHER_CAUSE: SignedDuration = SignedDuration::from_secs(30);
/// A system that starts takes its address in a few packets, and asks for its metadata many times.
const ONE_START: SignedDuration = SignedDuration::from_secs(60);
/// What of an agent's attributes is kept at most: bytes of JSON.
const LONGEST: usize = 128 << 10;
/// One that runs is heard of so often at most.
const RUNS: SignedDuration = SignedDuration::from_mins(10);

/// One thing that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// It asked for an address to boot with.
    Asked { client: Client, uuid: Option<String> },
    /// Its boot came to this stage.
    Came(NetbootStage),
    /// Its agent asks what to do. `attributes`: `None` of an agent that does not tell them.
    Agent { id: String, address: Option<IpAddr>, attributes: Option<Box<AgentAttributes>> },
    /// An agent that has the token of this server, and is not the one that is served.
    AgentRefused { address: Option<IpAddr>, reason: AgentRefusedReason, why: String },
    /// It asked, and is not booted from the network.
    Turned { stage: NetbootStage, why: String, client: Option<Client>, uuid: Option<String> },
    /// It asked to boot, and DHCP does not serve it.
    Unserved { cause: Unserved, uuid: Option<String> },
    /// The system on its own disk.
    Heard { address: IpAddr, by: HeardBy, starts: bool },
}

/// The report with what was seen by this interface; `None`: it says that already.
pub fn add(before: &HardwareReportStatus, mac: &str, sight: &Sight, now: Timestamp) -> Option<HardwareReportStatus> {
    let mut status = before.clone();
    let netboot = before.netboot.as_ref();
    match sight {
        Sight::Asked { client, uuid } => {
            identified(&mut status, uuid.as_ref());
            let is_told = |seen: &NetbootSeen| {
                goes_on(seen, client, now) || is_again(seen, NetbootStage::Dhcp, now) || is_of_other(seen, mac, now)
            };
            let is_served_again = unserved_since(Some(before), None)
                .is_some_and(|unserved| unserved.mac_address == mac && is_refusal(unserved.reason));
            if is_served_again || !netboot.is_some_and(is_told) {
                status.netboot = Some(begun(NetbootStage::Dhcp, mac, Some(client), None, now));
                status.unserved = status.unserved.filter(|_| !is_served_again);
            }
        }
        Sight::Came(stage) => {
            if let Some(next) = came(netboot, mac, *stage, now) {
                (status.netboot, status.unserved) = (Some(next), None);
            }
        }
        Sight::Agent { id, address, attributes } => {
            let next = came(netboot, mac, NetbootStage::Agent, now);
            // Once a boot: what an agent measures anew with every question is no news.
            status.unserved = status.unserved.filter(|_| next.is_none());
            if next.is_some() || (before.attributes.is_none() && attributes.is_some()) {
                let address = address.map(|address| address.to_string());
                status.netboot = next.or(status.netboot).map(|seen| NetbootSeen { address, ..seen });
                status.agent_id = Some(id.clone());
                status.attributes = attributes.as_deref().map(fitting).or(status.attributes);
            }
        }
        Sight::AgentRefused { address, reason, why } => {
            let address = address.map(|address| address.to_string());
            let is_told = |told: &AgentRefused| {
                (told.reason, &told.address) == (*reason, &address) && since(&told.at, now) < AGAIN
            };
            if !before.refused.as_ref().is_some_and(is_told) {
                let (at, reason, message) = (MicroTime(now), *reason, why.clone());
                status.refused = Some(AgentRefused { at, address, reason, message });
            }
        }
        Sight::Turned { stage, why, client, uuid } => {
            identified(&mut status, uuid.as_ref());
            let is_told = |seen: &NetbootSeen| {
                let is_same = is_again(seen, *stage, now) && seen.message.as_ref() == Some(why);
                is_same || is_of_other(seen, mac, now)
            };
            if !netboot.is_some_and(is_told) {
                (status.netboot, status.unserved) = (Some(begun(*stage, mac, client.as_ref(), Some(why), now)), None);
            }
        }
        Sight::Unserved { cause, uuid } => {
            identified(&mut status, uuid.as_ref());
            let seen = cause.seen(mac, now);
            if is_unserved_news(before, &seen, now) {
                status.unserved = Some(seen);
            }
        }
        Sight::Heard { address, by, starts } => {
            let address = address.to_string();
            let rests = match (by, starts) {
                (HeardBy::Dhcp, true) => RESTART,
                (HeardBy::Metadata, true) => ONE_START,
                _ => RUNS,
            };
            let is_told = |seen: &GuestSeen| seen.address == address && since(&seen.at, now) < rests;
            if !before.guest.as_ref().is_some_and(is_told) {
                let mac_address = mac.to_owned();
                status.guest = Some(GuestSeen { address, mac_address, at: MicroTime(now), by: *by });
            }
        }
    }
    (status != *before).then_some(status)
}

/// Firmware says which server it is, whatever it is answered.
fn identified(status: &mut HardwareReportStatus, uuid: Option<&String>) {
    if let Some(uuid) = uuid {
        status.identity = Some(IdentitySeen { uuid: Some(uuid.clone()) });
    }
}

/// The boot, if it has come further by this.
fn came(netboot: Option<&NetbootSeen>, mac: &str, stage: NetbootStage, now: Timestamp) -> Option<NetbootSeen> {
    match netboot {
        Some(seen) if seen.stage == stage => None,
        Some(seen) if seen.stage < stage => {
            Some(NetbootSeen { stage, at: MicroTime(now), message: None, ..seen.clone() })
        }
        // A file that is read once more by what has been booted.
        Some(seen) if ends_no_boot(seen.stage) && since(&seen.at, now) < ONE_BOOT => None,
        _ => Some(begun(stage, mac, None, None, now)),
    }
}

/// What an agent reports, without the lists that make it long, should it be too long for an object.
fn fitting(attributes: &AgentAttributes) -> AgentAttributes {
    let is_long = |all: &AgentAttributes| serde_json::to_vec(all).map_or(true, |text| text.len() > LONGEST);
    let mut all = attributes.clone();
    if is_long(&all) {
        all.cpu.iter_mut().flat_map(|cpu| &mut cpu.processors).for_each(|processor| processor.capabilities.clear());
        all.network_interfaces.iter_mut().for_each(|nic| nic.enabled_capabilities.clear());
    }
    if is_long(&all) {
        all.pci_devices.clear();
    }
    if is_long(&all) { AgentAttributes::default() } else { all }
}

fn since(at: &MicroTime, now: Timestamp) -> SignedDuration {
    now.duration_since(at.0)
}

fn is_again(seen: &NetbootSeen, stage: NetbootStage, now: Timestamp) -> bool {
    seen.stage == stage && since(&seen.at, now) < AGAIN
}

/// Firmware tries its interfaces in turn, seconds apart: one does not hide how far another has just come, and is no news by itself.
fn is_of_other(seen: &NetbootSeen, mac: &str, now: Timestamp) -> bool {
    seen.mac_address != mac && since(&seen.at, now) < ONE_BOOT
}

/// Another replica, or another interface, may serve a server that this one does not: then its boot goes on.
fn is_unserved_news(before: &HardwareReportStatus, seen: &DhcpUnserved, now: Timestamp) -> bool {
    let is_told = |told: &DhcpUnserved| {
        let is_same = *seen == DhcpUnserved { at: seen.at.clone(), ..told.clone() };
        since(&told.at, now) < if is_same { AGAIN } else { OTHER_CAUSE }
    };
    let goes_on = |netboot: &NetbootSeen| {
        let is_served = is_refusal(seen.reason) && ends_no_boot(netboot.stage) && since(&netboot.at, now) < ONE_BOOT;
        is_served || is_of_other(netboot, &seen.mac_address, now)
    };
    !before.unserved.as_ref().is_some_and(is_told) && !before.netboot.as_ref().is_some_and(goes_on)
}

fn ends_no_boot(stage: NetbootStage) -> bool {
    stage <= NetbootStage::Agent
}

/// What asks belongs to the boot that was seen: iPXE, which the firmware has read; or firmware that gives up and asks anew at once.
fn goes_on(seen: &NetbootSeen, client: &Client, now: Timestamp) -> bool {
    let may_chain = seen.stage <= NetbootStage::Script;
    let chains = may_chain && client.is_ipxe() && since(&seen.at, now) < ONE_BOOT;
    chains || (may_chain && seen.stage > NetbootStage::Dhcp && since(&seen.began_at, now) < RESTART)
}

fn begun(stage: NetbootStage, mac: &str, client: Option<&Client>, why: Option<&String>, now: Timestamp) -> NetbootSeen {
    NetbootSeen {
        stage,
        at: MicroTime(now),
        began_at: MicroTime(now),
        mac_address: mac.to_owned(),
        firmware: client.map(ToString::to_string),
        architecture: client.and_then(|client| client.arch),
        message: why.cloned(),
        address: None,
    }
}

/// A report that was made for this Hardware, and not for one of its name that was deleted.
pub fn is_of(report: &HardwareReport, hardware: &Hardware) -> bool {
    let uid = hardware.metadata.uid.as_deref();
    report.metadata.owner_references.iter().flatten().any(|owner| Some(owner.uid.as_str()) == uid)
}

/// How far the boot has come that began at `since` or later; `None`: none was seen.
pub fn netboot_since(status: Option<&HardwareReportStatus>, since: Option<Timestamp>) -> Option<&NetbootSeen> {
    let seen = status?.netboot.as_ref()?;
    since.is_none_or(|since| seen.at.0 > since).then_some(seen)
}

/// What a person is told of the boot that began at `since`, and of an agent that was refused in it.
pub fn told_since(status: Option<&HardwareReportStatus>, since: Option<Timestamp>) -> String {
    let boot = boot(netboot_since(status, since), unserved_since(status, since), by_the_clock);
    let refused = status.and_then(|status| status.refused.as_ref());
    match refused.filter(|refused| since.is_none_or(|since| refused.at.0 > since)) {
        Some(refused) => format!("{boot}; {}", told_refused(refused)),
        None => boot,
    }
}

pub fn told_refused(refused: &AgentRefused) -> String {
    let at = refused.at.0.strftime("%H:%M:%SZ");
    let from = refused.address.as_deref().unwrap_or("an address that is not known");
    let reason = match refused.reason {
        AgentRefusedReason::TokenUsedTwice => "TokenUsedTwice",
        AgentRefusedReason::TlsRequired => "TLSRequired",
    };
    format!("an agent at {from} was refused at {at} ({reason}: {})", refused.message)
}

/// What a person is told of it.
pub fn told(seen: Option<&NetbootSeen>) -> String {
    words(seen, by_the_clock)
}

pub fn told_unserved(unserved: &DhcpUnserved) -> String {
    unserved::told(unserved, by_the_clock)
}

fn by_the_clock(at: Timestamp) -> String {
    format!("at {}", at.strftime("%H:%M:%SZ"))
}

/// A server that DHCP did not serve at all was seen to ask all the same.
fn boot(
    seen: Option<&NetbootSeen>,
    unserved: Option<&DhcpUnserved>,
    when: impl Fn(Timestamp) -> String + Copy,
) -> String {
    match (seen, unserved) {
        (None, Some(unserved)) => unserved::told(unserved, when),
        (Some(_), Some(unserved)) => format!("{}; {}", words(seen, when), unserved::told(unserved, when)),
        (_, None) => words(seen, when),
    }
}

/// The same at this moment, with what the installer does that is at work.
pub fn told_now(status: &HardwareReportStatus, now: Timestamp) -> String {
    let ago = |at: Timestamp| match now.duration_since(at).as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds => format!("{} h ago", seconds / 3600),
    };
    let boot = boot(status.netboot.as_ref(), unserved_since(Some(status), None), ago);
    let at_work = status.session.as_ref().filter(|session| session.ended_at.is_none()).map(|session| {
        let doing = session.doing.as_ref().map(|doing| format!(": {doing}")).unwrap_or_default();
        format!("; its installer was heard {}{doing}", ago(session.heard_at.0))
    });
    format!("{boot}{}", at_work.unwrap_or_default())
}

fn words(seen: Option<&NetbootSeen>, when: impl Fn(Timestamp) -> String) -> String {
    let Some(seen) = seen else {
        return "the boot service has not seen the server ask for an address".to_owned();
    };
    let at = when(seen.at.0);
    let (mac, firmware) = (&seen.mac_address, seen.firmware.as_deref().unwrap_or("the firmware of the server"));
    match seen.stage {
        NetbootStage::Dhcp => {
            format!("{firmware} asked for an address by {mac} {at}, and has not fetched its boot program or the script")
        }
        NetbootStage::Program => {
            format!("the server fetched its boot program {at}, and has not asked for the script")
        }
        NetbootStage::Script => format!("the server fetched the boot script {at}, and has not asked for the kernel"),
        NetbootStage::Kernel => {
            format!("the server began to fetch its kernel {at}, and its agent has not asked yet")
        }
        NetbootStage::Agent => format!("the agent of the server first asked {at}"),
        NetbootStage::LocalDisk | NetbootStage::Refused => {
            let why = seen.message.as_deref().unwrap_or_default();
            format!("the server asked by {mac} {at} and was not booted from the network: {why}")
        }
    }
}

#[cfg(test)]
mod tests;
