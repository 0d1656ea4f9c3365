//! Whether what OVN has of an object is in force: installed on every chassis with a port that the object concerns.
//!
//! After the rows of an object are committed a number is asked for (`nb_cfg`, ovn-nb(5)), and each chassis tells the highest number
//! of which it has installed everything (`Chassis_Private`, ovn-sb(5)). So a number that was asked for after the commit, and that
//! every such chassis has reached, is the proof. A port that gets its chassis later than that needs none: its chassis learns of the
//! port by what OVN has compiled after the rows.
//!
//! `hv_cfg` would be shorter, and wrong: that is the least number of all chassis, so one dead chassis would block every object.

use crate::reason::{Reason, Waiting};
use api::conditions::{self, IN_FORCE};
use api::network::Programmed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A chassis that has not reached a number after so long is named.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// No more chassis than these are named.
const NAMED: usize = 3;

/// What this process knows of the rows that it found or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It committed none; what the status says is all there is.
    Nothing,
    /// They were committed, or may have been, and no number was asked for since.
    Committed,
    /// This number was asked for after the commit.
    Number(u64),
}

pub struct Observed<'a> {
    /// What it is, for people: `the rules of SecurityGroup 'web'`.
    pub what: &'a str,
    pub generation: Option<i64>,
    /// What the status says.
    pub programmed: Option<&'a Programmed>,
    pub conditions: &'a [Condition],
    pub known: Known,
    /// The north-bound database's own number.
    pub number: u64,
    /// The chassis that may have a port which the object concerns.
    pub concerned: &'a BTreeSet<String>,
    /// The highest number of which each chassis has installed everything; else why that is not known.
    pub installed: Result<&'a BTreeMap<String, Option<u64>>, String>,
    /// Since the rows were committed.
    pub elapsed: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// A number has to be asked for.
    Ask(Reason),
    /// It was, and some chassis have not reached it, or it is not known which have.
    Lags { number: u64, reason: Reason },
    /// By so many chassis.
    InForce { number: u64, chassis: usize },
}

impl Verdict {
    /// On how many chassis it is in force, and of how many. `None`: it is being installed, or that is not known.
    pub fn reached(&self) -> Option<(usize, usize)> {
        match self {
            Self::InForce { chassis, .. } => Some((*chassis, *chassis)),
            Self::Lags { reason: Reason::Waiting(Waiting::ChassisUnresponsive { reached, all, .. }), .. } => {
                Some((*reached, *all))
            }
            Self::Ask(_) | Self::Lags { .. } => None,
        }
    }
}

/// As a status tells it.
pub fn of_chassis((reached, all): (usize, usize)) -> String {
    format!("{reached}/{all}")
}

/// The rows of this generation are in force by what the status says, and nothing was committed since.
pub fn is_said(generation: Option<i64>, conditions: &[Condition]) -> bool {
    conditions::get(conditions, IN_FORCE)
        .is_some_and(|said| said.status == "True" && said.observed_generation == generation)
}

/// What the status says of this generation could be taken for proof by a controller that knows of no commit: before rows of the same
/// generation are written anew it is taken back.
pub fn is_numbered(generation: Option<i64>, programmed: Option<&Programmed>) -> bool {
    said(generation, programmed).is_some()
}

/// The number that the status names for this generation.
fn said(generation: Option<i64>, programmed: Option<&Programmed>) -> Option<u64> {
    programmed.filter(|said| said.generation == generation).and_then(|said| said.nb_cfg)
}

/// The number that proves it. One above the database's own is of a database that was replaced by an older one since.
fn number(o: &Observed<'_>) -> Option<u64> {
    let number = match o.known {
        Known::Committed => None,
        Known::Number(number) => Some(number),
        Known::Nothing => said(o.generation, o.programmed),
    };
    number.filter(|number| *number <= o.number)
}

pub fn judge(o: &Observed<'_>) -> Verdict {
    let installing = || Waiting::NotInForce { what: o.what.to_owned() }.into();
    let number = number(o);
    if let Some(number) = number.filter(|_| o.known == Known::Nothing && is_said(o.generation, o.conditions)) {
        return Verdict::InForce { number, chassis: o.concerned.len() };
    }
    let (number, installed) = match (number, &o.installed) {
        (Some(number), Ok(installed)) => (number, installed),
        (None, Ok(_)) => return Verdict::Ask(installing()),
        (number, Err(message)) => {
            let reason = Waiting::SouthBoundUnreachable { message: message.clone() }.into();
            return match number {
                Some(number) => Verdict::Lags { number, reason },
                None => Verdict::Ask(reason),
            };
        }
    };
    let reached = |chassis: &str| has_reached(installed, chassis, number);
    let behind: Vec<&str> = o.concerned.iter().map(String::as_str).filter(|chassis| !reached(chassis)).collect();
    match behind.len() {
        0 => Verdict::InForce { number, chassis: o.concerned.len() },
        _ if o.elapsed < PATIENCE => Verdict::Lags { number, reason: installing() },
        count => {
            let (reached, all) = (o.concerned.len() - count, o.concerned.len());
            Verdict::Lags {
                number,
                reason: Waiting::ChassisUnresponsive { reached, all, chassis: names(&behind) }.into(),
            }
        }
    }
}

pub fn has_reached(installed: &BTreeMap<String, Option<u64>>, chassis: &str, number: u64) -> bool {
    installed.get(chassis).copied().flatten().is_some_and(|installed| installed >= number)
}

/// What a new number has to be above: a chassis that has been unreachable since before a restore of the database still tells a
/// number of that database, and is not to seem to have reached a new one.
pub fn above(installed: &BTreeMap<String, Option<u64>>) -> u64 {
    installed.values().copied().flatten().max().unwrap_or_default()
}

/// `'a' is`; `'a', 'b' are`; `'a', 'b', 'c' and 4 more are`.
fn names(behind: &[&str]) -> String {
    let named: Vec<String> = behind.iter().take(NAMED).map(|name| format!("'{name}'")).collect();
    let more = behind.len().saturating_sub(NAMED);
    match (named.as_slice(), more) {
        ([one], 0) => format!("{one} is"),
        (named, 0) => format!("{} are", named.join(", ")),
        (named, more) => format!("{} and {more} more are", named.join(", ")),
    }
}
