//! Which agents are no longer heard. A session on record says when its last heartbeat was written, and a heartbeat is written by whichever
//! replica it came to: so a session is read again and again, and one that has not changed for as long as three heartbeats in a row would
//! have taken is silent. What was not listened to is not held against an agent: a replica that has just started knows nothing, nor does one
//! that the API server did not answer, for then no heartbeat was written either.

use crate::identity::{Identity, run};
use crate::world::World;
use api::report::AgentSession;
use api::tinkerbell::{Hardware, Workflow};
use jiff::Timestamp;
use planner::netboot::Directory;
use planner::netboot::session::SILENT;
use planner::workflow::{Heard, at_work};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// How often a session is read while its agent is at work.
pub const EVERY: Duration = Duration::from_secs(15);

#[derive(Default)]
pub struct Listener {
    /// By agent.
    sessions: HashMap<String, Listened>,
}

/// One session, as it was last read.
struct Listened {
    key: String,
    heard_at: Timestamp,
    read_at: Instant,
    /// It was read so since then, again and again.
    unchanged_since: Instant,
    /// A heartbeat of it was seen to come.
    is_heard: bool,
}

impl Listener {
    /// What is known of each agent of this Workflow that is at work.
    pub async fn listen(
        &mut self,
        world: &World,
        identity: &Identity,
        directory: &Directory,
        workflow: &Workflow,
    ) -> BTreeMap<String, Heard> {
        let mut all = BTreeMap::new();
        for (agent, began) in at_work(workflow) {
            let Some(hardware) = directory.by_agent(agent).next() else { continue };
            if identity.wants_session(Some(hardware)) {
                all.insert(agent.to_owned(), self.hear(world, agent, hardware, began).await);
            }
        }
        all
    }

    async fn hear(&mut self, world: &World, agent: &str, hardware: &Hardware, began: Option<Timestamp>) -> Heard {
        let now = Instant::now();
        if let Some(known) = self.sessions.get(agent).filter(|known| now < known.read_at + EVERY) {
            return known.says(now);
        }
        let name = hardware.metadata.name.as_deref().unwrap_or_default();
        let report = match world.read_report(name).await {
            Ok(report) => report,
            Err(error) => {
                tracing::warn!(%error, "the HardwareReport of '{name}' cannot be read: whether its agent is heard is not known");
                self.sessions.remove(agent);
                return Heard::Unknown;
            }
        };
        let session = report.and_then(|report| report.status?.session);
        match session.filter(|session| is_at_work(session, &run(hardware), began)) {
            Some(session) => {
                let listened = Listened::next(self.sessions.remove(agent), &session, now);
                let says = listened.says(now);
                self.sessions.insert(agent.to_owned(), listened);
                says
            }
            None => {
                self.sessions.remove(agent);
                Heard::Unknown
            }
        }
    }

    /// Those that nobody asked for lately are at work no longer.
    pub fn forget(&mut self) {
        let now = Instant::now();
        self.sessions.retain(|_, known| now < known.read_at + 2 * EVERY);
    }

    pub fn is_listening(&self) -> bool {
        !self.sessions.is_empty()
    }
}

/// The session is that of the agent which has begun the action: one that was silent before then is of an earlier start.
fn is_at_work(session: &AgentSession, run: &str, began: Option<Timestamp>) -> bool {
    let was_heard = began.is_none_or(|began| session.heard_at.0 + SILENT >= began);
    session.ended_at.is_none() && session.run == run && was_heard
}

impl Listened {
    fn next(before: Option<Self>, session: &AgentSession, now: Instant) -> Self {
        let (key, heard_at) = (session.key.clone(), session.heard_at.0);
        match before {
            Some(before) if (&before.key, before.heard_at) == (&key, heard_at) => Self { read_at: now, ..before },
            before => Self { key, heard_at, read_at: now, unchanged_since: now, is_heard: before.is_some() },
        }
    }

    fn says(&self, now: Instant) -> Heard {
        let silent = Duration::try_from(SILENT).unwrap_or_default();
        match now.duration_since(self.unchanged_since) {
            unchanged if unchanged >= silent => Heard::Silent { since: self.heard_at },
            _ if self.is_heard => Heard::Now,
            _ => Heard::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    fn session(heard: i64) -> AgentSession {
        AgentSession {
            key: "sha256:0".to_owned(),
            run: "u/1/Begun/w".to_owned(),
            address: None,
            began_at: MicroTime(at(0)),
            heard_at: MicroTime(at(heard)),
            ended_at: None,
            doing: None,
        }
    }

    /// What was known after each reading: when it was, by this replica's clock, and the heartbeat that was on record.
    fn heard(readings: &[(u64, i64)]) -> Vec<Heard> {
        let (start, mut last) = (Instant::now(), None);
        let known = readings.iter().map(|(second, heard)| {
            let now = start + Duration::from_secs(*second);
            let next = Listened::next(last.take(), &session(*heard), now);
            let says = next.says(now);
            last = Some(next);
            says
        });
        known.collect()
    }

    #[test]
    fn who_is_heard_no_longer_is_silent_after_three_heartbeats_of_listening() {
        let silent = Heard::Silent { since: at(30) };
        let agent =
            [(0, 0), (15, 0), (30, 30), (45, 30), (60, 30), (90, 30), (104, 30), (105, 30), (400, 30), (415, 410)];
        let known = heard(&agent);
        assert_eq!(known[..2], [Heard::Unknown; 2], "no heartbeat was seen to come");
        assert_eq!(known[2..7], [Heard::Now; 5]);
        assert_eq!(known[7..9], [silent; 2]);
        assert_eq!(known[9], Heard::Now, "it is back");
    }

    /// Whatever this clock says of the other's, and however long nobody listened.
    #[test]
    fn a_replica_that_starts_has_to_listen_first() {
        assert_eq!(heard(&[(0, -9000), (74, -9000)]), [Heard::Unknown; 2]);
        assert_eq!(heard(&[(0, -9000), (75, -9000)])[1], Heard::Silent { since: at(-9000) });
    }

    #[test]
    fn a_session_counts_for_what_its_agent_has_begun() {
        let own = session(0);
        assert!(is_at_work(&own, "u/1/Begun/w", None));
        assert!(is_at_work(&own, "u/1/Begun/w", Some(at(75))));
        assert!(!is_at_work(&own, "u/1/Begun/w", Some(at(76))), "of a start before");
        assert!(!is_at_work(&own, "u/2/Begun/v", None), "of another installation");
        let ended = AgentSession { ended_at: Some(MicroTime(at(1))), ..own };
        assert!(!is_at_work(&ended, "u/1/Begun/w", None), "its server restarts");
    }
}
