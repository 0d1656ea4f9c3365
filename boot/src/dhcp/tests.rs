mod bond;
mod options;
mod pool;
mod unserved;

use super::*;
use api::report::{HeardBy, NetbootStage};
use api::tinkerbell::Hardware;
use dhcproto::v4::relay::{RelayAgentInformation, RelayInfo};
use dhcproto::v4::{Architecture, DhcpOption, Message, OptionCode, UnknownOption};
use dhcproto::{Decodable, Decoder, Encodable};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
const RESERVED: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 50);
const US: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);

fn config() -> Config {
    Config {
        replicas: Replicas::alone(US),
        http_port: 7080,
        syslog: None,
        programs: Programs::default(),
        modes: Modes::default(),
        pools: Vec::new(),
    }
}

fn answer(config: &Config, directory: &Directory, arrival: Arrival<'_>) -> Outcome {
    server(config.clone()).answer(directory, arrival, at(0))
}

fn server(config: Config) -> Server {
    Server { config, leases: Leases::default() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("a time")
}

fn served_as(mode: Mode) -> Config {
    Config { modes: Modes { interface: mode, subnets: Vec::new() }, ..config() }
}

fn arrived(port: u16, bytes: &[u8]) -> Arrival<'_> {
    Arrival { bytes, port, from: SocketAddrV4::new(Ipv4Addr::new(10, 88, 0, 77), 68) }
}

fn directory(change: Value) -> Directory {
    let mut dhcp = json!({
        "mac": "52:54:00:00:00:01", "hostname": "s1", "domain_name": "example.org", "name_servers": ["10.88.0.1"],
        "ip": {"address": RESERVED, "netmask": "255.255.255.0", "gateway": "10.88.0.1"},
    });
    let mut interface = json!({"netboot": {"allowPXE": true}});
    for (key, value) in change.as_object().into_iter().flatten() {
        if key == "netboot" || key == "disableDhcp" {
            interface[key] = value.clone()
        } else {
            dhcp[key] = value.clone()
        }
    }
    interface["dhcp"] = dhcp;
    let hardware: Hardware =
        serde_json::from_value(json!({"metadata": {"name": "s1"}, "spec": {"interfaces": [interface]}})).expect("one");
    Directory::new(vec![Arc::new(hardware)])
}

fn request(kind: MessageType, more: impl IntoIterator<Item = DhcpOption>) -> Message {
    let mut request =
        Message::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, &MAC);
    request.opts_mut().insert(DhcpOption::MessageType(kind));
    more.into_iter().for_each(|option| {
        request.opts_mut().insert(option);
    });
    request
}

fn pxe(arch: u16) -> Vec<DhcpOption> {
    vec![
        DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:003000".to_vec()),
        DhcpOption::ClientSystemArchitecture(Architecture(arch)),
        DhcpOption::ClientNetworkInterface(1, 3, 0),
        DhcpOption::ClientMachineIdentifier([&[0][..], &[7; 16]].concat()),
    ]
}

fn ask(directory: &Directory, request: &Message) -> Option<(Message, SocketAddrV4)> {
    ask_at(SERVER_PORT, &config(), directory, request)
}

fn ask_at(port: u16, config: &Config, directory: &Directory, request: &Message) -> Option<(Message, SocketAddrV4)> {
    let (answer, _) = answer(config, directory, arrived(port, &request.to_vec().expect("encodable")));
    let answer = answer?;
    assert!(answer.bytes.len() >= 300);
    Some((Message::decode(&mut Decoder::new(&answer.bytes)).expect("decodable"), answer.to))
}

fn lease(reply: &Message) -> Option<u32> {
    match reply.opts().get(OptionCode::AddressLeaseTime) {
        Some(DhcpOption::AddressLeaseTime(seconds)) => Some(*seconds),
        _ => None,
    }
}

fn file(reply: &Message) -> String {
    reply.fname_str().and_then(Result::ok).unwrap_or_default().trim_end_matches('\0').to_owned()
}

#[test]
fn a_reservation_from_offer_to_ack() {
    let directory = directory(json!({}));
    let (offer, to) = ask(&directory, &request(MessageType::Discover, [])).expect("an offer");
    assert_eq!((offer.opts().msg_type(), offer.yiaddr()), (Some(MessageType::Offer), RESERVED));
    assert_eq!(to, SocketAddrV4::new(Ipv4Addr::BROADCAST, 68));
    assert_eq!(lease(&offer), Some(604_800), "never 0");
    assert_eq!(offer.opts().get(OptionCode::ServerIdentifier), Some(&DhcpOption::ServerIdentifier(US)));
    let chosen = |server| vec![DhcpOption::ServerIdentifier(server), DhcpOption::RequestedIpAddress(RESERVED)];
    let (ack, _) = ask(&directory, &request(MessageType::Request, chosen(US))).expect("an ack");
    assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
    assert!(ask(&directory, &request(MessageType::Request, chosen(Ipv4Addr::new(10, 88, 0, 2)))).is_none());
    let other = [DhcpOption::RequestedIpAddress(Ipv4Addr::new(10, 88, 0, 99))];
    let (nak, to) = ask(&directory, &request(MessageType::Request, other)).expect("a nak");
    assert_eq!(
        (nak.opts().msg_type(), nak.yiaddr(), lease(&nak)),
        (Some(MessageType::Nak), Ipv4Addr::UNSPECIFIED, None)
    );
    assert_eq!(to.ip(), &Ipv4Addr::BROADCAST);
    assert!(nak.flags().broadcast(), "a relay has to broadcast it");
    let mut renews = request(MessageType::Request, []);
    renews.set_ciaddr(RESERVED);
    let (ack, to) = ask(&directory, &renews).expect("an ack");
    assert_eq!((ack.opts().msg_type(), to), (Some(MessageType::Ack), SocketAddrV4::new(RESERVED, 68)));
    let mut informs = request(MessageType::Inform, []);
    informs.set_ciaddr(RESERVED);
    let (ack, _) = ask(&directory, &informs).expect("an ack");
    assert_eq!((ack.yiaddr(), lease(&ack)), (Ipv4Addr::UNSPECIFIED, None));
    for quiet in [MessageType::Release, MessageType::Decline, MessageType::Offer] {
        assert!(ask(&directory, &request(quiet, [])).is_none(), "{quiet:?}");
    }
}

#[test]
fn lease_times_are_the_hardwares_and_never_zero() {
    for (set, sent) in [(json!(60), 60), (json!(0), 604_800), (json!(-5), 604_800), (json!(1_i64 << 40), 604_800)] {
        let (offer, _) = ask(&directory(json!({"lease_time": set})), &request(MessageType::Discover, [])).expect("one");
        assert_eq!(lease(&offer), Some(sent));
    }
}

#[test]
fn what_boots_by_whom() {
    let allowed = directory(json!({}));
    let boots = |directory: &Directory, options: Vec<DhcpOption>| {
        let (offer, _) = ask(directory, &request(MessageType::Discover, options)).expect("an offer");
        (file(&offer), offer)
    };
    let (name, offer) = boots(&allowed, pxe(7));
    assert_eq!((name.as_str(), offer.siaddr()), ("ipxe.efi", US));
    let options = offer.opts();
    assert_eq!(options.get(OptionCode::VendorExtensions), Some(&DhcpOption::VendorExtensions(vec![6, 1, 8, 255])));
    assert_eq!(options.get(OptionCode::ClassIdentifier), Some(&DhcpOption::ClassIdentifier(b"PXEClient".to_vec())));
    assert!(options.contains(OptionCode::ClientMachineIdentifier));
    let script = "http://10.88.0.1:7080/ipxe/script/52:54:00:00:00:01/auto.ipxe";
    for class in [b"Tinkerbell".to_vec(), b"\x0aTinkerbell".to_vec()] {
        assert_eq!(boots(&allowed, [pxe(7), vec![DhcpOption::UserClass(class)]].concat()).0, script);
    }
    // Stock iPXE: the user class iPXE, and option 175 with its features; 19 is HTTP.
    let features = |bytes: &[u8]| DhcpOption::Unknown(UnknownOption::new(OptionCode::Unknown(175), bytes.to_vec()));
    let ipxe = DhcpOption::UserClass(b"iPXE".to_vec());
    assert_eq!(boots(&allowed, [pxe(7), vec![ipxe.clone(), features(&[0xb1, 1, 1, 19, 1, 1])]].concat()).0, script);
    let without = [pxe(0), vec![ipxe, features(&[0xb1, 1, 1])]].concat();
    assert_eq!(boots(&allowed, without).0, "tftp://10.88.0.1/52:54:00:00:00:01/undionly.kpxe");
    let mut http = pxe(16);
    http[0] = DhcpOption::ClassIdentifier(b"HTTPClient:Arch:00016".to_vec());
    let (name, offer) = boots(&allowed, http);
    assert_eq!(name, "http://10.88.0.1:7080/ipxe/binary/52:54:00:00:00:01/ipxe.efi");
    let class = offer.opts().get(OptionCode::ClassIdentifier);
    assert_eq!(class, Some(&DhcpOption::ClassIdentifier(b"HTTPClient".to_vec())));
    assert_eq!(boots(&allowed, Vec::new()).0, "", "who does not ask is not told");
    let (name, offer) = boots(&directory(json!({"netboot": {"allowPXE": false}})), pxe(7));
    assert_eq!((name.as_str(), offer.siaddr()), ("/netboot-not-allowed", Ipv4Addr::UNSPECIFIED));
    let own = directory(json!({"tftp_server_name": "10.9.9.9", "boot_file_name": "x/y"}));
    let (name, offer) = boots(&own, pxe(7));
    assert_eq!((name.as_str(), offer.siaddr()), ("x/y", Ipv4Addr::new(10, 9, 9, 9)));
    assert_eq!(offer.opts().get(OptionCode::TFTPServerName), Some(&DhcpOption::TFTPServerName(b"10.9.9.9".to_vec())));
}

#[test]
fn who_is_not_answered() {
    let discover = request(MessageType::Discover, pxe(7));
    assert!(ask(&Directory::default(), &discover).is_none());
    assert!(ask(&directory(json!({"disableDhcp": true})), &discover).is_none());
    assert!(ask(&directory(json!({"ip": {"address": "10.88.0.50"}})), &discover).is_none());
    let (_, seen) = answer(
        &config(),
        &directory(json!({"ip": {"address": "x", "netmask": "y"}})),
        arrived(SERVER_PORT, &discover.to_vec().expect("bytes")),
    );
    let Some(Seen::NotAnswered { why, .. }) = seen else { panic!("{seen:?}") };
    assert_eq!(why, "Hardware 's1', interface 52:54:00:00:00:01: dhcp.ip.address 'x' is no IPv4 address");
}

#[test]
fn a_relay_is_answered_by_unicast_with_its_option() {
    let mut relay = RelayAgentInformation::default();
    relay.insert(RelayInfo::AgentCircuitId(b"port 7".to_vec()));
    relay.insert(RelayInfo::ServerIdentifierOverride(Ipv4Addr::new(10, 1, 0, 1)));
    let option = DhcpOption::RelayAgentInformation(relay);
    let mut discover = request(MessageType::Discover, [option.clone()]);
    discover.set_giaddr(Ipv4Addr::new(10, 1, 0, 1));
    let (offer, to) = ask(&directory(json!({})), &discover).expect("an offer");
    assert_eq!(to, SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1), 67));
    assert_eq!(offer.opts().get(OptionCode::RelayAgentInformation), Some(&option));
    let id = DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 1, 0, 1));
    assert_eq!(offer.opts().get(OptionCode::ServerIdentifier), Some(&id));
    let mut chosen = request(MessageType::Request, [option, id, DhcpOption::RequestedIpAddress(RESERVED)]);
    chosen.set_giaddr(Ipv4Addr::new(10, 1, 0, 1));
    let (ack, _) = ask(&directory(json!({})), &chosen).expect("an ack");
    assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
}

#[test]
fn a_relay_that_names_the_clients_link_wants_an_address_of_it() {
    let discover = |link: [u8; 4]| {
        let mut relay = RelayAgentInformation::default();
        relay.insert(RelayInfo::LinkSelection(link.into()));
        let mut discover = request(MessageType::Discover, [DhcpOption::RelayAgentInformation(relay)]);
        discover.set_giaddr(Ipv4Addr::new(172, 16, 0, 1));
        discover
    };
    assert!(ask(&directory(json!({})), &discover([10, 88, 0, 1])).is_some());
    let (answer, seen) = answer(
        &config(),
        &directory(json!({})),
        arrived(SERVER_PORT, &discover([10, 89, 0, 1]).to_vec().expect("bytes")),
    );
    assert_eq!(answer, None);
    let Some(Seen::NotAnswered { why, .. }) = seen else { panic!("{seen:?}") };
    assert!(why.contains("10.89.0.1") && why.contains("Hardware 's1'"), "{why}");
}

#[test]
fn another_servers_offer_that_is_taken_is_told() {
    let other = Ipv4Addr::new(10, 88, 0, 2);
    let chosen = [DhcpOption::ServerIdentifier(other), DhcpOption::RequestedIpAddress(RESERVED)];
    let bytes = request(MessageType::Request, chosen).to_vec().expect("bytes");
    let (answered, seen) = answer(&config(), &directory(json!({})), arrived(SERVER_PORT, &bytes));
    let mac = "52:54:00:00:00:01".to_owned();
    let Some(Seen::Foreign { mac: of, server, address, sight: Some(Sight::Unserved { .. }) }) = seen else {
        panic!("{seen:?}")
    };
    assert_eq!((answered, of, server, address), (None, mac, other, Some(RESERVED)));
    let (_, seen) = answer(&config(), &Directory::default(), arrived(SERVER_PORT, &bytes));
    assert!(matches!(seen, Some(Seen::NotAnswered { .. })), "no server of ours: {seen:?}");
    let (_, seen) = answer(&served_as(Mode::Proxy), &directory(json!({})), arrived(SERVER_PORT, &bytes));
    assert_eq!(seen, None, "beside a proxy it is as it should be");
}

#[test]
fn a_network_is_served_as_the_smallest_that_is_listed() {
    let modes = Modes {
        interface: Mode::Reservation,
        subnets: vec![
            ("10.0.0.0/8".parse().expect("a net"), Mode::Off),
            ("10.1.0.0/16".parse().expect("a net"), Mode::Proxy),
        ],
    };
    let config = Config { modes, ..config() };
    let kind = |giaddr: [u8; 4]| {
        let mut discover = request(MessageType::Discover, pxe(7));
        discover.set_giaddr(giaddr);
        ask_at(SERVER_PORT, &config, &directory(json!({})), &discover).map(|(offer, _)| offer.yiaddr())
    };
    assert_eq!(kind([0, 0, 0, 0]), Some(RESERVED));
    assert_eq!(kind([192, 168, 0, 1]), Some(RESERVED));
    assert_eq!(kind([10, 2, 0, 1]), None);
    assert_eq!(kind([10, 1, 0, 1]), Some(Ipv4Addr::UNSPECIFIED));
}

#[test]
fn a_proxy_names_boot_programs_and_gives_no_address() {
    let (config, allowed) = (served_as(Mode::Proxy), directory(json!({})));
    let ask = |port, directory: &Directory, request: &Message| ask_at(port, &config, directory, request);
    let (offer, to) = ask(SERVER_PORT, &allowed, &request(MessageType::Discover, pxe(7))).expect("an offer");
    assert_eq!((offer.opts().msg_type(), to), (Some(MessageType::Offer), SocketAddrV4::new(Ipv4Addr::BROADCAST, 68)));
    assert_eq!((offer.yiaddr(), offer.siaddr(), lease(&offer)), (Ipv4Addr::UNSPECIFIED, US, None));
    let options = offer.opts();
    assert_eq!(options.get(OptionCode::ClassIdentifier), Some(&DhcpOption::ClassIdentifier(b"PXEClient".to_vec())));
    assert!(!options.contains(OptionCode::SubnetMask) && !options.contains(OptionCode::Router));
    // By its path, for the address that it gets is not known here.
    assert_eq!(file(&offer), "52:54:00:00:00:01/ipxe.efi");
    let mut again = request(MessageType::Request, pxe(7));
    again.set_ciaddr(Ipv4Addr::new(10, 88, 0, 77));
    let (ack, to) = ask(PROXY_PORT, &allowed, &again).expect("an ack");
    assert_eq!((ack.opts().msg_type(), file(&ack).as_str()), (Some(MessageType::Ack), "52:54:00:00:00:01/ipxe.efi"));
    assert_eq!(to, SocketAddrV4::new(Ipv4Addr::new(10, 88, 0, 77), 68));
    let mut http = pxe(16);
    http[0] = DhcpOption::ClassIdentifier(b"HTTPClient".to_vec());
    let (offer, _) = ask(SERVER_PORT, &allowed, &request(MessageType::Discover, http)).expect("an offer");
    assert_eq!(file(&offer), "http://10.88.0.1:7080/ipxe/binary/52:54:00:00:00:01/ipxe.efi");
    let quiet = [
        (SERVER_PORT, request(MessageType::Discover, []), "it does not boot"),
        (SERVER_PORT, request(MessageType::Request, pxe(7)), "an address is the other server's"),
        (PROXY_PORT, request(MessageType::Discover, pxe(7)), "nothing for this port"),
        (SERVER_PORT, request(MessageType::Discover, pxe(99)), "no program for it"),
    ];
    for (port, request, why) in quiet {
        assert!(ask(port, &allowed, &request).is_none(), "{why}");
    }
    let refused = directory(json!({"netboot": {"allowPXE": false}}));
    let (offer, _) = ask(SERVER_PORT, &refused, &request(MessageType::Discover, pxe(7))).expect("an offer");
    assert_eq!(file(&offer), "/netboot-not-allowed");
    // Its address is nobody's business here: the Hardware need not have one.
    assert!(ask(SERVER_PORT, &directory(json!({"ip": {}})), &request(MessageType::Discover, pxe(7))).is_some());
    assert!(ask_at(PROXY_PORT, &self::config(), &allowed, &again).is_none(), "addresses are ours here");
}

#[test]
fn strangers_boot_where_that_is_asked_for_and_nowhere_else() {
    let discover = request(MessageType::Discover, pxe(7));
    let of = |mode| ask_at(SERVER_PORT, &served_as(mode), &Directory::default(), &discover);
    assert_eq!(of(Mode::AutoProxy).map(|(offer, _)| file(&offer)), Some("52:54:00:00:00:01/ipxe.efi".to_owned()));
    for mode in [Mode::Reservation, Mode::Proxy, Mode::Off] {
        assert!(of(mode).is_none(), "{mode:?}");
    }
    let refused = directory(json!({"netboot": {"allowPXE": false}}));
    let (offer, _) = ask_at(SERVER_PORT, &served_as(Mode::AutoProxy), &refused, &discover).expect("an offer");
    assert_eq!(file(&offer), "/netboot-not-allowed", "a Hardware that says no is heard");
}

#[test]
fn an_option_that_cannot_be_understood_hides_none_and_one_in_pieces_is_one() {
    let mut bytes = request(MessageType::Discover, pxe(7)).to_vec().expect("bytes");
    let at = 240;
    // A host name that is no text, a subnet mask of one byte, and a user class in two pieces, before everything else.
    bytes.splice(
        at..at,
        [12, 2, 0xff, 0xfe, 1, 1, 9, 77, 5, b'T', b'i', b'n', b'k', b'e', 0, 77, 5, b'r', b'b', b'e', b'l', b'l'],
    );
    let (answer, _) = answer(&config(), &directory(json!({})), arrived(SERVER_PORT, &bytes));
    let offer = Message::decode(&mut Decoder::new(&answer.expect("an answer").bytes)).expect("decodable");
    assert!(file(&offer).starts_with("http://"), "{}", file(&offer));
    // Options in the field of the file's name.
    let mut bytes = request(MessageType::Discover, [DhcpOption::Unknown(UnknownOption::new(52.into(), vec![1]))])
        .to_vec()
        .expect("bytes");
    let more = [60, 9, b'P', b'X', b'E', b'C', b'l', b'i', b'e', b'n', b't', 93, 2, 0, 7, 94, 3, 1, 3, 0, 255];
    bytes[108..108 + more.len()].copy_from_slice(&more);
    let (answer, _) = self::answer(&config(), &directory(json!({})), arrived(SERVER_PORT, &bytes));
    let offer = Message::decode(&mut Decoder::new(&answer.expect("an answer").bytes)).expect("decodable");
    assert_eq!(file(&offer), "ipxe.efi");
}

#[test]
fn an_answer_that_would_be_too_long_loses_what_a_server_can_do_without() {
    let routes: Vec<_> =
        (0..60).map(|n| json!({"destination_descriptor": format!("10.{n}.0.0/16"), "router": "10.88.0.1"})).collect();
    let (offer, _) =
        ask(&directory(json!({"classless_static_routes": routes})), &request(MessageType::Discover, pxe(7)))
            .expect("one");
    assert!(!offer.opts().contains(OptionCode::ClasslessStaticRoute));
    assert_eq!((offer.yiaddr(), file(&offer).as_str()), (RESERVED, "ipxe.efi"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        answer(&config(), &directory(json!({})), arrived(SERVER_PORT, &bytes));
    }

    #[test]
    fn any_change_of_a_packet_is_survived(changes in proptest::collection::vec((0usize..400, any::<u8>()), 0..12), length in 0usize..400) {
        let mut bytes = request(MessageType::Discover, pxe(7)).to_vec().expect("bytes");
        bytes.resize(400, 0);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        answer(&config(), &directory(json!({})), arrived(SERVER_PORT, &bytes));
        answer(&config(), &directory(json!({})), arrived(SERVER_PORT, &bytes[..length]));
        for port in [SERVER_PORT, PROXY_PORT] {
            answer(&served_as(Mode::AutoProxy), &Directory::default(), arrived(port, &bytes));
        }
    }
}

fn sighted(directory: &Directory, request: &Message) -> Option<Sight> {
    match answer(&config(), directory, arrived(SERVER_PORT, &request.to_vec().expect("encodable"))).1? {
        Seen::Answered { sight, .. }
        | Seen::NotAnswered { sight, .. }
        | Seen::Declined { sight, .. }
        | Seen::Foreign { sight, .. } => sight,
    }
}

#[test]
fn what_is_seen_of_a_server_is_how_it_asks() {
    let may_boot = directory(json!({}));
    let Some(Sight::Asked { client, uuid }) = sighted(&may_boot, &request(MessageType::Discover, pxe(7))) else {
        panic!("it asked to boot")
    };
    assert_eq!(client.to_string(), "PXE of UEFI (x86-64)");
    assert_eq!(uuid.as_deref(), Some("07070707-0707-0707-0707-070707070707"));
    assert_eq!(sighted(&may_boot, &request(MessageType::Discover, [])), None, "the installer may ask as well");

    let boots_locally = directory(json!({"netboot": {"allowPXE": false}}));
    let turned = sighted(&boots_locally, &request(MessageType::Discover, pxe(7)));
    assert!(matches!(turned, Some(Sight::Turned { stage: NetbootStage::Refused, .. })), "{turned:?}");
    assert_eq!(sighted(&boots_locally, &request(MessageType::Discover, [])), None, "it has no address yet");
    let takes = request(MessageType::Request, [DhcpOption::RequestedIpAddress(RESERVED)]);
    let heard = |starts| Some(Sight::Heard { address: RESERVED.into(), by: HeardBy::Dhcp, starts });
    assert_eq!(sighted(&boots_locally, &takes), heard(true));
    let other = request(MessageType::Request, [DhcpOption::RequestedIpAddress(US)]);
    assert_eq!(sighted(&boots_locally, &other), None, "it is told to ask anew");
    let mut renews = request(MessageType::Request, []);
    renews.set_ciaddr(RESERVED);
    assert_eq!(sighted(&boots_locally, &renews), heard(false));
}

#[test]
fn a_uuid_is_written_as_smbios_writes_it() {
    let bytes: Vec<u8> = (0..=16).collect();
    let asks = |machine: Vec<u8>| {
        let mut options = pxe(7);
        options.push(DhcpOption::ClientMachineIdentifier(machine));
        match sighted(&directory(json!({})), &request(MessageType::Discover, options)) {
            Some(Sight::Asked { uuid, .. }) => uuid,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asks(bytes).as_deref(), Some("04030201-0605-0807-090a-0b0c0d0e0f10"));
    assert_eq!(asks([&[0][..], &[0; 16]].concat()), None);
    assert_eq!(asks([&[0][..], &[0xff; 16]].concat()), None);
}

/// Its firmware says another UUID than the BMC of the Hardware that has this MAC address.
#[test]
fn another_server_than_that_of_the_bmc_boots_nothing() {
    let with = |uuid: &str| {
        let mac = "52:54:00:00:00:01";
        let object = json!({
            "metadata": {"name": "s1", "annotations": {
                "metalplane.io/claimed-by": "m", "metalplane.io/boot-strategy": "Workflow", "metalplane.io/install": "1/Begun/w",
                "metalplane.io/system-uuid": uuid,
            }},
            "spec": {"interfaces": [{"dhcp": {"mac": mac, "ip": {"address": RESERVED, "netmask": "255.255.255.0"}}}]},
        });
        Directory::new(vec![Arc::new(serde_json::from_value::<Hardware>(object).expect("one"))])
    };
    let discover = request(MessageType::Discover, pxe(7));
    let bytes = discover.to_vec().expect("encodable");
    let (own, other) = (with("07070707-0707-0707-0707-070707070707"), with("17070707-0707-0707-0707-070707070707"));
    assert_eq!(file(&ask(&own, &discover).expect("an offer").0), "ipxe.efi");
    for mode in [Mode::Reservation, Mode::Proxy] {
        let (answered, seen) = answer(&served_as(mode), &other, arrived(SERVER_PORT, &bytes));
        let reply = Message::decode(&mut Decoder::new(&answered.expect("an answer").bytes)).expect("decodable");
        assert_eq!(file(&reply), "/netboot-not-allowed", "{mode:?}");
        let Some(Seen::Answered { sight: Some(Sight::Turned { why, uuid, .. }), .. }) = seen else {
            panic!("{seen:?}")
        };
        assert!(why.contains("07070707-0707-0707-0707-070707070707"), "{why}");
        assert_eq!(uuid.as_deref(), Some("07070707-0707-0707-0707-070707070707"));
    }
}
