//! [`ports::Switch`] on Open vSwitch: an Interface and a Port row of ours for each plugged representor.
//!
//! `external_ids` of the Interface tell whose it is and survive everything but an unplug:
//!
//! | key | what |
//! |---|---|
//! | `metalplane-uid`, `metalplane-epoch` | the exposure; a row without them is somebody else's and is never touched |
//! | `attached-mac` | the guest's MAC (what OVN and others read too) |
//! | `iface-id` | the logical port, by which `ovn-controller` binds it |
//! | `iface-id-ver` | which grant it is for, without which `ovn-controller` does not bind it |
//! | `metalplane-installed-at` | how far OVN was when it installed the port (`in_force.rs`) |
//!
//! `plug` and `unplug` read the cache, decide, and write one transaction whose first operations (`wait`, RFC 7047 section
//! 5.2.6) repeat what was read: if somebody was faster the transaction fails as a whole and the caller gets `Busy`.
//! A task follows the copy: it writes what has to be remembered of OVN, and tells of what changed in the ports.
//!
//! The database is followed whole, without conditions: a device that somebody else has plugged is told by its name, a port of ours that was put into a
//! foreign bridge by that bridge, and there is one row a port of this node.

use crate::boot;
use crate::cache::Cache;
use crate::datapath;
use crate::guest::GuestWatch;
use crate::in_force::{self, Reached};
use crate::metadata_plugs;
use crate::session::{Session, SessionConfig};
use crate::transact::{Condition, Function, Mutation, Transaction};
use crate::value::{Atom, Row, Value};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use ports::switch::{GuestObserved, MetadataPlug, PortObserved, SwitchPort};
use ports::{ErrorClass, PortError, Switch};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use uuid::Uuid;

pub const DATABASE: &str = "Open_vSwitch";

const UID: &str = "metalplane-uid";
const EPOCH: &str = "metalplane-epoch";
pub(crate) const MAC: &str = "attached-mac";
pub(crate) const LOGICAL_PORT: &str = "iface-id";
const VERSION: &str = "iface-id-ver";

/// Before a correction that failed for another reason than that somebody was faster is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The tables and columns that [`OpenVSwitch`] reads, for [`SessionConfig::monitored`].
pub fn monitored() -> BTreeMap<String, Vec<String>> {
    [
        ("Open_vSwitch", ["external_ids", "other_config"].as_slice()),
        ("Bridge", &["name", "ports", "external_ids", "fail_mode", "datapath_type"]),
        ("Port", &["name", "interfaces"]),
        ("Interface", &["name", "type", "external_ids", "ofport", "ifindex", "error"]),
    ]
    .into_iter()
    .map(|(table, columns)| (table.to_owned(), columns.iter().map(|&column| column.to_owned()).collect()))
    .collect()
}

pub struct OpenVSwitch {
    session: Arc<Session>,
    bridge: String,
    guests: GuestWatch,
    told: Arc<Notify>,
    follower: AbortHandle,
}

impl Drop for OpenVSwitch {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl OpenVSwitch {
    /// `bridge` is the integration bridge, by convention `br-int`; it is never created here. Connects in the background;
    /// needs a Tokio runtime whose threads are in the network namespace of the representors.
    pub fn new(config: SessionConfig, bridge: &str) -> Self {
        let (session, told) = (Arc::new(Session::start(config)), Arc::<Notify>::default());
        let following = follow(Arc::clone(&session), bridge.to_owned(), Arc::clone(&told));
        let follower = tokio::spawn(following).abort_handle();
        Self { session, bridge: bridge.to_owned(), guests: GuestWatch::default(), told, follower }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// A cache as new as this call, for `read` to decide on.
    async fn fresh<T>(&self, what: &str, read: impl FnOnce(&Cache) -> T) -> Result<T, PortError> {
        self.session.refresh().await.map_err(|error| error.for_port(what))?;
        Ok(read(&self.session.view().cache))
    }

    async fn write(&self, what: &str, transaction: &Transaction) -> Result<(), PortError> {
        self.session.transact(transaction).await.map(|_| ()).map_err(|error| error.for_port(what))
    }
}

/// Corrects what is remembered of OVN as soon as the copy shows that it must be, and tells when the ports are other ones than
/// before.
async fn follow(session: Arc<Session>, bridge: String, told: Arc<Notify>) {
    let (mut last, mut failed) = (None, false);
    loop {
        tokio::select! {
            biased;
            _ = session.touched() => {}
            () = tokio::time::sleep(AGAIN), if failed => {}
        }
        let (now, corrections) = {
            let view = session.view();
            let reached = Reached::of(&view.cache, &bridge);
            let ports: Vec<_> = ours(&view.cache, reached).collect();
            let rows = ports.iter().filter_map(|(uuid, _)| Some((*uuid, view.cache.row("Interface", *uuid)?)));
            let corrections: Vec<_> = rows.filter_map(|(uuid, row)| reached.correct(uuid, row)).collect();
            let ports: Vec<_> = ports.into_iter().map(|(_, seen)| seen).collect();
            ((ports, in_force::chassis(&view.cache)), corrections)
        };
        if last.as_ref() != Some(&now) {
            last = Some(now);
            told.notify_one();
        }
        failed = false;
        for correction in corrections {
            if let Err(error) = session.transact(&correction).await {
                // Who was faster is told of by the feed.
                failed |= error.class() != ErrorClass::Busy;
                tracing::debug!(%error, "remembering how far OVN was");
            }
        }
    }
}

/// What `plug` finds before it writes.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Plugged,
    /// From before there were versions.
    Unversioned {
        interface: Uuid,
    },
    Free {
        bridge: Uuid,
        /// Of the Interface; `None`: the system's own.
        type_: Option<&'static str>,
    },
    Refused(PortError),
}

#[async_trait]
impl Switch for OpenVSwitch {
    async fn list(&self) -> Result<Vec<PortObserved>, PortError> {
        let what = format!("listing the ports of bridge {}", self.bridge);
        self.fresh(&what, |cache| ours(cache, Reached::of(cache, &self.bridge)).map(|(_, seen)| seen).collect()).await
    }

    async fn plug(&self, port: &SwitchPort) -> Result<(), PortError> {
        let what = format!("plugging {} into bridge {}", port.device, self.bridge);
        check(port).map_err(|cause| PortError::new(ErrorClass::Invalid, format!("{what}: {cause}")))?;
        match self.fresh(&what, |cache| look(cache, port, &self.bridge, &what)).await? {
            Found::Plugged => Ok(()),
            Found::Refused(error) => Err(error),
            Found::Unversioned { interface } => self.write(&what, &add_version(port, interface)).await,
            Found::Free { bridge, type_ } => self.write(&what, &plug(port, bridge, type_)).await,
        }
    }

    async fn unplug(&self, id: &ExposureId) -> Result<(), PortError> {
        let what = format!("unplugging the port of {} epoch {}", id.uid, id.epoch);
        let found = self.fresh(&what, |cache| {
            let (interface, port) = plugged(cache).find(|(_, port)| port.id == *id)?;
            let holders = holders(cache, interface);
            Some((interface, port, holders))
        });
        if let Some((interface, port, holders)) = found.await? {
            self.write(&what, &unplug(&port, interface, &holders)).await?;
        }
        self.guests.forget(id);
        Ok(())
    }

    async fn plug_metadata(&self, plugs: &[MetadataPlug]) -> Result<(), PortError> {
        let what = format!("plugging {} metadata ports into bridge {}", plugs.len(), self.bridge);
        let change = self.fresh(&what, |cache| {
            let refuse = |class, cause: String| PortError::new(class, format!("{what}: {cause}"));
            let bridge = cache.find("Bridge", "name", &self.bridge);
            let (bridge, _) =
                bridge.ok_or_else(|| refuse(ErrorClass::NotFound, "there is no such bridge".to_owned()))?;
            let taken = |device: String| refuse(ErrorClass::Conflict, format!("{device} belongs to somebody else"));
            metadata_plugs::change(cache, bridge, plugs).map_err(taken)
        });
        match change.await?? {
            Some(transaction) => self.write(&what, &transaction).await,
            None => Ok(()),
        }
    }

    async fn begin_boot(&self, boot_id: &str, known: &[ExposureId]) -> Result<Vec<String>, PortError> {
        let what = format!("removing ports of an earlier boot from bridge {}", self.bridge);
        let change = self.fresh(&what, |cache| {
            let missing = || PortError::new(ErrorClass::NotFound, format!("{what}: there is no such bridge"));
            let (bridge, _) = cache.find("Bridge", "name", &self.bridge).ok_or_else(missing)?;
            Ok(boot::begin(cache, bridge, boot_id, known))
        });
        match change.await?? {
            Some((transaction, devices)) => self.write(&what, &transaction).await.map(|()| devices),
            None => Ok(Vec::new()),
        }
    }

    async fn not_secure(&self) -> Result<Option<String>, PortError> {
        let what = format!("reading the fail mode of bridge {}", self.bridge);
        self.fresh(&what, |cache| boot::not_secure(cache, &self.bridge)).await
    }

    async fn metadata_plugs(&self) -> Result<Vec<MetadataPlug>, PortError> {
        let read = |cache: &Cache| metadata_plugs::plugged(cache).map(|(_, plug)| plug).collect();
        self.fresh("listing the metadata ports", read).await
    }

    async fn observe_guest(&self, port: &SwitchPort, addresses: &[IpAddr]) -> Result<GuestObserved, PortError> {
        self.guests.observe(port, addresses)
    }

    async fn chassis(&self) -> Result<Option<String>, PortError> {
        self.fresh("reading the name of the chassis", in_force::chassis).await
    }

    async fn changed(&self) {
        self.told.notified().await;
    }
}

/// What the database could hold but the kernel or OVN could not use.
fn check(port: &SwitchPort) -> Result<(), String> {
    if port.device.is_empty() || port.device.len() > 15 || port.device.contains(['/', ' ']) {
        return Err(format!("`{}` is no name of a network device (1 to 15 bytes)", port.device));
    }
    if port.id.uid.is_empty() {
        return Err("an empty UID".to_owned());
    }
    crate::frames::parse_mac(&port.mac).map(|_| ()).ok_or_else(|| format!("`{}` is no MAC address", port.mac))
}

/// Interfaces with our external ids, as ports.
pub(crate) fn plugged(cache: &Cache) -> impl Iterator<Item = (Uuid, SwitchPort)> {
    cache.rows("Interface").filter_map(|(uuid, row)| Some((uuid, port_of(row)?)))
}

/// The same, and what the switch and OVN say of them.
fn ours(cache: &Cache, reached: Reached) -> impl Iterator<Item = (Uuid, PortObserved)> {
    cache.rows("Interface").filter_map(move |(uuid, row)| Some((uuid, observed(row, port_of(row)?, reached)?)))
}

fn port_of(row: &Row) -> Option<SwitchPort> {
    let ids = row.get("external_ids")?;
    let text = |key: &str| ids.get(key).unwrap_or_default().to_owned();
    let device = row.get("name").and_then(Value::as_str)?.to_owned();
    let uid = ids.get(UID)?.to_owned();
    let Ok(epoch) = text(EPOCH).parse() else {
        tracing::warn!(device, uid, "an interface with our UID and no epoch: left alone, remove it by hand");
        return None;
    };
    let (mac, logical_port, version) = (text(MAC), text(LOGICAL_PORT), text(VERSION));
    Some(SwitchPort { id: ExposureId { uid, epoch }, device, mac, logical_port, version })
}

fn observed(row: &Row, port: SwitchPort, reached: Reached) -> Option<PortObserved> {
    let error = row.get("error").and_then(Value::as_str).map(str::to_owned);
    let error =
        error.or_else(|| has_no_device(row).then(|| format!("network device {} no longer exists", port.device)));
    let number = row.get("ofport").and_then(Value::as_integer);
    let forwarding = error.is_none() && number.is_some_and(|number| number > 0);
    let (installed, in_force) = reached.judge(row.get("external_ids")?);
    Some(PortObserved { port, forwarding, installed, in_force, error })
}

/// In user space a port outlives its network device, and has no error: the device's number alone tells (ovs-vswitchd.conf.db(5): 0 is
/// none). Devices of other types than the kernel's may have none while they are there.
fn has_no_device(row: &Row) -> bool {
    let is_kernels = row.get("type").and_then(Value::as_str).is_none_or(|type_| ["", "system"].contains(&type_));
    is_kernels && row.get("ifindex").and_then(Value::as_integer) == Some(0)
}

fn look(cache: &Cache, port: &SwitchPort, bridge: &str, what: &str) -> Found {
    let refuse = |class, cause: String| Found::Refused(PortError::new(class, format!("{what}: {cause}")));
    let Some((bridge_row, row)) = cache.find("Bridge", "name", bridge) else {
        return refuse(
            ErrorClass::NotFound,
            format!("there is no bridge {bridge}: create it (ovs-vsctl add-br {bridge})"),
        );
    };
    if let Some((interface, there)) = plugged(cache).find(|(_, there)| there.id.uid == port.id.uid) {
        let is_versioned = !there.version.is_empty();
        if (SwitchPort { version: port.version.clone(), ..there.clone() }) != *port
            || is_versioned && there.version != port.version
        {
            let cause = format!(
                "UID {} is plugged already, as {} epoch {} MAC {} logical port {} version {}: unplug that first",
                there.id.uid, there.device, there.id.epoch, there.mac, there.logical_port, there.version
            );
            return refuse(ErrorClass::Conflict, cause);
        }
        return match holders(cache, interface).iter().find(|holder| holder.bridge != Some(bridge_row)) {
            None if is_versioned => Found::Plugged,
            None => Found::Unversioned { interface },
            Some(_) => refuse(ErrorClass::Conflict, format!("{} is in another bridge", port.device)),
        };
    }
    if let Some((_, row)) = cache.find("Interface", "name", &port.device) {
        let owner = match port_of(row) {
            Some(port) => format!("UID {} epoch {}", port.id.uid, port.id.epoch),
            None => "somebody else".to_owned(),
        };
        return refuse(ErrorClass::Conflict, format!("the device belongs to {owner}"));
    }
    if cache.find("Port", "name", &port.device).is_some() {
        return refuse(ErrorClass::Conflict, "a port of somebody else has that name".to_owned());
    }
    Found::Free { bridge: bridge_row, type_: datapath::interface_type(cache, row) }
}

/// A Port row with one of our interfaces in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    port: Uuid,
    bridge: Option<Uuid>,
}

pub(crate) fn holders(cache: &Cache, interface: Uuid) -> Vec<Holder> {
    let names = |row: &Row, column: &str, uuid: Uuid| {
        row.get(column).is_some_and(|references| references.uuids().any(|reference| reference == uuid))
    };
    cache
        .rows("Port")
        .filter(|(_, row)| names(row, "interfaces", interface))
        .map(|(port, _)| Holder {
            port,
            bridge: cache.rows("Bridge").find(|(_, row)| names(row, "ports", port)).map(|(bridge, _)| bridge),
        })
        .collect()
}

fn plug(port: &SwitchPort, bridge: Uuid, type_: Option<&str>) -> Transaction {
    let mut transaction = Transaction::new(DATABASE);
    let epoch = port.id.epoch.to_string();
    let ids = [
        (UID, port.id.uid.as_str()),
        (EPOCH, epoch.as_str()),
        (MAC, port.mac.as_str()),
        (LOGICAL_PORT, port.logical_port.as_str()),
        (VERSION, port.version.as_str()),
    ];
    let named = Condition::new("name", Function::Equal, port.device.as_str());
    transaction.expect("Interface", &[named], &["name"], &[]);
    let same_uid = Condition::includes("external_ids", Value::map([(UID, port.id.uid.as_str())]));
    transaction.expect("Interface", &[same_uid], &["name"], &[]);
    let name = ("name".to_owned(), Value::from(port.device.as_str()));
    let mut row = Row::from([name.clone(), ("external_ids".to_owned(), Value::map(ids))]);
    row.extend(type_.map(|type_| ("type".to_owned(), Value::from(type_))));
    let interface = transaction.insert("Interface", &row);
    let row = transaction.insert("Port", &Row::from([name, ("interfaces".to_owned(), Value::from(interface))]));
    add_to_bridge(&mut transaction, bridge, row);
    transaction.comment(&format!("metalplane: plug {} of {} epoch {}", port.device, port.id.uid, port.id.epoch));
    transaction
}

pub(crate) fn add_to_bridge(transaction: &mut Transaction, bridge: Uuid, port: Atom) {
    let insert = Mutation::Insert("ports".to_owned(), Value::from(port));
    transaction.mutate("Bridge", &[Condition::row(bridge)], &[insert]);
}

/// The Interface is still this exposure's.
fn expect_ours(transaction: &mut Transaction, port: &SwitchPort, interface: Uuid) {
    let epoch = port.id.epoch.to_string();
    let ids = Value::map([(UID, port.id.uid.as_str()), (EPOCH, epoch.as_str())]);
    let still_ours = [Condition::row(interface), Condition::includes("external_ids", ids)];
    let name = Row::from([("name".to_owned(), Value::from(port.device.as_str()))]);
    transaction.expect("Interface", &still_ours, &["name"], &[name]);
}

/// A key that is there already stays as it is: `insert` overwrites none.
fn add_version(port: &SwitchPort, interface: Uuid) -> Transaction {
    let mut transaction = Transaction::new(DATABASE);
    expect_ours(&mut transaction, port, interface);
    let version = Value::map([(VERSION, port.version.as_str())]);
    let insert = Mutation::Insert("external_ids".to_owned(), version);
    transaction.mutate("Interface", &[Condition::row(interface)], &[insert]);
    transaction
}

/// Rows that nothing refers to any more are removed by the server: Interface and Port are no root tables.
pub(crate) fn remove_from_bridge(transaction: &mut Transaction, holders: &[Holder]) {
    for holder in holders {
        if let Some(bridge) = holder.bridge {
            let delete = Mutation::Delete("ports".to_owned(), Value::from(holder.port));
            transaction.mutate("Bridge", &[Condition::row(bridge)], &[delete]);
        }
    }
}

fn unplug(port: &SwitchPort, interface: Uuid, holders: &[Holder]) -> Transaction {
    let mut transaction = Transaction::new(DATABASE);
    expect_ours(&mut transaction, port, interface);
    remove_from_bridge(&mut transaction, holders);
    transaction.comment(&format!("metalplane: unplug {} of {} epoch {}", port.device, port.id.uid, port.id.epoch));
    transaction
}
