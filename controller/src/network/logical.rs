//! OVN's north-bound database, as this controller writes it: what an object is there (`planner::network::rows`), and nothing
//! before it has taken the token of its Lease.

use super::numbers::{Commit, Numbers};
use super::settled::Settled;
use crate::error::Error;
use crate::metrics::{Writing, Written};
use api::VNic;
use planner::machine::observed::uid;
use planner::network::port;
use planner::network::rows::{Row, diff};
use ports::north_bound::{Members, NorthBoundError};
use ports::south_bound::Chassis;
use ports::{ErrorClass, NorthBound, PortError, SouthBound};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Opens the database for a site, whose name the rows have.
pub type OpenNorthBound = Arc<dyn Fn(&str) -> Arc<dyn NorthBound> + Send + Sync>;
pub type OpenSouthBound = Arc<dyn Fn() -> Arc<dyn SouthBound> + Send + Sync>;

/// How OVN's databases are reached.
#[derive(Clone)]
pub struct Ovn {
    pub north_bound: OpenNorthBound,
    /// `None`: nothing is ever known to be in force.
    pub south_bound: Option<OpenSouthBound>,
}

/// By then whoever waits for a database that fails says so.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same while nothing is known of it yet: to read that of a large site takes seconds, and what is said meanwhile would be said, and
/// taken back, of every object. One that does not answer is told of long before (`ovsdb::client::Limits`).
const FIRST: Duration = Duration::from_secs(30);
/// A change that others were faster than is planned again so many times before others get their turn.
const ATTEMPTS: usize = 4;

pub struct Logical {
    open: Option<Ovn>,
    opened: OnceLock<Opened>,
    leads: AtomicBool,
    deposed: Notify,
    began: OnceLock<Instant>,
    failed: AtomicBool,
    /// There may be rows of what no longer exists.
    unswept: AtomicBool,
    /// UIDs of VNics whose port was found, or made, as it should be.
    programmed: Mutex<BTreeSet<String>>,
    told: Notify,
    pub(super) numbers: Numbers,
    settled: Settled,
    pub(super) written: Written,
}

/// What there is of OVN: to write, and to see how far the chassis are.
pub(super) type Databases = (Arc<dyn NorthBound>, Option<Arc<dyn SouthBound>>);

struct Opened {
    north_bound: Arc<dyn NorthBound>,
    south_bound: Option<Arc<dyn SouthBound>>,
    site: String,
}

impl Logical {
    pub(crate) fn new(open: Option<Ovn>, written: Written) -> Self {
        Self {
            open,
            opened: OnceLock::new(),
            leads: AtomicBool::new(false),
            deposed: Notify::new(),
            began: OnceLock::new(),
            failed: AtomicBool::new(false),
            unswept: AtomicBool::new(false),
            programmed: Mutex::default(),
            told: Notify::new(),
            numbers: Numbers::default(),
            settled: Settled::default(),
            written,
        }
    }

    /// Once, before it is followed; `None`: the controller was told of no OVN.
    pub(super) fn open(&self, site: &str) -> Option<Databases> {
        let open = self.open.as_ref()?;
        let opened = self.opened.get_or_init(|| Opened {
            north_bound: (open.north_bound)(site),
            south_bound: open.south_bound.as_ref().map(|open| open()),
            site: site.to_owned(),
        });
        Some((opened.north_bound.clone(), opened.south_bound.clone()))
    }

    /// A leader that has only just begun has no token yet. What the one before it has said stays for so long: it is as it was, and all
    /// are looked at once the token is taken.
    pub(super) fn starting(&self) -> Option<Duration> {
        let began = *self.began.get_or_init(Instant::now);
        let patience = if self.failed.load(Ordering::Acquire) { PATIENCE } else { FIRST };
        let left = patience.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
        left.filter(|_| self.open.is_some() && !self.leads())
    }

    /// The database cannot be reached, or does not take the token. Whether there may be somebody who waits without knowing.
    pub(super) fn fails(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel) && !self.leads()
    }

    /// The token is taken.
    pub(super) fn lead(&self) {
        self.leads.store(true, Ordering::Release);
    }

    pub(super) fn swept(&self, done: bool) {
        self.unswept.store(!done, Ordering::Release);
    }

    pub(super) fn is_unswept(&self) -> bool {
        self.unswept.load(Ordering::Acquire)
    }

    pub(super) fn north_bound(&self) -> Result<&dyn NorthBound, Error> {
        Ok(self.opened()?.north_bound.as_ref())
    }

    pub(super) fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Another controller has the token: this process has to end.
    pub(super) fn depose(&self) {
        self.deposed.notify_one();
    }

    pub async fn deposed(&self) {
        self.deposed.notified().await;
    }

    /// The port of this VNic is as it should be: its agent may wait for it to be in force.
    pub(super) fn tell_programmed(&self, vnic_uid: &str) {
        self.programmed.lock().unwrap_or_else(PoisonError::into_inner).insert(vnic_uid.to_owned());
        self.tell();
    }

    /// The VNic with what OVN has of its port, before its status says so.
    pub(crate) fn as_written(&self, vnic: &Arc<VNic>) -> Arc<VNic> {
        let holder = vnic.status.as_ref().and_then(|status| status.holder.as_ref());
        if holder.is_none() || port::is_programmed(vnic).is_ok() {
            return vnic.clone();
        }
        let rows = self.opened().ok().and_then(|opened| opened.north_bound.rows(uid(&vnic.metadata)).ok());
        rows.map_or_else(|| vnic.clone(), |rows| port::as_written(vnic, &rows))
    }

    /// Who follows the databases looks at what it is asked for.
    pub(super) fn tell(&self) {
        self.told.notify_one();
    }

    pub(super) async fn programmed(&self) -> BTreeSet<String> {
        self.told.notified().await;
        std::mem::take(&mut *self.programmed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn opened(&self) -> Result<&Opened, Error> {
        let wait = || {
            let message = match self.open {
                Some(_) => "the controller has not taken its token there yet",
                None => "the controller was started without --ovn-nb",
            };
            Error::NorthBound(PortError::new(ErrorClass::Unreachable, message).into())
        };
        self.opened.get().filter(|_| self.leads()).ok_or_else(wait)
    }

    /// The object with this UID has these rows afterwards, and no others. One transaction, or none where it is so already.
    pub async fn settle(&self, uid: &str, wanted: impl FnOnce(&str) -> Vec<Row>) -> Result<(), Error> {
        let wanted = wanted(&self.opened()?.site);
        self.write(uid, &wanted, |_| ()).await
    }

    /// The object has these rows if it had none.
    pub(super) async fn begin(&self, uid: &str, wanted: impl FnOnce(&str) -> Vec<Row>) -> Result<(), Error> {
        let found = self.opened()?.north_bound.rows(uid).map_err(NorthBoundError::from)?;
        if found.is_empty() { self.settle(uid, wanted).await } else { Ok(()) }
    }

    /// How the rows of this site are named.
    pub(super) fn site(&self) -> Result<&str, Error> {
        self.opened().map(|opened| opened.site.as_str())
    }

    /// The object has other rows than these.
    pub(super) fn differs(&self, uid: &str, wanted: &[Row]) -> Result<bool, Error> {
        let found = self.opened()?.north_bound.rows(uid).map_err(NorthBoundError::from)?;
        Ok(!diff(wanted, &found).is_empty())
    }

    /// As [`Logical::settle`]. `changing` is called before and after whatever may change a row, whether it succeeds or not.
    pub(super) async fn write(&self, uid: &str, wanted: &[Row], changing: impl Fn(Commit)) -> Result<(), Error> {
        let opened = self.opened()?;
        let mut attempt = 0;
        loop {
            let found = opened.north_bound.rows(uid).map_err(NorthBoundError::from)?;
            let change = diff(wanted, &found);
            if change.is_empty() {
                self.settled.note(uid, wanted);
                return Ok(());
            }
            if self.settled.forget(uid, wanted) {
                self.written.repaired(change.rows());
            }
            changing(Commit::UnderWay);
            let applied = opened.north_bound.apply(&change).await;
            changing(Commit::Answered);
            self.written.transaction(Writing::Rows, &applied);
            match applied {
                Ok(()) => {
                    self.settled.note(uid, wanted);
                    return Ok(());
                }
                Err(NorthBoundError::Contended(cause)) if attempt < ATTEMPTS => {
                    tracing::debug!(uid, "{cause}");
                    attempt += 1;
                }
                Err(error) => {
                    if let NorthBoundError::NotLeader(_) = &error {
                        self.depose();
                    }
                    return Err(error.into());
                }
            }
        }
    }

    pub(super) fn members(&self, uid: &str) -> Result<Members, Error> {
        Ok(self.opened()?.north_bound.members(uid).map_err(NorthBoundError::from)?)
    }

    /// The north-bound database's own number.
    pub(super) fn number(&self) -> Result<u64, Error> {
        Ok(self.opened()?.north_bound.number().map_err(NorthBoundError::from)?)
    }

    /// The database can be written; where there is no OVN, nothing has to be.
    pub(super) fn is_there(&self) -> Result<(), Error> {
        if self.open.is_some() { self.number().map(drop) } else { Ok(()) }
    }

    /// Bytes of all transactions.
    pub(crate) fn sent(&self) -> u64 {
        self.opened.get().map_or(0, |opened| opened.north_bound.sent())
    }

    /// Whether each database that is followed can be read: the north-bound one, the south-bound one.
    pub(crate) fn reached(&self) -> (Option<bool>, Option<bool>) {
        let opened = self.opened.get();
        let south_bound = opened.and_then(|opened| opened.south_bound.as_ref());
        (opened.map(|opened| opened.north_bound.number().is_ok()), south_bound.map(|chassis| chassis.chassis().is_ok()))
    }

    /// The highest number of which each chassis has installed everything; else why that is not known.
    pub(super) fn installed(&self) -> Result<BTreeMap<String, Option<u64>>, String> {
        let south_bound = self.opened.get().and_then(|opened| opened.south_bound.as_ref());
        let south_bound = south_bound.ok_or_else(|| "the controller was started without --ovn-sb".to_owned())?;
        let chassis = south_bound.chassis().map_err(|error| error.to_string())?;
        Ok(chassis.into_iter().map(|(name, chassis)| (name, chassis.installed)).collect())
    }

    /// `None`: the south-bound database is away, or nobody has said where it is.
    pub(super) fn chassis(&self) -> Option<BTreeMap<String, Chassis>> {
        self.opened.get()?.south_bound.as_ref()?.chassis().ok()
    }

    /// The object with this UID has no row afterwards. Where there is no OVN, none has.
    pub async fn clear(&self, uid: &str) -> Result<(), Error> {
        if self.open.is_some() { self.settle(uid, |_| Vec::new()).await } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::network::rows::{Binding, Cell, Port, Subnet, Vpc};
    use ports::conformance::memory::MemoryNorthBound;
    use ports::north_bound::Token;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    fn logical(open: Option<Ovn>) -> Logical {
        Logical::new(open, Written::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_is_being_read_is_waited_for_and_one_that_fails_is_not() {
        let ovn = || Ovn { north_bound: Arc::new(|_| panic!("nobody follows it")), south_bound: None };
        let network = logical(Some(ovn()));
        assert_eq!(network.starting(), Some(FIRST));
        tokio::time::advance(PATIENCE * 3).await;
        assert_eq!(network.starting(), Some(FIRST - PATIENCE * 3), "it takes long to be read");
        assert!(network.fails(), "whoever waits is looked at");
        assert_eq!(network.starting(), None, "and says so");
        assert!(!network.fails(), "once");

        let network = logical(Some(ovn()));
        assert_eq!(network.starting(), Some(FIRST));
        network.lead();
        assert_eq!(network.starting(), None);
        assert!(!network.fails(), "what is away later is said at once");
        assert_eq!(logical(None).starting(), None, "there is nothing to wait for");
    }

    /// A controller that has the token, and what it counts.
    async fn leader(memory: &MemoryNorthBound, transitions: u64) -> (Logical, Registry) {
        let (memory, written, mut counted) = (memory.clone(), Written::default(), Registry::default());
        written.register(&mut counted);
        let open = move |site: &str| Arc::new(memory.open(site)) as Arc<dyn NorthBound>;
        let network = Logical::new(Some(Ovn { north_bound: Arc::new(open), south_bound: None }), written);
        let (north_bound, _) = network.open("site").expect("there is one");
        let (token, there) = (Token { lease_uid: "lease".to_owned(), transitions }, north_bound.token());
        north_bound.take_token(&token, there.expect("reachable").as_ref()).await.expect("the next leader");
        network.lead();
        (network, counted)
    }

    /// Transactions of rows that were done and that were refused, and rows that were put right.
    fn counts(counted: &Registry) -> [u64; 3] {
        let mut text = String::new();
        encode(&mut text, counted).expect("text");
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |count| count.trim().parse().expect("a number"))
        };
        ["success", "NotLeader"]
            .map(|result| of(&format!("metalplane_ovn_transactions_total{{what=\"rows\",result=\"{result}\"}}")))
            .into_iter()
            .chain([of("metalplane_ovn_repaired_rows_total")])
            .collect::<Vec<_>>()
            .try_into()
            .expect("three")
    }

    /// On a switch and its router.
    async fn write_port(network: &Logical, epoch: u64) {
        network.settle("v", |site| Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows(site)).await.expect("a router");
        let subnet = Subnet {
            uid: "s".to_owned(),
            vpc_uid: "v".to_owned(),
            families: Vec::new(),
            router_mac: "02:00:00:00:00:01".to_owned(),
            mtu: 1442,
            dhcp: None,
            slaac: false,
            dns_servers: Vec::new(),
            domain: None,
            metadata: false,
            vlan: None,
        };
        network.settle("s", |site| subnet.rows(site)).await.expect("a switch");
        let binding = Some(Binding { chassis: "chassis-1".to_owned(), attachment_uid: "a".to_owned(), epoch });
        let (uid, name, subnet_uid) = ("n".to_owned(), "mp-n".to_owned(), "s".to_owned());
        let port = Port { uid, name, subnet_uid, binding, ..Port::default() };
        network.settle("n", |site| port.rows(site)).await.expect("a port");
    }

    /// One that ended between the commit and the status leaves all that a grant rests on.
    #[tokio::test]
    async fn what_is_committed_for_a_grant_is_known_before_any_status_and_to_the_next_leader() {
        let memory = MemoryNorthBound::default();
        let (network, _) = leader(&memory, 1).await;
        let holder = json!({"attachmentNamespace": "metalplane-dpu-dpu-1", "attachmentName": "bm-01-eth0", "attachmentUID": "a",
            "dpuName": "dpu-1", "dpuUID": "d"});
        let vnic = json!({"metadata": {"name": "eth0", "namespace": "team-a", "uid": "n"}, "spec": {"subnet": "blue"},
            "status": {"grant": {"epoch": 3}, "holder": holder}});
        let vnic: Arc<VNic> = Arc::new(serde_json::from_value(vnic).expect("a VNic"));
        let is_known = |network: &Logical| port::is_programmed(&network.as_written(&vnic)).is_ok();
        assert!(!is_known(&network), "there is no port");
        write_port(&network, 2).await;
        assert!(!is_known(&network), "of an earlier grant");
        write_port(&network, 3).await;
        assert!(is_known(&network));
        let (next, _) = leader(&memory, 2).await;
        assert!(is_known(&next));
        next.clear("n").await.expect("reachable");
        assert!(!is_known(&next), "what is not there any more is not taken for written");
        assert!(!is_known(&logical(None)), "nobody asks a database that there is not");
    }

    #[tokio::test]
    async fn what_somebody_changed_is_counted_when_it_is_put_right_and_nothing_else_is() {
        let memory = MemoryNorthBound::default();
        let (network, counted) = leader(&memory, 1).await;
        let vpc = |hops: &[&str]| {
            let hops = hops.iter().map(|hop| (*hop).to_owned()).collect::<Vec<_>>();
            move |site: &str| {
                let mut rows = Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows(site);
                rows[0].columns.insert("options", Cell::Texts(hops.into_iter().collect()));
                rows
            }
        };
        network.settle("v", vpc(&["a", "b"])).await.expect("reachable");
        let sent = network.sent();
        assert!(sent > 0);
        network.settle("v", vpc(&["a", "b"])).await.expect("reachable");
        assert_eq!((counts(&counted), network.sent()), ([1, 0, 0], sent), "nothing to do");
        network.settle("v", vpc(&["a", "c"])).await.expect("reachable");
        assert_eq!(counts(&counted), [2, 0, 0], "what was asked for is another");

        let row = memory.found().pop().expect("a router");
        memory.set_by_hand(&row.uuid, "name", Cell::Text("mine".to_owned()));
        network.settle("v", vpc(&["a", "c"])).await.expect("reachable");
        assert_eq!(counts(&counted), [3, 0, 1], "changed by hand");
        memory.delete_by_hand(&row.uuid);
        network.settle("v", vpc(&["a", "c"])).await.expect("reachable");
        assert_eq!(counts(&counted), [4, 0, 2], "deleted by hand");
        network.clear("v").await.expect("reachable");
        network.settle("v", vpc(&["a", "c"])).await.expect("reachable");
        assert_eq!(counts(&counted), [6, 0, 2], "deleted by the controller itself");

        let (other, its) = leader(&memory, 2).await;
        other.settle("v", vpc(&["a", "c"])).await.expect("reachable");
        assert_eq!(counts(&its), [0, 0, 0], "a controller that starts with everything right writes nothing");
        network.settle("v", vpc(&["b"])).await.expect_err("another leads");
        assert_eq!(counts(&counted), [6, 1, 2]);
    }
}
