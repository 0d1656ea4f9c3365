//! [`VolumeConnector`]s by the target's own bdev modules: the agent reads a volume's attributes, the target connects.
//!
//! | file | what |
//! |---|---|
//! | [`nvmeof`] | NVMe over TCP and RDMA, by one way or several |
//! | [`iscsi`] | iSCSI |
//! | [`rbd`] | Ceph RBD |
//! | [`local`] | files, block devices and bdevs that this DPU has |
//!
//! What is connected is read from the target each time: a connection has the attachment's name
//! ([`names::connection`]). A restarted agent finds its own by it, and a new target has none, so that all is connected
//! again under the same identities. The agent's own record says what was granted.
//!
//! The name has a part that is another one each time. A target that was asked to connect may do so when that was given up,
//! asked for again, used and ended; such a connection is one more, it is ended when it is seen, and no request to present
//! a disk that was sent for another one finds it.
//!
//! Each connection is a writer's. SPDK cannot present a bdev read-only, so no reader is connected.

pub mod iscsi;
mod knock;
pub mod local;
pub mod nvmeof;
pub mod rbd;

use crate::rpc::methods::GetMethods;
use crate::rpc::methods::bdev::{Bdev, GetBdevs};
use crate::rpc::{self, Rpc, RpcError};
use crate::{names, writer};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use planner::target::{self, Target};
use ports::emulation::Backend;
use ports::volume::{Connection, Fence, Volume, VolumeWriter};
use ports::{ErrorClass, PortError, VolumeConnector};
use std::path::PathBuf;
use tokio::sync::Mutex;

/// What every host can boot from.
const BLOCK_SIZE: u32 = 512;

/// One kind of storage.
#[async_trait]
pub trait Storage: Send + Sync {
    /// Where a volume of this kind is.
    type Place: Send + Sync;

    fn driver(&self) -> &'static str;

    fn fence(&self) -> Fence {
        Fence::None
    }

    fn identity(&self, id: &ExposureId) -> String;

    /// `None`: it is of another kind.
    fn place(&self, target: Target) -> Option<Result<Self::Place, PortError>>;

    /// Tells volumes apart, however they are connected.
    fn key(&self, place: &Self::Place, bdevs: &[Bdev]) -> String;

    /// The connections of this kind, also half made ones.
    async fn held(&self, rpc: &Rpc, bdevs: &[Bdev]) -> Result<Vec<Held>, RpcError>;

    /// Makes the connection; what is left of a failed one is for [`Storage::detach`].
    async fn attach(&self, rpc: &Rpc, claim: &Claim<'_>, place: &Self::Place, bdevs: &[Bdev]) -> Result<(), PortError>;

    async fn detach(&self, rpc: &Rpc, held: &Held) -> Result<(), RpcError>;

    /// Why nothing is behind a connection that is there.
    async fn why_silent(&self, place: &Self::Place) -> PortError {
        let _ = place;
        PortError::new(ErrorClass::Unreachable, "the storage does not answer")
    }
}

/// Who connects.
pub struct Claim<'a> {
    /// [`names::connection`].
    pub name: &'a str,
    pub identity: &'a str,
}

/// A connection as the target has it.
#[derive(Debug, Clone)]
pub struct Held {
    pub id: ExposureId,
    /// [`names::connection`].
    pub name: String,
    /// [`Storage::key`]; `None`: it is half made, and what was to be connected cannot be told.
    pub key: Option<String>,
    /// What a disk stands on, if it is there.
    pub bdev: Option<Bdev>,
    /// The storage answers.
    pub up: bool,
}

impl Held {
    fn connection(&self) -> Connection {
        let name = self.bdev.as_ref().map_or(&self.name, |bdev| &bdev.name).clone();
        let size_bytes = self.bdev.as_ref().filter(|_| self.up).map_or(0, Bdev::size_bytes);
        Connection { id: self.id.clone(), backend: Backend::Bdev(name), size_bytes }
    }
}

/// Of several, made late, the one that is used.
fn own<'a>(held: &'a [Held], id: &ExposureId) -> Option<&'a Held> {
    let use_of = |held: &&Held| {
        let bdev = held.bdev.as_ref();
        (bdev.is_some_and(|bdev| bdev.claimed), bdev.is_some() && held.up, held.key.is_some())
    };
    held.iter().filter(|held| held.id == *id).max_by_key(use_of)
}

pub struct SpdkConnector<S> {
    rpc: Rpc,
    storage: S,
    /// Verbs run one after the other.
    turn: Mutex<Known>,
}

/// What was asked of the target once.
#[derive(Debug, Default)]
struct Known {
    /// What imports of another agent left behind is deleted.
    swept: bool,
    /// The target can show a bdev to an import. `None` again when it did not answer: it may then be another program.
    has_vhost: Option<bool>,
}

impl<S: Storage> SpdkConnector<S> {
    /// `socket`: the target's, for JSON-RPC.
    pub fn new(socket: impl Into<PathBuf>, storage: S) -> Self {
        Self { rpc: Rpc::new(socket, rpc::LIMIT), storage, turn: Mutex::default() }
    }

    /// The attributes are read by the planner's adapters, which refuse what they do not understand.
    fn place(&self, volume: &Volume, what: &str) -> Result<S::Place, PortError> {
        let invalid = |cause: String| PortError::new(ErrorClass::Invalid, format!("{what}: {cause}"));
        if target::connector(&volume.driver, &volume.attributes) != self.storage.driver() {
            let cause = format!("it belongs to the CSI driver {}, not to {}", volume.driver, self.storage.driver());
            return Err(invalid(cause));
        }
        let target = target::of(&volume.driver, &volume.handle, &volume.attributes);
        let target = target.ok_or_else(|| invalid("no adapter reads such volumes".to_owned()))?;
        let target = target.map_err(|refusal| invalid(refusal.to_string()))?;
        let place = self.storage.place(target).ok_or_else(|| invalid("it is of another kind".to_owned()))?;
        place.map_err(|error| PortError::new(error.class, format!("{what}: {}", error.message)))
    }

    async fn bdevs(&self, what: &str) -> Result<Vec<Bdev>, PortError> {
        self.rpc.call(&GetBdevs { name: None }).await.map_err(|error| error.at(what))
    }

    async fn held(&self, what: &str) -> Result<(Vec<Held>, Vec<Bdev>), PortError> {
        let bdevs = self.bdevs(what).await?;
        let held = self.storage.held(&self.rpc, &bdevs).await.map_err(|error| error.at(what))?;
        Ok((held, bdevs))
    }

    async fn detach(&self, held: &Held, what: &str) -> Result<(), PortError> {
        if held.bdev.as_ref().is_some_and(|bdev| bdev.claimed) {
            return Err(PortError::new(ErrorClass::Busy, format!("{what}: the host still has a disk on it")));
        }
        match self.storage.detach(&self.rpc, held).await {
            Err(error) if !error.is_gone() => Err(error.at(what)),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl<S: Storage> VolumeConnector for SpdkConnector<S> {
    fn driver(&self) -> &str {
        self.storage.driver()
    }

    fn fence(&self) -> Fence {
        self.storage.fence()
    }

    fn identity(&self, id: &ExposureId) -> String {
        self.storage.identity(id)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let what = format!("connecting volume {} for {} epoch {}", volume.handle, id.uid, id.epoch);
        let refused = |class, cause: String| Err(PortError::new(class, format!("{what}: {cause}")));
        if !names::is_valid_uid(&id.uid) {
            return refused(ErrorClass::Invalid, "the UID may hold letters, digits, - and _ only".to_owned());
        }
        let place = self.place(volume, &what)?;
        if volume.read_only {
            let cause = "SPDK cannot present a bdev read-only, and it is never shown writable";
            return refused(ErrorClass::Unsupported, cause.to_owned());
        }
        let _turn = self.turn.lock().await;
        let (held, bdevs) = self.held(&what).await?;
        let key = self.storage.key(&place, &bdevs);
        if let Some(own) = own(&held, id) {
            match &own.key {
                Some(there) if *there != key => {
                    return refused(ErrorClass::Conflict, format!("connected already, to {there}"));
                }
                Some(_) if own.up && own.bdev.is_some() => return Ok(own.connection()),
                Some(_) => {
                    let why = self.storage.why_silent(&place).await;
                    return refused(why.class, why.message);
                }
                // Begun by a call that was interrupted.
                None => self.detach(own, &what).await?,
            }
        }
        if let Some(other) = held.iter().find(|held| held.id != *id && held.key.as_ref() == Some(&key)) {
            let cause = format!("{} epoch {} has it connected on this DPU", other.id.uid, other.id.epoch);
            return refused(ErrorClass::Conflict, cause);
        }
        let (name, identity) = (names::connection(id), self.storage.identity(id));
        let attached =
            self.storage.attach(&self.rpc, &Claim { name: &name, identity: &identity }, &place, &bdevs).await;
        let (held, _) = self.held(&what).await?;
        let own = held.into_iter().find(|held| held.name == name);
        match (attached, own) {
            (Ok(()), Some(own)) if own.up && own.bdev.is_some() => Ok(own.connection()),
            (attached, own) => {
                if let Some(own) = own {
                    self.detach(&own, &what).await?;
                }
                let cause = PortError::new(ErrorClass::NotFound, "the storage does not show such a volume");
                let error = attached.err().unwrap_or(cause);
                refused(error.class, error.message)
            }
        }
    }

    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        let what = format!("listing the connected volumes of {}", self.storage.driver());
        let mut known = self.turn.lock().await;
        let held = match self.held(&what).await {
            Ok((held, _)) => held,
            Err(error) => {
                known.has_vhost = None;
                return Err(error);
            }
        };
        if !known.swept {
            writer::sweep(&self.rpc).await.map_err(|error| error.at(&what))?;
            known.swept = true;
        }
        let (kept, left): (Vec<&Held>, Vec<&Held>) = held.iter().partition(|one| {
            let is_own = own(&held, &one.id).is_some_and(|own| own.name == one.name);
            is_own && one.key.is_some()
        });
        for one in left {
            // Half made by a call that was interrupted, and that nobody may repeat; or made late, beside what is used.
            self.detach(one, &what).await?;
        }
        Ok(kept.into_iter().map(Held::connection).collect())
    }

    async fn import_refusal(&self) -> Option<String> {
        let mut known = self.turn.lock().await;
        if known.has_vhost.is_none() {
            // One that does not answer is not said to lack it.
            let methods = self.rpc.call(&GetMethods {}).await.ok()?;
            known.has_vhost = Some(methods.iter().any(|method| method == writer::NEEDED));
        }
        (known.has_vhost == Some(false)).then(|| writer::NO_VHOST.to_owned())
    }

    async fn open_writer(&self, id: &ExposureId) -> Result<Box<dyn VolumeWriter>, PortError> {
        let what = format!("opening the volume of {} epoch {} for an import", id.uid, id.epoch);
        let refused = |class, cause: &str| Err(PortError::new(class, format!("{what}: {cause}")));
        let _turn = self.turn.lock().await;
        let (held, _) = self.held(&what).await?;
        let Some(own) = own(&held, id) else {
            return refused(ErrorClass::NotFound, "it is not connected");
        };
        match own.bdev.as_ref().filter(|_| own.up) {
            None => refused(ErrorClass::Unreachable, "the storage does not answer"),
            Some(bdev) if bdev.claimed => refused(ErrorClass::Conflict, "the host has a disk on it"),
            Some(bdev) => writer::open(&self.rpc, id, &bdev.name, &what).await,
        }
    }

    async fn close_writer(&self, id: &ExposureId) -> Result<(), PortError> {
        let what = format!("closing the import into the volume of {} epoch {}", id.uid, id.epoch);
        let _turn = self.turn.lock().await;
        writer::close(&self.rpc, id, &what).await
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let what = format!("disconnecting the volume of {} epoch {}", id.uid, id.epoch);
        let _turn = self.turn.lock().await;
        // A request that waits for the storage keeps a writer's controller: it is dropped with the connection, below.
        let closed = writer::close_idle(&self.rpc, id).await.map_err(|error| error.at(&what))?;
        let (held, _) = self.held(&what).await?;
        for own in held.iter().filter(|held| held.id == *id) {
            self.detach(own, &what).await?;
        }
        if closed { Ok(()) } else { writer::close(&self.rpc, id, &what).await }
    }
}
