//! Who sets a representor up or down is told by the kernel (rtnetlink, RTNLGRP_LINK), whoever it is: Open vSwitch's user-space datapath sets
//! the flags of a device anew when its port goes, as it last read them, and so brings a link up again that was just taken down.

use crate::representor::Representor;
use futures::StreamExt;
use ports::{ErrorClass, PortError};
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::LinkFlags;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Somebody who answers each of our changes by one of his own makes us look four times a second, and no more.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct Links {
    shared: Arc<Shared>,
    following: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The representors that are watched, by their index.
    watched: Mutex<BTreeSet<u32>>,
    changed: Notify,
}

impl Drop for Links {
    fn drop(&mut self) {
        lock(&self.following).iter().for_each(JoinHandle::abort);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    /// From now on every change is told, in the network namespace of the thread that runs it. Before the devices are read: what changes
    /// after that is then told.
    pub(crate) fn follow(&self) -> Result<(), PortError> {
        let mut following = lock(&self.following);
        if following.as_ref().is_some_and(|task| !task.is_finished()) {
            return Ok(());
        }
        let (connection, handle, mut messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
            .map_err(|error| PortError::new(ErrorClass::Unreachable, format!("follow the network devices: {error}")))?;
        let shared = self.shared.clone();
        *following = Some(tokio::spawn(async move {
            let tells = async {
                while let Some((message, _)) = messages.next().await {
                    if shared.concerns(&message.payload) {
                        shared.changed.notify_one();
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            };
            tokio::select! {
                () = connection => {}
                () = tells => {}
            }
            drop(handle);
        }));
        Ok(())
    }

    pub(crate) fn watch<'a>(&self, representors: impl Iterator<Item = &'a Representor>) {
        *lock(&self.shared.watched) = representors.map(|device| device.index).collect();
    }

    /// Returns when a watched device was set up or down, by this process too.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Shared {
    fn concerns(&self, message: &NetlinkPayload<RouteNetlinkMessage>) -> bool {
        let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = message else { return false };
        link.header.change_mask.contains(LinkFlags::Up) && lock(&self.watched).contains(&link.header.index)
    }
}
