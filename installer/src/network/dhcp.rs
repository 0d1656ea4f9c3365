//! The four messages by which a server gets its address. What is sent and what is taken are functions; the socket is below.

use super::{LEAST_MTU, Lease};
use anyhow::{Context, Result};
use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// Until something is sent again: it doubles up to the second of them.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(16));
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::BROADCAST, 67);
const CLIENT: u16 = 68;

/// This client's side of one exchange.
struct Exchange {
    mac: [u8; 6],
    id: u32,
    /// Of an offer that is being asked for: the address, and whose offer.
    asked: Option<(Ipv4Addr, Ipv4Addr)>,
}

impl Exchange {
    /// What is to be sent now, and again until there is an answer.
    fn message(&self) -> Message {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(self.id, none, none, none, none, &self.mac);
        message.set_opcode(Opcode::BootRequest);
        // An answer to an address that is not ours yet would not reach us.
        message.set_flags(Flags::default().set_broadcast());
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(MessageType::Discover));
        options.insert(DhcpOption::ParameterRequestList(vec![
            OptionCode::SubnetMask,
            OptionCode::Router,
            OptionCode::DomainNameServer,
            OptionCode::InterfaceMtu,
        ]));
        if let Some((address, server)) = self.asked {
            options.insert(DhcpOption::MessageType(MessageType::Request));
            options.insert(DhcpOption::RequestedIpAddress(address));
            options.insert(DhcpOption::ServerIdentifier(server));
        }
        message
    }

    /// Takes an answer; the lease, if it is one.
    fn take(&mut self, bytes: &[u8]) -> Option<Lease> {
        let answer = Message::decode(&mut Decoder::new(bytes)).ok()?;
        if answer.opcode() != Opcode::BootReply || answer.xid() != self.id || !answer.chaddr().starts_with(&self.mac) {
            return None;
        }
        let options = answer.opts();
        let server = match options.get(OptionCode::ServerIdentifier) {
            Some(DhcpOption::ServerIdentifier(server)) => *server,
            _ => return None,
        };
        match (options.msg_type()?, self.asked) {
            (MessageType::Offer, None) if !answer.yiaddr().is_unspecified() => {
                self.asked = Some((answer.yiaddr(), server));
                None
            }
            (MessageType::Ack, Some((address, asked))) if server == asked && answer.yiaddr() == address => {
                Some(read(&answer))
            }
            (MessageType::Nak, Some((_, asked))) if server == asked => {
                self.asked = None;
                None
            }
            _ => None,
        }
    }
}

fn read(answer: &Message) -> Lease {
    let options = answer.opts();
    let prefix = match options.get(OptionCode::SubnetMask) {
        Some(DhcpOption::SubnetMask(mask)) => u32::from(*mask).leading_ones(),
        _ => 32,
    };
    let router = match options.get(OptionCode::Router) {
        Some(DhcpOption::Router(routers)) => routers.first().copied(),
        _ => None,
    };
    let names = match options.get(OptionCode::DomainNameServer) {
        Some(DhcpOption::DomainNameServer(servers)) => servers.clone(),
        _ => Vec::new(),
    };
    let mtu = match options.get(OptionCode::InterfaceMtu) {
        Some(DhcpOption::InterfaceMtu(mtu)) => Some(*mtu).filter(|mtu| *mtu >= LEAST_MTU),
        _ => None,
    };
    Lease { address: answer.yiaddr(), prefix: u8::try_from(prefix).unwrap_or(32), router, names, mtu }
}

/// Asks until there is an address. Whoever calls has the limit.
async fn lease_of(socket: &UdpSocket, mac: [u8; 6], id: u32) -> Result<Lease> {
    let mut exchange = Exchange { mac, id, asked: None };
    let mut again = AGAIN.0;
    loop {
        let asked = exchange.asked;
        let bytes = exchange.message().to_vec().context("write a DHCP message")?;
        socket.send_to(&bytes, SERVER).await.context("send a DHCP message")?;
        let heard = async {
            let mut buffer = [0; 1500];
            loop {
                let (length, _) = socket.recv_from(&mut buffer).await.context("receive a DHCP message")?;
                if let Some(lease) = exchange.take(&buffer[..length]) {
                    return anyhow::Ok(Some(lease));
                }
                if exchange.asked != asked {
                    return Ok(None);
                }
            }
        };
        match timeout(again, heard).await {
            Ok(Ok(Some(lease))) => return Ok(lease),
            Ok(Ok(None)) => again = AGAIN.0,
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                // Whose offer it was may be gone.
                exchange.asked = None;
                again = (again * 2).min(AGAIN.1);
            }
        }
    }
}

pub(super) async fn lease(nic: &str, mac: [u8; 6]) -> Result<Lease> {
    let socket = open(nic).with_context(|| format!("open a socket for DHCP on {nic}"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let id = u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]) ^ now.subsec_nanos();
    lease_of(&socket, mac, id).await
}

fn open(nic: &str) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_broadcast(true)?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(nic.as_bytes()))?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLIENT)).into())?;
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

    fn answer(kind: MessageType, server: u8, address: Ipv4Addr, id: u32) -> Vec<u8> {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(id, none, address, none, none, &MAC);
        message.set_opcode(Opcode::BootReply);
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 0, 0, server)));
        options.insert(DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)));
        options.insert(DhcpOption::Router(vec![Ipv4Addr::new(10, 0, 0, 254)]));
        options.insert(DhcpOption::DomainNameServer(vec![Ipv4Addr::new(10, 0, 0, 253)]));
        options.insert(DhcpOption::InterfaceMtu(9000));
        message.to_vec().expect("written")
    }

    #[test]
    fn an_offer_is_asked_for_and_its_acknowledgement_is_the_lease() {
        let mut exchange = Exchange { mac: MAC, id: 7, asked: None };
        assert_eq!(exchange.message().opts().msg_type(), Some(MessageType::Discover));
        assert!(exchange.message().flags().broadcast());
        // What somebody else was told, and an acknowledgement of nothing.
        assert_eq!(exchange.take(&answer(MessageType::Offer, 1, OURS, 8)), None);
        assert_eq!(exchange.take(&answer(MessageType::Ack, 1, OURS, 7)), None);
        assert_eq!(exchange.take(b"noise"), None);
        assert_eq!(exchange.asked, None);
        assert_eq!(exchange.take(&answer(MessageType::Offer, 1, OURS, 7)), None);
        let request = exchange.message();
        assert_eq!(request.opts().msg_type(), Some(MessageType::Request));
        assert_eq!(request.opts().get(OptionCode::RequestedIpAddress), Some(&DhcpOption::RequestedIpAddress(OURS)));
        // The offer of a second server, and what it acknowledges, change nothing.
        assert_eq!(exchange.take(&answer(MessageType::Offer, 2, OURS, 7)), None);
        assert_eq!(exchange.take(&answer(MessageType::Ack, 2, OURS, 7)), None);
        let lease = exchange.take(&answer(MessageType::Ack, 1, OURS, 7)).expect("a lease");
        let router = Some(Ipv4Addr::new(10, 0, 0, 254));
        let names = vec![Ipv4Addr::new(10, 0, 0, 253)];
        assert_eq!(lease, Lease { address: OURS, prefix: 24, router, names, mtu: Some(9000) });
    }

    #[test]
    fn an_mtu_is_asked_for_and_one_that_is_too_small_is_none() {
        let asked = Exchange { mac: MAC, id: 7, asked: None }.message();
        let Some(DhcpOption::ParameterRequestList(wanted)) = asked.opts().get(OptionCode::ParameterRequestList) else {
            panic!("{asked:?}");
        };
        assert!(wanted.contains(&OptionCode::InterfaceMtu), "{wanted:?}");
        for (told, taken) in [(67, None), (68, Some(68)), (1500, Some(1500)), (u16::MAX, Some(u16::MAX))] {
            let mut answer = Message::decode(&mut Decoder::new(&answer(MessageType::Ack, 1, OURS, 7))).expect("read");
            answer.opts_mut().insert(DhcpOption::InterfaceMtu(told));
            assert_eq!(read(&answer).mtu, taken, "{told}");
        }
    }

    #[test]
    fn a_refusal_begins_anew() {
        let mut exchange = Exchange { mac: MAC, id: 7, asked: Some((OURS, Ipv4Addr::new(10, 0, 0, 1))) };
        assert_eq!(exchange.take(&answer(MessageType::Nak, 1, Ipv4Addr::UNSPECIFIED, 7)), None);
        assert_eq!(exchange.message().opts().msg_type(), Some(MessageType::Discover));
    }
}
