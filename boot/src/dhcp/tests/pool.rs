//! Addresses of a pool: of one service, and of two.

use super::*;

const STRANGER: [u8; 6] = [0x52, 0x54, 0, 0, 9, 9];

fn with_pool(range: &str) -> Server {
    server(Config { pools: vec![range.parse().expect("a pool")], ..config() })
}

fn of(mac: [u8; 6], mut message: Message) -> Message {
    message.set_chaddr(&mac);
    message
}

fn asked(server: &mut Server, directory: &Directory, request: &Message, second: i64) -> Option<Message> {
    let bytes = request.to_vec().expect("encodable");
    let (answer, _) = server.answer(directory, arrived(SERVER_PORT, &bytes), at(second));
    answer.map(|answer| Message::decode(&mut Decoder::new(&answer.bytes)).expect("decodable"))
}

fn takes(address: Ipv4Addr) -> Vec<DhcpOption> {
    vec![DhcpOption::ServerIdentifier(US), DhcpOption::RequestedIpAddress(address)]
}

/// From its firmware's first packet to the system that it has booted, which asks by itself.
#[test]
fn a_stranger_boots_with_an_address_of_the_pool() {
    let (mut server, none) = (with_pool("10.88.0.200-10.88.0.209/24@10.88.0.254"), Directory::default());
    let plain = of(STRANGER, request(MessageType::Discover, []));
    assert!(asked(&mut server, &none, &plain, 0).is_none(), "who does not boot from the network is another server's");
    let offer = asked(&mut server, &none, &of(STRANGER, request(MessageType::Discover, pxe(7))), 1).expect("an offer");
    let address = offer.yiaddr();
    assert!((200..=209).contains(&address.octets()[3]), "{address}");
    assert_eq!(offer.opts().get(OptionCode::Router), Some(&DhcpOption::Router(vec![Ipv4Addr::new(10, 88, 0, 254)])));
    assert_eq!(file(&offer), "52:54:00:00:09:09/ipxe.efi", "TFTP knows who asks by the path");
    let ack = of(STRANGER, request(MessageType::Request, [pxe(7), takes(address)].concat()));
    let ack = asked(&mut server, &none, &ack, 2).expect("an ack");
    assert_eq!((ack.opts().msg_type(), ack.yiaddr(), lease(&ack)), (Some(MessageType::Ack), address, Some(86_400)));
    let system = asked(&mut server, &none, &plain, 30).expect("what has booted is answered");
    assert_eq!((system.yiaddr(), file(&system)), (address, String::new()));
    let known = directory(json!({"ip": {}}));
    let own = asked(&mut server, &known, &request(MessageType::Discover, []), 31).expect("a Hardware without address");
    assert_ne!(own.yiaddr(), address);
    let reserved =
        asked(&mut server, &directory(json!({})), &request(MessageType::Discover, []), 32).expect("an offer");
    assert_eq!(reserved.yiaddr(), RESERVED, "what the Hardware says counts");
}

#[test]
fn no_address_of_the_pool_is_two_servers() {
    let (mut server, none) = (with_pool("10.88.0.200-10.88.0.202/24"), Directory::default());
    let boots = |n: u8, kind, more: Vec<DhcpOption>| of([2, 0, 0, 0, 0, n], request(kind, [pxe(7), more].concat()));
    let offered = |server: &mut Server, n: u8, second: i64| {
        asked(server, &none, &boots(n, MessageType::Discover, Vec::new()), second).map(|offer| offer.yiaddr())
    };
    let first: Vec<Ipv4Addr> = (1..=3).filter_map(|n| offered(&mut server, n, 0)).collect();
    assert_eq!(first.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{first:?}");
    assert_eq!(offered(&mut server, 4, 1), None, "all are taken");
    let ack = asked(&mut server, &none, &boots(1, MessageType::Request, takes(first[0])), 2).expect("an ack");
    assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
    let other = asked(&mut server, &none, &boots(5, MessageType::Request, takes(first[0])), 90).expect("a nak");
    assert_eq!(other.opts().msg_type(), Some(MessageType::Nak), "it is the first one's");
    // Offers that nobody took are free after a minute; the lease is not for a day.
    let later: Vec<Option<Ipv4Addr>> = (6..=8).map(|n| offered(&mut server, n, 200)).collect();
    assert_eq!(later.iter().flatten().filter(|address| **address == first[0]).count(), 0);
    assert_eq!(offered(&mut server, 1, 3600), Some(first[0]));
    let declines = boots(1, MessageType::Decline, vec![DhcpOption::RequestedIpAddress(first[0])]);
    assert!(asked(&mut server, &none, &declines, 3700).is_none());
    assert_ne!(offered(&mut server, 1, 3800), Some(first[0]), "somebody else has it");
}

/// Somebody gives an address in the middle of the range to a Hardware; the gateway and this service may be there, too.
#[test]
fn what_is_somebodys_own_is_not_of_the_pool() {
    let known = directory(json!({"ip": {"address": "10.88.0.2", "netmask": "255.255.255.0"}}));
    let mut server = with_pool("10.88.0.1-10.88.0.4/24@10.88.0.3");
    let discover = of(STRANGER, request(MessageType::Discover, pxe(7)));
    let offered = asked(&mut server, &known, &discover, 0).map(|offer| offer.yiaddr());
    assert_eq!(offered, Some(Ipv4Addr::new(10, 88, 0, 4)));
    let wishes =
        request(MessageType::Discover, [pxe(7), vec![DhcpOption::RequestedIpAddress([10, 88, 0, 2].into())]].concat());
    assert!(asked(&mut server, &known, &of([2, 0, 0, 0, 0, 5], wishes), 1).is_none(), "nothing else is left");
}

#[test]
fn what_an_agent_reports_from_is_taken_after_a_restart() {
    let (mut server, none) = (with_pool("10.88.0.200-10.88.0.200/24"), Directory::default());
    let address = Ipv4Addr::new(10, 88, 0, 200);
    server.leases.know("02:00:00:00:00:07", address, at(0));
    let discover = of(STRANGER, request(MessageType::Discover, pxe(7)));
    assert!(asked(&mut server, &none, &discover, 3600).is_none());
    assert_eq!(asked(&mut server, &none, &discover, 25 * 3600).map(|offer| offer.yiaddr()), Some(address));
}

#[test]
fn a_pool_is_of_its_own_network_alone() {
    let (mut server, none) = (with_pool("10.99.0.200-10.99.0.209/24"), Directory::default());
    let mut discover = of(STRANGER, request(MessageType::Discover, pxe(7)));
    assert!(asked(&mut server, &none, &discover, 0).is_none(), "our own network has none");
    discover.set_giaddr(Ipv4Addr::new(10, 99, 0, 1));
    let offer = asked(&mut server, &none, &discover, 1).expect("an offer");
    assert_eq!(offer.yiaddr().octets()[..3], [10, 99, 0]);
}

/// Two services on one network: what one offers, the other neither offers to somebody else nor refuses.
#[test]
fn replicas_give_addresses_of_a_pool_in_turn_and_refuse_none_of_each_other() {
    let other = Ipv4Addr::new(10, 88, 0, 2);
    let replica = |own| {
        let replicas = Replicas::find(vec![US, other], Some(own)).expect("replicas");
        let pools = vec!["10.88.0.200-10.88.0.209/24".parse().expect("a pool")];
        server(Config { replicas, pools, ..config() })
    };
    let (mut one, mut two, none) = (replica(US), replica(other), Directory::default());
    let (mut of_one, mut of_two) = (Vec::new(), Vec::new());
    for last in 1..=6 {
        let discover = of([0x52, 0x54, 0, 0, 9, last], request(MessageType::Discover, pxe(7)));
        let addresses =
            [&mut one, &mut two].map(|server| asked(server, &none, &discover, 1).map(|offer| offer.yiaddr()));
        of_one.extend(addresses[0]);
        of_two.extend(addresses[1]);
    }
    assert_eq!((of_one.len(), of_two.len()), (5, 5), "the sixth finds none free at either");
    assert!(of_one.iter().all(|address| !of_two.contains(address)), "{of_one:?} {of_two:?}");
    let mac = [0x52, 0x54, 0, 0, 9, 1];
    let take = of(mac, request(MessageType::Request, [pxe(7), takes(of_one[0])].concat()));
    let chosen = two.answer(&none, arrived(SERVER_PORT, &take.to_vec().expect("encodable")), at(2));
    assert_eq!(chosen, (None, None), "a replica was chosen: nothing to tell");
    assert_eq!(asked(&mut one, &none, &take, 2).and_then(|ack| ack.opts().msg_type()), Some(MessageType::Ack));
    let again = |address| {
        of(mac, request(MessageType::Request, [pxe(7), vec![DhcpOption::RequestedIpAddress(address)]].concat()))
    };
    assert_eq!(asked(&mut two, &none, &again(of_one[0]), 3), None, "it is not this one's to refuse");
    let nak = asked(&mut two, &none, &again(Ipv4Addr::new(10, 88, 0, 77)), 4).expect("nobody's");
    assert_eq!(nak.opts().msg_type(), Some(MessageType::Nak));
    let known = directory(json!({}));
    let [first, second] =
        [&mut one, &mut two].map(|server| asked(server, &known, &request(MessageType::Discover, []), 5));
    let told = |offer: Option<Message>| {
        let offer = offer.expect("an offer");
        (offer.yiaddr(), offer.opts().get(OptionCode::ServerIdentifier).cloned())
    };
    assert_eq!(told(first), (RESERVED, Some(DhcpOption::ServerIdentifier(US))));
    assert_eq!(told(second), (RESERVED, Some(DhcpOption::ServerIdentifier(other))));
    let short: Pool = "10.88.0.200-10.88.0.200/24".parse().expect("a pool");
    assert!(short.is_enough_for(&one.config.replicas).is_err_and(|why| why.contains("write a longer range")));
}
