//! [`PodDevices`] by veth pairs (veth(4)): one end is the switch's, the other is moved into the pod.
//!
//! Whose a pair is says the alias of the end for the switch (`ip link show`: `alias metalplane UID EPOCH`). It is set last: a pair of that name
//! without it was begun by an agent that ended meanwhile, and is made anew. Nothing is recorded elsewhere: a pair goes with its
//! pod's network namespace, and the kernel tells.
//!
//! The end for the switch has no address, asks and answers no ARP, and makes itself no link-local address: it is the switch's
//! alone. The pod's end sends whole checksums: a switch in user space takes packets as they are, and would forward what was left to the
//! hardware, and every TCP connection would wait for ever.

mod checksum;

use async_trait::async_trait;
use futures::TryStreamExt;
use planner::exposure::ExposureId;
use ports::emulation::NicFunction;
use ports::pod_devices::PodDevice;
use ports::{ErrorClass, PodDevices, PortError};
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::{Handle, LinkUnspec, LinkVeth};

/// The pod's end of the pair with this device, while it is on the node: another first two letters, so that no rule that is meant for
/// representors is about it.
fn pod_end(device: &str) -> String {
    format!("mq{}", device.strip_prefix("mp").unwrap_or(device))
}

/// How many a node gives to its pods: kubelet's own limit of pods is far below.
const MOST: u32 = 1024;

/// In the network namespace of the thread that runs it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Veth;

#[async_trait]
impl PodDevices for Veth {
    async fn list(&self) -> Result<Vec<PodDevice>, PortError> {
        let links = Links::read(&connect()?).await?;
        Ok(links.ours().map(|(id, link)| links.device(id, link)).collect())
    }

    async fn make(&self, nic: &NicFunction) -> Result<(), PortError> {
        let handle = connect()?;
        let links = Links::read(&handle).await?;
        let conflict = |what: String| Err(PortError::new(ErrorClass::Conflict, what));
        if let Some((id, _)) = links.ours().find(|(id, _)| id.uid == nic.id.uid) {
            return match id == nic.id {
                true => Ok(()),
                false => conflict(format!("{}: the device of epoch {} is there", nic.device, id.epoch)),
            };
        }
        if let Some(there) = links.named(&nic.device) {
            if !is_veth(there) || alias(there).is_some() {
                return conflict(format!("a device {} of somebody else is there", nic.device));
            }
            delete(&handle, there.header.index, &nic.device).await?;
        }
        make(&handle, nic).await
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        let handle = connect()?;
        let links = Links::read(&handle).await?;
        let Some((_, link)) = links.ours().find(|(own, _)| own == id) else {
            let what = format!("no device of {} epoch {}", id.uid, id.epoch);
            return Err(PortError::new(ErrorClass::NotFound, what));
        };
        if is_up(link) == up {
            return Ok(());
        }
        let change = LinkUnspec::new_with_index(link.header.index);
        let change = if up { change.up() } else { change.down() };
        handle.link().set(change.build()).execute().await.map_err(|error| failed("set the link of", &id.uid, &error))
    }

    async fn remove(&self, id: &ExposureId) -> Result<(), PortError> {
        let handle = connect()?;
        let links = Links::read(&handle).await?;
        match links.ours().find(|(own, _)| own == id) {
            Some((_, link)) => delete(&handle, link.header.index, &id.uid).await,
            None => Ok(()),
        }
    }

    async fn most(&self) -> Result<u32, PortError> {
        Ok(MOST)
    }

    fn are_functions(&self) -> bool {
        false
    }
}

fn connect() -> Result<Handle, PortError> {
    let (connection, handle, _) = rtnetlink::new_connection()
        .map_err(|error| PortError::new(ErrorClass::Unreachable, format!("open a netlink socket: {error}")))?;
    // Ends when the handle is dropped.
    tokio::spawn(connection);
    Ok(handle)
}

async fn make(handle: &Handle, nic: &NicFunction) -> Result<(), PortError> {
    let (device, other) = (&nic.device, pod_end(&nic.device));
    let cause = |what: &'static str| move |error: rtnetlink::Error| failed(what, device, &error);
    handle.link().add(LinkVeth::new(device, &other).build()).execute().await.map_err(cause("make the veth pair"))?;
    let links = Links::read(handle).await?;
    let index = |name: &str| links.named(name).map(|link| link.header.index);
    let (Some(own), Some(pods)) = (index(device), index(&other)) else {
        return Err(PortError::new(
            ErrorClass::Busy,
            format!("{device}: the veth pair was deleted while it was being configured"),
        ));
    };
    let mac = nic.mac.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<Vec<u8>, _>>();
    let mac = mac.map_err(|_| PortError::new(ErrorClass::Invalid, format!("{device}: MAC address {}", nic.mac)))?;
    let change = LinkUnspec::new_with_index(pods).address(mac).mtu(u32::from(nic.mtu)).build();
    handle.link().set(change).execute().await.map_err(cause("set the MAC address and MTU of"))?;
    checksum::off(&other)
        .map_err(|error| PortError::new(ErrorClass::Busy, format!("{other}: transmit checksums: {error}")))?;
    let silent =
        LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)])]);
    let quiet = LinkUnspec::new_with_index(own).mtu(u32::from(nic.mtu)).arp(false).append_extra_attribute(silent);
    handle.link().set(quiet.build()).execute().await.map_err(cause("quieten"))?;
    let alias = LinkUnspec::new_with_index(own).alias(nic.id.alias());
    handle.link().set(alias.build()).execute().await.map_err(cause("name the owner of"))
}

async fn delete(handle: &Handle, index: u32, what: &str) -> Result<(), PortError> {
    match handle.link().del(index).execute().await {
        // It went by itself: with its pod.
        Err(error) if errno(&error) == Some(ENODEV) => Ok(()),
        result => result.map_err(|error| failed("delete the veth pair of", what, &error)),
    }
}

/// errno(3): no such device.
const ENODEV: i32 = 19;

fn errno(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => Some(-message.raw_code()),
        _ => None,
    }
}

fn failed(what: &str, device: &str, error: &rtnetlink::Error) -> PortError {
    PortError::new(ErrorClass::Busy, format!("{what} {device}: {error}"))
}

struct Links(Vec<LinkMessage>);

impl Links {
    async fn read(handle: &Handle) -> Result<Self, PortError> {
        let all = handle.link().get().execute().try_collect().await;
        all.map(Self).map_err(|error| failed("list", "the network devices", &error))
    }

    fn named(&self, name: &str) -> Option<&LinkMessage> {
        self.0.iter().find(|link| self::name(link) == Some(name))
    }

    fn ours(&self) -> impl Iterator<Item = (ExposureId, &LinkMessage)> {
        self.0.iter().filter(|link| is_veth(link)).filter_map(|link| Some((ExposureId::of_alias(alias(link)?)?, link)))
    }

    fn device(&self, id: ExposureId, link: &LinkMessage) -> PodDevice {
        let elsewhere = link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::LinkNetNsId(_)));
        let peer = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Link(index) => Some(*index),
            _ => None,
        });
        let peer = peer.filter(|_| !elsewhere).and_then(|index| self.0.iter().find(|link| link.header.index == index));
        PodDevice {
            id,
            device: name(link).unwrap_or_default().to_owned(),
            pod_end: peer.and_then(name).map(str::to_owned),
            up: is_up(link),
        }
    }
}

fn name(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

fn alias(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfAlias(alias) => Some(alias.as_str()),
        _ => None,
    })
}

fn is_up(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up)
}

fn is_veth(link: &LinkMessage) -> bool {
    link.attributes.iter().any(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Veth))),
        _ => false,
    })
}
