//! What is written of what was seen, and what is told of it.

use super::super::firmware::Asked;
use super::*;
use api::report::DhcpUnservedReason;
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

fn unserved(reason: DhcpUnservedReason, why: &str) -> Sight {
    Sight::Unserved { cause: Unserved::new(reason, why), uuid: None }
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
    assert_eq!(status.guest.map(|guest| (guest.address, guest.by)), Some(("10.88.0.50".to_owned(), HeardBy::Syslog)));
}

/// The seconds at which the report changes.
fn changes(
    status: &mut HardwareReportStatus,
    sights: impl IntoIterator<Item = (i64, &'static str, Sight)>,
) -> Vec<i64> {
    let written = sights.into_iter().filter_map(|(second, mac, sight)| {
        *status = add(status, mac, &sight, at(second))?;
        Some(second)
    });
    written.collect()
}

fn cause(status: &HardwareReportStatus) -> Option<&str> {
    status.unserved.as_ref().map(|unserved| unserved.message.as_str())
}

const OTHER: &str = "02:00:00:00:00:02";

#[test]
fn why_a_server_is_not_served_is_one_write_in_five_minutes_and_a_new_cause_another() {
    use DhcpUnservedReason::*;
    let mut status = HardwareReportStatus::default();
    let packets = (0..3600).step_by(4).map(|second| (second, MAC, unserved(DhcpRefused, "no address")));
    assert_eq!(changes(&mut status, packets).len(), 12);
    let other = [(3600, MAC, unserved(DhcpPoolFull, "full")), (3604, MAC, unserved(DhcpPoolFull, "full"))];
    assert_eq!((changes(&mut status, other), cause(&status)), (vec![3600], Some("full")));
    // Two other servers whose addresses are taken in turn, at each try.
    let causes = ["one", "two"];
    let each = (3700..4000).step_by(2).zip(causes.iter().cycle());
    let writes = changes(&mut status, each.map(|(second, why)| (second, MAC, unserved(ForeignDhcp, why))));
    assert!(writes.len() <= 10 && writes.windows(2).all(|pair| pair[1] - pair[0] >= 30), "{writes:?}");
}

#[test]
fn a_boot_that_goes_on_is_the_end_of_what_was_not_served() {
    use DhcpUnservedReason::*;
    let mut status = HardwareReportStatus::default();
    let mended = [(0, MAC, unserved(DhcpRefused, "no address")), (60, MAC, asked(firmware()))];
    assert_eq!((changes(&mut status, mended), cause(&status)), (vec![0, 60], None));
    // Another DHCP server's address is taken after the offer, and each try has an offer.
    let tries = [
        (62, MAC, unserved(ForeignDhcp, "taken")),
        (70, MAC, asked(firmware())),
        (72, MAC, unserved(ForeignDhcp, "taken")),
    ];
    assert_eq!((changes(&mut status, tries), cause(&status)), (vec![62], Some("taken")));
    assert_eq!(changes(&mut status, [(80, MAC, Sight::Came(NetbootStage::Program))]), [80]);
    assert_eq!(cause(&status), None);
}

/// Of two replicas one may have addresses; of two interfaces one may have one.
#[test]
fn who_is_served_otherwise_is_not_told_of() {
    use DhcpUnservedReason::*;
    for (mac, reason) in [(MAC, DhcpPoolFull), (OTHER, DhcpRefused), (OTHER, ForeignDhcp)] {
        let mut status = HardwareReportStatus::default();
        let sights = (0..3600)
            .step_by(4)
            .flat_map(|second| [(second, MAC, asked(firmware())), (second + 1, mac, unserved(reason, "why"))]);
        let writes = changes(&mut status, sights);
        assert!(writes.len() <= 2 * 30, "{mac} {reason:?}: {writes:?}");
        assert_eq!(changes(&mut status, [(3700, MAC, Sight::Came(NetbootStage::Agent))]), [3700]);
        assert_eq!(changes(&mut status, [(3701, mac, unserved(DhcpRefused, "why"))]), [] as [i64; 0]);
    }
}

#[test]
fn what_was_not_served_is_told_in_place_of_a_boot_that_was_not_seen() {
    let mut status = HardwareReportStatus::default();
    changes(
        &mut status,
        [(0, MAC, unserved(DhcpUnservedReason::ForeignDhcp, "the server took address a of DHCP server b"))],
    );
    let words =
        "DHCP did not serve the server by 52:54:00:00:00:01 at 08:00:00Z: the server took address a of DHCP server b";
    assert_eq!(told_since(Some(&status), Some(at(-1))), words);
    assert!(told_since(Some(&status), Some(at(0))).contains("has not seen the server ask"), "of an earlier start");
    changes(&mut status, [(200, MAC, asked(firmware()))]);
    let said = told_now(&status, at(210));
    assert!(said.contains("10 s ago, and has not fetched") && said.contains("; DHCP did not serve"), "{said}");
}

/// What an older boot service has written has no such field, and an older one that writes drops it.
#[test]
fn a_report_without_it_is_read() {
    let netboot = serde_json::json!({"stage": "Dhcp", "at": "2027-01-15T08:00:00Z", "beganAt": "2027-01-15T08:00:00Z", "macAddress": MAC});
    let old: HardwareReportStatus = serde_json::from_value(serde_json::json!({"netboot": netboot})).expect("a status");
    assert_eq!((old.unserved.as_ref(), unserved_since(Some(&old), None)), (None, None));
    assert!(!serde_json::to_string(&old).expect("text").contains("unserved"));
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
        prop::sample::select(vec![DhcpUnservedReason::DhcpPoolFull, DhcpUnservedReason::ForeignDhcp])
            .prop_map(|reason| unserved(reason, "why")),
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
