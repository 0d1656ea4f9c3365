//! One background task for each observed port: listens on the representor and asks the guest for its addresses.
//!
//! The task ends when the port is unplugged, when it is observed with other parameters, or with the switch. A device that
//! vanishes (QEMU's tap at a hot-unplug) voids what was known; the task waits for it to come back.

use crate::frames::{self, Mac};
use crate::link::{Link, Links};
use crate::packet::{Listen, PacketSocket};
use crate::sighting::{Question, Sighting};
use jiff::Timestamp;
use planner::exposure::ExposureId;
use ports::switch::{GuestObserved, SwitchPort};
use ports::{ErrorClass, PortError};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How often the device's state is read and a question may be due, while an answer is waited for.
const TICK: Duration = Duration::from_millis(200);
/// The same once the guest has answered, and while there is no carrier.
const CALM_TICK: Duration = Duration::from_secs(1);

/// Where questions come from if the representor's own address will not do.
const SUBSTITUTE: Mac = [0x02, 0x4d, 0x50, 0, 0, 1];

#[derive(Default)]
pub(crate) struct GuestWatch {
    watched: Mutex<HashMap<ExposureId, Watched>>,
}

struct Watched {
    port: SwitchPort,
    known: Arc<Mutex<Known>>,
    task: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Known {
    sighting: Sighting,
    /// Why the guest cannot be watched now; a missing device is no trouble, it may be about to come.
    trouble: Option<PortError>,
}

/// A panic elsewhere leaves observations as they were: still true.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GuestWatch {
    pub(crate) fn observe(&self, port: &SwitchPort, addresses: &[IpAddr]) -> Result<GuestObserved, PortError> {
        let guest = frames::parse_mac(&port.mac).ok_or_else(|| {
            PortError::new(ErrorClass::Invalid, format!("watching {}: `{}` is no MAC address", port.device, port.mac))
        })?;
        let mut watched = lock(&self.watched);
        if watched.get(&port.id).is_some_and(|known| known.port != *port) {
            watched.remove(&port.id);
        }
        let entry = watched.entry(port.id.clone()).or_insert_with(|| {
            let known = Arc::new(Mutex::new(Known { sighting: Sighting::new(addresses.to_vec()), trouble: None }));
            let task = tokio::spawn(watch(port.device.clone(), guest, Arc::clone(&known)));
            Watched { port: port.clone(), known, task }
        });
        let mut known = lock(&entry.known);
        known.sighting.set_addresses(addresses);
        match &known.trouble {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(known.sighting.observed.clone()),
        }
    }

    pub(crate) fn forget(&self, id: &ExposureId) {
        lock(&self.watched).remove(id);
    }
}

async fn watch(device: String, guest: Mac, known: Arc<Mutex<Known>>) {
    loop {
        let trouble = match follow(&device, guest, &known).await {
            Ok(()) => None,
            Err(error) => {
                let class = match error.kind() {
                    io::ErrorKind::PermissionDenied => ErrorClass::Unauthorized,
                    _ => ErrorClass::Unreachable,
                };
                tracing::debug!(device, %error, "cannot watch the guest");
                Some(PortError::new(class, format!("watching the guest behind {device}: {error}")))
            }
        };
        lock(&known).trouble = trouble;
        tokio::time::sleep(TICK).await;
    }
}

/// Watches as long as this device is there.
async fn follow(device: &str, guest: Mac, known: &Mutex<Known>) -> io::Result<()> {
    let links = Links::open()?;
    let Some(link) = links.get(device)? else {
        return Ok(());
    };
    let socket = PacketSocket::open(device, link.index, guest)?;
    lock(known).trouble = None;
    let outcome = listen(device, &links, link, &socket, guest, known).await;
    let mut known = lock(known);
    known.sighting = known.sighting.elsewhere();
    outcome
}

async fn listen(
    device: &str,
    links: &Links,
    bound: Link,
    socket: &PacketSocket,
    guest: Mac,
    known: &Mutex<Known>,
) -> io::Result<()> {
    let mut buffer = [0; 256];
    let mut listening = Listen::Everything;
    let mut next = Instant::now();
    // The same guest must not hear itself.
    let from = if bound.mac == guest || bound.mac == Mac::default() { SUBSTITUTE } else { bound.mac };
    loop {
        let heard = tokio::select! {
            frame = socket.receive(&mut buffer) => match frame {
                Ok(frame) => frames::read(frame, guest),
                // The device was set down: the socket goes on when it is up again.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENETDOWN) => None,
                Err(error) => return Err(error),
            },
            () = tokio::time::sleep_until(next) => None,
        };
        // Looked at first, so that a frame after a restart is not taken for one before it.
        let Some(link) = links.get(device)?.filter(|link| link.index == bound.index) else {
            return Ok(());
        };
        let now = Instant::now();
        let (questions, wanted) = {
            let mut known = lock(known);
            let sighting = &mut known.sighting;
            sighting.on_carrier(link.carrier_changes);
            if let Some(heard) = heard {
                sighting.on_frame(heard, now, Timestamp::now());
            }
            let questions = if link.running { sighting.due(now) } else { Vec::new() };
            next = now + if sighting.answered() || !link.running { CALM_TICK } else { TICK };
            // Whoever sends from an address asks for its neighbours first: ARP and ICMPv6 tell enough after the first.
            let first = sighting.observed.first_packet_at.is_none();
            (questions, if first { Listen::Everything } else { Listen::Answers })
        };
        for question in questions {
            ask(socket, from, question);
        }
        if wanted != listening {
            socket.listen(wanted)?;
            listening = wanted;
        }
    }
}

fn ask(socket: &PacketSocket, from: Mac, question: Question) {
    let frame = match question {
        Question::Request(IpAddr::V4(address)) => frames::arp_request(from, address),
        Question::Request(IpAddr::V6(address)) => frames::neighbor_solicitation(from, address),
        Question::Probe(IpAddr::V4(address)) => frames::arp_probe(from, address),
        Question::Probe(IpAddr::V6(_)) => return,
    };
    // The next question comes soon; a guest that does not drain its queue is a guest that does not answer.
    if let Err(error) = socket.send(&frame) {
        tracing::debug!(%error, "a question to the guest was not sent");
    }
}
