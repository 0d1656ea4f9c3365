//! A vhost-user-blk disk of the target, opened by this process as a virtual machine would (Virtual I/O Device 1.2,
//! section 5.2). Everything blocks.

use super::ring::{DATA_BYTES, Direction, LENGTH, Ring};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub(super) const SECTOR: u64 = 512;

/// VIRTIO_BLK_T_IN, _OUT, _FLUSH, _DISCARD.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const DISCARD: u32 = 11;

/// VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_DISCARD, VIRTIO_F_VERSION_1.
const HAS_FLUSH: u64 = 1 << 9;
const HAS_DISCARD: u64 = 1 << 13;
const VERSION_1: u64 = 1 << 32;

/// `struct virtio_blk_config` up to the fields for write zeroes: capacity and max_discard_sectors are read from it.
const CONFIG_BYTES: usize = 60;
const MOST_DISCARDED: std::ops::Range<usize> = 36..40;

/// The target answers to what is no operation of the storage's.
const ANSWER: Duration = Duration::from_secs(10);
/// The storage may be connected anew meanwhile.
const OPERATION: Duration = Duration::from_secs(60);

/// Which descriptor an event is of.
const CALL: u64 = 0;
const CONNECTION: u64 = 1;

pub(super) struct Disk {
    /// `None`: taken by [`Drop`].
    session: Option<Session>,
    features: u64,
    most_discarded: u64,
    pub(super) size_bytes: u64,
}

/// What has to stay while the target works on a request.
struct Session {
    ring: Ring,
    kick: EventFd,
    call: EventFd,
    events: Epoll,
    /// The same connection as the front end's.
    connection: UnixStream,
    _front_end: Frontend,
}

fn protocol(error: vhost::Error) -> io::Error {
    io::Error::other(format!("vhost-user: {error}"))
}

impl Disk {
    pub(super) fn open(socket: &Path) -> io::Result<Self> {
        let connection = UnixStream::connect(socket)?;
        connection.set_read_timeout(Some(ANSWER))?;
        connection.set_write_timeout(Some(ANSWER))?;
        let mut front_end = Frontend::from_stream(connection.try_clone()?, 1);
        front_end.set_owner().map_err(protocol)?;
        let by_message = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        let features = front_end.get_features().map_err(protocol)?;
        let features = features & (HAS_FLUSH | HAS_DISCARD | VERSION_1 | by_message);
        if features & (VERSION_1 | by_message) != VERSION_1 | by_message {
            return Err(io::Error::other(format!("vhost-user: the target offers features {features:#x} only")));
        }
        let offered = front_end.get_protocol_features().map_err(protocol)?;
        let wanted = VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::REPLY_ACK;
        front_end.set_protocol_features(offered & wanted).map_err(protocol)?;
        if offered.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        front_end.set_features(features).map_err(protocol)?;
        let config = front_end.get_config(
            0,
            CONFIG_BYTES.try_into().unwrap_or(u32::MAX),
            VhostUserConfigFlags::empty(),
            &[0; CONFIG_BYTES],
        );
        let (_, config) = config.map_err(protocol)?;
        let session = Session::new(front_end, connection)?;
        let most_discarded = config.get(MOST_DISCARDED).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let sectors = config.first_chunk().copied().map(u64::from_le_bytes).unwrap_or_default();
        Ok(Self {
            session: Some(session),
            features,
            most_discarded: u64::from(most_discarded.unwrap_or_default()),
            size_bytes: sectors * SECTOR,
        })
    }

    /// At most [`DATA_BYTES`].
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let session = self.session()?;
        session.ring.put(data)?;
        session.ask(WRITE, sector(offset)?, Some((length(data)?, Direction::ToDevice)))
    }

    /// At most [`DATA_BYTES`].
    pub(super) fn read(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let session = self.session()?;
        session.ask(READ, sector(offset)?, Some((length(data)?, Direction::FromDevice)))?;
        session.ring.take(data)
    }

    /// A hint, and none to a disk that takes no hints.
    pub(super) fn discard(&mut self) -> io::Result<()> {
        if self.features & HAS_DISCARD == 0 || self.most_discarded == 0 {
            return Ok(());
        }
        let (end, most) = (self.size_bytes / SECTOR, self.most_discarded);
        let session = self.session()?;
        let mut at = 0;
        while at < end {
            let sectors = most.min(end - at);
            let mut segment = [0; 16];
            segment[..8].copy_from_slice(&at.to_le_bytes());
            segment[8..12].copy_from_slice(&u32::try_from(sectors).unwrap_or(u32::MAX).to_le_bytes());
            session.ring.put(&segment)?;
            session.ask(DISCARD, 0, Some((length(&segment)?, Direction::ToDevice)))?;
            at += sectors;
        }
        Ok(())
    }

    /// A disk without this operation keeps what it has taken.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self.features & HAS_FLUSH {
            0 => Ok(()),
            _ => self.session()?.ask(FLUSH, 0, None),
        }
    }

    fn session(&mut self) -> io::Result<&mut Session> {
        self.session.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

fn sector(offset: u64) -> io::Result<u64> {
    let misplaced = || io::Error::new(io::ErrorKind::InvalidInput, format!("byte {offset} is within a sector"));
    offset.is_multiple_of(SECTOR).then_some(offset / SECTOR).ok_or_else(misplaced)
}

fn length(data: &[u8]) -> io::Result<u32> {
    let fits = data.len() <= DATA_BYTES;
    let length = fits.then(|| u32::try_from(data.len()).ok()).flatten();
    length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{} bytes at once", data.len())))
}

impl Session {
    fn new(mut front_end: Frontend, connection: UnixStream) -> io::Result<Self> {
        let (ring, kick, call) = (Ring::new()?, EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?);
        front_end.set_mem_table(&[ring.region()?]).map_err(protocol)?;
        front_end.set_vring_num(0, LENGTH).map_err(protocol)?;
        front_end.set_vring_base(0, 0).map_err(protocol)?;
        front_end.set_vring_addr(0, &ring.places()?).map_err(protocol)?;
        front_end.set_vring_call(0, &call).map_err(protocol)?;
        front_end.set_vring_kick(0, &kick).map_err(protocol)?;
        front_end.set_vring_enable(0, true).map_err(protocol)?;
        let events = Epoll::new()?;
        let watched = [(call.as_raw_fd(), EventSet::IN, CALL), (connection.as_raw_fd(), HUNG_UP, CONNECTION)];
        for (descriptor, set, name) in watched {
            events.ctl(ControlOperation::Add, descriptor, EpollEvent::new(set, name))?;
        }
        Ok(Self { ring, kick, call, events, connection, _front_end: front_end })
    }

    fn ask(&mut self, kind: u32, sector: u64, data: Option<(u32, Direction)>) -> io::Result<()> {
        if !self.ring.is_done()? {
            // One that was not answered in time: its memory is the target's still.
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the storage has not answered before"));
        }
        self.ring.make(kind, sector, data)?;
        self.kick.write(1)?;
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", OPERATION.as_secs()));
        if !self.wait(Some(OPERATION))? {
            return Err(late());
        }
        match self.ring.status()? {
            0 => Ok(()),
            2 => Err(io::Error::new(io::ErrorKind::Unsupported, "the target does not do this operation")),
            status => Err(io::Error::other(format!("the storage refused it (virtio-blk status {status})"))),
        }
    }

    /// Until the target is done. `false`: the time is up.
    fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        let begun = Instant::now();
        let mut events = [EpollEvent::default(); 2];
        while !self.ring.is_done()? {
            let left = match limit.map(|limit| limit.checked_sub(begun.elapsed())) {
                Some(None) => return Ok(false),
                Some(Some(left)) => i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1),
                None => -1,
            };
            let count = match self.events.wait(left, &mut events) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            for event in events.iter().take(count) {
                if event.data() == CONNECTION {
                    let what = format!("the target has closed {:?}", self.connection.peer_addr());
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, what));
                }
                // It counts; the ring says whether it is done.
                let _ = self.call.read();
            }
        }
        Ok(true)
    }
}

const HUNG_UP: EventSet = EventSet::READ_HANG_UP;

/// SPDK gives a request three seconds when its machine leaves, and then lets go of the memory that the request still has. One that waits
/// for a storage node is not left behind so: it keeps its memory until it is done, or was dropped with the connection.
impl Drop for Disk {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if matches!(session.ring.is_done(), Ok(false)) {
            std::thread::spawn(move || {
                if let Err(error) = session.wait(None) {
                    tracing::debug!(%error, "a request of an import that has ended");
                }
            });
        }
    }
}
