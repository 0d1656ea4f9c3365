//! The mode `Session`, the default: two starts of an installer with one token, of which one is served. TLS, keys and calls are the
//! installer's own.

use super::{Agent, INVENTORY, MAC, wrong_server};
use crate::site::{self, ApiServer, US, client, path, until};
use api::HardwareReport;
use api::report::{AgentRefusedReason, HardwareReportStatus};
use api::tinkerbell::{Template, Workflow};
use installer::session::{Session, by_tcp, channel};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_client::WorkflowServiceClient;
use serde_json::json;
use std::time::Duration;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const SERVER: &str = "10.88.0.1:42113";
const METRICS: &str = "127.0.0.1:9767";

/// One start: with a key of its own.
pub struct Start {
    pub session: Session,
    pub agent: Agent,
}

impl Start {
    fn with(pin: &str, worker_id: &str) -> Self {
        Self::of(pin, worker_id, None)
    }

    /// On a server whose firmware tells this UUID.
    pub fn of(pin: &str, worker_id: &str, system_uuid: Option<&str>) -> Self {
        let channel = opened(pin);
        let agent = Agent(WorkflowServiceClient::new(channel.clone()));
        Self { session: Session::new(channel, worker_id.to_owned(), system_uuid.map(str::to_owned)), agent }
    }
}

fn opened(pin: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{SERVER}")).expect("an address");
    channel(&endpoint, by_tcp(), &[SERVER.to_owned()], Some(pin.parse().expect("a pin"))).expect("a key")
}

/// What the server has in its kernel arguments: `worker_id`, and the pin.
pub async fn arguments(mac: &str) -> (String, String) {
    until("the script has what the installer needs", async || {
        let script = client(&["curl", "-s", &format!("http://{US}:7080/ipxe/script/{mac}/auto.ipxe")]).await;
        let script = String::from_utf8_lossy(&script.stdout).into_owned();
        let of = |name: &str| script.split_whitespace().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
        let found = (of("worker_id="), of("metalplane_grpc_pin="), script.contains(" tinkerbell_tls=true "));
        if let (Some(worker_id), Some(pin), true) = found { Ok((worker_id, pin)) } else { Err(script) }
    })
    .await
}

pub async fn workflow(site: &ApiServer, dir: &tempfile::TempDir, arguments: &[String]) {
    let key = path(dir, "token-key");
    std::fs::write(&key, [7; 32]).expect("written");
    let mut given: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with("--agents=")).cloned().collect();
    given.extend([format!("--token-key={}", key.display()), format!("--metrics={METRICS}")]);
    let log = path(dir, "sessions.log");
    let service = site::boot(&site.kubeconfig, &given, US, &log).await;
    let workflows: Api<Workflow> = Api::namespaced(site.admin.clone(), INVENTORY);
    let object = json!({"metadata": {"name": "s"}, "spec": {
        "templateRef": "t", "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    workflows.create(&PostParams::default(), &object).await.expect("created");

    let (worker_id, pin) = self::arguments(MAC).await;
    let reports: Api<HardwareReport> = Api::namespaced(site.admin.clone(), INVENTORY);
    let status = async || reports.get("s1").await.map(|report| report.status.unwrap_or_default()).expect("a report");
    let (mut first, mut second) = (Start::with(&pin, &worker_id), Start::with(&pin, &worker_id));
    let refused = first.agent.next_of(&worker_id).await.expect_err("the token is not redeemed");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    first.session.seed().await.expect_err("nor is it told what the system reads");
    first.session.redeem().await.expect("a session");
    let told = first.session.seed().await.expect("told");
    assert_eq!(told["user-data"], b"#cloud-config of s1\n");
    assert!(String::from_utf8_lossy(&told["meta-data"]).contains("\"local-hostname\": \"s1\""), "{told:?}");
    first.session.redeem().await.expect("as if the first answer had been lost");
    nobody_else(&mut second, &worker_id, &pin, &status).await;
    let numbers =
        tokio::process::Command::new("curl").args(["-s", &format!("http://{METRICS}/metrics")]).output().await;
    let numbers = String::from_utf8_lossy(&numbers.expect("curl starts").stdout).into_owned();
    for line in ["seen_total{what=\"TokenUsedTwice\"} 1", "seen_total{what=\"TLSRequired\"} 1", "agents=\"session\"} 1"]
    {
        assert!(numbers.contains(line), "{line}: {numbers}");
    }

    let action = first.agent.next_of(&worker_id).await.expect("an action");
    assert_eq!(action.name.as_deref(), Some("image"));
    first.agent.say(&worker_id, &action, StateType::Running).await.expect("acknowledged");
    let refused = second.agent.say(&worker_id, &action, StateType::Failed).await.expect_err("not its Workflow");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let state = workflows.get("s").await.expect("read").status.and_then(|status| status.state);
    assert_eq!(state.as_deref(), Some("RUNNING"), "what another start says counts for nothing");
    let is_told = async || {
        until("it is told how far the boot came, beside the session", async || {
            let status = status().await;
            let stage = status.netboot.as_ref().map(|seen| seen.stage);
            let is_told = stage == Some(api::report::NetbootStage::Agent) && status.session.is_some();
            if is_told { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await;
    };
    // What a process has seen and not written yet goes with it.
    is_told().await;
    // Another process of the service knows the session, and its key is the same.
    drop(service);
    let log = path(dir, "sessions-again.log");
    let _service = site::boot(&site.kubeconfig, &given, US, &log).await;
    until("the first start is known", async || {
        first.agent.say(&worker_id, &action, StateType::Success).await.map_err(|error| error.to_string())
    })
    .await;
    is_told().await;
    // The server is restarted: the next start is another one.
    first.session.end().await;
    second.session.redeem().await.expect("the session");
    let refused = first.agent.next_of(&worker_id).await.expect_err("its session has ended");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let action = second.agent.next_of(&worker_id).await.expect("an action");
    assert_eq!(action.name.as_deref(), Some("reboot"));
    second.agent.say(&worker_id, &action, StateType::Success).await.expect("acknowledged");
    let state = workflows.get("s").await.expect("read").status.and_then(|status| status.state);
    assert_eq!(state.as_deref(), Some("SUCCESS"));
    let mut third = Start::with(&pin, &worker_id);
    superseded(&workflows, second, &mut third, &worker_id).await;
    workflows.delete("s2", &DeleteParams::default()).await.expect("deleted");
    lacking(site, &workflows, third, &worker_id).await;
    wrong_server::has_no_session(site).await;
    let (_, tag) = worker_id.rsplit_once('.').expect("a token");
    for log in [path(dir, "sessions.log"), log] {
        assert!(!std::fs::read_to_string(&log).expect("a log").contains(tag), "the token is in {}", log.display());
    }
}

/// One that waits for work while another start gets the session is not given what comes then.
async fn superseded(workflows: &Api<Workflow>, mut old: Start, new: &mut Start, worker_id: &str) {
    let (mut waits, id) = (Agent(old.agent.0.clone()), worker_id.to_owned());
    let mut waiting = tokio::spawn(async move { waits.next_of(&id).await });
    let held_back = tokio::time::timeout(Duration::from_millis(500), &mut waiting).await;
    assert!(held_back.is_err(), "there is nothing to do, and it has the session: {held_back:?}");
    old.session.end().await;
    new.session.redeem().await.expect("the session");
    let object = json!({"metadata": {"name": "s2"}, "spec": {
        "templateRef": "t", "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    workflows.create(&PostParams::default(), &object).await.expect("created");
    let refused = waiting.await.expect("it ran").expect_err("its session has ended");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let action = new.agent.next_of(worker_id).await.expect("an action");
    assert_eq!(action.workflow_id.as_deref(), Some("inventory/s2"));
}

/// A Workflow with an action that the installer has not ends when that asks, and nothing of it is served.
async fn lacking(site: &ApiServer, workflows: &Api<Workflow>, mut start: Start, worker_id: &str) {
    let data = "version: '0.1'\nname: lacks\nglobal_timeout: 600\ntasks:\n- name: os\n  worker: '{{.device_1}}'\n  actions:\n  \
                - {name: image, image: image2disk}\n  - {name: files, image: slurp}\n";
    let template = json!({"metadata": {"name": "lacks"}, "spec": {"data": data}});
    let template: Template = serde_json::from_value(template).expect("a Template");
    let templates: Api<Template> = Api::namespaced(site.admin.clone(), INVENTORY);
    templates.create(&PostParams::default(), &template).await.expect("created");
    let object = json!({"metadata": {"name": "s3"}, "spec": {
        "templateRef": "lacks", "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    workflows.create(&PostParams::default(), &object).await.expect("created");
    let ended = until("it ends", async || {
        let status = workflows.get("s3").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        if status.state.as_deref() == Some("FAILED") { Ok(status) } else { Err(format!("{status:?}")) }
    });
    let status = tokio::select! {
        served = start.agent.next_of(worker_id) => panic!("{served:?}"),
        status = ended => status,
    };
    assert!(status.conditions.iter().any(|said| said.reason.as_deref() == Some("ActionNotBuiltIn")), "{status:?}");
}

/// Who has the token too, or who guesses.
async fn nobody_else(second: &mut Start, worker_id: &str, pin: &str, status: &impl AsyncFn() -> HardwareReportStatus) {
    let refused = second.session.redeem().await.expect_err("the token is redeemed");
    assert!(refused.code() == Code::PermissionDenied && refused.message().starts_with("TokenUsedTwice: "), "{refused}");
    let is_refused = async |reason: AgentRefusedReason| {
        until("it is told that an agent was refused", async || {
            let refused = status().await.refused;
            let is_it = refused.as_ref().is_some_and(|refused| refused.reason == reason && refused.address.is_some());
            if is_it { Ok(()) } else { Err(format!("{refused:?}")) }
        })
        .await;
    };
    is_refused(AgentRefusedReason::TokenUsedTwice).await;
    let refused = second.agent.next_of(worker_id).await.expect_err("it has no session");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    second.session.seed().await.expect_err("it has no session");
    let mut plain = Agent(WorkflowServiceClient::connect(format!("http://{SERVER}")).await.expect("connected"));
    let refused = plain.next_of(worker_id).await.expect_err("the token alone is not enough");
    assert!(
        refused.code() == Code::Unauthenticated && refused.message().contains("boot.agents to bearer"),
        "{refused}"
    );
    is_refused(AgentRefusedReason::TlsRequired).await;
    let refused = plain.next_of(MAC).await.expect_err("an identifier is not enough");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let mut guess = Start::with(pin, &format!("{MAC}.ffffffff.{}", "0".repeat(64)));
    let refused = guess.session.redeem().await.expect_err("a guess");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let other = pin
        .chars()
        .map(|c| {
            if c == '0' {
                '1'
            } else if c == '1' {
                '0'
            } else {
                c
            }
        })
        .collect::<String>();
    let refused = Start::with(&other, worker_id).session.redeem().await.expect_err("another server's key");
    assert!(installer::session::why(&refused).contains("invalid peer certificate"), "{refused:?}");
}
