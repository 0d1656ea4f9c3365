//! An image's header object. Whoever has the image open for writing watches it; who holds its lock stands at it.

use crate::clusters::{Cluster, Clusters};
use crate::notes::Notes;
use ports::{ErrorClass, PortError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Of the lock that one writer at a time has, on images with the feature `exclusive-lock`.
const LOCK: &str = "rbd_lock";
/// librbd's: a lock of another tag is another's.
const LOCK_TAG: &str = "internal";
/// Ten years. Ceph has no entry without an end, and a session does not come back: its address has a random part.
const REFUSED_SECONDS: &str = "315360000";

/// Where an image is, by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Place {
    pub cluster: String,
    pub pool: String,
    pub namespace: Option<String>,
    pub object: String,
}

pub(crate) struct Header<'a> {
    clusters: &'a Clusters,
    pub place: Place,
    cluster: &'a Cluster,
    what: &'a str,
}

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    lockers: Vec<Locker>,
}

#[derive(Deserialize)]
struct Locker {
    name: String,
    cookie: String,
    addr: String,
}

impl<'a> Header<'a> {
    pub(crate) fn new(clusters: &'a Clusters, place: Place, cluster: &'a Cluster, what: &'a str) -> Self {
        Self { clusters, place, cluster, what }
    }

    async fn rados(&self, arguments: &[&str]) -> Result<String, PortError> {
        let mut all = vec!["--pool", &self.place.pool];
        if let Some(namespace) = &self.place.namespace {
            all.extend(["--namespace", namespace]);
        }
        all.extend(arguments);
        self.clusters.tools().run("rados", self.cluster, &all, self.what).await
    }

    async fn ceph(&self, arguments: &[&str]) -> Result<String, PortError> {
        self.clusters.tools().run("ceph", self.cluster, arguments, self.what).await
    }

    pub(crate) async fn notes(&self) -> Result<Notes, PortError> {
        Ok(Notes::read(&self.rados(&["listxattr", &self.place.object]).await?))
    }

    pub(crate) async fn note(&self, name: &str) -> Result<(), PortError> {
        self.rados(&["setxattr", &self.place.object, name, "1"]).await.map(drop)
    }

    /// One that is gone, or whose image is: success.
    pub(crate) async fn forget(&self, name: &str) -> Result<(), PortError> {
        match self.rados(&["rmxattr", &self.place.object, name]).await {
            Err(error) if error.class != ErrorClass::NotFound && !error.message.contains("No data") => Err(error),
            _ => Ok(()),
        }
    }

    /// The sessions that have it open for writing. One whose host is lost stays for half a minute.
    pub(crate) async fn watchers(&self) -> Result<BTreeSet<String>, PortError> {
        Ok(watchers(&self.rados(&["listwatchers", &self.place.object]).await?))
    }

    async fn lockers(&self) -> Result<Vec<Locker>, PortError> {
        let said = self.rados(&["lock", "info", &self.place.object, LOCK, "--format", "json"]).await?;
        let unread = |error| {
            let cause = format!("{}: what Ceph says of the lock of {}: {error}", self.what, self.place.object);
            PortError::new(ErrorClass::Invalid, cause)
        };
        Ok(serde_json::from_str::<Lock>(&said).map_err(unread)?.lockers)
    }

    pub(crate) async fn is_locked_by(&self, sessions: &BTreeSet<&str>) -> Result<bool, PortError> {
        Ok(self.lockers().await?.iter().any(|locker| sessions.contains(locker.addr.as_str())))
    }

    /// From now on no OSD takes anything from this session.
    pub(crate) async fn refuse(&self, session: &str) -> Result<(), PortError> {
        self.ceph(&["osd", "blocklist", "add", session, REFUSED_SECONDS]).await.map(drop)
    }

    pub(crate) async fn refused(&self) -> Result<BTreeSet<String>, PortError> {
        let said = self.ceph(&["osd", "blocklist", "ls"]).await?;
        Ok(said.lines().filter_map(|line| line.split_ascii_whitespace().next()).map(str::to_owned).collect())
    }

    /// Whoever opens the image next would do it, and make the session's refusal end after an hour.
    pub(crate) async fn break_lock_of(&self, sessions: &BTreeSet<&str>) -> Result<(), PortError> {
        for locker in self.lockers().await?.iter().filter(|locker| sessions.contains(locker.addr.as_str())) {
            let lock = [self.place.object.as_str(), LOCK, &locker.name, "--lock-cookie", &locker.cookie];
            let tag = ["--lock-tag", LOCK_TAG];
            match self.rados(&[["lock", "break"].as_slice(), &lock, &tag].concat()).await {
                Err(error) if error.class != ErrorClass::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// `watcher=127.0.0.1:0/3302528668 client.4129 cookie=140269739593200`
fn watchers(said: &str) -> BTreeSet<String> {
    let address = |line: &str| line.strip_prefix("watcher=")?.split_ascii_whitespace().next().map(str::to_owned);
    said.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_are_read() {
        let said = "watcher=127.0.0.1:0/1 client.4129 cookie=1\nwatcher=[2001:db8::1]:0/2 client.7 cookie=1\n";
        let two = ["127.0.0.1:0/1", "[2001:db8::1]:0/2"].map(str::to_owned);
        assert_eq!(watchers(said), BTreeSet::from(two));
        assert_eq!(watchers(""), BTreeSet::new());
    }
}
