//! One controller acts at a time: an election on a `coordination.k8s.io/v1` Lease.
//!
//! client-go's semantics: the lease lasts 15 s, is renewed every 2 s, and a leader that could not renew for 10 s gives
//! up. Whether another's lease has run out is judged by the time for which *we* have seen it unchanged, on our monotonic
//! clock; the wall clock of another machine is never compared with ours. `leaseTransitions` grows with every change of
//! leader and is the fencing token that every BMC command carries.

use crate::{change, clock};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);

/// The right to act, until [`Elector::hold`] says that it is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    /// Of this Lease; one that is made anew counts anew.
    pub lease_uid: String,
    /// Larger than that of every leader before.
    pub token: u64,
    identity: String,
}

impl Leadership {
    /// The lease, as it was read, is this leader's.
    pub fn is_of(&self, lease: &Lease) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        let same = lease.metadata.uid.as_deref() == Some(&self.lease_uid);
        same && spec.holder_identity.as_deref() == Some(&self.identity) && token(&spec) == self.token
    }
}

/// Why a leader has to stop at once.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("lease '{lease}' was taken by '{by}'")]
    Taken { lease: String, by: String },
    /// A restore of etcd has put back the lease too. What this process knows is of a time that the API server has forgotten.
    #[error("lease '{lease}' is back in an earlier state")]
    WentBack { lease: String },
    #[error("lease '{lease}' could not be renewed for {} s: {cause}", RENEW_DEADLINE.as_secs())]
    NotRenewed { lease: String, cause: String },
}

enum Renewal {
    Renewed,
    /// Not renewed; the next reading tells whether it is still ours.
    Conflict,
    Taken(String),
    WentBack,
}

pub struct Elector {
    leases: Api<Lease>,
    name: String,
    identity: String,
    sent: Sent,
    /// The answer to our last write: while nobody else writes, that is what is there.
    written: Mutex<Option<Lease>>,
}

/// What became of an attempt to lead.
enum Attempt {
    Leads(Leadership),
    /// Another process leads, or was faster.
    Waits,
    WentBack,
}

impl Attempt {
    fn of(written: Option<Lease>) -> Self {
        written.map_or(Self::Waits, |lease| Self::Leads(leadership(&lease)))
    }
}

/// What a lease says of its history: it only grows.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    transitions: i32,
    holder: Option<String>,
    /// By the holder's own clock.
    renewed_at: Option<i64>,
}

impl Told {
    fn of(spec: &LeaseSpec) -> Self {
        Self {
            transitions: spec.lease_transitions.unwrap_or_default(),
            holder: spec.holder_identity.clone(),
            renewed_at: spec.renew_time.as_ref().map(|at| at.0.as_microsecond()),
        }
    }

    fn follows(&self, before: &Self) -> bool {
        let same_holder = (self.transitions, &self.holder) == (before.transitions, &before.holder);
        self.transitions >= before.transitions && (!same_holder || self.renewed_at >= before.renewed_at)
    }
}

/// What we last saw of the lease, and since when it has not changed.
struct Observed {
    resource_version: Option<String>,
    told: Option<Told>,
    since: Instant,
}

impl Elector {
    /// `identity` must differ between any two processes, restarts included.
    pub fn new(leases: Api<Lease>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self { leases, name: name.into(), identity: identity.into(), sent: Sent::default(), written: Mutex::default() }
    }

    /// Waits until this process leads. Errors of the API server are tried again. A lease that goes back meanwhile ends the waiting: what
    /// this process has watched is not what is there.
    pub async fn acquire(&self) -> Result<Leadership, Lost> {
        let mut observed = Observed { resource_version: None, told: None, since: Instant::now() };
        loop {
            match timeout(RENEW_DEADLINE, self.try_acquire(&mut observed)).await {
                Ok(Ok(Attempt::Leads(leadership))) => return Ok(leadership),
                Ok(Ok(Attempt::Waits)) => {}
                Ok(Ok(Attempt::WentBack)) => return Err(Lost::WentBack { lease: self.name.clone() }),
                Ok(Err(error)) => tracing::warn!("cannot read or write lease '{}': {error}", self.name),
                Err(_) => tracing::warn!("the API server did not answer about lease '{}'", self.name),
            }
            sleep(RETRY).await;
        }
    }

    async fn try_acquire(&self, observed: &mut Observed) -> kube::Result<Attempt> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return if observed.told.is_some() { Ok(Attempt::WentBack) } else { self.create().await };
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if lease.metadata.resource_version != observed.resource_version {
            let (resource_version, told) = (lease.metadata.resource_version.clone(), Some(Told::of(&spec)));
            if observed.told.as_ref().is_some_and(|before| !told.as_ref().is_some_and(|told| told.follows(before))) {
                return Ok(Attempt::WentBack);
            }
            *observed = Observed { resource_version, told, since: Instant::now() };
        }
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let free = holder.is_empty() || holder == self.identity || observed.since.elapsed() >= lasts(&spec);
        if !free {
            return Ok(Attempt::Waits);
        }
        let transitions = spec.lease_transitions.unwrap_or_default() + i32::from(holder != self.identity);
        let taken = Lease { spec: Some(self.spec(transitions, None)), ..lease.clone() };
        Ok(Attempt::of(self.change(&lease, &taken).await?))
    }

    async fn create(&self) -> kube::Result<Attempt> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(self.spec(1, None)) };
        self.sent.send(&lease);
        let created = conflict_is_none(self.leases.create(&PostParams::default(), &lease).await)?;
        self.confirm(created.as_ref());
        Ok(Attempt::of(created))
    }

    /// In the version that was read; nothing: another process was faster.
    async fn change(&self, read: &Lease, wanted: &Lease) -> kube::Result<Option<Lease>> {
        self.sent.send(wanted);
        let change = change::of(read, wanted).map_err(kube::Error::SerdeError)?;
        let patch = Patch::Merge(change.unwrap_or_default());
        let written = conflict_is_none(self.leases.patch(&self.name, &PatchParams::default(), &patch).await)?;
        self.confirm(written.as_ref());
        Ok(written)
    }

    fn confirm(&self, written: Option<&Lease>) {
        written.iter().for_each(|lease| self.sent.confirm(lease));
        *self.last_written() = written.cloned();
    }

    fn last_written(&self) -> MutexGuard<'_, Option<Lease>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews until that fails for too long. The caller ends the process: what is under way must not go on.
    pub async fn hold(&self, leadership: &Leadership) -> Lost {
        let mut renewed = Instant::now();
        let mut cause = String::new();
        loop {
            sleep(RETRY).await;
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            match timeout(left, self.renew(leadership)).await {
                Ok(Ok(Renewal::Renewed)) => renewed = Instant::now(),
                Ok(Ok(Renewal::Conflict)) => cause = "somebody else wrote to it".to_owned(),
                Ok(Ok(Renewal::Taken(by))) => return Lost::Taken { lease: self.name.clone(), by },
                Ok(Ok(Renewal::WentBack)) => return Lost::WentBack { lease: self.name.clone() },
                Ok(Err(error)) => cause = error.to_string(),
                Err(_) => cause = "no answer".to_owned(),
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return Lost::NotRenewed { lease: self.name.clone(), cause };
            }
        }
    }

    async fn renew(&self, leadership: &Leadership) -> kube::Result<Renewal> {
        let written = self.last_written().clone();
        // Without an answer, or after a conflict, what is there is read.
        if let Some(written) = written.filter(|lease| leadership.is_of(lease))
            && self.renewed(&written).await?
        {
            return Ok(Renewal::Renewed);
        }
        let lease = self.leases.get(&self.name).await?;
        let spec = lease.spec.clone().unwrap_or_default();
        if !leadership.is_of(&lease) {
            return Ok(Renewal::Taken(spec.holder_identity.unwrap_or_default()));
        }
        if !self.sent.explains(&lease) {
            return Ok(Renewal::WentBack);
        }
        Ok(if self.renewed(&lease).await? { Renewal::Renewed } else { Renewal::Conflict })
    }

    /// False: that is not what is there any more.
    async fn renewed(&self, lease: &Lease) -> kube::Result<bool> {
        let spec = lease.spec.clone().unwrap_or_default();
        let transitions = spec.lease_transitions.unwrap_or_default();
        let renewed = Lease { spec: Some(self.spec(transitions, spec.acquire_time)), ..lease.clone() };
        Ok(self.change(lease, &renewed).await?.is_some())
    }

    /// Gives the lease back, so that the next leader need not wait for it to run out.
    pub async fn release(&self, leadership: &Leadership) -> kube::Result<()> {
        let lease = self.leases.get(&self.name).await?;
        if !leadership.is_of(&lease) {
            return Ok(());
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let released =
            Lease { spec: Some(LeaseSpec { holder_identity: Some(String::new()), ..spec }), ..lease.clone() };
        self.change(&lease, &released).await.map(drop)
    }

    fn spec(&self, transitions: i32, acquired: Option<MicroTime>) -> LeaseSpec {
        let now = MicroTime(clock::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE.as_secs() as i32),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

/// When the last confirmed write of ours, and each that was sent since, says that it renewed, in microseconds: what a lease keeps.
#[derive(Default)]
struct Sent(Mutex<Vec<i64>>);

impl Sent {
    fn renewed_at(lease: &Lease) -> Option<i64> {
        lease.spec.as_ref()?.renew_time.as_ref().map(|at| at.0.as_microsecond())
    }

    fn all(&self) -> MutexGuard<'_, Vec<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, lease: &Lease) {
        self.all().extend(Self::renewed_at(lease));
    }

    fn confirm(&self, lease: &Lease) {
        let confirmed = Self::renewed_at(lease);
        self.all().retain(|sent| Some(*sent) == confirmed);
    }

    /// A lease that is ours says what we wrote last, or may have written since.
    fn explains(&self, lease: &Lease) -> bool {
        Self::renewed_at(lease).is_some_and(|said| self.all().contains(&said))
    }
}

fn token(spec: &LeaseSpec) -> u64 {
    u64::try_from(spec.lease_transitions.unwrap_or_default()).unwrap_or_default()
}

fn leadership(lease: &Lease) -> Leadership {
    let spec = lease.spec.clone().unwrap_or_default();
    Leadership {
        lease_uid: lease.metadata.uid.clone().unwrap_or_default(),
        token: token(&spec),
        identity: spec.holder_identity.unwrap_or_default(),
    }
}

fn lasts(spec: &LeaseSpec) -> Duration {
    spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).map_or(LEASE, Duration::from_secs)
}

/// Another process was faster: look again.
fn conflict_is_none<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn lease(second: i64) -> Lease {
        let at = Timestamp::from_second(second).expect("a time");
        let spec = LeaseSpec { renew_time: Some(MicroTime(at)), ..LeaseSpec::default() };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn who_waits_notices_a_lease_that_went_back() {
        let told = |transitions, holder: &str, renewed_at| Told {
            transitions,
            holder: Some(holder.to_owned()),
            renewed_at: Some(renewed_at),
        };
        assert!(told(3, "b", 5).follows(&told(2, "a", 9)), "clocks of two machines are not compared");
        assert!(told(2, "a", 9).follows(&told(2, "a", 7)));
        assert!(told(2, "", 9).follows(&told(2, "a", 9)), "released");
        assert!(!told(2, "a", 7).follows(&told(2, "a", 9)));
        assert!(!told(2, "a", 9).follows(&told(3, "b", 5)));
    }

    #[test]
    fn a_lease_that_says_what_was_overwritten_went_back() {
        let sent = Sent::default();
        for second in [10, 12] {
            sent.send(&lease(second));
            sent.confirm(&lease(second));
        }
        assert!(sent.explains(&lease(12)));
        assert!(!sent.explains(&lease(10)), "restored");
        sent.send(&lease(14));
        assert!(sent.explains(&lease(12)) && sent.explains(&lease(14)), "the answer was lost: either may be so");
    }
}
