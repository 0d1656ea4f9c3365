//! A Vpc's, Subnet's, SecurityGroup's, NatGateway's or FloatingIP's rows, and what is said of them: Programmed once they are committed, InForce once every chassis that
//! they concern has installed them. The judgement is the planner's (`planner::network::barrier`).
//!
//! What is in force is never said too early: rows that change without a new generation of the object (somebody's change is put right, a
//! peer came or went) are not in force any more before the first of them is written, and after a number was asked for they are
//! again. So it is with a number that the status names: it was asked for before these rows.

use super::away;
use super::logical::Logical;
use super::numbers::Commit;
use crate::cache::{Cache, Object, key};
use crate::error::Error;
use crate::work::Work;
use crate::{Controller, clock, objects};
use api::conditions::{self, ConditionStatus, IN_FORCE, PROGRAMMED, READY};
use api::network::Programmed;
use api::{FloatingIP, NatGateway, SecurityGroup, Subnet, Vpc};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use planner::machine::observed::uid;
use planner::network::barrier::{self, Known, Observed, PATIENCE, Verdict};
use planner::network::rows::Row;
use planner::reason::{Reason, Waiting};
use runtime::queue::{Key, Next};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Chassis that have not reached a number are named anew this often.
const AGAIN: Duration = Duration::from_secs(5);

pub(super) trait Enforced: Object + Resource<Scope = NamespaceResourceScope> {
    const WORK: Work;

    /// What messages call its rows.
    fn what(&self) -> String;

    fn conditions(&self) -> &[Condition];

    fn programmed(&self) -> Option<&Programmed>;

    /// What its status tells beside those. Only one that counts its members tells on how many chassis they are.
    fn counts(&self) -> Value;
}

macro_rules! enforced {
    ($($kind:ident: $what:literal, $counts:expr;)*) => {$(
        impl Enforced for $kind {
            const WORK: Work = Work::$kind;

            fn what(&self) -> String {
                format!($what, key(&self.metadata).1)
            }

            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }

            fn programmed(&self) -> Option<&Programmed> {
                self.status.as_ref()?.programmed.as_ref()
            }

            fn counts(&self) -> Value {
                let counts: fn(&$kind) -> Value = $counts;
                counts(self)
            }
        }
    )*};
}

enforced! {
    Vpc: "Vpc '{}'", |_| json!({});
    Subnet: "Subnet '{}'", |_| json!({});
    SecurityGroup: "the rules of SecurityGroup '{}'", |group| {
        let status = group.status.clone().unwrap_or_default();
        json!({
            "members": status.members, "acls": status.acls, "flowsPerMember": status.flows_per_member,
            "chassis": status.chassis,
        })
    };
    NatGateway: "NatGateway '{}'", |_| json!({});
    FloatingIP: "FloatingIP '{}'", |_| json!({});
}

/// What shall be.
pub(super) struct Wanted {
    /// Else why the rows of before stay.
    pub(super) rows: Result<Vec<Row>, Reason>,
    /// What is wrong although they are written.
    pub(super) wrong: Option<Reason>,
    /// As they are once it is in force. `None`: what is said of them stays.
    pub(super) counts: Option<Value>,
    /// Those that have to install them; `None`: those of the ports in the sets of its own row.
    pub(super) chassis: Option<BTreeSet<String>>,
}

/// Writes the rows and says how far they are. One call is one step: whoever waits is looked at again.
pub(super) async fn enforce<K: Enforced>(
    c: &Controller,
    cache: &Cache<K>,
    object: &K,
    wanted: Wanted,
) -> Result<Next, Error> {
    let (meta, began) = (object.meta(), Instant::now());
    let written = match &wanted.rows {
        Ok(rows) => {
            let is_proof = barrier::is_said(meta.generation, object.conditions())
                || barrier::is_numbered(meta.generation, object.programmed());
            if is_proof && c.network.differs(uid(meta), rows).unwrap_or_default() {
                say_first(c, cache, object).await?;
                c.world.look(K::WORK, key(meta));
                return Ok(Next::Wait);
            }
            let changing = |commit| c.network.commits(uid(meta), (K::WORK, key(meta)), began, commit);
            c.network.write(uid(meta), rows, changing).await
        }
        Err(_) => Ok(()),
    };
    let not_written = match (written, wanted.rows.err()) {
        (Ok(()), None) => None,
        (Ok(()), Some(reason)) => Some((reason, Ok(Next::Wait))),
        (Err(error), _) if error.is_north_bound_away() => Some((away(&error), Err(error))),
        (Err(error), _) => return Err(error),
    };
    match not_written {
        Some((reason, result)) => {
            let status = Status::not_written(object, &reason);
            status.write(c, cache, object, wanted.counts).await?;
            result
        }
        None => {
            let (status, then) = judged(c, object, wanted.wrong.as_ref(), wanted.chassis, began)?;
            let is_new = !barrier::is_said(meta.generation, object.conditions());
            status.write(c, cache, object, wanted.counts).await?;
            match then {
                Then::Settled(chassis) => {
                    let took = c.network.settle_in_force(uid(meta), K::WORK);
                    if is_new {
                        let passed = took.map(|took| format!(", {} ms after the change was seen", took.as_millis()));
                        let (what, passed) = (object.what(), passed.unwrap_or_default());
                        c.events.tell(object, "InForce", &format!("{chassis} chassis have installed {what}{passed}"));
                    }
                    Ok(Next::Wait)
                }
                Then::Ask(by) => {
                    c.network.ask(uid(meta), (K::WORK, key(meta)), began, by);
                    Ok(Next::Wait)
                }
                Then::After(wait) => Ok(Next::After(wait)),
            }
        }
    }
}

/// What has to be written first could not be. While the database is away, that is said; what else went wrong is not.
pub(super) async fn unwritten<K: Enforced>(
    c: &Controller,
    cache: &Cache<K>,
    object: &K,
    error: Error,
) -> Result<Next, Error> {
    if error.is_north_bound_away() {
        Status::not_written(object, &away(&error)).write(c, cache, object, None).await?;
    }
    Err(error)
}

/// The rows are about to change, and the generation does not tell it.
async fn say_first<K: Enforced>(c: &Controller, cache: &Cache<K>, object: &K) -> Result<(), Error> {
    let meta = object.meta();
    let mut said = object.conditions().to_vec();
    let reason: Reason = Waiting::NotInForce { what: object.what() }.into();
    set(&mut said, IN_FORCE, Err(&reason), meta);
    let programmed = Some(Programmed { generation: meta.generation, ..Programmed::default() });
    let status = Status { said, programmed, chassis: Some(None) };
    status.write(c, cache, object, None).await
}

enum Then {
    /// On so many chassis.
    Settled(usize),
    /// By what was known.
    Ask(Known),
    After(Duration),
}

fn judged<K: Enforced>(
    c: &Controller,
    object: &K,
    wrong: Option<&Reason>,
    concerned: Option<BTreeSet<String>>,
    began: Instant,
) -> Result<(Status, Then), Error> {
    let (meta, network) = (object.meta(), &c.network);
    let known = network.numbers.known(uid(meta));
    // What is in force stays so: then it is not asked how far the chassis are, nor which.
    let is_said = known.is_none() && barrier::is_said(meta.generation, object.conditions());
    let installed = if is_said { Ok(BTreeMap::new()) } else { network.installed() };
    let chassis = match concerned {
        Some(chassis) => chassis,
        None if is_said => BTreeSet::new(),
        None => network.members(uid(meta))?.chassis,
    };
    let since = known.map_or_else(|| said_since(object.conditions(), began), |(_, since)| since);
    let by = known.map_or(Known::Nothing, |(known, _)| known);
    let what = object.what();
    let verdict = barrier::judge(&Observed {
        what: &what,
        generation: meta.generation,
        programmed: object.programmed(),
        conditions: object.conditions(),
        known: by,
        number: network.number()?,
        concerned: &chassis,
        installed: installed.as_ref().map_err(Clone::clone),
        elapsed: since.elapsed(),
    });
    let mut said = object.conditions().to_vec();
    set(&mut said, PROGRAMMED, Ok(()), meta);
    set(&mut said, READY, wrong.map_or(Ok(()), Err), meta);
    let (number, then) = match &verdict {
        Verdict::Ask(reason) => {
            set(&mut said, IN_FORCE, Err(reason), meta);
            (None, Then::Ask(by))
        }
        Verdict::Lags { number, reason } => {
            set(&mut said, IN_FORCE, Err(reason), meta);
            let object = (K::WORK, key(meta));
            let wait = network.wait_for_chassis(uid(meta), object, *number, chassis, since);
            (Some(*number), Then::After(wait))
        }
        Verdict::InForce { number, chassis } => {
            set(&mut said, IN_FORCE, Ok(()), meta);
            (Some(*number), Then::Settled(*chassis))
        }
    };
    let programmed = Some(Programmed { generation: meta.generation, nb_cfg: number, epoch: None });
    // What is in force stays so on a chassis that comes: how many there are is counted with the members.
    let chassis = (!is_said).then(|| verdict.reached().map(barrier::of_chassis));
    Ok((Status { said, programmed, chassis }, then))
}

/// Since when it is said that it is not in force.
fn said_since(conditions: &[Condition], now: Instant) -> Instant {
    let said =
        conditions::get(conditions, IN_FORCE).map(|said| clock::now().duration_since(said.last_transition_time.0));
    let passed = said.and_then(|passed| Duration::try_from(passed).ok()).unwrap_or_default();
    now.checked_sub(passed).unwrap_or(now)
}

fn set(said: &mut Vec<Condition>, type_: &str, how: Result<(), &Reason>, meta: &ObjectMeta) {
    let (status, reason, message) = match how {
        Ok(()) => (ConditionStatus::True, if type_ == IN_FORCE { IN_FORCE } else { PROGRAMMED }, String::new()),
        Err(reason) => (ConditionStatus::False, reason.name(), reason.told()),
    };
    conditions::set(said, type_, status, reason, &message, meta.generation, clock::now());
}

struct Status {
    said: Vec<Condition>,
    programmed: Option<Programmed>,
    /// On how many chassis it is in force, where that is known; `None`: as it was counted.
    chassis: Option<Option<String>>,
}

impl Status {
    /// Of rows of the same generation that are there already all is said but that nothing can be done.
    fn not_written<K: Enforced>(object: &K, reason: &Reason) -> Self {
        let (meta, mut said) = (object.meta(), object.conditions().to_vec());
        set(&mut said, READY, Err(reason), meta);
        let programmed = object.programmed().cloned();
        if programmed.as_ref().is_none_or(|programmed| programmed.generation != meta.generation) {
            set(&mut said, PROGRAMMED, Err(reason), meta);
            set(&mut said, IN_FORCE, Err(reason), meta);
        }
        let chassis = (!conditions::is_true(&said, IN_FORCE)).then_some(None);
        Self { said, programmed, chassis }
    }

    /// Says it if it is anything new.
    async fn write<K: Enforced>(
        self,
        c: &Controller,
        cache: &Cache<K>,
        object: &K,
        counts: Option<Value>,
    ) -> Result<(), Error> {
        let (meta, before) = (object.meta(), object.conditions());
        let mut counts = counts.unwrap_or_else(|| object.counts());
        if let (Some(told), Some(chassis)) = (counts.get_mut("chassis"), self.chassis) {
            *told = json!(chassis);
        }
        // A number that proves nothing any more must not stay; one that is new is written with the next condition.
        let is_numbered = |programmed| barrier::is_numbered(meta.generation, programmed);
        let takes_back = is_numbered(object.programmed()) && !is_numbered(self.programmed.as_ref());
        if self.said == before && counts == object.counts() && !takes_back {
            return Ok(());
        }
        let mut change = counts;
        change["conditions"] = json!(self.said);
        // What is left out of a merge patch would stay.
        change["programmed"] =
            json!(self.programmed.as_ref().map(|said| json!({"generation": said.generation, "nbCfg": said.nb_cfg})));
        let api = c.objects.namespaced::<K>(meta.namespace.as_deref().unwrap_or_default());
        objects::patch_status(&api, cache, meta, change).await?;
        // It passes by itself within a moment, each time.
        let passing = Waiting::NotInForce { what: String::new() }.name();
        let new = |type_| {
            let reason = |said| conditions::get(said, type_).filter(|said| said.status == "False");
            let was = reason(before).map(|was| &was.reason);
            reason(&self.said).filter(|now| Some(&now.reason) != was && now.reason != passing)
        };
        // What keeps it from being ready keeps it from being in force, and is told once.
        if let Some(said) = new(READY).or_else(|| new(IN_FORCE)) {
            c.events.warn(object, &said.reason, &said.message);
        }
        Ok(())
    }
}

impl Logical {
    /// Rows of the object are being committed, or were.
    pub(super) fn commits(&self, uid: &str, object: (Work, Key), since: Instant, commit: Commit) {
        self.numbers.committed(uid, object, since, commit);
        if commit == Commit::Answered {
            // What the status says of it comes behind: meanwhile the chassis can be asked.
            self.tell();
        }
    }

    /// It is in force; how long that took, if anything was waited for.
    pub(super) fn settle_in_force(&self, uid: &str, work: Work) -> Option<Duration> {
        let took = self.numbers.settled(uid)?;
        self.written.in_force(work, took);
        Some(took)
    }

    /// The object's number is waited for; looked at again after this, to name the chassis that lag.
    pub(super) fn wait_for_chassis(
        &self,
        uid: &str,
        object: (Work, Key),
        number: u64,
        chassis: BTreeSet<String>,
        since: Instant,
    ) -> Duration {
        self.numbers.lags(uid, object, number, chassis, since);
        PATIENCE.checked_sub(since.elapsed()).filter(|wait| !wait.is_zero()).unwrap_or(AGAIN)
    }

    /// A number is asked for, for an object whose rows were committed by somebody before.
    pub(super) fn ask(&self, uid: &str, object: (Work, Key), since: Instant, by: Known) {
        self.numbers.ask(uid, object, since, by);
        self.tell();
    }
}
