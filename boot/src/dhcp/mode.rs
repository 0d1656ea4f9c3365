//! In which way a network is served.

use super::RELAY_LINK;
use super::request::Request;
use ipnet::Ipv4Net;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Addresses and boot programs of the Hardware.
    #[default]
    Reservation,
    /// Boot programs of servers that a Hardware names; another DHCP server gives addresses.
    Proxy,
    /// The same, and of servers that no Hardware names.
    AutoProxy,
    Off,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "Reservation" => Ok(Self::Reservation),
            "Proxy" => Ok(Self::Proxy),
            "AutoProxy" => Ok(Self::AutoProxy),
            "Off" => Ok(Self::Off),
            _ => Err(format!("{text:?} is no mode of DHCP: write Reservation, Proxy, AutoProxy or Off")),
        }
    }
}

/// Per network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modes {
    /// Of the interface's own network, and of relays whose network is not listed.
    pub interface: Mode,
    /// Of networks behind relays.
    pub subnets: Vec<(Ipv4Net, Mode)>,
}

impl Modes {
    /// Of the smallest listed network in which the client is: the link that its relay names, else the relay's own address there.
    pub(super) fn of(&self, request: &Request) -> Mode {
        let link = request.of_relay(RELAY_LINK).unwrap_or(request.giaddr);
        let around = self.subnets.iter().filter(|(net, _)| !link.is_unspecified() && net.contains(&link));
        around.max_by_key(|(net, _)| net.prefix_len()).map_or(self.interface, |(_, mode)| *mode)
    }

    /// Whether any network has servers that no Hardware names booted.
    pub(crate) fn any_auto(&self) -> bool {
        self.interface == Mode::AutoProxy || self.subnets.iter().any(|(_, mode)| *mode == Mode::AutoProxy)
    }

    /// Whether any network is served in this way.
    pub(crate) fn any_proxy(&self) -> bool {
        self.any_auto() || self.interface == Mode::Proxy || self.subnets.iter().any(|(_, mode)| *mode == Mode::Proxy)
    }
}
