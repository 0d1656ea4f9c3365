//! One controller acts at a time: an election on a `coordination.k8s.io/v1` Lease.
//!
//! client-go's semantics: the lease lasts 15 s, is renewed every 2 s, and a leader that could not renew for 10 s gives
//! up. Whether another's lease has run out is judged by the time for which *we* have seen it unchanged, on our monotonic
//! clock; the wall clock of another machine is never compared with ours. `leaseTransitions` grows with every change of
//! leader and is the fencing token that every BMC command carries.

use crate::clock;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);

/// The right to act, until [`Elector::hold`] says that it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// Larger than that of every leader before.
    pub token: u64,
}

/// Why a leader has to stop at once.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("lease '{lease}' was taken by '{by}'")]
    Taken { lease: String, by: String },
    #[error("lease '{lease}' could not be renewed for {} s: {cause}", RENEW_DEADLINE.as_secs())]
    NotRenewed { lease: String, cause: String },
}

enum Renewal {
    Renewed,
    /// Not renewed; the next reading tells whether it is still ours.
    Conflict,
    Taken(String),
}

pub struct Elector {
    leases: Api<Lease>,
    name: String,
    identity: String,
}

/// What we last saw of the lease, and since when it has not changed.
struct Observed {
    resource_version: Option<String>,
    since: Instant,
}

impl Elector {
    /// `identity` must differ between any two processes, restarts included.
    pub fn new(leases: Api<Lease>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self { leases, name: name.into(), identity: identity.into() }
    }

    /// Waits until this process leads. Errors of the API server are tried again.
    pub async fn acquire(&self) -> Leadership {
        let mut observed = Observed { resource_version: None, since: Instant::now() };
        loop {
            match timeout(RENEW_DEADLINE, self.try_acquire(&mut observed)).await {
                Ok(Ok(Some(leadership))) => return leadership,
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::warn!("cannot read or write lease '{}': {error}", self.name),
                Err(_) => tracing::warn!("the API server did not answer about lease '{}'", self.name),
            }
            sleep(RETRY).await;
        }
    }

    async fn try_acquire(&self, observed: &mut Observed) -> kube::Result<Option<Leadership>> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return self.create().await;
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if lease.metadata.resource_version != observed.resource_version {
            *observed = Observed { resource_version: lease.metadata.resource_version.clone(), since: Instant::now() };
        }
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let free = holder.is_empty() || holder == self.identity || observed.since.elapsed() >= lasts(&spec);
        if !free {
            return Ok(None);
        }
        let transitions = spec.lease_transitions.unwrap_or_default() + i32::from(holder != self.identity);
        let taken = Lease { spec: Some(self.spec(transitions, None)), ..lease };
        let written = self.leases.replace(&self.name, &PostParams::default(), &taken).await;
        Ok(conflict_is_none(written)?.map(|lease| leadership(&lease)))
    }

    async fn create(&self) -> kube::Result<Option<Leadership>> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let lease = Lease { metadata, spec: Some(self.spec(1, None)) };
        let created = self.leases.create(&PostParams::default(), &lease).await;
        Ok(conflict_is_none(created)?.map(|lease| leadership(&lease)))
    }

    /// Renews until that fails for too long. The caller ends the process: what is under way must not go on.
    pub async fn hold(&self, leadership: Leadership) -> Lost {
        let mut renewed = Instant::now();
        let mut cause = String::new();
        loop {
            sleep(RETRY).await;
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            match timeout(left, self.renew(leadership)).await {
                Ok(Ok(Renewal::Renewed)) => renewed = Instant::now(),
                Ok(Ok(Renewal::Conflict)) => cause = "somebody else wrote to it".to_owned(),
                Ok(Ok(Renewal::Taken(by))) => return Lost::Taken { lease: self.name.clone(), by },
                Ok(Err(error)) => cause = error.to_string(),
                Err(_) => cause = "no answer".to_owned(),
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return Lost::NotRenewed { lease: self.name.clone(), cause };
            }
        }
    }

    async fn renew(&self, leadership: Leadership) -> kube::Result<Renewal> {
        let lease = self.leases.get(&self.name).await?;
        let spec = lease.spec.clone().unwrap_or_default();
        if !self.is_ours(&spec, leadership) {
            return Ok(Renewal::Taken(spec.holder_identity.unwrap_or_default()));
        }
        let transitions = spec.lease_transitions.unwrap_or_default();
        let renewed = Lease { spec: Some(self.spec(transitions, spec.acquire_time)), ..lease };
        let written = conflict_is_none(self.leases.replace(&self.name, &PostParams::default(), &renewed).await)?;
        Ok(if written.is_some() { Renewal::Renewed } else { Renewal::Conflict })
    }

    /// Gives the lease back, so that the next leader need not wait for it to run out.
    pub async fn release(&self, leadership: Leadership) -> kube::Result<()> {
        let lease = self.leases.get(&self.name).await?;
        let spec = lease.spec.clone().unwrap_or_default();
        if !self.is_ours(&spec, leadership) {
            return Ok(());
        }
        let released = Lease { spec: Some(LeaseSpec { holder_identity: Some(String::new()), ..spec }), ..lease };
        conflict_is_none(self.leases.replace(&self.name, &PostParams::default(), &released).await).map(drop)
    }

    fn is_ours(&self, spec: &LeaseSpec, leadership: Leadership) -> bool {
        spec.holder_identity.as_deref() == Some(&self.identity) && token(spec) == leadership.token
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

fn token(spec: &LeaseSpec) -> u64 {
    u64::try_from(spec.lease_transitions.unwrap_or_default()).unwrap_or_default()
}

fn leadership(lease: &Lease) -> Leadership {
    Leadership { token: lease.spec.as_ref().map(token).unwrap_or_default() }
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
