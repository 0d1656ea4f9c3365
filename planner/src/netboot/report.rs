//! What a boot service saw of a server, and what of it goes into the server's HardwareReport. A report changes when a boot comes to
//! another stage, never with every packet: firmware that asks in vain asks for ever.

use super::firmware::Client;
use api::HardwareReport;
use api::report::{
    AgentRefused, AgentRefusedReason, GuestSeen, HardwareReportStatus, HeardBy, IdentitySeen, NetbootSeen, NetbootStage,
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
            if !netboot.is_some_and(is_told) {
                status.netboot = Some(begun(NetbootStage::Dhcp, mac, Some(client), None, now));
            }
        }
        Sight::Came(stage) => {
            if let Some(next) = came(netboot, mac, *stage, now) {
                status.netboot = Some(next);
            }
        }
        Sight::Agent { id, address, attributes } => {
            let next = came(netboot, mac, NetbootStage::Agent, now);
            // Once a boot: what an agent measures anew with every question is no news.
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
                status.netboot = Some(begun(*stage, mac, client.as_ref(), Some(why), now));
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
    let boot = told(netboot_since(status, since));
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
    words(seen, |at| format!("at {}", at.strftime("%H:%M:%SZ")))
}

/// The same at this moment, with what the installer does that is at work.
pub fn told_now(status: &HardwareReportStatus, now: Timestamp) -> String {
    let ago = |at: Timestamp| match now.duration_since(at).as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds => format!("{} h ago", seconds / 3600),
    };
    let boot = words(status.netboot.as_ref(), ago);
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
mod tests {
    use super::super::firmware::Asked;
    use super::*;
    use proptest::prelude::*;

    const MAC: &str = "52:54:00:00:00:01";

    fn firmware() -> Client {
        Client { arch: Some(7), asked: Asked::Pxe, ..Client::default() }
    }

    fn ipxe() -> Client {
        Client { user_class: Some("iPXE".to_owned()), ipxe_http: true, ..firmware() }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    fn asked(client: Client) -> Sight {
        Sight::Asked { client, uuid: None }
    }

    /// The stages that are written, with the second of each.
    fn written(sights: &[(i64, Sight)]) -> Vec<(i64, NetbootStage)> {
        let (mut status, mut all) = (HardwareReportStatus::default(), Vec::new());
        for (second, sight) in sights {
            if let Some(next) = add(&status, MAC, sight, at(*second)) {
                all.extend(next.netboot.as_ref().map(|seen| (*second, seen.stage)));
                status = next;
            }
        }
        all
    }

    #[test]
    fn a_boot_is_one_write_a_stage() {
        use NetbootStage::*;
        let boot = [
            (0, asked(firmware())),
            (1, asked(firmware())),
            (2, Sight::Came(Program)),
            (4, asked(ipxe())),
            (5, asked(ipxe())),
            (6, Sight::Came(Script)),
            (7, Sight::Came(Kernel)),
            (8, Sight::Came(Kernel)),
            (30, Sight::Came(Agent)),
            (80, Sight::Came(Agent)),
        ];
        let first = [(0, Dhcp), (2, Program), (6, Script), (7, Kernel), (30, Agent)];
        assert_eq!(written(&boot), first);
        let twice: Vec<_> =
            boot.iter().cloned().chain(boot.iter().map(|(second, sight)| (second + 300, sight.clone()))).collect();
        let second = first.map(|(second, stage)| (second + 300, stage));
        assert_eq!(written(&twice), [first, second].concat());
    }

    #[test]
    fn firmware_that_asks_in_vain_is_written_every_five_minutes() {
        let hour: Vec<_> = (0..3600).step_by(4).map(|second| (second, asked(firmware()))).collect();
        assert_eq!(written(&hour).len(), 12);
    }

    #[test]
    fn interfaces_in_turn_are_written_every_two_minutes() {
        let (mut status, mut writes) = (HardwareReportStatus::default(), Vec::new());
        let refused = Sight::Turned { stage: NetbootStage::Refused, why: "why".to_owned(), client: None, uuid: None };
        for second in (0..3600).step_by(4) {
            let (mac, sight) =
                if second % 8 == 0 { (MAC, asked(firmware())) } else { ("02:00:00:00:00:02", refused.clone()) };
            if let Some(next) = add(&status, mac, &sight, at(second)) {
                writes.push(second);
                status = next;
            }
        }
        assert!(writes.len() <= 30 && writes.windows(2).all(|pair| pair[1] - pair[0] >= 120), "{writes:?}");
    }

    #[test]
    fn a_server_that_was_restarted_begins_anew() {
        use NetbootStage::*;
        let reset =
            [(0, asked(firmware())), (2, Sight::Came(Program)), (40, asked(firmware())), (41, Sight::Came(Program))];
        assert_eq!(written(&reset), [(0, Dhcp), (2, Program), (40, Dhcp), (41, Program)]);
        let why = || "it is installed".to_owned();
        let turned =
            |second| (second, Sight::Turned { stage: LocalDisk, why: why(), client: Some(firmware()), uuid: None });
        assert_eq!(
            written(&[(0, Sight::Came(Agent)), turned(100), turned(101), turned(102), turned(900)]),
            [(0, Agent), (100, LocalDisk), (900, LocalDisk)]
        );
    }

    #[test]
    fn a_refused_agent_is_told_once_in_a_while_and_beside_the_boot() {
        let refused = |address: [u8; 4]| Sight::AgentRefused {
            address: Some(address.into()),
            reason: AgentRefusedReason::TokenUsedTwice,
            why: "why".to_owned(),
        };
        let (mut status, mut writes) = (HardwareReportStatus::default(), 0);
        for second in (0..3600).step_by(5) {
            if let Some(next) = add(&status, MAC, &refused([10, 0, 0, 9]), at(second)) {
                (status, writes) = (next, writes + 1);
            }
        }
        assert_eq!(writes, 12);
        let status = add(&status, MAC, &Sight::Came(NetbootStage::Agent), at(3500)).expect("news");
        let said = told_since(Some(&status), Some(at(3200)));
        assert!(said.contains("first asked at") && said.contains("at 10.0.0.9 was refused at"), "{said}");
        assert!(!told_since(Some(&status), Some(at(3400))).contains("refused"), "of an earlier boot");
        assert!(add(&status, MAC, &refused([10, 0, 0, 8]), at(3501)).is_some(), "from elsewhere");
    }

    #[test]
    fn what_was_seen_is_told_by_the_clock_or_by_how_long_ago_it_was() {
        let status = add(&HardwareReportStatus::default(), MAC, &asked(firmware()), at(0)).expect("news");
        let (seen, now) = (status.netboot.as_ref(), told_now(&status, at(12)));
        assert!(told(seen).contains(&format!("by {MAC} at 08:00:00Z, and has not")), "{}", told(seen));
        assert!(now.contains(&format!("by {MAC} 12 s ago, and has not fetched")), "{now}");
        assert!(told_now(&status, at(600)).contains("10 min ago"), "a clock that is behind, or a long wait");
        assert!(told_now(&status, at(-5)).contains("0 s ago"));
    }

    #[test]
    fn what_is_read_again_by_a_booted_system_is_no_boot() {
        use NetbootStage::*;
        let reads = [(0, Sight::Came(Kernel)), (30, Sight::Came(Agent)), (31, Sight::Came(Kernel))];
        assert_eq!(written(&reads), [(0, Kernel), (30, Agent)]);
    }

    #[test]
    fn a_guest_is_heard_at_each_start_and_seldom_between() {
        let address: IpAddr = "10.88.0.50".parse().expect("an address");
        let heard = |by, starts| Sight::Heard { address, by, starts };
        let mut status = HardwareReportStatus::default();
        let mut writes = Vec::new();
        for (second, sight) in [
            (0, heard(HeardBy::Dhcp, true)),
            (3, heard(HeardBy::Dhcp, true)),
            (4, heard(HeardBy::Metadata, true)),
            (5, heard(HeardBy::Syslog, false)),
            (300, heard(HeardBy::Dhcp, false)),
            (340, heard(HeardBy::Dhcp, true)),
            (941, heard(HeardBy::Syslog, false)),
        ] {
            if let Some(next) = add(&status, MAC, &sight, at(second)) {
                writes.push(second);
                status = next;
            }
        }
        assert_eq!(writes, [0, 340, 941]);
        assert_eq!(
            status.guest.map(|guest| (guest.address, guest.by)),
            Some(("10.88.0.50".to_owned(), HeardBy::Syslog))
        );
    }

    fn any_sight() -> impl Strategy<Value = Sight> {
        use NetbootStage::*;
        let address: IpAddr = [10, 0, 0, 1].into();
        prop_oneof![
            any::<bool>().prop_map(|is_ipxe| asked(if is_ipxe { ipxe() } else { firmware() })),
            prop::sample::select(vec![Program, Script, Kernel, Agent]).prop_map(Sight::Came),
            prop::sample::select(vec![LocalDisk, Refused]).prop_map(|stage| Sight::Turned {
                stage,
                why: "why".to_owned(),
                client: None,
                uuid: None
            }),
            any::<bool>().prop_map(move |starts| Sight::Heard { address, by: HeardBy::Dhcp, starts }),
        ]
    }

    proptest! {
        /// The same, twice at once, is one write; times never go back; and a stage is told with the time at which it was seen.
        #[test]
        fn nothing_is_written_twice(sights in prop::collection::vec((0i64..400, any_sight()), 1..60)) {
            let (mut status, mut second) = (HardwareReportStatus::default(), 0);
            for (step, sight) in sights {
                second += step;
                if let Some(next) = add(&status, MAC, &sight, at(second)) {
                    if let (Some(before), Some(after)) = (&status.netboot, &next.netboot) {
                        prop_assert!(before.at.0 <= after.at.0 && after.began_at.0 <= after.at.0);
                        prop_assert!(before.stage == after.stage || after.at.0 == at(second));
                    }
                    status = next;
                }
                prop_assert_eq!(add(&status, MAC, &sight, at(second)), None);
            }
        }
    }
}
