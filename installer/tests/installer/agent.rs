//! What the agent reports, and what it does about a server that does not take it.

use crate::server::{Server, action};
use installer::agent::{Action, Actions, Agent, Then};
use installer::lines::Lines;
use proto::tink::action_status_request::StateType::{Failed, Running, Success, Timeout};
use proto::tink::workflow_service_client::WorkflowServiceClient;
use proto::tink::{ActionRequest, ActionResponse, AgentAttributes};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tonic::{Code, Response, Status};

/// Does what the image's name says.
#[derive(Default)]
struct Named {
    runs: AtomicUsize,
}

impl Actions for Named {
    async fn run(&self, action: &Action, lines: &Lines) -> Result<Then, String> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        match action.image.as_str() {
            "says" => {
                let word = action.environment.get("WORD").cloned().unwrap_or_default();
                lines.say(&format!("the word is {word}"));
                Ok(Then::Next)
            }
            "fails" => Err("the disk is missing".to_owned()),
            "lasts" => {
                tokio::time::sleep_until(action.deadline).await;
                Err("the time is over".to_owned())
            }
            "kexec" => Ok(Then::Kexec),
            _ => Ok(Then::Restart),
        }
    }
}

/// Serves to its end; the server as it is then, and how often something was run.
async fn served(
    actions: Vec<ActionResponse>,
    refusals: &[(proto::tink::action_status_request::StateType, Code)],
) -> (Server, usize) {
    let (server, address) = Server::start(actions).await;
    server.lock().refusals.extend(refusals);
    let agent = Agent::new(&[address.to_string()], None, "worker-1".to_owned(), AgentAttributes::default());
    let agent = agent.expect("an address");
    let named = Named::default();
    let serving = tokio::time::timeout(Duration::from_secs(60), agent.serve(&named));
    serving.await.expect("the last action restarts");
    (server, named.runs.load(Ordering::Relaxed))
}

fn told(
    list: &[(&str, proto::tink::action_status_request::StateType)],
) -> Vec<(String, proto::tink::action_status_request::StateType)> {
    list.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect()
}

#[tokio::test]
async fn each_action_is_reported_running_and_then_with_its_result() {
    let mut lasts = action("c", "lasts", &[]);
    lasts.timeout = Some(1);
    let actions =
        vec![action("a", "says", &[("WORD", "a=b")]), action("b", "fails", &[]), lasts, action("d", "restarts", &[])];
    let (server, _) = served(actions, &[]).await;
    let expected = [
        ("a", Running),
        ("a", Success),
        ("b", Running),
        ("b", Failed),
        ("c", Running),
        ("c", Timeout),
        ("d", Running),
        ("d", Success),
    ];
    assert_eq!(server.told(), told(&expected));
    let message =
        |name| server.result(name).and_then(|report| report.message).and_then(|m| m.message).unwrap_or_default();
    assert!(message("a").contains("the word is a=b"), "{}", message("a"));
    assert!(message("b").contains("the disk is missing"), "{}", message("b"));
    let result = server.result("a").expect("reported");
    assert_eq!((result.workflow_id(), result.task_id(), result.agent_id()), ("default/install", "task-1", "worker-1"));
    let (start, stop) = (result.execution_start.expect("a start"), result.execution_stop.expect("an end"));
    assert!(start.seconds > 1_500_000_000 && (stop.seconds, stop.nanos) >= (start.seconds, start.nanos));
    assert_eq!(server.lock().asked[0].agent_id(), "worker-1");
}

#[tokio::test]
async fn a_result_is_reported_until_it_is_heard_and_nothing_runs_twice_for_that() {
    let actions = vec![action("a", "says", &[]), action("b", "restarts", &[])];
    let (server, runs) = served(actions, &[(Success, Code::Unavailable), (Success, Code::Internal)]).await;
    let expected = [("a", Running), ("a", Success), ("a", Success), ("a", Success), ("b", Running), ("b", Success)];
    assert_eq!((server.told(), runs), (told(&expected), 2));
}

#[tokio::test]
async fn a_loaded_kernel_starts_when_its_success_was_heard_and_the_session_has_ended() {
    let key = trust::pin::Key::generate().expect("a key");
    let actions = vec![action("a", "kexec", &[]), action("b", "says", &[])];
    let (server, address) = Server::start_with_sessions(actions, &key).await;
    server.lock().refusals.extend([(Success, Code::Unavailable)]);
    let attributes = AgentAttributes::default();
    let agent = Agent::new(&[address.to_string()], Some(key.pin()), "w".to_owned(), attributes).expect("an address");
    let then = tokio::time::timeout(Duration::from_secs(60), agent.serve(&Named::default())).await;
    assert_eq!(then.expect("it ends"), Then::Kexec);
    assert_eq!(server.told(), told(&[("a", Running), ("a", Success), ("a", Success)]));
    assert_eq!(server.lock().calls.last().map(String::as_str), Some("end"));
}

#[tokio::test]
async fn what_the_server_disowns_is_left_and_what_it_did_not_hear_of_does_not_run() {
    let actions = || vec![action("a", "says", &[]), action("b", "restarts", &[])];
    let (server, runs) = served(actions(), &[(Success, Code::NotFound)]).await;
    let expected = [("a", Running), ("a", Success), ("b", Running), ("b", Success)];
    assert_eq!((server.told(), runs), (told(&expected), 2));
    let (server, runs) = served(actions(), &[(Running, Code::Unavailable)]).await;
    let expected = [("a", Running), ("a", Running), ("a", Success), ("b", Running), ("b", Success)];
    assert_eq!((server.told(), runs), (told(&expected), 2));
}

/// Says what it does, and goes on until the server has heard that.
struct Slow(Server);

impl Actions for Slow {
    async fn run(&self, _: &Action, lines: &Lines) -> Result<Then, String> {
        lines.say("half of it is written");
        while !self.0.lock().calls.iter().any(|call| call == HEARD) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Then::Restart)
    }
}

const HEARD: &str = "heartbeat half of it is written";

#[tokio::test]
async fn a_start_has_a_session_before_it_asks_tells_what_it_does_and_ends_it() {
    let key = trust::pin::Key::generate().expect("a key");
    let (server, address) = Server::start_with_sessions(vec![action("a", "x", &[])], &key).await;
    server.lock().used = 1;
    let agent = |pin| {
        let attributes = AgentAttributes::default();
        Agent::new(&[address.to_string()], Some(pin), "worker-1".to_owned(), attributes).expect("an address")
    };
    let slow = Slow(server.clone());
    // Whoever answers with another key is told nothing.
    let other = trust::pin::Key::generate().expect("a key").pin();
    let unanswered = tokio::time::timeout(Duration::from_secs(1), agent(other).serve(&slow)).await;
    assert!(unanswered.is_err() && server.lock().calls.is_empty(), "{:?}", server.lock().calls);
    let served = tokio::time::timeout(Duration::from_secs(60), agent(key.pin()).serve(&slow)).await;
    served.expect("the action restarts");
    let mut calls = server.lock().calls.clone();
    calls.retain(|call| !call.starts_with("heartbeat ") || call == HEARD);
    calls.dedup_by(|one, other| one == HEARD && other == HEARD);
    let redeem = "redeem worker-1";
    assert_eq!(calls, [redeem, redeem, "ask", HEARD, "end"]);
}

#[tokio::test]
async fn a_start_that_has_lost_its_session_asks_for_it_and_loses_no_result() {
    let key = trust::pin::Key::generate().expect("a key");
    let actions = vec![action("a", "says", &[]), action("b", "restarts", &[])];
    let (server, address) = Server::start_with_sessions(actions, &key).await;
    server.lock().refusals.extend([(Success, Code::Unauthenticated)]);
    let attributes = AgentAttributes::default();
    let agent = Agent::new(&[address.to_string()], Some(key.pin()), "w".to_owned(), attributes).expect("an address");
    let named = Named::default();
    tokio::time::timeout(Duration::from_secs(60), agent.serve(&named)).await.expect("the last action restarts");
    let expected = [("a", Running), ("a", Success), ("a", Success), ("b", Running), ("b", Success)];
    assert_eq!((server.told(), named.runs.load(Ordering::Relaxed)), (told(&expected), 2));
    let redeemed = server.lock().calls.iter().filter(|call| call.starts_with("redeem")).count();
    assert_eq!(redeemed, 2);
}

#[tokio::test]
async fn cloud_init_data_is_asked_for_until_it_is_told() {
    let key = trust::pin::Key::generate().expect("a key");
    let (server, address) = Server::start_with_sessions(Vec::new(), &key).await;
    let attributes = AgentAttributes::default();
    let agent = Agent::new(&[address.to_string()], Some(key.pin()), "w".to_owned(), attributes).expect("an address");
    let session = agent.session().expect("it is known by a key");
    let tells = async {
        while server.lock().calls.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.lock().seed = Some([("user-data".to_owned(), b"#cloud-config".to_vec())].into());
    };
    let told = tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(session.seed(), tells).0 });
    let told = told.await.expect("it is told").expect("it is told");
    assert_eq!(told["user-data"], b"#cloud-config");
    assert_eq!(server.lock().calls, ["seed", "seed"]);
    let plain = Agent::new(&[address.to_string()], None, "w".to_owned(), AgentAttributes::default());
    assert!(plain.expect("an address").session().is_none());
}

/// With a session and without.
#[tokio::test]
async fn another_replica_is_asked_when_one_is_away() {
    let key = trust::pin::Key::generate().expect("a key");
    for pin in [None, Some(key.pin())] {
        let actions = || vec![action("a", "says", &[]), action("b", "restarts", &[])];
        let away =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listen").local_addr().expect("an address");
        let (server, address) = match pin {
            None => Server::start(actions()).await,
            Some(_) => Server::start_with_sessions(actions(), &key).await,
        };
        let servers = [away.to_string(), address.to_string()];
        let agent = Agent::new(&servers, pin, "w".to_owned(), AgentAttributes::default()).expect("addresses");
        let named = Named::default();
        tokio::time::timeout(Duration::from_secs(60), agent.serve(&named)).await.expect("the last action restarts");
        assert_eq!(server.told(), told(&[("a", Running), ("a", Success), ("b", Running), ("b", Success)]));
    }
}

/// By which the installer sets a clock that is wrong.
#[tokio::test]
async fn whatever_is_answered_has_the_servers_time() {
    let (server, address) = Server::start(vec![action("a", "says", &[])]).await;
    let mut client = WorkflowServiceClient::connect(format!("http://{address}")).await.expect("connected");
    for is_refused in [false, true] {
        let request = ActionRequest { agent_id: Some("worker-1".to_owned()), agent_attributes: None };
        let answer = client.get_action(request).await;
        assert_eq!(answer.is_err(), is_refused, "{answer:?}");
        let metadata = answer.as_ref().map_or_else(Status::metadata, Response::metadata);
        let date = metadata.get("date").expect("a date").to_str().expect("text").to_owned();
        let time = installer::clock::correction(SystemTime::UNIX_EPOCH, &date).expect("a time");
        let away = SystemTime::now().duration_since(time).expect("the server's clock is this one");
        assert!(away < Duration::from_secs(60), "{date}");
        assert_eq!(installer::clock::correction(SystemTime::now(), &date), None, "a clock that is right stays");
        server.lock().actions.clear();
    }
}
