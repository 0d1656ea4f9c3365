//! The client against a scripted peer: what the wire may do.

use super::*;
use crate::rpc::methods::{GetVersion, bdev::AioRescan};
use std::future::Future;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::{
        UnixListener,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

const SOON: Duration = Duration::from_secs(60);

struct Peer {
    lines: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Peer {
    async fn accept(listener: &UnixListener) -> Self {
        let (reader, writer) = listener.accept().await.expect("a connection").0.into_split();
        Self { lines: BufReader::new(reader).lines(), writer }
    }

    async fn request(&mut self) -> Value {
        let line = self.lines.next_line().await.expect("readable").expect("a request");
        serde_json::from_str(&line).expect("JSON")
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).await.expect("writable");
    }
}

fn version(id: &Value, version: &str) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": id, "result": {"version": version}}).to_string().into_bytes()
}

async fn with_peer<F: Future<Output = ()>>(limit: Duration, test: impl FnOnce(Arc<Rpc>, UnixListener) -> F) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("rpc.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    test(Arc::new(Rpc::new(socket, limit)), listener).await;
}

fn ask(rpc: &Arc<Rpc>) -> tokio::task::JoinHandle<Result<String, RpcError>> {
    let rpc = Arc::clone(rpc);
    tokio::spawn(async move { rpc.call(&GetVersion {}).await.map(|v| v.version) })
}

#[tokio::test]
async fn calls_are_pipelined_and_answers_may_change_places_and_come_in_pieces() {
    with_peer(SOON, |rpc, listener| async move {
        let first = ask(&rpc);
        let mut peer = Peer::accept(&listener).await;
        let one = peer.request().await;
        assert!(one.get("params").is_none(), "empty parameters are left out: {one}");
        let second = ask(&rpc);
        let two = peer.request().await;
        let mut bytes = version(&two["id"], "second");
        bytes.extend(version(&one["id"], "first }{"));
        for piece in bytes.chunks(7) {
            peer.say(piece).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(first.await.expect("no panic"), Ok("first }{".to_owned()));
        assert_eq!(second.await.expect("no panic"), Ok("second".to_owned()));
    })
    .await;
}

#[tokio::test]
async fn the_targets_code_is_kept() {
    with_peer(SOON, |rpc, listener| async move {
        let asked = {
            let rpc = Arc::clone(&rpc);
            tokio::spawn(async move { rpc.call(&AioRescan { name: "a" }).await })
        };
        let mut peer = Peer::accept(&listener).await;
        let request = peer.request().await;
        assert_eq!((&request["method"], &request["params"]), (&json!("bdev_aio_rescan"), &json!({"name": "a"})));
        let error = json!({"code": -19, "message": "No such device"});
        peer.say(json!({"jsonrpc": "2.0", "id": request["id"], "error": error}).to_string().as_bytes()).await;
        let refused = asked.await.expect("no panic").expect_err("refused");
        assert_eq!(refused.code(), Some(-19));
        assert!(refused.is_gone());
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_is_unreachable_and_the_next_call_makes_another() {
    with_peer(SOON, |rpc, listener| async move {
        let asked = ask(&rpc);
        let mut peer = Peer::accept(&listener).await;
        peer.request().await;
        peer.say(b"{\"jsonrpc\":").await;
        drop(peer);
        let lost = asked.await.expect("no panic").expect_err("no answer came");
        assert!(matches!(&lost, RpcError::Unreachable(cause) if cause.contains("spdk_get_version")), "{lost}");

        let again = ask(&rpc);
        let mut peer = Peer::accept(&listener).await;
        let request = peer.request().await;
        peer.say(&version(&request["id"], "new")).await;
        assert_eq!(again.await.expect("no panic"), Ok("new".to_owned()));
    })
    .await;
}

#[tokio::test]
async fn silence_has_a_limit_and_a_late_answer_is_dropped() {
    with_peer(Duration::from_millis(200), |rpc, listener| async move {
        let silent = ask(&rpc);
        let mut peer = Peer::accept(&listener).await;
        let late = peer.request().await;
        let error = silent.await.expect("no panic").expect_err("no answer came");
        assert_eq!(error.class(), ports::ErrorClass::Unreachable, "{error}");
        peer.say(&version(&late["id"], "late")).await;
        // The limit may pass again on a busy machine; whatever comes, it is not the late answer.
        for _ in 0..100 {
            let next = ask(&rpc);
            let request = peer.request().await;
            peer.say(&version(&request["id"], "in time")).await;
            match next.await.expect("no panic") {
                Err(error) => assert_eq!(error.class(), ports::ErrorClass::Unreachable, "{error}"),
                Ok(version) => return assert_eq!(version, "in time"),
            }
        }
        panic!("a hundred calls were not answered in time");
    })
    .await;
}

#[tokio::test]
async fn what_is_no_answer_is_said_so() {
    with_peer(SOON, |rpc, listener| async move {
        let asked = ask(&rpc);
        let mut peer = Peer::accept(&listener).await;
        let request = peer.request().await;
        peer.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": []}).to_string().as_bytes()).await;
        assert!(matches!(asked.await.expect("no panic"), Err(RpcError::Malformed { .. })));

        let garbage = ask(&rpc);
        peer.request().await;
        peer.say(b"HTTP/1.1 400 Bad Request").await;
        assert!(matches!(garbage.await.expect("no panic"), Err(RpcError::Unreachable(_))));

        let absent = Rpc::new("/nonexistent/rpc.sock", SOON).call(&GetVersion {}).await.expect_err("no socket");
        assert!(absent.to_string().contains("/nonexistent/rpc.sock"), "it names the socket: {absent}");
    })
    .await;
}
