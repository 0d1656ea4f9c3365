//! Whom DHCP does not serve, and why: what is remembered of it.

use super::*;
use api::report::DhcpUnservedReason::{self, *};

fn sight(config: &Config, directory: &Directory, request: &Message) -> Option<Sight> {
    match answer(config, directory, arrived(SERVER_PORT, &request.to_vec().expect("encodable"))).1? {
        Seen::Answered { sight, .. }
        | Seen::NotAnswered { sight, .. }
        | Seen::Declined { sight, .. }
        | Seen::Foreign { sight, .. } => sight,
    }
}

fn cause(config: &Config, directory: &Directory, request: &Message) -> Unserved {
    match sight(config, directory, request) {
        Some(Sight::Unserved { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

fn told(cause: &Unserved) -> (DhcpUnservedReason, &str) {
    (cause.reason, cause.message.as_str())
}

fn discover() -> Message {
    request(MessageType::Discover, pxe(7))
}

#[test]
fn each_refusal_is_remembered_with_its_cause() {
    let no_address = "Hardware 's1', interface 52:54:00:00:00:01: dhcp.ip.address is missing";
    let no_netmask = "Hardware 's1', interface 52:54:00:00:00:01: dhcp.ip.netmask is missing";
    let no_host = "Hardware 's1', interface 52:54:00:00:00:01: dhcp.ip.address '224.0.0.1' is no host's";
    let disabled = "disableDhcp is true for the interface 52:54:00:00:00:01";
    for (change, why) in [
        (json!({"ip": {}}), no_address),
        (json!({"ip": {"address": "10.88.0.50"}}), no_netmask),
        (json!({"ip": {"address": "224.0.0.1", "netmask": "255.255.255.0"}}), no_host),
        (json!({"disableDhcp": true}), disabled),
    ] {
        assert_eq!(told(&cause(&config(), &directory(change), &discover())), (DhcpRefused, why));
    }
    let mut relay = RelayAgentInformation::default();
    relay.insert(RelayInfo::LinkSelection(Ipv4Addr::new(10, 89, 0, 1)));
    let mut relayed = request(MessageType::Discover, [pxe(7), vec![DhcpOption::RelayAgentInformation(relay)]].concat());
    relayed.set_giaddr(Ipv4Addr::new(172, 16, 0, 1));
    let link = cause(&config(), &directory(json!({})), &relayed);
    assert!(link.reason == DhcpRefused && link.message.contains("of the link of 10.89.0.1"), "{link:?}");
}

#[test]
fn of_two_hardware_with_one_mac_both_are_told() {
    let hardware = |name: &str| {
        let object =
            json!({"metadata": {"name": name}, "spec": {"interfaces": [{"dhcp": {"mac": "52:54:00:00:00:01"}}]}});
        Arc::new(serde_json::from_value::<Hardware>(object).expect("a Hardware"))
    };
    let both = Directory::new(vec![hardware("b"), hardware("a")]);
    let why = "Hardware 'a' and 'b' have the same MAC address 52:54:00:00:00:01; none of them is answered";
    assert_eq!(told(&cause(&config(), &both, &discover())), (SameMacAddress, why));
    assert_eq!(told(&cause(&served_as(Mode::Proxy), &both, &discover())), (SameMacAddress, why));
    assert_eq!(both.with_mac("52:54:00:00:00:01").count(), 2);
    assert_eq!(sight(&config(), &both, &request(MessageType::Discover, [])), None, "it does not ask to boot");
    assert_eq!(sight(&config(), &Directory::default(), &discover()), None, "of a stranger there is nothing to tell");
}

#[test]
fn a_full_pool_is_remembered() {
    let config = Config { pools: vec!["10.88.0.200-10.88.0.200/24".parse().expect("a pool")], ..config() };
    let mut server = server(config);
    server.leases.know("02:00:00:00:00:07", Ipv4Addr::new(10, 88, 0, 200), at(0));
    let (answer, seen) = server.answer(
        &directory(json!({"ip": {}})),
        arrived(SERVER_PORT, &discover().to_vec().expect("encodable")),
        at(1),
    );
    let Some(Seen::NotAnswered { sight: Some(Sight::Unserved { cause, uuid }), .. }) = seen else { panic!("{seen:?}") };
    assert_eq!(told(&cause), (DhcpPoolFull, "all addresses of the pool 10.88.0.200-10.88.0.200 are taken"));
    assert_eq!((answer, uuid.as_deref()), (None, Some("07070707-0707-0707-0707-070707070707")));
}

#[test]
fn what_the_client_did_with_the_offer_is_remembered() {
    let (known, other) = (directory(json!({})), Ipv4Addr::new(192, 168, 1, 1));
    let theirs = Ipv4Addr::new(192, 168, 1, 77);
    let takes = vec![DhcpOption::ServerIdentifier(other), DhcpOption::RequestedIpAddress(theirs)];
    let foreign = cause(&config(), &known, &request(MessageType::Request, [pxe(7), takes.clone()].concat()));
    assert_eq!(told(&foreign), (ForeignDhcp, "the server took address 192.168.1.77 of DHCP server 192.168.1.1"));
    assert_eq!((foreign.server, foreign.address), (Some(other), Some(theirs)));
    // The installer asks by itself, and does not ask to boot.
    assert_eq!(cause(&config(), &known, &request(MessageType::Request, takes.clone())), foreign);
    // So does the system that is on the disk of a server: nobody waits for that.
    let installed = directory(json!({"netboot": {"allowPXE": false}}));
    assert_eq!(sight(&config(), &installed, &request(MessageType::Request, takes)), None);
    let declines = request(MessageType::Decline, [DhcpOption::RequestedIpAddress(RESERVED)]);
    let declined = cause(&config(), &known, &declines);
    assert_eq!(told(&declined), (DhcpAddressInUse, "the server declined address 10.88.0.50: somebody else has it"));
    assert_eq!(declined.address, Some(RESERVED));
}

#[test]
fn firmware_that_nothing_is_known_for_is_remembered_where_it_gets_an_address_too() {
    let (known, discover) = (directory(json!({})), request(MessageType::Discover, pxe(99)));
    let why = "no boot program is known for PXE of architecture 99";
    assert_eq!(told(&cause(&config(), &known, &discover)), (NoBootProgram, why));
    assert_eq!(told(&cause(&served_as(Mode::Proxy), &known, &discover)), (NoBootProgram, why));
    assert!(ask(&known, &discover).is_some(), "it has its address");
    let mut named = json!({"allowPXE": true});
    named["ipxe"] = json!({"binary": "own.efi"});
    assert!(matches!(sight(&config(), &directory(json!({"netboot": named})), &discover), Some(Sight::Asked { .. })));
}
