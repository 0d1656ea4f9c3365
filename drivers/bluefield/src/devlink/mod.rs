//! The functions behind an embedded switch, as the kernel tells of them by devlink (Documentation/networking/devlink/devlink-port.rst),
//! over generic netlink. What says that a function is the host's are the attributes `flavour`, `external` and `controller`; indexes and
//! the names of network devices are whatever the firmware and udev have made of them.

pub mod message;

use message::{Attribute, Message, Reader, Request};
use nix::libc;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use ports::{ErrorClass, PortError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// What the kernel, or a recording of it, answers by.
pub trait Wire: Send + Sync {
    fn open(&self) -> io::Result<Box<dyn Conversation>>;
}

/// Datagrams to and from the kernel.
pub trait Conversation {
    fn send(&self, request: &[u8]) -> io::Result<()>;

    /// One or more netlink messages.
    fn receive(&self) -> io::Result<Vec<u8>>;
}

/// Asks in the network namespace of the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

struct Socket(OwnedFd);

/// Some drivers ask their firmware.
const LIMIT_SECONDS: i64 = 5;
const LONGEST: usize = 1 << 17;

impl Wire for Kernel {
    fn open(&self) -> io::Result<Box<dyn Conversation>> {
        let socket =
            socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkGeneric)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(LIMIT_SECONDS))?;
        Ok(Box::new(Socket(socket)))
    }
}

impl Conversation for Socket {
    fn send(&self, request: &[u8]) -> io::Result<()> {
        sendto(self.0.as_raw_fd(), request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        Ok(())
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; LONGEST];
        let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        buffer.truncate(length);
        Ok(buffer)
    }
}

/// A physical function of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFunction {
    pub bus: String,
    /// The device whose switch it is behind, as `0000:03:00.0`.
    pub parent: String,
    pub index: u32,
    pub controller: u32,
    pub number: u16,
    /// The network device that stands for it, while there is one.
    pub device: Option<String>,
    /// Lower case, colons.
    pub mac: Option<String>,
}

/// A virtual function of the node itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualFunction {
    /// Its physical function, which has the switch: `0000:03:00.0`.
    pub parent: String,
    pub physical: u16,
    pub number: u16,
    /// The network device that stands for it in the switch, while there is one.
    pub representor: Option<String>,
}

pub struct Devlink {
    wire: Box<dyn Wire>,
}

impl Devlink {
    pub fn new(wire: impl Wire + 'static) -> Self {
        Self { wire: Box::new(wire) }
    }

    /// By controller and number.
    pub fn host_functions(&self) -> Result<Vec<HostFunction>, PortError> {
        let what = "list the ports of devlink";
        let answers = self.ask(what, Request::dump(message::PORT_GET))?;
        let mut functions: Vec<HostFunction> = answers.iter().filter_map(|answer| host_function(answer)).collect();
        functions.sort_by_key(|function| (function.controller, function.number));
        Ok(functions)
    }

    /// By physical function and number.
    pub fn virtual_functions(&self) -> Result<Vec<VirtualFunction>, PortError> {
        let answers = self.ask("list the ports of devlink", Request::dump(message::PORT_GET))?;
        let mut functions: Vec<VirtualFunction> =
            answers.iter().filter_map(|answer| virtual_function(answer)).collect();
        functions.sort_by(|a, b| (&a.parent, a.physical, a.number).cmp(&(&b.parent, b.physical, b.number)));
        Ok(functions)
    }

    /// The driver in the host takes it when it is loaded the next time.
    pub fn set_mac(&self, function: &HostFunction, mac: &str) -> Result<(), PortError> {
        let HostFunction { bus, parent, index, .. } = function;
        let what = format!("set MAC address {mac} of port {bus}/{parent}/{index}");
        let octets: Option<Vec<u8>> = mac.split(':').map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
        let Some(octets) = octets.filter(|octets| octets.len() == 6) else {
            return Err(PortError::new(ErrorClass::Invalid, format!("{what}: six octets with colons are needed")));
        };
        let request = Request::change(message::PORT_SET)
            .text(message::BUS_NAME, bus)
            .text(message::DEV_NAME, parent)
            .number(message::PORT_INDEX, *index)
            .nested(message::PORT_FUNCTION, message::FUNCTION_HW_ADDR, &octets);
        self.ask(&what, request).map(drop)
    }

    fn ask(&self, what: &str, request: Request) -> Result<Vec<Vec<u8>>, PortError> {
        let asked = || -> io::Result<Vec<Vec<u8>>> {
            let conversation = self.wire.open()?;
            let family = Request::family("devlink");
            let answers = exchange(conversation.as_ref(), &family.into_bytes(message::CONTROL))?;
            let family = answers.iter().find_map(|answer| message::family_id(answer));
            let family = family.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
            exchange(conversation.as_ref(), &request.into_bytes(family))
        };
        asked().map_err(|error| {
            let class = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => ErrorClass::Unauthorized,
                Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) => ErrorClass::Unsupported,
                Some(libc::ENODEV) => ErrorClass::NotFound,
                Some(libc::EBUSY) => ErrorClass::Busy,
                Some(libc::EINVAL) => ErrorClass::Invalid,
                None if error.kind() == io::ErrorKind::InvalidData => ErrorClass::Invalid,
                _ => ErrorClass::Unreachable,
            };
            PortError::new(class, format!("{what}: {error}"))
        })
    }
}

/// The payloads of the answer; an error that the kernel answers with is the error.
fn exchange(conversation: &dyn Conversation, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    conversation.send(request)?;
    let mut answers = Vec::new();
    loop {
        let datagram = conversation.receive()?;
        for message in Reader::new(&datagram) {
            match message? {
                Message::Data(payload) => answers.push(payload.to_vec()),
                Message::End => return Ok(answers),
                Message::Refused(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

fn host_function(answer: &[u8]) -> Option<HostFunction> {
    let mut found = HostFunction {
        bus: String::new(),
        parent: String::new(),
        index: 0,
        controller: 0,
        number: 0,
        device: None,
        mac: None,
    };
    let (mut flavour, mut external) = (None, false);
    for attribute in message::attributes(answer) {
        let Attribute { kind, value } = attribute;
        match kind {
            message::BUS_NAME => found.bus = message::text(value),
            message::DEV_NAME => found.parent = message::text(value),
            message::PORT_INDEX => found.index = message::number(value)?,
            message::PORT_NETDEV_NAME => found.device = Some(message::text(value)),
            message::PORT_FLAVOUR => flavour = message::short(value),
            message::PORT_PF_NUMBER => found.number = message::short(value)?,
            message::PORT_CONTROLLER => found.controller = message::number(value)?,
            message::PORT_EXTERNAL => external = value.first() == Some(&1),
            message::PORT_FUNCTION => {
                let address = message::nested(value).find(|inner| inner.kind == message::FUNCTION_HW_ADDR);
                found.mac = address.map(|inner| colons(inner.value));
            }
            _ => {}
        }
    }
    (flavour == Some(message::FLAVOUR_PCI_PF) && external).then_some(found)
}

fn virtual_function(answer: &[u8]) -> Option<VirtualFunction> {
    let mut found = VirtualFunction { parent: String::new(), physical: 0, number: 0, representor: None };
    let (mut flavour, mut external) = (None, false);
    for Attribute { kind, value } in message::attributes(answer) {
        match kind {
            message::DEV_NAME => found.parent = message::text(value),
            message::PORT_NETDEV_NAME => found.representor = Some(message::text(value)),
            message::PORT_FLAVOUR => flavour = message::short(value),
            message::PORT_PF_NUMBER => found.physical = message::short(value)?,
            message::PORT_VF_NUMBER => found.number = message::short(value)?,
            message::PORT_EXTERNAL => external = value.first() == Some(&1),
            _ => {}
        }
    }
    (flavour == Some(message::FLAVOUR_PCI_VF) && !external).then_some(found)
}

fn colons(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}
