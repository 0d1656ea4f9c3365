//! The DPU's virtual switch.

use crate::PortError;
use async_trait::async_trait;
use jiff::Timestamp;
use planner::exposure::ExposureId;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchPort {
    pub id: ExposureId,
    /// The representor's name: an existing network device, at most 15 bytes.
    pub device: String,
    pub mac: String,
    /// What the logical network knows the port by (OVN: `external_ids:iface-id`).
    pub logical_port: String,
    /// Which grant the port is for (OVN: `external_ids:iface-id-ver`): [`ExposureId::version`]. A port that is there with
    /// another one is not the same port; one that is there without any, as before there were versions, gets it.
    pub version: String,
}

/// Where this node answers the guests of one Subnet who ask about themselves. It has no grant: it is on every chassis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetadataPlug {
    pub device: String,
    /// As [`SwitchPort::logical_port`].
    pub logical_port: String,
    pub mac: String,
}

/// A port of ours as the switch reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortObserved {
    pub port: SwitchPort,
    /// The switch forwards on it (Open vSwitch: `ofport` > 0, no `error`, and the network device is there).
    pub forwarding: bool,
    /// OVN says that it has installed the port (`ovn-installed`). Alone that is too early: the flows of a logical switch that
    /// is new on this chassis may still be missing.
    pub installed: bool,
    /// OVN has installed everything for the port: it was installed, and after that `ovn-controller` has reached a newer state
    /// of the network (`ovn-nb-cfg` of the bridge has grown). It is remembered on the switch, so a restarted agent
    /// finds it again; it ends when `installed` does.
    pub in_force: bool,
    pub error: Option<String>,
}

/// What the DPU knows of the guest behind a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestObserved {
    /// The first packet from the guest since the port was plugged or the host last started.
    pub first_packet_at: Option<Timestamp>,
    /// Since when the guest answers ARP (RFC 826; RFC 5227 probe) or neighbour discovery (RFC 4861) for one of its
    /// addresses; a guest that was silent for a while begins anew.
    pub answered_at: Option<Timestamp>,
    pub answered_address: Option<IpAddr>,
}

#[async_trait]
pub trait Switch: Send + Sync {
    /// Everything of ours that is plugged now.
    async fn list(&self) -> Result<Vec<PortObserved>, PortError>;

    async fn plug(&self, port: &SwitchPort) -> Result<(), PortError>;

    /// Not plugged: success.
    async fn unplug(&self, id: &ExposureId) -> Result<(), PortError>;

    /// Exactly these are plugged from now on, beside the ports of [`Switch::list`].
    async fn plug_metadata(&self, plugs: &[MetadataPlug]) -> Result<(), PortError>;

    async fn metadata_plugs(&self) -> Result<Vec<MetadataPlug>, PortError>;

    /// What the switch's database keeps of an earlier boot of the DPU is taken out of the switch, before anything else is plugged: no host
    /// explains it any more. A restart of the switch or of the agent is no boot, and takes nothing. `known`: what is of this boot, for a
    /// switch that has not been told of any boot yet. Returns the devices that this call has taken out: until then the switch could forward
    /// for them.
    async fn begin_boot(&self, boot_id: &str, known: &[ExposureId]) -> Result<Vec<String>, PortError>;

    /// Why the bridge, as it is set up, could let through what OVN does not; `None`: it could not.
    async fn not_secure(&self) -> Result<Option<String>, PortError>;

    /// Asks the guest behind `port` whether it has one of `addresses`; returns at once with what is known so far and
    /// keeps asking in the background until the port is unplugged.
    async fn observe_guest(&self, port: &SwitchPort, addresses: &[IpAddr]) -> Result<GuestObserved, PortError>;

    /// What OVN knows this switch by (`external_ids:system-id`); `None`: it has no such name.
    async fn chassis(&self) -> Result<Option<String>, PortError>;

    /// Returns when [`Switch::list`] or [`Switch::chassis`] may say something else than before although no verb was called.
    /// For one caller, who loses nothing by giving up.
    async fn changed(&self);
}
