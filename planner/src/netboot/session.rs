//! One start of an installer, known by a key that it made then: whose the session is. The token in the kernel's arguments is good for
//! one; who reads it there or on the wire later is too late. Another start has the session when the one before has ended, or is silent,
//! or was for something else.

use api::report::AgentSession;
use api::tinkerbell::Hardware;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::net::IpAddr;

/// How often an installer is to be heard.
pub const HEARTBEAT: SignedDuration = SignedDuration::from_secs(10);
/// So old is the last heartbeat on record before another one is written: two writes a minute for each server that is being installed.
const WRITTEN: SignedDuration = SignedDuration::from_secs(30);
/// After this without a heartbeat on record, a start counts as over: the one that is written next may be late by a few that were lost.
/// No server comes back from a failure of its power much sooner.
pub const SILENT: SignedDuration = SignedDuration::from_secs(75);
/// Of what an action says, in characters.
const LONGEST: usize = 200;

/// Whether this Hardware says which system its server boots (`netboot.osie` with baseURL, kernel or initrd: HookOS, Captain). That has no
/// sessions; it is the administrator's word, and no caller's.
pub fn names_its_system(hardware: &Hardware) -> bool {
    let mut osies = hardware.spec.interfaces.iter().filter_map(|interface| interface.netboot.as_ref()?.osie.as_ref());
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    osies.any(|osie| [&osie.base_url, &osie.kernel, &osie.initrd].into_iter().any(is_set))
}

/// Who asks for a session.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    pub key: &'a str,
    /// What its token was for.
    pub run: &'a str,
    pub address: Option<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redeemed {
    /// It has the session: the answer of the time before was lost.
    Has,
    Gets(AgentSession),
    /// The token was used by another start, which was last heard then.
    Used {
        heard: Timestamp,
    },
}

pub fn redeem(before: Option<&AgentSession>, start: Start<'_>, now: Timestamp) -> Redeemed {
    match before.filter(|session| !is_over(session, start.run, now)) {
        Some(session) if session.key == start.key => Redeemed::Has,
        Some(session) => Redeemed::Used { heard: session.heard_at.0 },
        None => Redeemed::Gets(AgentSession {
            key: start.key.to_owned(),
            run: start.run.to_owned(),
            address: start.address.map(|address| address.to_string()),
            began_at: MicroTime(now),
            heard_at: MicroTime(now),
            ended_at: None,
            doing: None,
        }),
    }
}

/// A time that is yet to come was written by a clock that was wrong.
fn is_over(session: &AgentSession, run: &str, now: Timestamp) -> bool {
    session.ended_at.is_some() || session.run != run || now.duration_since(session.heard_at.0).abs() >= SILENT
}

/// Whether this key has the session. A start that is silent has it until another one gets it: a server that was away loses no work.
pub fn is_holder(session: Option<&AgentSession>, key: &str, run: &str) -> bool {
    session.is_some_and(|session| session.ended_at.is_none() && session.key == key && session.run == run)
}

/// With a heartbeat, if one is due on record.
pub fn heard(session: &AgentSession, doing: &str, now: Timestamp) -> Option<AgentSession> {
    if now.duration_since(session.heard_at.0).abs() < WRITTEN {
        return None;
    }
    let said: String = doing.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    let doing = Some(said).filter(|said| !said.is_empty());
    Some(AgentSession { heard_at: MicroTime(now), doing, ..session.clone() })
}

pub fn ended(session: &AgentSession, now: Timestamp) -> AgentSession {
    AgentSession { ended_at: Some(MicroTime(now)), doing: None, ..session.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    fn start<'a>(key: &'a str, run: &'a str) -> Start<'a> {
        Start { key, run, address: Some([10, 0, 0, 1].into()) }
    }

    fn begun() -> AgentSession {
        match redeem(None, start("one", "1/w"), at(0)) {
            Redeemed::Gets(session) => session,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_token_is_for_one_start() {
        let session = begun();
        let redeem = |start: Start<'_>, second| redeem(Some(&session), start, at(second));
        assert_eq!(redeem(start("one", "1/w"), 1), Redeemed::Has, "an answer was lost");
        assert_eq!(redeem(start("two", "1/w"), 74), Redeemed::Used { heard: at(0) });
        assert!(matches!(redeem(start("two", "1/w"), 75), Redeemed::Gets(_)), "it is silent");
        assert!(matches!(redeem(start("two", "1/w"), -75), Redeemed::Gets(_)), "a clock was wrong");
        assert!(matches!(redeem(start("two", "2/v"), 1), Redeemed::Gets(_)), "the next installation");
        assert!(is_holder(Some(&session), "one", "1/w"));
        for (key, run) in [("two", "1/w"), ("one", "2/v"), ("", "")] {
            assert!(!is_holder(Some(&session), key, run), "{key} {run}");
        }
        assert!(!is_holder(None, "one", "1/w"));
    }

    #[test]
    fn a_start_that_says_so_is_over() {
        let session = ended(&begun(), at(5));
        assert!(!is_holder(Some(&session), "one", "1/w"));
        let next = redeem(Some(&session), start("two", "1/w"), at(6));
        assert!(matches!(next, Redeemed::Gets(AgentSession { ended_at: None, .. })), "{next:?}");
    }

    #[test]
    fn heartbeats_are_written_twice_a_minute_and_hold_the_session() {
        let (mut session, mut writes) = (begun(), 0);
        for second in (0..3600).step_by(10) {
            if let Some(next) = heard(&session, "writing\n", at(second)) {
                (session, writes) = (next, writes + 1);
            }
            let other = redeem(Some(&session), start("two", "1/w"), at(second + 9));
            assert!(matches!(other, Redeemed::Used { .. }), "{second}");
        }
        assert_eq!((writes, session.doing.as_deref()), (119, Some("writing")));
        let long = heard(&session, &"x".repeat(5000), at(4000)).expect("due");
        assert_eq!(long.doing.map(|said| said.len()), Some(LONGEST));
    }
}
