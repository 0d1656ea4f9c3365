use super::*;

/// Interfaces that share one address, each of the Hardware of this name.
fn sharing(interfaces: &[(&str, u8)]) -> Directory {
    let mut all: Vec<(&str, Vec<Value>)> = Vec::new();
    for (name, mac) in interfaces {
        let ip = json!({"address": RESERVED, "netmask": "255.255.255.0"});
        let interface =
            json!({"dhcp": {"mac": format!("52:54:00:00:00:{mac:02x}"), "ip": ip}, "netboot": {"allowPXE": true}});
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, interfaces)) => interfaces.push(interface),
            None => all.push((name, vec![interface])),
        }
    }
    let hardware = |(name, interfaces): (&str, Vec<Value>)| {
        let object = json!({"metadata": {"name": name}, "spec": {"interfaces": interfaces}});
        Arc::new(serde_json::from_value(object).expect("a Hardware"))
    };
    Directory::new(all.into_iter().map(hardware).collect())
}

#[test]
fn by_an_address_that_several_interfaces_have_tftp_does_not_know_which_one_asks() {
    let by = |directory: &Directory, mac: u8| {
        let mut asks = request(MessageType::Discover, pxe(7));
        asks.set_chaddr(&[0x52, 0x54, 0, 0, 0, mac]);
        let (offer, _) = ask(directory, &asks).expect("an offer");
        assert_eq!(offer.yiaddr(), RESERVED);
        file(&offer)
    };
    assert_eq!(by(&sharing(&[("s1", 1)]), 1), "ipxe.efi");
    for both in [sharing(&[("s1", 1), ("s1", 2)]), sharing(&[("s1", 1), ("s2", 2)])] {
        assert_eq!(by(&both, 1), "52:54:00:00:00:01/ipxe.efi");
        assert_eq!(by(&both, 2), "52:54:00:00:00:02/ipxe.efi");
    }
}
