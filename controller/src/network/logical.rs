//! OVN's north-bound database, as this controller writes it: what an object is there (`planner::network::rows`), and nothing
//! before it has taken the token of its Lease.

use crate::error::Error;
use planner::network::rows::{Row, diff};
use ports::north_bound::NorthBoundError;
use ports::{ErrorClass, NorthBound, PortError};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;

/// Opens the database for a site, whose name the rows have.
pub type OpenNorthBound = Arc<dyn Fn(&str) -> Arc<dyn NorthBound> + Send + Sync>;

/// A change that others were faster than is planned again so many times before others get their turn.
const ATTEMPTS: usize = 4;

pub struct Logical {
    open: Option<OpenNorthBound>,
    opened: OnceLock<Opened>,
    leads: AtomicBool,
    deposed: Notify,
    /// UIDs of VNics whose port was found, or made, as it should be.
    programmed: Mutex<BTreeSet<String>>,
    told: Notify,
}

struct Opened {
    north_bound: Arc<dyn NorthBound>,
    site: String,
}

impl Logical {
    pub fn new(open: Option<OpenNorthBound>) -> Self {
        Self {
            open,
            opened: OnceLock::new(),
            leads: AtomicBool::new(false),
            deposed: Notify::new(),
            programmed: Mutex::default(),
            told: Notify::new(),
        }
    }

    /// Once, before it is followed; `None`: the controller was told of no OVN.
    pub(super) fn open(&self, site: &str) -> Option<Arc<dyn NorthBound>> {
        let open = self.open.as_ref()?;
        let opened = self.opened.get_or_init(|| Opened { north_bound: open(site), site: site.to_owned() });
        Some(opened.north_bound.clone())
    }

    /// The token is taken.
    pub(super) fn lead(&self) {
        self.leads.store(true, Ordering::Release);
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
        let opened = self.opened()?;
        let wanted = wanted(&opened.site);
        let mut attempt = 0;
        loop {
            let found = opened.north_bound.rows(uid).map_err(NorthBoundError::from)?;
            match opened.north_bound.apply(&diff(&wanted, &found)).await {
                Ok(()) => return Ok(()),
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

    /// The object with this UID has no row afterwards. Where there is no OVN, none has.
    pub async fn clear(&self, uid: &str) -> Result<(), Error> {
        if self.open.is_some() { self.settle(uid, |_| Vec::new()).await } else { Ok(()) }
    }
}
