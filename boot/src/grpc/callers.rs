//! Who calls: the agent whose token it is, and in the mode `Session` the start of it that has redeemed the token.
//!
//! A session stands in the server's HardwareReport, so a replica that starts, and another one, know it; it is read with every call, as
//! the API server has it then, and is given by compare-and-swap. Whose key has it is asked by `planner::netboot::session`. A session
//! outlives the time of its token: what takes longer was begun in time.

use super::connection::Caller;
use super::{CONFLICTS, unavailable};
use crate::identity::{Identity, Known};
use crate::reports::{Eyes, owner};
use crate::world::World;
use api::HardwareReport;
use api::report::{AgentRefusedReason, AgentSession, HardwareReportStatus, NetbootStage};
use api::tinkerbell::Hardware;
use kube::ResourceExt;
use planner::enrol::MOST_UNAPPROVED;
use planner::netboot::other_server;
use planner::netboot::report::Sight;
use planner::netboot::session::{self, Redeemed, Start};
use runtime::clock;
use std::sync::Arc;
use tonic::Status;

#[derive(Clone)]
pub struct Callers {
    pub world: Arc<World>,
    pub identity: Identity,
    pub eyes: Eyes,
}

pub struct Agent {
    /// Without the token.
    pub id: String,
    /// It has a session: no other agent speaks for one.
    pub is_installer: bool,
}

/// The owned part of a [`Known`]: what outlasts the directory that it was found in.
struct Found {
    agent: String,
    hardware: Hardware,
    report: String,
    run: String,
    is_in_time: bool,
}

impl Callers {
    pub async fn agent(&self, caller: &Caller, presented: &str) -> Result<Agent, Status> {
        let found = self.found(presented)?;
        if !self.identity.wants_session(Some(&found.hardware)) {
            let agent = Agent { id: found.agent, is_installer: false };
            return if found.is_in_time { Ok(agent) } else { Err(not_known()) };
        }
        let found = self.holds(caller, found).await?;
        Ok(Agent { id: found.agent, is_installer: true })
    }

    /// Who has a session, whatever the mode: what it is told goes over TLS, and to no other.
    pub async fn holder(&self, caller: &Caller, presented: &str) -> Result<(String, Hardware), Status> {
        let found = self.found(presented)?;
        let found = self.holds(caller, found).await?;
        Ok((found.agent, found.hardware))
    }

    /// The caller's key has the session of that agent.
    async fn holds(&self, caller: &Caller, found: Found) -> Result<Found, Status> {
        let key = self.key(caller, &found)?;
        match self.read(&found.report).await?.and_then(|report| report.status?.session) {
            Some(held) if session::is_holder(Some(&held), &key, &found.run) => Ok(found),
            _ => Err(no_session()),
        }
    }

    /// `system_uuid`: as the caller's firmware tells it; empty: it does not.
    pub async fn redeem(&self, caller: &Caller, presented: &str, system_uuid: &str) -> Result<(), Status> {
        let found = self.found(presented)?;
        if !found.is_in_time {
            return Err(not_known());
        }
        self.is_that_server(&found, system_uuid)?;
        let key = self.key(caller, &found)?;
        let start = Start { key: &key, run: &found.run, address: caller.address.map(|address| address.ip()) };
        for _ in 0..CONFLICTS {
            let Some(report) = self.read(&found.report).await? else {
                self.make(&found).await?;
                continue;
            };
            let before = report.status.as_ref().and_then(|status| status.session.as_ref());
            match session::redeem(before, start, clock::now()) {
                Redeemed::Has => return Ok(()),
                Redeemed::Gets(session) => {
                    if self.write(&report, session).await? {
                        tracing::info!(agent = found.agent, key, "a session began");
                        return Ok(());
                    }
                }
                Redeemed::Used { heard } => {
                    let silent = session::SILENT.as_secs();
                    let why = format!(
                        "the token of this server was redeemed by another start of its installer, which is at work: it counts as over when \
                         it has not been heard for {silent} s, or when the server was restarted by an action"
                    );
                    tracing::warn!(agent = found.agent, key, last_heard = %heard, "TokenUsedTwice: {why}");
                    self.refused(caller, &found, AgentRefusedReason::TokenUsedTwice, &why);
                    return Err(Status::permission_denied(format!("TokenUsedTwice: {why}")));
                }
            }
        }
        Err(conflict())
    }

    /// Not every way to the installer has told whose server it is: a medium asks nobody, and of HTTP boot only DHCP tells a UUID.
    fn is_that_server(&self, found: &Found, system_uuid: &str) -> Result<(), Status> {
        let told = Some(system_uuid).filter(|told| !told.is_empty());
        let Some(other) = other_server(&found.hardware, told) else { return Ok(()) };
        let (why, mac) = (other.to_string(), super::mac_of(&found.agent, Some(&found.hardware)));
        tracing::warn!(agent = found.agent, "WrongServer: {why}");
        let (stage, uuid) = (NetbootStage::Refused, told.map(str::to_owned));
        self.eyes.saw_of(&found.hardware, &mac, Sight::Turned { stage, why: why.clone(), client: None, uuid });
        Err(Status::permission_denied(format!("WrongServer: {why}")))
    }

    pub async fn heartbeat(&self, caller: &Caller, presented: &str, doing: &str) -> Result<(), Status> {
        self.change(caller, presented, |session| session::heard(session, doing, clock::now())).await
    }

    pub async fn end(&self, caller: &Caller, presented: &str) -> Result<(), Status> {
        self.change(caller, presented, |session| Some(session::ended(session, clock::now()))).await
    }

    /// Of the holder's session.
    async fn change(
        &self,
        caller: &Caller,
        presented: &str,
        next: impl Fn(&AgentSession) -> Option<AgentSession>,
    ) -> Result<(), Status> {
        let found = self.found(presented)?;
        let key = self.key(caller, &found)?;
        for _ in 0..CONFLICTS {
            let report = self.read(&found.report).await?.ok_or_else(no_session)?;
            let held = report.status.as_ref().and_then(|status| status.session.as_ref());
            let held = held.filter(|held| session::is_holder(Some(held), &key, &found.run)).ok_or_else(no_session)?;
            let Some(next) = next(held) else { return Ok(()) };
            if self.write(&report, next).await? {
                return Ok(());
            }
        }
        Err(conflict())
    }

    fn found(&self, presented: &str) -> Result<Found, Status> {
        let directory = self.world.directory().borrow().clone();
        let known = self.identity.whose(&directory, presented).ok_or_else(not_known)?;
        let (report, is_in_time) = (known.report(), known.is_in_time(clock::now()));
        let Known { agent, hardware, run, .. } = known;
        Ok(Found { agent: agent.to_owned(), hardware: hardware.cloned().unwrap_or_default(), report, run, is_in_time })
    }

    /// The pin of the caller's key.
    fn key(&self, caller: &Caller, found: &Found) -> Result<String, Status> {
        if let Some(key) = caller.key {
            return Ok(key.to_string());
        }
        let why = "it asked in the clear, or without a key of its own: Metalplane's installer has a session here. For other agents name \
                   their system in netboot.osie of the Hardware, or set boot.agents to bearer (--agents=bearer)";
        self.refused(caller, found, AgentRefusedReason::TlsRequired, why);
        Err(Status::unauthenticated(format!("TLSRequired: {why}")))
    }

    fn refused(&self, caller: &Caller, found: &Found, reason: AgentRefusedReason, why: &str) {
        let address = caller.address.map(|address| address.ip());
        let mac = super::mac_of(&found.agent, Some(&found.hardware));
        self.eyes.saw_of(&found.hardware, &mac, Sight::AgentRefused { address, reason, why: why.to_owned() });
    }

    async fn read(&self, name: &str) -> Result<Option<HardwareReport>, Status> {
        self.world.read_report(name).await.map_err(|error| unavailable(&error))
    }

    async fn write(&self, report: &HardwareReport, session: AgentSession) -> Result<bool, Status> {
        let status = HardwareReportStatus { session: Some(session), ..report.status.clone().unwrap_or_default() };
        let written =
            self.world.write_report(report, status).await.map_err(|error| unavailable(&format!("{error:#}")))?;
        match written {
            Some(HardwareReport { status: Some(HardwareReportStatus { session: Some(_), .. }), .. }) => Ok(true),
            Some(_) => Err(unavailable(
                &"the definition of HardwareReport does not know status.session: upgrade the definitions",
            )),
            None => Ok(false),
        }
    }

    /// A report for the session to stand in. Whoever has a cable can send as many identifiers as he likes.
    async fn make(&self, found: &Found) -> Result<(), Status> {
        let owner = owner(&found.hardware);
        if owner.is_none() {
            let all = self.world.reports().await.map_err(|error| unavailable(&format!("{error:#}")))?;
            let is_strangers = |report: &&HardwareReport| report.owner_references().is_empty();
            let strangers = all.iter().filter(is_strangers).count();
            if strangers >= MOST_UNAPPROVED {
                return Err(Status::resource_exhausted(
                    "more servers that no Hardware names than are told of: approve or delete those that are",
                ));
            }
        }
        self.world.make_report(&found.report, owner).await.map_err(|error| unavailable(&format!("{error:#}")))
    }
}

/// Nothing of a Workflow is for an agent that is not known. (No answer that ends upstream's agent for good: the key may be another one.)
fn not_known() -> Status {
    Status::unauthenticated(
        "the caller is not the agent that worker_id names, or the token in worker_id has expired: restart the server, which fetches another token",
    )
}

fn no_session() -> Status {
    Status::unauthenticated("the key of the caller has no session: redeem the token")
}

fn conflict() -> Status {
    Status::aborted("the session is written by somebody else; call again")
}
