//! The fence of NVMe over fabrics (`TargetAcl`), at a storage node that runs SPDK.
//!
//! Who may reach a volume is said twice there: by the subsystem's list of hosts, and by the namespace, which is shown to
//! one host. *admit* gives the volume a namespace whose number is made from the grant's epoch, shown to the grant's host
//! NQN alone, and puts that on the list. *fence* takes namespace and host away; SPDK answers when what was under way has
//! ended and the connections are gone.
//!
//! The namespace is what makes this safe against a request that arrives late. SPDK lets one namespace have a bdev, and
//! the number of a grant is never used again. So an admission that slept cannot add its namespace while a later one has
//! the volume, cannot show one that is gone, and never takes away a later one. At worst it puts a host on the list that
//! then sees nothing.
//!
//! That a grant was fenced stands on the subsystem's list, too: as a host's name that nobody connects under, with the epoch. An
//! admission of that epoch, or of one before it, is refused; one that was under way looks at its end whether a fence has come
//! meanwhile, and takes back what it did. A target that was started anew has forgotten this, as it has whom it let in:
//! [`forgotten`](StorageFence::forgotten) tells the second, and whoever asks has to know the first.
//!
//! A volume has a subsystem of its own, made with `max_namespaces` large enough for its epochs, and its namespace has the
//! bdev's own UUID, by which the bdev is found while there is no namespace.

use crate::rpc::methods::bdev::{Bdev, GetBdevs};
use crate::rpc::methods::nvmf::{
    AddHost, AddNamespace, AllowAnyHost, DISCONNECT_MS, GetControllers, GetSubsystems, Namespace, NewNamespace,
    RemoveHost, RemoveNamespace, ShowNamespace, Subsystem,
};
use crate::rpc::{self, Method, Rpc};
use crate::volumes::nvmeof::{DRIVER, host_nqn, parse_host_nqn};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use planner::target::{self, NvmeNamespace, Target};
use ports::fence::Admission;
use ports::volume::{Fence, Volume};
use ports::{ErrorClass, PortError, StorageFence};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Epochs start at 1. What an administrator numbers by hand is below.
const FIRST_NSID: u32 = 1000;
/// On a subsystem's list, with an epoch: that one and all before it were fenced.
const FENCED: &str = "nqn.2026-01.io.metalplane:fenced:";

/// The epoch of a mark; `None`: the name is a host's.
pub(crate) fn parse_mark(nqn: &str) -> Option<u64> {
    nqn.strip_prefix(FENCED)?.parse().ok()
}

pub struct NvmeFence {
    /// By `address:port`, as the volumes name it.
    targets: BTreeMap<String, Rpc>,
}

impl NvmeFence {
    /// `targets`: the JSON-RPC socket of the target that listens on each `address:port`.
    pub fn new(targets: BTreeMap<String, PathBuf>) -> Self {
        let open = |(place, socket): (String, PathBuf)| (place, Rpc::new(socket, rpc::LIMIT));
        Self { targets: targets.into_iter().map(open).collect() }
    }

    fn order<'a>(&'a self, volume: &Volume, identity: &'a str, verb: &str) -> Result<Order<'a>, PortError> {
        let what = format!("{verb} {identity} of volume {}", volume.handle);
        let invalid = |cause: String| PortError::new(ErrorClass::Invalid, format!("{what}: {cause}"));
        let id = parse_host_nqn(identity).ok_or_else(|| invalid("it is no host NQN of ours".to_owned()))?;
        let place = match target::of(&volume.driver, &volume.handle, &volume.attributes) {
            Some(Ok(Target::NvmeOf(place))) => place,
            Some(Err(refusal)) => return Err(invalid(refusal.to_string())),
            _ => return Err(invalid(format!("it is no volume of {DRIVER}"))),
        };
        let ways: Vec<_> = place.addresses.iter().map(|address| format!("{address}:{}", place.port)).collect();
        let (way, rpc) = ways.iter().find_map(|way| self.targets.get_key_value(way)).ok_or_else(|| {
            PortError::new(ErrorClass::NotFound, format!("{what}: no storage node is known at {}", ways.join(", ")))
        })?;
        Ok(Order { way, rpc, place, id, identity, what })
    }
}

/// What is asked, of whom, for whom.
struct Order<'a> {
    way: &'a str,
    rpc: &'a Rpc,
    place: NvmeNamespace,
    id: ExposureId,
    identity: &'a str,
    what: String,
}

/// The epoch whose namespace has this number; `None`: it was not made by a grant.
fn epoch(nsid: u32) -> Option<u64> {
    nsid.checked_sub(FIRST_NSID).filter(|epoch| *epoch > 0).map(u64::from)
}

impl Order<'_> {
    fn refused(&self, class: ErrorClass, cause: impl std::fmt::Display) -> PortError {
        PortError::new(class, format!("{}: {cause}", self.what))
    }

    async fn call<M: Method>(&self, method: &M) -> Result<M::Answer, PortError> {
        self.rpc.call(method).await.map_err(|error| error.at(&self.what))
    }

    async fn subsystem(&self) -> Result<Subsystem, PortError> {
        let all = self.call(&GetSubsystems {}).await?;
        let found = all.into_iter().find(|subsystem| subsystem.nqn == self.place.nqn);
        found.ok_or_else(|| {
            self.refused(ErrorClass::NotFound, format!("the target has no subsystem {}", self.place.nqn))
        })
    }

    /// The volume's namespace. Another one beside it would be shown and hidden with it.
    fn namespace<'a>(&self, subsystem: &'a Subsystem) -> Result<Option<&'a Namespace>, PortError> {
        match subsystem.namespaces.as_slice() {
            [] => Ok(None),
            [only] if only.uuid.eq_ignore_ascii_case(&self.place.uuid) => Ok(Some(only)),
            _ => Err(self.refused(
                ErrorClass::Invalid,
                format!("{} has to hold {} and nothing else", self.place.nqn, self.place.uuid),
            )),
        }
    }

    fn nsid(&self, subsystem: &Subsystem) -> Result<u32, PortError> {
        let epoch = u32::try_from(self.id.epoch).ok();
        let nsid = epoch.filter(|epoch| *epoch > 0).and_then(|epoch| FIRST_NSID.checked_add(epoch));
        nsid.filter(|nsid| *nsid <= subsystem.max_namespaces).ok_or_else(|| {
            let cause = format!(
                "{} has room for namespaces up to {}, and epoch {} needs {FIRST_NSID} more: make it with a larger max_namespaces",
                subsystem.nqn, subsystem.max_namespaces, self.id.epoch
            );
            self.refused(ErrorClass::Invalid, cause)
        })
    }

    /// The volume's bdev at the storage node.
    async fn bdev(&self) -> Result<Bdev, PortError> {
        let all = self.call(&GetBdevs { name: None }).await?;
        let found = all.into_iter().find(|bdev| bdev.uuid.eq_ignore_ascii_case(&self.place.uuid));
        let cause = || format!("the target has no bdev with the UUID {}", self.place.uuid);
        found.ok_or_else(|| self.refused(ErrorClass::NotFound, cause()))
    }

    async fn admit_nobody_else(&self, subsystem: &Subsystem) -> Result<(), PortError> {
        if subsystem.allow_any_host {
            self.call(&AllowAnyHost { nqn: &subsystem.nqn, allow_any_host: false }).await?;
        }
        Ok(())
    }

    /// A later epoch has the volume, or this one was fenced.
    fn is_barred(&self, subsystem: &Subsystem) -> Result<Option<String>, PortError> {
        let later = self.namespace(subsystem)?.and_then(|ns| epoch(ns.nsid)).filter(|epoch| *epoch > self.id.epoch);
        let marks = subsystem.hosts.iter().filter_map(|host| parse_mark(&host.nqn));
        let fenced = marks.filter(|epoch| *epoch >= self.id.epoch).max();
        let later = later.map(|epoch| format!("epoch {epoch} has the volume"));
        Ok(later.or_else(|| fenced.map(|epoch| format!("epoch {epoch} was fenced, with all before it"))))
    }

    fn is_admitted(&self, subsystem: &Subsystem) -> Result<bool, PortError> {
        let shown = self.namespace(subsystem)?.is_some_and(|ns| epoch(ns.nsid) == Some(self.id.epoch));
        Ok(shown && subsystem.hosts.iter().any(|host| host.nqn == self.identity))
    }

    async fn remove(&self, host: &str) -> Result<(), PortError> {
        self.call(&RemoveHost { nqn: &self.place.nqn, host, timeout_ms: DISCONNECT_MS }).await.map(drop)
    }

    /// Everything is looked at before it is changed, so that an interrupted admission is done by the next.
    async fn admit(&self) -> Result<(), PortError> {
        let subsystem = self.subsystem().await?;
        let nsid = self.nsid(&subsystem)?;
        let there = self.namespace(&subsystem)?;
        if let Some(cause) = self.is_barred(&subsystem)? {
            return Err(self.refused(ErrorClass::Conflict, cause));
        }
        let bdev = self.bdev().await?;
        self.admit_nobody_else(&subsystem).await?;
        let nqn = subsystem.nqn.as_str();
        if there.is_none_or(|ns| ns.nsid != nsid) {
            if let Some(earlier) = there {
                self.call(&RemoveNamespace { nqn, nsid: earlier.nsid }).await?;
            }
            let namespace = NewNamespace {
                nsid,
                bdev_name: &bdev.name,
                uuid: &self.place.uuid,
                eui64: None,
                no_auto_visible: true,
            };
            self.call(&AddNamespace { nqn, namespace }).await?;
        }
        self.call(&ShowNamespace { nqn, nsid, host: self.identity }).await?;
        let epoch_of = |host: &str| parse_host_nqn(host).map(|id| id.epoch).or_else(|| parse_mark(host));
        let is_earlier = |host: &&str| epoch_of(host).is_some_and(|epoch| epoch < self.id.epoch);
        for earlier in subsystem.hosts.iter().map(|host| host.nqn.as_str()).filter(is_earlier) {
            self.remove(earlier).await?;
        }
        if !subsystem.hosts.iter().any(|host| host.nqn == self.identity) {
            self.call(&AddHost { nqn, host: self.identity }).await?;
        }
        match self.is_barred(&self.subsystem().await?)? {
            None => Ok(()),
            Some(cause) => {
                self.shut_out().await?;
                Err(self.refused(ErrorClass::Conflict, format!("{cause}, meanwhile")))
            }
        }
    }

    /// The mark comes first, and what is taken away is what is there after it: an admission has done all it does before, or sees
    /// the mark.
    async fn fence(&self) -> Result<(), PortError> {
        let subsystem = self.subsystem().await?;
        self.admit_nobody_else(&subsystem).await?;
        if self.is_barred(&subsystem)?.is_none() {
            self.call(&AddHost { nqn: &self.place.nqn, host: &format!("{FENCED}{}", self.id.epoch) }).await?;
        }
        self.shut_out().await
    }

    async fn shut_out(&self) -> Result<(), PortError> {
        let subsystem = self.subsystem().await?;
        self.admit_nobody_else(&subsystem).await?;
        let nqn = subsystem.nqn.as_str();
        // One that no grant made is seen by every host.
        if let Some(ns) = self.namespace(&subsystem)?.filter(|ns| epoch(ns.nsid).is_none_or(|e| e <= self.id.epoch)) {
            self.call(&RemoveNamespace { nqn, nsid: ns.nsid }).await?;
        }
        let mut listed = subsystem.hosts.iter().any(|host| host.nqn == self.identity);
        if !listed && self.is_connected().await? {
            // It came while any host could: only one of the list is thrown out.
            self.call(&AddHost { nqn, host: self.identity }).await?;
            listed = true;
        }
        if listed { self.remove(self.identity).await } else { Ok(()) }
    }

    async fn is_connected(&self) -> Result<bool, PortError> {
        let controllers = self.call(&GetControllers { nqn: &self.place.nqn }).await?;
        Ok(controllers.iter().any(|controller| controller.hostnqn == self.identity))
    }

    async fn is_fenced(&self) -> Result<bool, PortError> {
        let subsystem = self.subsystem().await?;
        let listed = subsystem.allow_any_host || subsystem.hosts.iter().any(|host| host.nqn == self.identity);
        let namespace = self.namespace(&subsystem)?;
        let shown = namespace.is_some_and(|ns| epoch(ns.nsid).is_none_or(|epoch| epoch <= self.id.epoch));
        Ok(!listed && !shown && !self.is_connected().await?)
    }
}

#[async_trait]
impl StorageFence for NvmeFence {
    fn driver(&self) -> &str {
        DRIVER
    }

    fn kind(&self) -> Fence {
        Fence::TargetAcl
    }

    fn fence_identity(&self, id: &ExposureId) -> String {
        host_nqn(id)
    }

    async fn admit(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        match self.order(volume, identity, "admitting") {
            // One that nobody named here lets in whom it likes, and cannot be told to refuse anybody.
            Err(error) if error.class == ErrorClass::NotFound => Ok(()),
            order => order?.admit().await,
        }
    }

    /// A storage node that does not answer, or that does not have the volume yet, tells nothing.
    async fn forgotten(&self, admitted: &[Admission]) -> Result<Vec<usize>, PortError> {
        let mut looked: BTreeMap<&str, Option<Vec<Subsystem>>> = BTreeMap::new();
        let mut forgotten = Vec::new();
        for (number, Admission { volume, identity }) in admitted.iter().enumerate() {
            let Ok(order) = self.order(volume, identity, "looking for") else { continue };
            if !looked.contains_key(order.way) {
                let all = order.call(&GetSubsystems {}).await;
                looked.insert(order.way, all.inspect_err(|error| tracing::debug!("{error}")).ok());
            }
            let all = looked.get(order.way).and_then(Option::as_ref).into_iter().flatten();
            let Some(subsystem) = all.into_iter().find(|subsystem| subsystem.nqn == order.place.nqn) else { continue };
            // Of one that holds something else, too, nobody can say.
            if let (Ok(false), Ok(None)) = (order.is_admitted(subsystem), order.is_barred(subsystem)) {
                forgotten.push(number);
            }
        }
        Ok(forgotten)
    }

    /// Whoever makes snapshots at the storage node sees that nobody can have the volume open.
    async fn dismiss(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let dismissed = async { self.order(volume, identity, "dismissing")?.shut_out().await };
        match dismissed.await {
            // A storage node that nobody named, or a volume that is exported no more.
            Err(error) if error.class == ErrorClass::NotFound => Ok(()),
            other => other,
        }
    }

    async fn fence(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        self.order(volume, identity, "fencing")?.fence().await
    }

    async fn verify_fenced(&self, volume: &Volume, identity: &str) -> Result<bool, PortError> {
        self.order(volume, identity, "looking at the fence of")?.is_fenced().await
    }
}
