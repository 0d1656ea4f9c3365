//! DHCP of firmware that boots from the network (UEFI, x86-64), as a relay hands it on: by unicast, with the relay's address in giaddr.

use anyhow::{Context, Result, bail, ensure};
use dhcproto::v4::{Architecture, DhcpOption, Message, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable, Encoder};
use std::net::Ipv4Addr;

/// What UEFI's PXE asks for.
const WANTED: [OptionCode; 7] = [
    OptionCode::SubnetMask,
    OptionCode::Router,
    OptionCode::DomainNameServer,
    OptionCode::Hostname,
    OptionCode::TFTPServerName,
    OptionCode::BootfileName,
    OptionCode::ServerIdentifier,
];
/// With the headers of IP and UDP.
const LARGEST: u16 = 1472;

/// One client: each has a MAC address and a reservation of its own, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client(pub u16);

impl Client {
    pub fn mac(self) -> [u8; 6] {
        let [high, low] = self.0.to_be_bytes();
        [0x52, 0x54, 0x00, 0xb0, high, low]
    }

    /// The address that is reserved for it.
    pub fn address(self, first: Ipv4Addr) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(first) + u32::from(self.0))
    }
}

/// What is asked by whom.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub client: Client,
    pub xid: u32,
    pub relay: Ipv4Addr,
    /// Of the offer that is taken: the server and the address; `None`: none yet.
    pub taken: Option<(Ipv4Addr, Ipv4Addr)>,
}

impl Asked {
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(self.xid, none, none, none, self.relay, &self.client.mac());
        message.set_hops(1);
        let options = message.opts_mut();
        let kind = if self.taken.is_some() { MessageType::Request } else { MessageType::Discover };
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::ParameterRequestList(WANTED.to_vec()));
        options.insert(DhcpOption::MaxMessageSize(LARGEST));
        options.insert(DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:003016".to_vec()));
        options.insert(DhcpOption::ClientSystemArchitecture(Architecture::from(7)));
        options.insert(DhcpOption::ClientNetworkInterface(1, 3, 16));
        let uuid = [&[0; 11][..], &self.client.mac()].concat();
        options.insert(DhcpOption::ClientMachineIdentifier(uuid));
        if let Some((server, address)) = self.taken {
            options.insert(DhcpOption::ServerIdentifier(server));
            options.insert(DhcpOption::RequestedIpAddress(address));
        }
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).context("write a packet")?;
        Ok(bytes)
    }
}

/// An answer to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub client: Client,
    pub xid: u32,
    pub kind: MessageType,
    pub address: Ipv4Addr,
    pub server: Ipv4Addr,
}

impl Answer {
    /// One that names a boot program, as it has to.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let message = Message::decode(&mut Decoder::new(bytes)).context("read an answer")?;
        let client = match message.chaddr() {
            [0x52, 0x54, 0x00, 0xb0, high, low] => Client(u16::from_be_bytes([*high, *low])),
            other => bail!("an answer to {other:02x?}, which is no client here"),
        };
        let Some(DhcpOption::MessageType(kind)) = message.opts().get(OptionCode::MessageType) else {
            bail!("an answer to {client:?} that says not what it is");
        };
        let Some(DhcpOption::ServerIdentifier(server)) = message.opts().get(OptionCode::ServerIdentifier) else {
            bail!("an answer to {client:?} without a server: {kind:?}");
        };
        let file = message.fname().is_some_and(|name| name.first().is_some_and(|byte| *byte != 0));
        let named = file || message.opts().get(OptionCode::BootfileName).is_some();
        ensure!(named || *kind == MessageType::Nak, "an answer to {client:?} names no boot program: {kind:?}");
        Ok(Self { client, xid: message.xid(), kind: *kind, address: message.yiaddr(), server: *server })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhcproto::v4::Opcode;

    fn asked() -> Asked {
        Asked { client: Client(0x0102), xid: 7, relay: Ipv4Addr::new(10, 96, 0, 1), taken: None }
    }

    fn answer(change: impl FnOnce(&mut Message)) -> Vec<u8> {
        let bytes = asked().bytes().expect("written");
        let mut message = Message::decode(&mut Decoder::new(&bytes)).expect("read");
        message.set_opcode(Opcode::BootReply).set_yiaddr(Ipv4Addr::new(10, 96, 2, 9)).set_fname_str("ipxe.efi");
        message.opts_mut().insert(DhcpOption::MessageType(MessageType::Offer));
        message.opts_mut().insert(DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 88, 0, 1)));
        change(&mut message);
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).expect("written");
        bytes
    }

    #[test]
    fn an_offer_is_read_and_one_without_a_program_is_an_error() {
        let read = Answer::read(&answer(|_| ())).expect("an offer");
        assert_eq!((read.client, read.xid, read.kind), (Client(0x0102), 7, MessageType::Offer));
        assert_eq!(read.address, Ipv4Addr::new(10, 96, 2, 9));
        for (bytes, why) in [
            (answer(|message| message.clear_fname()), "names no boot program"),
            (answer(|message| drop(message.opts_mut().remove(OptionCode::ServerIdentifier))), "without a server"),
            (answer(|message| assert!(message.set_chaddr(&[1; 6]).hlen() == 6)), "no client here"),
        ] {
            let error = Answer::read(&bytes).expect_err("refused").to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn clients_have_addresses_by_their_numbers() {
        assert_eq!(Client(300).address(Ipv4Addr::new(10, 96, 1, 0)), Ipv4Addr::new(10, 96, 2, 44));
        assert_ne!(Client(300).mac(), Client(44).mac());
    }
}
