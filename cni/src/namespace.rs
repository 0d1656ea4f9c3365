//! Devices in a pod's network namespace. A thread of its own enters it: the rest of the process stays on the node.

use crate::error::Error;
use crate::state::Attached;
use futures::TryStreamExt;
use nix::sched::{CloneFlags, setns};
use proto::interfaces::v1alpha1::Interface;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use std::fs::File;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// As long as OVN may take for a port: the agent on the DPU has said before that it is in force.
const CARRIER: Duration = Duration::from_secs(30);

/// `None`: the namespace is no more.
fn open(netns: &str) -> Result<Option<File>, Error> {
    match File::open(Path::new(netns)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if netns.is_empty() || error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("network namespace {netns}: {error}"))),
    }
}

fn connect() -> Result<Handle, Error> {
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(|error| Error::io(format!("open a netlink socket: {error}")))?;
    // Ends when the handle is dropped.
    tokio::spawn(connection);
    Ok(handle)
}

/// Runs `work` with a netlink socket of the pod's namespace.
fn within<T: Send>(netns: &File, work: impl AsyncFnOnce(Handle) -> Result<T, Error> + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            setns(netns, CloneFlags::CLONE_NEWNET)
                .map_err(|error| Error::io(format!("enter the pod's network namespace: {error}")))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| Error::io(format!("start: {error}")))?;
            runtime.block_on(async { work(connect()?).await })
        });
        inside.join().unwrap_or_else(|_| Err(Error::io("the thread in the pod's network namespace ended")))
    })
}

fn failed(what: String) -> impl Fn(rtnetlink::Error) -> Error {
    move |error| Error::io(format!("{what}: {error}"))
}

async fn links(handle: &Handle) -> Result<Vec<LinkMessage>, Error> {
    handle.link().get().execute().try_collect().await.map_err(failed("list the network devices".to_owned()))
}

fn name(link: &LinkMessage) -> &str {
    let named = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    });
    named.unwrap_or_default()
}

fn mac(link: &LinkMessage) -> String {
    let address = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(address) => Some(address.as_slice()),
        _ => None,
    });
    let octets = address.unwrap_or_default().iter().map(|octet| format!("{octet:02x}"));
    octets.collect::<Vec<_>>().join(":")
}

/// Moves a device of the node into the pod, and configures it there.
pub(crate) async fn attach(netns: &str, interface: &Interface) -> Result<(), Error> {
    let pod = open(netns)?.ok_or_else(|| Error::environment(format!("CNI_NETNS: there is no '{netns}'")))?;
    let node = connect()?;
    let device = &interface.device;
    let index = links(&node).await?.iter().find(|link| name(link) == device).map(|link| link.header.index);
    let index = index.ok_or_else(|| Error::again(format!("device {device} is not on the node any more")))?;
    let moved = LinkUnspec::new_with_index(index).setns_by_fd(pod.as_raw_fd()).build();
    node.link().set(moved).execute().await.map_err(failed(format!("move {device} into the pod")))?;
    within(&pod, async |handle| configure(&handle, interface).await)
}

async fn configure(handle: &Handle, interface: &Interface) -> Result<(), Error> {
    let Interface { name: own, device, .. } = interface;
    let links = links(handle).await?;
    if links.iter().any(|link| name(link) == own) {
        return Err(Error::invalid(format!(
            "the pod has a device '{own}' already: write another name in metalplane.io/networks"
        )));
    }
    let index = links.iter().find(|link| name(link) == device).map(|link| link.header.index);
    let index = index.ok_or_else(|| Error::again(format!("device {device} did not arrive in the pod")))?;
    let change = |link| handle.link().set(link).execute();
    let renamed = LinkUnspec::new_with_index(index).name(own.clone()).build();
    change(renamed).await.map_err(failed(format!("name {device} {own}")))?;
    if interface.function {
        let sized = LinkUnspec::new_with_index(index).mtu(interface.mtu).build();
        change(sized).await.map_err(failed(format!("give {own} the MTU {}", interface.mtu)))?;
    }
    if !interface.configured_by_pod {
        ignore_advertisements(own)?;
    }
    for address in &interface.addresses {
        let (ip, length) = prefix(address)?;
        let mut add = handle.address().add(index, ip, length);
        // Nobody else has it: OVN lets no other port send from it. Detection of duplicates (RFC 4862, 5.4) would keep it unusable for a second.
        if ip.is_ipv6() {
            add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        let added = add.execute().await;
        added.map_err(failed(format!("give {own} the address {address}")))?;
    }
    let up = LinkUnspec::new_with_index(index).up().build();
    change(up).await.map_err(failed(format!("set {own} up")))?;
    if interface.function {
        carrier(handle, index, own).await?;
    }
    for route in &interface.routes {
        let (network, length) = prefix(&route.destination)?;
        let gateway: IpAddr = route.gateway.parse().map_err(|_| nonsense(&route.gateway))?;
        let message = RouteMessageBuilder::<IpAddr>::new().destination_prefix(network, length);
        let message = message.and_then(|message| message.gateway(gateway)).map_err(|_| nonsense(&route.destination))?;
        let message = message.output_interface(index).build();
        let added = handle.route().add(message).execute().await;
        added.map_err(failed(format!("give {own} the route to {}", route.destination)))?;
    }
    Ok(())
}

/// The pod has the addresses and routes that it was given. By a router's advertisement the kernel would add an address that OVN drops packets
/// of, and a default route beside the cluster network's; and OVN lets the advertisements of other guests pass.
fn ignore_advertisements(own: &str) -> Result<(), Error> {
    match std::fs::write(format!("/proc/sys/net/ipv6/conf/{own}/accept_ra"), "0") {
        // A kernel without IPv6.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        written => written.map_err(|error| Error::io(format!("have {own} ignore router advertisements: {error}"))),
    }
}

/// The DPU gives a function its carrier once everything that is to be forbidden is.
async fn carrier(handle: &Handle, index: u32, own: &str) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + CARRIER;
    loop {
        let links = links(handle).await?;
        let link = links.iter().find(|link| link.header.index == index);
        if link.is_some_and(|link| link.header.flags.contains(LinkFlags::LowerUp)) {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            let limit = CARRIER.as_secs();
            return Err(Error::again(format!("'{own}' has had no carrier for {limit} s: its port is not in force")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn nonsense(text: &str) -> Error {
    Error::io(format!("the agent answered '{text}', which is no address or network"))
}

fn prefix(text: &str) -> Result<(IpAddr, u8), Error> {
    let parts = text.split_once('/').and_then(|(ip, length)| Some((ip.parse().ok()?, length.parse().ok()?)));
    parts.ok_or_else(|| nonsense(text))
}

/// Deletes what was attached, under either of its names; a function goes back to the node. A namespace, or a device, that is no more: done.
pub(crate) fn detach(netns: &str, attached: &[Attached]) -> Result<(), Error> {
    if attached.is_empty() {
        return Ok(());
    }
    // Of a namespace that is no more the kernel has given the functions back itself.
    let Some(pod) = open(netns)? else { return Ok(()) };
    let node = File::open("/proc/self/ns/net")
        .map_err(|error| Error::io(format!("open the node's network namespace: {error}")))?;
    within(&pod, async |handle| {
        for link in links(&handle).await? {
            let ours = |one: &&Attached| {
                let is_named = one.name == name(&link) || one.device == name(&link);
                is_named && (one.configured_by_pod || one.mac_address == mac(&link))
            };
            match attached.iter().find(ours) {
                Some(one) if one.function => give_back(&handle, &node, one, &link).await?,
                Some(_) => {
                    let what = format!("delete {}", name(&link));
                    handle.link().del(link.header.index).execute().await.map_err(failed(what))?;
                }
                None => {}
            }
        }
        Ok(())
    })
}

/// With the MAC address by which it is known, whatever the pod has made of that, and under a name that no other device of the node has: the one
/// that it had in the pod another pod's may have too.
async fn give_back(handle: &Handle, node: &File, one: &Attached, link: &LinkMessage) -> Result<(), Error> {
    let index = || LinkUnspec::new_with_index(link.header.index);
    let change = |link| handle.link().set(link).execute();
    let own = format!("mp{}", one.mac_address.replace(':', ""));
    let address = one.mac_address.split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    change(index().down().build()).await.map_err(failed(format!("set {} down", name(link))))?;
    change(index().address(address).build()).await.map_err(failed(format!("give {} its MAC address", name(link))))?;
    if name(link) != own {
        change(index().name(own).build()).await.map_err(failed(format!("rename {}", name(link))))?;
    }
    let back = index().setns_by_fd(node.as_raw_fd()).build();
    change(back).await.map_err(failed(format!("return {} to the node", name(link))))
}

/// What is not as ADD left it, if anything.
pub(crate) fn check(netns: &str, attached: &[Attached]) -> Result<(), Error> {
    let pod = open(netns)?.ok_or_else(|| Error::changed(format!("network namespace '{netns}' is no more")))?;
    within(&pod, async |handle| {
        let links = links(&handle).await?;
        let addresses: Vec<_> =
            handle.address().get().execute().try_collect().await.map_err(failed("list the addresses".to_owned()))?;
        for one in attached {
            let changed = |what: String| Error::changed(format!("interface '{}' of the pod: {what}", one.name));
            let link = links.iter().find(|link| name(link) == one.name);
            let link = link.ok_or_else(|| changed("it is no more".to_owned()))?;
            if one.configured_by_pod {
                continue;
            }
            if mac(link) != one.mac_address {
                return Err(changed(format!("its MAC address is {}, not {}", mac(link), one.mac_address)));
            }
            if !link.header.flags.contains(LinkFlags::Up) {
                return Err(changed("it is down".to_owned()));
            }
            for wanted in &one.addresses {
                let (ip, length) = prefix(wanted)?;
                let has = addresses.iter().any(|address| {
                    address.header.index == link.header.index
                        && address.header.prefix_len == length
                        && address.attributes.iter().any(|a| matches!(a, AddressAttribute::Address(is) if *is == ip))
                });
                if !has {
                    return Err(changed(format!("it has the address {wanted} no longer")));
                }
            }
        }
        Ok(())
    })
}
