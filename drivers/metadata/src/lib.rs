//! [`Metadata`] by a tap device for each port, and a TCP/IP stack of our own behind it (smoltcp): no address, no route and no
//! namespace on the node, whose own 169.254.169.254, if it has one, is not touched. The kernel never handles a guest's frame: what the switch sends
//! to the device comes to the file, and nowhere else.
//!
//! | file | what |
//! |---|---|
//! | `device.rs` | frames: from whom, how many, and which are let in |
//! | `serve.rs` | one port: connections, their limits |
//! | `http.rs` | a request to an answer |
//! | `tokens.rs` | IMDSv2's session tokens |

mod device;
mod http;
mod serve;
mod tokens;

use async_trait::async_trait;
use futures::TryStreamExt;
use ports::metadata::{MetadataGuest, MetadataPort};
use ports::{ErrorClass, Metadata, PortError};
use rtnetlink::LinkUnspec;
use rtnetlink::packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute};
use std::collections::BTreeMap;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// In the network namespace of the thread that runs it.
#[derive(Default)]
pub struct Taps {
    running: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    /// All but the guests.
    made_as: MetadataPort,
    guests: watch::Sender<Vec<MetadataGuest>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[async_trait]
impl Metadata for Taps {
    async fn answer(&self, ports: Vec<MetadataPort>) -> BTreeMap<String, PortError> {
        let mut running = self.running.lock().await;
        let same = |one: &Running| {
            let is = |port: &MetadataPort| MetadataPort { guests: Vec::new(), ..port.clone() } == one.made_as;
            ports.iter().any(is) && !one.task.is_finished()
        };
        let leaving: Vec<_> = running.extract_if(.., |_, one| !same(one)).collect();
        for (_, mut one) in leaving {
            one.task.abort();
            // The file is closed, and the device gone, when the task has ended; it never ends with more than that.
            let _ = (&mut one.task).await;
        }
        let mut failed = BTreeMap::new();
        for port in ports {
            if let Some(there) = running.get(&port.device) {
                there.guests.send_replace(port.guests);
                continue;
            }
            let device = port.device.clone();
            match start(port).await {
                Ok(one) => drop(running.insert(device, one)),
                Err(error) => drop(failed.insert(device, error)),
            }
        }
        failed
    }
}

async fn start(port: MetadataPort) -> Result<Running, PortError> {
    let device = &port.device;
    let failed = |cause: String| PortError::new(ErrorClass::Busy, format!("the metadata device {device}: {cause}"));
    let file = linux_sys::tap(device).map_err(|error| {
        // The chart lets the agent's container have the device; a node without the module has none.
        let next = "Next: on this node, as root: modprobe tun; and the agent's container needs the device /dev/net/tun";
        failed(format!("open /dev/net/tun: {error}. {next}"))
    })?;
    bring_up(device, port.mtu).await.map_err(|error| failed(error.to_string()))?;
    let mac = device::parse_mac(&port.mac).ok_or_else(|| failed(format!("`{}` is no MAC address", port.mac)))?;
    let (guests, seen) = watch::channel(port.guests.clone());
    let served = serve::Port::new(file, mac, port.mtu, seen).map_err(|error| failed(error.to_string()))?;
    let name = device.clone();
    let task = tokio::spawn(async move {
        let error = served.run().await;
        tracing::warn!(device = name, %error, "the metadata port has ended");
    });
    Ok(Running { made_as: MetadataPort { guests: Vec::new(), ..port }, guests, task })
}

/// Up, and silent: the kernel gives it no link-local address and asks nobody on it.
async fn bring_up(device: &str, mtu: u16) -> Result<(), rtnetlink::Error> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(|_| rtnetlink::Error::RequestFailed)?;
    // Ends when the handle is dropped.
    tokio::spawn(connection);
    let found = handle.link().get().match_name(device.to_owned()).execute().try_next().await?;
    let index = found.ok_or(rtnetlink::Error::RequestFailed)?.header.index;
    let silent =
        LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)])]);
    let quiet = LinkUnspec::new_with_index(index).mtu(u32::from(mtu)).arp(false).append_extra_attribute(silent);
    handle.link().set(quiet.build()).execute().await?;
    handle.link().set(LinkUnspec::new_with_index(index).up().build()).execute().await
}
