//! OVN's north-bound database (ovn-nb(5)), as the leading controller writes it.
//!
//! A handle follows the database: what it reads comes from a copy, without asking, and holds at least what its own
//! transactions did. A change is planned from the copy (`planner::network::rows::diff`) and carried out as one transaction, which
//! the database refuses when the copy was old: then nothing of it was done.
//!
//! | guard of a transaction | failed |
//! |---|---|
//! | the database has the token that this handle took | [`NorthBoundError::NotLeader`]: end, another controller leads |
//! | each row that is updated or deleted is as it was planned from | [`NorthBoundError::Contended`]: read and plan again |
//! | no row has the UID and part of a row that is inserted | the same |
//! | each row that a row of the change is a member of is there | the same; unknown to the copy: [`ErrorClass::NotFound`] |
//!
//! A handle serves one site. Rows of other sites and of nobody are neither listed nor changed.

use crate::{ErrorClass, PortError};
use async_trait::async_trait;
use planner::network::rows::{Change, Found, UNBOUND};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Which leader may write: the controllers' Lease, and how often it has changed hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub lease_uid: String,
    pub transitions: u64,
}

impl Token {
    /// Under which key of `NB_Global` `external_ids` the token of a site is.
    pub fn key(site: &str) -> String {
        format!("metalplane-token-{site}")
    }

    /// Only upwards. Tokens of two Leases have no order: who takes over from another Lease has read the Lease.
    pub fn may_follow(&self, before: &Self) -> bool {
        self.lease_uid != before.lease_uid || self.transitions >= before.transitions
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lease_uid, self.transitions)
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').filter(|(lease, _)| !lease.is_empty());
        let token = parts.and_then(|(lease, transitions)| {
            Some(Self { lease_uid: lease.to_owned(), transitions: transitions.parse().ok()? })
        });
        token.ok_or_else(|| format!("`{text}` is no token (<UID of a Lease>/<number>)"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NorthBoundError {
    /// The database does not have this handle's token: another controller leads. Nothing was written, and nothing will be.
    #[error("NotLeader: {0}")]
    NotLeader(String),
    /// Somebody changed what the change was planned from. Nothing was written: read again, plan again.
    #[error("Contended: {0}")]
    Contended(String),
    /// `Unreachable`: it may have happened; what there is then is read, never sent again blindly.
    #[error(transparent)]
    Port(#[from] PortError),
}

impl NorthBoundError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotLeader(_) => ErrorClass::Unauthorized,
            Self::Contended(_) => ErrorClass::Conflict,
            Self::Port(error) => error.class,
        }
    }
}

/// What has happened since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The objects whose rows appeared, changed, left, or joined or left a set of another row; whoever did it.
    pub uids: BTreeSet<String>,
    /// Whether the copy follows the database; else why not.
    pub link: Result<(), PortError>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    pub count: usize,
    /// Those that may bind one of them.
    pub chassis: BTreeSet<String>,
}

impl Members {
    /// `chassis`: the port's `requested-chassis`.
    pub fn add(&mut self, chassis: Option<&str>) {
        self.count += 1;
        self.chassis.extend(chassis.filter(|chassis| *chassis != UNBOUND).map(str::to_owned));
    }
}

#[async_trait]
pub trait NorthBound: Send + Sync {
    /// Every row of the object with this UID, in the order of their UUIDs. An error means that the copy is old.
    fn rows(&self, uid: &str) -> Result<Vec<Found>, PortError>;

    /// Every object that has rows.
    fn uids(&self) -> Result<BTreeSet<String>, PortError>;

    /// OVN says that the port of the VNic with this UID is bound to a chassis and has come up there.
    fn is_up(&self, uid: &str) -> Result<bool, PortError>;

    /// `nb_cfg`: the number that was asked for last.
    fn number(&self) -> Result<u64, PortError>;

    /// The token in the database, whoever took it.
    fn token(&self) -> Result<Option<Token>, PortError>;

    /// From now on the database takes nothing of whom had the token before, and this handle writes with it. `over`:
    /// what [`NorthBound::token`] said; `Contended` if the database has another one by now, `NotLeader` if `over` is a higher one of the
    /// same Lease. Over the token of another Lease the caller has read its own Lease from quorum.
    async fn take_token(&self, token: &Token, over: Option<&Token>) -> Result<(), NorthBoundError>;

    /// One transaction; the copy has it afterwards. Nothing to do: nothing is written.
    async fn apply(&self, change: &Change) -> Result<(), NorthBoundError>;

    /// The VNics' ports in a set of a row of the object with this UID: those of a Subnet, the members of a SecurityGroup. As
    /// [`NorthBound::rows`], it holds at least what this handle's own transactions came after.
    fn members(&self, uid: &str) -> Result<Members, PortError>;

    /// Asks every chassis to tell when it has installed all that was committed before, and gives the number by which
    /// it will tell ([`crate::SouthBound`]): one above that of the database, and above this one.
    async fn raise(&self, above: u64) -> Result<u64, NorthBoundError>;

    /// Bytes of all transactions that this handle has sent since it was opened, whatever came of them.
    fn sent(&self) -> u64;

    /// Waits for something to happen. The first look tells every UID, and so does one after a copy was made afresh. For one
    /// caller; one who stops waiting misses nothing.
    async fn changes(&self) -> Changes;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(lease: &str, transitions: u64) -> Token {
        Token { lease_uid: lease.to_owned(), transitions }
    }

    #[test]
    fn a_token_is_written_and_read() {
        let one = token("9c1d", 7);
        assert_eq!(one.to_string(), "9c1d/7");
        assert_eq!("9c1d/7".parse(), Ok(one));
        for wrong in ["", "9c1d", "/7", "9c1d/", "9c1d/-1", "9c1d/x"] {
            wrong.parse::<Token>().expect_err(wrong);
        }
    }

    #[test]
    fn a_token_goes_upwards_only() {
        assert!(token("a", 7).may_follow(&token("a", 6)));
        assert!(token("a", 7).may_follow(&token("a", 7)), "the same leader after a restart");
        assert!(!token("a", 7).may_follow(&token("a", 8)));
        assert!(token("b", 1).may_follow(&token("a", 8)), "whether the Lease is the right one is for its reader");
    }
}
