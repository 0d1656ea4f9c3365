//! Options and flags that are easily forgotten, as bytes: what a packet brings, and what stands in the answer.

use super::*;

/// The value of an option, put together of its pieces (RFC 3396); `None`: it is not there.
fn option(packet: &[u8], number: u8) -> Option<Vec<u8>> {
    let (mut at, mut found) = (240, None);
    while packet[at] != 255 {
        if packet[at] == 0 {
            at += 1;
            continue;
        }
        let (code, length) = (packet[at], usize::from(packet[at + 1]));
        if code == number {
            found.get_or_insert_with(Vec::new).extend(&packet[at + 2..at + 2 + length]);
        }
        at += 2 + length;
    }
    found
}

/// A DISCOVER with these options behind the first, and what is answered.
fn discovered(change: Value, flags: [u8; 2], giaddr: [u8; 4], more: &[u8]) -> (Vec<u8>, SocketAddrV4) {
    let mut bytes = vec![1, 1, 6, 0, 0, 0, 0, 9, 0, 0, flags[0], flags[1]];
    bytes.extend([0; 12]);
    bytes.extend(giaddr);
    bytes.extend(MAC);
    bytes.resize(236, 0);
    bytes.extend([99, 130, 83, 99, 53, 1, 1]);
    bytes.extend(more);
    bytes.push(255);
    let (answer, _) = answer(&config(), &directory(change), arrived(SERVER_PORT, &bytes));
    let answer = answer.expect("an answer");
    (answer.bytes, answer.to)
}

fn asked(change: Value, more: &[u8]) -> Vec<u8> {
    discovered(change, [0, 0], [0; 4], more).0
}

/// Option 57 counts the headers of IP and UDP, and less than 576 is no size (RFC 2132, 9.10).
#[test]
fn an_answer_is_as_long_as_its_client_takes() {
    let routes: Vec<_> =
        (0..90).map(|n| json!({"destination_descriptor": format!("10.{n}.0.0/16"), "router": "10.88.0.1"})).collect();
    let server = || json!({"classless_static_routes": routes});
    let size = |size: u16| [&[57, 2][..], &size.to_be_bytes()].concat();
    for (more, most, has_routes) in [
        (Vec::new(), 548, false),
        (size(576), 548, false),
        (size(68), 548, false),
        (size(1000), 972, true),
        (size(1500), 1472, true),
    ] {
        let told = asked(server(), &more);
        assert!(told.len() <= most, "{more:?}: {}", told.len());
        assert_eq!(option(&told, 121).is_some(), has_routes, "{more:?}: {}", told.len());
        assert_eq!(option(&told, 3), Some(vec![10, 88, 0, 1]), "{more:?}: what a server cannot do without stays");
    }
    let told = asked(server(), &size(1500));
    assert!(told.len() > 548 && option(&told, 121).is_some_and(|routes| routes.len() > 255), "in pieces");
}

/// RFC 6842: whatever bytes they are, so that a client that shares its hardware address knows its own answers.
#[test]
fn the_identifier_of_the_client_comes_back() {
    for identifier in [&[1, 0x52, 0x54, 0, 0, 0, 1][..], &[255, 0, 0, 0, 7, 0, 2, 0, 0, 0xab, 0x11], &[0; 200]] {
        let length = u8::try_from(identifier.len()).expect("a byte");
        let more = [&[61, length][..], identifier].concat();
        assert_eq!(option(&asked(json!({}), &more), 61).as_deref(), Some(identifier));
    }
    assert_eq!(option(&asked(json!({}), &[]), 61), None, "one that says none is told none");
    // To a NAK it belongs too.
    let other =
        [DhcpOption::RequestedIpAddress(Ipv4Addr::new(10, 88, 0, 99)), DhcpOption::ClientIdentifier(vec![1, 2, 3])];
    let bytes = request(MessageType::Request, other).to_vec().expect("bytes");
    let (nak, _) = answer(&config(), &directory(json!({})), arrived(SERVER_PORT, &bytes));
    let nak = nak.expect("an answer").bytes;
    assert_eq!((option(&nak, 53), option(&nak, 61)), (Some(vec![6]), Some(vec![1, 2, 3])));
}

/// In DNS's form (RFC 3397), beside option 15, which some clients do not search.
#[test]
fn the_domain_is_searched() {
    let wire = b"\x07example\x03org\0";
    for name in ["example.org", "example.org."] {
        let told = asked(json!({"domain_name": name}), &[]);
        assert_eq!(option(&told, 119).as_deref(), Some(&wire[..]), "{name}");
        assert_eq!(option(&told, 15).as_deref(), Some(name.as_bytes()));
    }
    for name in ["", "a..b", &format!("{}.org", "x".repeat(64))] {
        assert_eq!(option(&asked(json!({"domain_name": name}), &[]), 119), None, "{name} is no name of DNS");
    }
}

/// RFC 3442: a client that takes option 121 does not look at option 3.
#[test]
fn static_routes_have_the_default_route_among_them() {
    let route = |to: &str, by: &str| json!({"destination_descriptor": to, "router": by});
    let of = |routes: Vec<Value>| option(&asked(json!({"classless_static_routes": routes}), &[]), 121);
    let (by_other, default) = ([16, 10, 9, 10, 88, 0, 9], [0, 10, 88, 0, 1]);
    let told = of(vec![route("10.9.0.0/16", "10.88.0.9")]).expect("routes");
    assert_eq!(told, [&by_other[..], &default].concat());
    let told = of(vec![route("10.9.0.0/16", "10.88.0.9"), route("0.0.0.0/0", "10.88.0.8")]).expect("routes");
    assert_eq!(told, [&by_other[..], &[0, 10, 88, 0, 8]].concat(), "its own default route is not given twice");
    assert_eq!(of(Vec::new()), None);
    assert_eq!(of(vec![route("nonsense", "10.88.0.9")]), None, "what is no route is none");
}

/// The relay broadcasts on its client's link if the client asked for that (RFC 2131, 4.1); what it is sent itself goes to its own address.
#[test]
fn the_flag_of_a_relays_client_comes_back_as_the_client_set_it() {
    for flags in [[0x80, 0], [0, 0]] {
        let (told, to) = discovered(json!({}), flags, [10, 88, 0, 9], &[]);
        assert_eq!((told[10..12].to_vec(), &told[24..28]), (flags.to_vec(), &[10, 88, 0, 9][..]));
        assert_eq!(to, SocketAddrV4::new(Ipv4Addr::new(10, 88, 0, 9), 67));
        let (told, to) = discovered(json!({}), flags, [0; 4], &[]);
        assert_eq!((told[10..12].to_vec(), to), (flags.to_vec(), SocketAddrV4::new(Ipv4Addr::BROADCAST, 68)));
    }
}
