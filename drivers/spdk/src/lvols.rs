//! [`LogicalVolumes`] of one lvstore, exported by NVMe/TCP from the target that has it.
//!
//! What SPDK 26.05 accepts and what does harm is never sent:
//!
//! * A volume larger than its parent snapshot: a read past the parent's end, in several pieces, overwrites memory of the target
//!   and of the guest (`zero_trailing_bytes`); decoupling it reads past the parent's map of clusters. So each volume is at
//!   most as large as its parent, and parents are at least as large up the whole chain.
//! * A snapshot that is deleted under its only clone gives that its clusters, and with them whole pages of the map: a clone
//!   of 68 MiB was one of 2 GiB when the target had been started anew. So it is deleted only if both are of one size.
//! * `bdev_lvol_rename` of a snapshot is refused, and its alias is the new name all the same.
//! * `bdev_lvol_delete` of an exported volume, which takes it away from its host, and `bdev_lvol_resize` to a smaller size
//!   of one that somebody may have open, where the volume shrinks and its bdev does not.
//!
//! A volume is exported as a subsystem of its own, named by its UUID, that lets in no host and has no namespace. Both come
//! with an admission ([`crate::fence`]).

use crate::fence::parse_mark;
use crate::rpc::methods::lvol::{
    AssignedLimits, CloneSnapshot, Create, DecoupleParent, Delete, GetLvolBdevs, GetLvstores, LvolBdev, Rename, Resize,
    SetLimits, Snapshot,
};
use crate::rpc::methods::nvme::Family;
use crate::rpc::methods::nvmf::{
    AddListener, Address, CreateSubsystem, CreateTransport, DeleteSubsystem, GetControllers, GetSubsystems,
    GetTransports, Subsystem, TransportType,
};
use crate::rpc::{self, Method, Rpc, RpcError};
use async_trait::async_trait;
use ports::lvol::{Export, Limits, LogicalVolumes, Lvol, Room};
use ports::{ErrorClass, PortError};
use std::net::SocketAddr;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
/// Room for the epochs of a volume: an admission has number 1000 + epoch.
const NAMESPACES: u32 = 4096;
/// What SPDK says of other limits for a bdev that has some and that nobody has open: opening it, to set them, begins to keep
/// the old ones, and that has not ended when the new ones are looked at.
const AGAIN: &str = "Resource temporarily unavailable";
const MODEL: &str = "Metalplane volume";

pub struct SpdkLvols {
    rpc: Rpc,
    lvstore: String,
    /// Where the target listens.
    address: SocketAddr,
}

impl SpdkLvols {
    /// `socket`: the target's, for JSON-RPC.
    pub fn new(socket: impl Into<PathBuf>, lvstore: &str, address: SocketAddr) -> Self {
        Self { rpc: Rpc::new(socket, rpc::LIMIT), lvstore: lvstore.to_owned(), address }
    }

    /// As SPDK calls it.
    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.lvstore)
    }

    fn listen_address(&self) -> Address {
        Address {
            trtype: TransportType::Tcp,
            traddr: self.address.ip().to_string(),
            adrfam: Some(if self.address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }),
            trsvcid: Some(self.address.port().to_string()),
        }
    }

    async fn call<M: Method>(&self, method: &M, what: &str) -> Result<M::Answer, PortError> {
        self.rpc.call(method).await.map_err(|error| error.at(what))
    }

    async fn subsystems(&self, what: &str) -> Result<Vec<Subsystem>, PortError> {
        self.call(&GetSubsystems {}, what).await
    }

    async fn subsystem(&self, uuid: &str, what: &str) -> Result<Option<Subsystem>, PortError> {
        let nqn = self.export_name(uuid);
        Ok(self.subsystems(what).await?.into_iter().find(|subsystem| subsystem.nqn == nqn))
    }

    /// All of the store, their exports not yet looked at but for what the subsystems say.
    async fn look(&self, what: &str) -> Result<Vec<Lvol>, PortError> {
        let bdevs = self.call(&GetLvolBdevs {}, what).await?;
        let subsystems = self.subsystems(what).await?;
        Ok(bdevs.into_iter().filter_map(|bdev| self.lvol(bdev, &subsystems)).collect())
    }

    fn lvol(&self, bdev: LvolBdev, subsystems: &[Subsystem]) -> Option<Lvol> {
        let details = bdev.driver_specific.lvol?;
        let prefix = self.full("");
        let name = bdev.aliases.iter().find_map(|alias| alias.strip_prefix(&prefix))?.to_owned();
        let nqn = self.export_name(&bdev.uuid);
        // Not only its own subsystem may have it: whoever has one of another takes care of that.
        let shown = subsystems.iter().any(|subsystem| {
            let shows = |uuid: &str| uuid.eq_ignore_ascii_case(&bdev.uuid);
            subsystem.namespaces.iter().any(|ns| ns.bdev_name == bdev.name || shows(&ns.uuid))
        });
        let export = match subsystems.iter().find(|subsystem| subsystem.nqn == nqn) {
            _ if shown => Export::Admitted,
            Some(subsystem) if subsystem.hosts.iter().any(|host| parse_mark(&host.nqn).is_none()) => Export::Admitted,
            Some(_) => Export::Offered,
            None => Export::None,
        };
        let AssignedLimits { rw_ios_per_sec, rw_mbytes_per_sec, r_mbytes_per_sec, w_mbytes_per_sec } =
            bdev.assigned_rate_limits;
        Some(Lvol {
            name,
            uuid: bdev.uuid,
            size_bytes: bdev.block_size.saturating_mul(bdev.num_blocks),
            // A blob that nobody can write is one, too: SPDK forgets that of a snapshot without clones when it starts anew.
            is_snapshot: details.snapshot || bdev.supported_io_types.write == Some(false),
            parent: details.base_snapshot,
            clones: details.clones,
            limits: Limits {
                operations: rw_ios_per_sec,
                mib: rw_mbytes_per_sec,
                read_mib: r_mbytes_per_sec,
                write_mib: w_mbytes_per_sec,
            },
            export,
        })
    }

    /// The store as it is now, and one of it that has to be there.
    async fn find(&self, name: &str, what: &str) -> Result<(Lvol, Vec<Lvol>), PortError> {
        let all = self.look(what).await?;
        let found = all.iter().find(|lvol| lvol.name == name).cloned();
        let cause = || format!("{what}: there is no logical volume {}", self.full(name));
        Ok((found.ok_or_else(|| PortError::new(ErrorClass::NotFound, cause()))?, all))
    }

    /// The host that is connected.
    async fn host(&self, lvol: &Lvol, what: &str) -> Result<Option<String>, PortError> {
        if lvol.export != Export::Admitted {
            return Ok(None);
        }
        match self.rpc.call(&GetControllers { nqn: &self.export_name(&lvol.uuid) }).await {
            Ok(controllers) => Ok(controllers.into_iter().next().map(|controller| controller.hostnqn)),
            // It is exported by another subsystem, and then nobody here knows who has it.
            Err(RpcError::Refused { .. }) => Ok(Some("a subsystem that this driver did not make".to_owned())),
            Err(error) => Err(error.at(what)),
        }
    }

    /// SPDK says little of why it refused. Whether it is as it was to be, the store tells.
    async fn unless<M: Method>(&self, method: &M, what: &str, done: impl Fn(&[Lvol]) -> bool) -> Result<(), PortError> {
        let Err(error) = self.rpc.call(method).await else { return Ok(()) };
        match self.look(what).await {
            Ok(all) if done(&all) => Ok(()),
            Ok(_) if error.to_string().contains("No space left") => {
                Err(PortError::new(ErrorClass::Busy, format!("{what}: lvstore {} is full ({error})", self.lvstore)))
            }
            _ => Err(error.at(what)),
        }
    }

    async fn resize(&self, lvol: &Lvol, size_bytes: u64, what: &str) -> Result<(), PortError> {
        let name = self.full(&lvol.name);
        let is_it = |all: &[Lvol]| all.iter().any(|it| it.name == lvol.name && it.size_bytes == size_bytes);
        self.unless(&Resize { name: &name, size_in_mib: size_bytes / MIB }, what, is_it).await
    }
}

fn conflict<T>(what: &str, cause: impl std::fmt::Display) -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Conflict, format!("{what}: {cause}")))
}

fn invalid<T>(what: &str, cause: impl std::fmt::Display) -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Invalid, format!("{what}: {cause}")))
}

fn size_of(all: &[Lvol], name: &str) -> Option<u64> {
    all.iter().find(|lvol| lvol.name == name).map(|lvol| lvol.size_bytes)
}

#[async_trait]
impl LogicalVolumes for SpdkLvols {
    async fn room(&self) -> Result<Room, PortError> {
        let what = format!("asking the room of lvstore {}", self.lvstore);
        let stores = self.call(&GetLvstores { lvs_name: &self.lvstore }, &what).await?;
        let store =
            stores.first().ok_or_else(|| PortError::new(ErrorClass::NotFound, format!("{what}: no such store")))?;
        let bytes = |clusters: u64| clusters.saturating_mul(store.cluster_size);
        Ok(Room { total: bytes(store.total_data_clusters), free: bytes(store.free_clusters), step: store.cluster_size })
    }

    async fn list(&self) -> Result<Vec<Lvol>, PortError> {
        let what = format!("listing lvstore {}", self.lvstore);
        let mut all = self.look(&what).await?;
        for lvol in &mut all {
            if let Some(host) = self.host(lvol, &what).await? {
                lvol.export = Export::Connected(host);
            }
        }
        Ok(all)
    }

    async fn create(&self, name: &str, size_bytes: u64) -> Result<(), PortError> {
        let what = format!("making {}", self.full(name));
        let all = self.look(&what).await?;
        match size_of(&all, name) {
            Some(size) if size == size_bytes => return Ok(()),
            Some(size) => return conflict(&what, format!("it is there with {size} bytes")),
            None => {}
        }
        let create =
            Create { lvs_name: &self.lvstore, lvol_name: name, size_in_mib: size_bytes / MIB, thin_provision: true };
        self.unless(&create, &what, |all| size_of(all, name) == Some(size_bytes)).await
    }

    async fn snapshot(&self, volume: &str, name: &str) -> Result<(), PortError> {
        let what = format!("taking snapshot {} of {volume}", self.full(name));
        let (volume, all) = self.find(volume, &what).await?;
        let taken = |all: &[Lvol]| {
            let of_it = |it: &Lvol| it.name == name && it.is_snapshot && it.clones.contains(&volume.name);
            all.iter().any(of_it)
        };
        if taken(&all) {
            return Ok(());
        }
        if size_of(&all, name).is_some() {
            return conflict(&what, "something else has that name");
        }
        let full = self.full(&volume.name);
        self.unless(&Snapshot { lvol_name: &full, snapshot_name: name }, &what, taken).await
    }

    async fn copy(&self, snapshot: &str, name: &str) -> Result<(), PortError> {
        let what = format!("cloning {} from {snapshot}", self.full(name));
        let (from, all) = self.find(snapshot, &what).await?;
        let made = |all: &[Lvol]| all.iter().any(|it| it.name == name && it.parent.as_deref() == Some(snapshot));
        if made(&all) {
            return Ok(());
        }
        if size_of(&all, name).is_some() {
            return conflict(&what, "something else has that name");
        }
        if !from.is_snapshot {
            return invalid(&what, "it is no snapshot");
        }
        let full = self.full(snapshot);
        self.unless(&CloneSnapshot { snapshot_name: &full, clone_name: name }, &what, made).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), PortError> {
        let what = format!("renaming {} to {to}", self.full(from));
        let all = self.look(&what).await?;
        match (size_of(&all, from), size_of(&all, to)) {
            (None, Some(_)) => return Ok(()),
            (Some(_), Some(_)) => return conflict(&what, "something else has that name"),
            _ => {}
        }
        if all.iter().any(|lvol| lvol.name == from && lvol.is_snapshot) {
            return invalid(&what, "it is a snapshot");
        }
        let renamed = |all: &[Lvol]| size_of(all, from).is_none() && size_of(all, to).is_some();
        self.unless(&Rename { old_name: &self.full(from), new_name: to }, &what, renamed).await
    }

    async fn grow(&self, name: &str, size_bytes: u64) -> Result<(), PortError> {
        let what = format!("growing {} to {size_bytes} bytes", self.full(name));
        let (lvol, all) = self.find(name, &what).await?;
        if lvol.size_bytes == size_bytes {
            return Ok(());
        }
        if lvol.size_bytes > size_bytes {
            return invalid(&what, format!("it has {} bytes, and would shrink", lvol.size_bytes));
        }
        if let Some(parent) = &lvol.parent {
            match size_of(&all, parent) {
                Some(most) if most >= size_bytes => {}
                Some(most) => {
                    return invalid(&what, format!("its parent {parent} has {most} bytes: decouple it first"));
                }
                None => return invalid(&what, format!("its parent {parent} is not in the store")),
            }
        }
        self.resize(&lvol, size_bytes, &what).await
    }

    async fn shrink(&self, name: &str, size_bytes: u64) -> Result<(), PortError> {
        let what = format!("shrinking {} to {size_bytes} bytes", self.full(name));
        let (lvol, _) = self.find(name, &what).await?;
        if lvol.size_bytes == size_bytes {
            return Ok(());
        }
        if lvol.size_bytes < size_bytes {
            return invalid(&what, format!("it has {} bytes", lvol.size_bytes));
        }
        if lvol.export != Export::None {
            return conflict(&what, "it is exported");
        }
        self.resize(&lvol, size_bytes, &what).await
    }

    async fn decouple(&self, name: &str) -> Result<(), PortError> {
        let what = format!("decoupling {} from its parent", self.full(name));
        let (lvol, all) = self.find(name, &what).await?;
        let Some(parent) = lvol.parent.clone() else { return Ok(()) };
        if size_of(&all, &parent).is_none_or(|size| size < lvol.size_bytes) {
            return conflict(&what, format!("it is larger than its parent {parent}"));
        }
        let decoupled =
            |all: &[Lvol]| all.iter().any(|it| it.name == name && it.parent.as_deref() != Some(parent.as_str()));
        self.unless(&DecoupleParent { name: &self.full(name) }, &what, decoupled).await
    }

    async fn delete(&self, name: &str) -> Result<(), PortError> {
        let what = format!("deleting {}", self.full(name));
        let all = self.look(&what).await?;
        let Some(lvol) = all.iter().find(|lvol| lvol.name == name) else { return Ok(()) };
        if lvol.export != Export::None {
            return conflict(&what, "it is exported");
        }
        match lvol.clones.as_slice() {
            [] => {}
            [only] if size_of(&all, only) == Some(lvol.size_bytes) => {}
            [only] => return conflict(&what, format!("its clone {only} is of another size")),
            several => return conflict(&what, format!("it has {} clones", several.len())),
        }
        self.unless(&Delete { name: &self.full(name) }, &what, |all| size_of(all, name).is_none()).await
    }

    async fn limit(&self, name: &str, limits: Limits) -> Result<(), PortError> {
        let what = format!("limiting {}", self.full(name));
        let (lvol, _) = self.find(name, &what).await?;
        if lvol.limits == limits {
            return Ok(());
        }
        let set = SetLimits {
            name: &self.full(name),
            rw_ios_per_sec: limits.operations,
            rw_mbytes_per_sec: limits.mib,
            r_mbytes_per_sec: limits.read_mib,
            w_mbytes_per_sec: limits.write_mib,
        };
        match self.unless(&set, &what, |all| all.iter().any(|it| it.name == name && it.limits == limits)).await {
            Err(error) if error.message.contains(AGAIN) => {
                Err(PortError::new(ErrorClass::Busy, format!("{}: they are set when a host is let in", error.message)))
            }
            other => other,
        }
    }

    async fn export(&self, name: &str) -> Result<(), PortError> {
        let what = format!("exporting {}", self.full(name));
        let (lvol, _) = self.find(name, &what).await?;
        let nqn = self.export_name(&lvol.uuid);
        let (mut there, address) = (self.subsystem(&lvol.uuid, &what).await?, self.listen_address());
        if there.is_none() {
            let transports = self.call(&GetTransports {}, &what).await?;
            if !transports.iter().any(|transport| TransportType::Tcp.is(&transport.trtype)) {
                self.call(&CreateTransport { trtype: TransportType::Tcp }, &what).await?;
            }
            let serial: String = lvol.uuid.chars().filter(|c| *c != '-').take(crate::SERIAL_BYTES).collect();
            let create = CreateSubsystem {
                nqn: &nqn,
                serial_number: &serial,
                model_number: MODEL,
                allow_any_host: false,
                max_namespaces: NAMESPACES,
            };
            let created = self.rpc.call(&create).await;
            there = self.subsystem(&lvol.uuid, &what).await?;
            if let (None, Err(error)) = (&there, created) {
                return Err(error.at(&what));
            }
        }
        if there.is_some_and(|subsystem| subsystem.listen_addresses.iter().any(|there| there.is(&address))) {
            return Ok(());
        }
        let listening = self.rpc.call(&AddListener { nqn: &nqn, listen_address: address.clone() }).await;
        let Err(error) = listening else { return Ok(()) };
        match self.subsystem(&lvol.uuid, &what).await? {
            Some(subsystem) if subsystem.listen_addresses.iter().any(|there| there.is(&address)) => Ok(()),
            _ => {
                let cause =
                    format!("{what}: the target cannot listen on {}: is it the node's? ({error})", self.address);
                Err(PortError::new(error.class(), cause))
            }
        }
    }

    async fn withdraw(&self, name: &str) -> Result<(), PortError> {
        let what = format!("withdrawing {}", self.full(name));
        let all = self.look(&what).await?;
        let Some(lvol) = all.iter().find(|lvol| lvol.name == name) else { return Ok(()) };
        if let Some(host) = self.host(lvol, &what).await? {
            return conflict(&what, format!("{host} has it"));
        }
        if self.subsystem(&lvol.uuid, &what).await?.is_none() {
            return Ok(());
        }
        let gone = |all: &[Lvol]| all.iter().any(|it| it.name == name && it.export == Export::None);
        self.unless(&DeleteSubsystem { nqn: &self.export_name(&lvol.uuid) }, &what, gone).await
    }

    fn export_name(&self, uuid: &str) -> String {
        format!("nqn.2026-01.io.metalplane:volume:{}", uuid.to_ascii_lowercase())
    }
}
