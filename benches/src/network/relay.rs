//! Between the controller and the north-bound database: passes every byte on, and keeps what was asked of the database.
//!
//! A transaction is done when its answer comes by, which the database sends after the commit.

use anyhow::{Context, Result};
use ovsdb::wire::{Message, Scanner};
use sandbox::cluster::ovn::NORTH_BOUND;
use sandbox::layout::Layout;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PIECE: usize = 64 << 10;

/// What a transaction was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The rows of the object with this UID.
    Object(String),
    /// The leader's token.
    Token,
    /// The number that chassis tell when they have everything up to it.
    Number(i64),
}

#[derive(Debug, Clone)]
pub struct Transaction {
    pub about: About,
    pub bytes: usize,
    pub answered: Instant,
    /// A guard, or the database, has refused it.
    pub refused: bool,
}

/// One that is under way: when it has its answer it is a [`Transaction`].
struct Asked {
    about: About,
    bytes: usize,
}

type Log = watch::Sender<Vec<Transaction>>;

pub struct Relay {
    pub socket: PathBuf,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    pub fn listen(layout: &Layout) -> Result<Self> {
        let (socket, database) = (layout.ovn().join("counted.sock"), NORTH_BOUND.socket(layout));
        let listener = UnixListener::bind(&socket).with_context(|| format!("listen on {}", socket.display()))?;
        let log = Arc::new(Log::new(Vec::new()));
        let kept = log.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (database, log) = (database.clone(), kept.clone());
                tokio::spawn(async move {
                    match UnixStream::connect(&database).await {
                        Ok(server) => connection(client, server, log).await,
                        Err(error) => eprintln!("bench: {}: {error}", database.display()),
                    }
                });
            }
        });
        Ok(Self { socket, log, task })
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.log.borrow().len()
    }

    /// Those from `first` on.
    pub fn since(&self, first: usize) -> Vec<Transaction> {
        self.log.borrow().iter().skip(first).cloned().collect()
    }

    /// The first one from `first` on that is so.
    pub async fn until(
        &self,
        what: &str,
        first: usize,
        limit: Duration,
        is_it: impl Fn(&Transaction) -> bool,
    ) -> Result<Transaction> {
        let mut log = self.log.subscribe();
        let find = |all: &Vec<Transaction>| all.iter().skip(first).find(|one| !one.refused && is_it(one)).cloned();
        let found = tokio::time::timeout(limit, log.wait_for(|all| find(all).is_some())).await;
        let found = found.with_context(|| format!("{what}: not within {} s", limit.as_secs()))??;
        find(&found).context("it was there")
    }

    /// Waits until each of these objects has had a transaction; when the last one was answered.
    pub async fn until_all(
        &self,
        what: &str,
        first: usize,
        uids: &HashSet<String>,
        limit: Duration,
    ) -> Result<Instant> {
        let (began, mut looked_at, mut missing) = (Instant::now(), first, uids.clone());
        loop {
            for one in self.since(looked_at) {
                looked_at += 1;
                if let About::Object(uid) = &one.about
                    && !one.refused
                    && missing.remove(uid)
                    && missing.is_empty()
                {
                    return Ok(one.answered);
                }
            }
            let left = missing.len();
            anyhow::ensure!(began.elapsed() < limit, "{what}: {left} of {} not within {limit:?}", uids.len());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn connection(client: UnixStream, server: UnixStream, log: Arc<Log>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let asked: Mutex<HashMap<u64, Asked>> = Mutex::default();
    let asked = || asked.lock().unwrap_or_else(PoisonError::into_inner);
    let there = pass(from_client, to_server, |message, _| {
        if let Message::Request { id, method, params } = &message
            && method == "transact"
            && let Some(id) = id.as_u64()
        {
            asked().insert(id, Asked { about: about(params), bytes: message.to_bytes().len() });
        }
    });
    let back = pass(from_server, to_client, |message, at| {
        let Message::Response { id, result } = message else { return };
        let Some(Asked { about, bytes }) = id.as_u64().and_then(|id| asked().remove(&id)) else { return };
        let outcomes = result.as_ref().ok().and_then(Value::as_array);
        let refused = outcomes.is_none_or(|all| all.iter().any(|one| one.get("error").is_some()));
        let about = match about {
            About::Number(_) => About::Number(outcomes.and_then(|all| number(all)).unwrap_or_default()),
            about => about,
        };
        log.send_modify(|all| all.push(Transaction { about, bytes, answered: at, refused }));
    });
    // Whichever side closes first ends both.
    tokio::select! {
        ended = there => told(ended),
        ended = back => told(ended),
    }
}

fn told(ended: Result<()>) {
    if let Err(error) = ended {
        eprintln!("bench: a connection to the north-bound database: {error:#}");
    }
}

/// First on, then looked at: the time of a piece is that of its arrival.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, seen: impl Fn(Message, Instant)) -> Result<()> {
    let (mut scanner, mut piece) = (Scanner::default(), vec![0; PIECE]);
    loop {
        let read = from.read(&mut piece).await?;
        let at = Instant::now();
        if read == 0 {
            return Ok(());
        }
        to.write_all(&piece[..read]).await?;
        scanner.buffer().extend_from_slice(&piece[..read]);
        while let Some(message) = scanner.next_message().map_err(anyhow::Error::msg)? {
            seen(message, at);
        }
    }
}

/// By the comment that the controller gives each one; only the number has none.
fn about(params: &Value) -> About {
    let operations = params.as_array().into_iter().flatten();
    let comment = operations.filter_map(|operation| operation.get("comment")?.as_str()).next();
    match comment.and_then(|comment| comment.strip_prefix("metalplane: ")) {
        None => About::Number(0),
        Some(said) if said.starts_with("taking the token") => About::Token,
        Some(said) => {
            let uid = said.split(':').next().and_then(|kind_and_uid| kind_and_uid.split(' ').nth(1));
            About::Object(uid.unwrap_or_default().to_owned())
        }
    }
}

/// What the last operation has read.
fn number(outcomes: &[Value]) -> Option<i64> {
    outcomes.last()?["rows"][0]["nb_cfg"].as_i64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_transaction_is_known_by_its_comment() {
        let said = |comment: &str| json!(["OVN_Northbound", {"op": "wait"}, {"op": "comment", "comment": comment}]);
        let object = about(&said("metalplane: VNic 12-34: 1 rows to insert, 0 to update, 0 to delete"));
        assert_eq!(object, About::Object("12-34".to_owned()));
        assert_eq!(about(&said("metalplane: taking the token a/7")), About::Token);
        assert_eq!(about(&json!(["OVN_Northbound", {"op": "mutate"}])), About::Number(0));
    }

    #[test]
    fn the_number_is_what_was_read_last() {
        assert_eq!(number(&[json!({}), json!({"count": 1}), json!({"rows": [{"nb_cfg": 7}]})]), Some(7));
        assert_eq!(number(&[json!({"error": "timed out"})]), None);
    }
}
