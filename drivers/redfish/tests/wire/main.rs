//! What the driver sends, and what it makes of the answers.

mod stub;
mod virtual_media;

use axum::http::Method;
use planner::host::{BootChange, Lack, PowerAction, PowerState};
use ports::{Bmc, ErrorClass};
use redfish::{RedfishBmc, RedfishConfig, Secret};
use std::time::{Duration, Instant};
use stub::{PASSWORD, RESET_INFO, Script, Stub, script};

fn connect(config: RedfishConfig) -> RedfishBmc {
    RedfishBmc::new(config).expect("a client")
}

fn second_first() -> BootChange {
    BootChange::First { reference: "Boot0002".to_owned() }
}

#[tokio::test]
async fn a_reset_is_sent_once_whatever_comes_back() {
    for (status, class) in [(503, ErrorClass::Busy), (500, ErrorClass::Busy), (400, ErrorClass::Invalid)] {
        let bmc = Stub::start(Script { write_statuses: [status].into(), ..script() }).await;
        let e = connect(bmc.config()).power(PowerAction::WarmReset).await.expect_err("the BMC refuses");
        assert_eq!(e.class, class, "{e}");
        assert!(e.message.contains("WarmReset") && e.message.ends_with("Not today."), "{e}");
        let sent = bmc.requests(&Method::POST);
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert_eq!(sent[0].body["ResetType"], "ForceRestart");
    }
}

#[tokio::test]
async fn a_reset_without_an_answer_is_unreachable_and_not_repeated() {
    let bmc = Stub::start(Script { write_delay: Duration::from_secs(600), ..script() }).await;
    let started = Instant::now();
    let config = RedfishConfig { timeout: Duration::from_millis(500), ..bmc.config() };
    let e = connect(config).power(PowerAction::ForceOff).await.expect_err("no answer");
    assert_eq!(e.class, ErrorClass::Unreachable, "{e}");
    assert!(started.elapsed() < Duration::from_secs(300), "the limit is half a second: {:?}", started.elapsed());
    assert_eq!(bmc.requests(&Method::POST).len(), 1);
}

#[tokio::test]
async fn writes_carry_the_fencing_token_and_the_entity_tag() {
    let bmc = Stub::start(script()).await;
    let config = RedfishConfig { fencing_token: Some("7/controller-0".to_owned()), ..bmc.config() };
    let client = connect(config);
    client.configure_boot(&second_first()).await.expect("configure");
    client.power(PowerAction::ForceOff).await.expect("power");
    let mut writes = bmc.requests(&Method::PATCH);
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].header("if-match"), Some("\"0\""));
    writes.extend(bmc.requests(&Method::POST));
    assert_eq!(writes.len(), 2);
    for write in writes {
        assert_eq!(write.header("x-metalplane-fencing-token"), Some("7/controller-0"), "{write:?}");
    }
    let seen = client.observe().await.expect("observe").boot.order;
    assert_eq!(seen, ["Boot0002", "Boot0001"]);
}

#[tokio::test]
async fn a_changed_system_is_read_again_once() {
    let bmc = Stub::start(Script { write_statuses: [412].into(), ..script() }).await;
    let client = connect(bmc.config());
    client.configure_boot(&second_first()).await.expect("the second attempt succeeds");
    let tags: Vec<_> = bmc.requests(&Method::PATCH).iter().map(|r| r.header("if-match").map(str::to_owned)).collect();
    assert_eq!(tags, [Some("\"0\"".to_owned()), Some("\"1\"".to_owned())]);

    let bmc = Stub::start(Script { write_statuses: [412, 412].into(), ..script() }).await;
    let e = connect(bmc.config()).configure_boot(&second_first()).await.expect_err("changed twice");
    assert_eq!(e.class, ErrorClass::Busy, "{e}");
    assert_eq!(bmc.requests(&Method::PATCH).len(), 2);
}

#[tokio::test]
async fn a_session_is_opened_once_and_again_when_it_has_ended() {
    let bmc = Stub::start(Script { tokens: Some(Vec::new()), ..script() }).await;
    let client = connect(bmc.config());
    client.observe().await.expect("observe");
    client.observe().await.expect("observe");
    let logins = || bmc.requests(&Method::POST).iter().filter(|r| r.path.ends_with("/Sessions")).count();
    assert_eq!(logins(), 1);

    bmc.script.lock().expect("the script").tokens = Some(Vec::new());
    client.power(PowerAction::ForceOff).await.expect("power after the session ended");
    assert_eq!(logins(), 2);
    let resets = bmc.requests(&Method::POST).len() - logins();
    assert_eq!(resets, 1);

    let wrong = RedfishConfig { password: Secret::new("battery-staple"), ..bmc.config() };
    let e = connect(wrong).observe().await.expect_err("a wrong password");
    assert_eq!(e.class, ErrorClass::Unauthorized, "{e}");
    assert!(e.message.contains("update the Secret of this BMC"), "{e}");
}

#[tokio::test]
async fn the_password_is_sent_to_the_session_service_only() {
    let bmc = Stub::start(Script { tokens: Some(Vec::new()), ..script() }).await;
    connect(bmc.config()).observe().await.expect("observe");
    for request in bmc.requests(&Method::GET) {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
    let logins = bmc.requests(&Method::POST);
    assert_eq!(logins[0].body["Password"], PASSWORD);

    let bmc = Stub::start(script()).await;
    connect(RedfishConfig { use_basic_auth: true, ..bmc.config() }).observe().await.expect("observe");
    let sent = bmc.requests(&Method::GET);
    let sent: Vec<_> = sent.iter().filter(|r| r.path != "/redfish/v1").collect();
    assert!(
        sent.len() >= 2 && sent.iter().all(|r| r.header("authorization").is_some_and(|a| a.starts_with("Basic "))),
        "{sent:?}"
    );
}

#[tokio::test]
async fn of_several_systems_the_named_one_is_used() {
    let bmc = Stub::start(Script { more_systems: true, ..script() }).await;
    let named = |name: &str| RedfishConfig { system_name: Some(name.to_owned()), ..bmc.config() };
    for name in ["1", "Server"] {
        assert_eq!(connect(named(name)).observe().await.expect("observe").power, PowerState::On);
    }
    let e = connect(bmc.config()).observe().await.expect_err("which one?");
    assert_eq!(e.class, ErrorClass::Invalid, "{e}");
    assert!(e.message.contains("[Dpu, 1]"), "{e}");
    let e = connect(named("2")).observe().await.expect_err("no such system");
    assert_eq!(e.class, ErrorClass::NotFound, "{e}");
}

#[tokio::test]
async fn what_the_bmc_does_not_offer_is_told_by_type_and_not_sent() {
    let resets: &[&str] = &["On", "ForceOff", "PowerCycle"];
    let bmc = Stub::start(Script { resets: Some(resets), ..script() }).await;
    let client = connect(bmc.config());
    let (soft, warm) = (PowerAction::SoftOff, PowerAction::WarmReset);
    for _ in 0..2 {
        let lacks = client.observe().await.expect("observe").lacks;
        let expected = [Lack::Power(soft), Lack::Power(warm), Lack::BootOptions, Lack::VirtualMedia];
        assert_eq!(lacks.into_iter().collect::<Vec<_>>(), expected);
    }
    for lacking in [soft, warm] {
        assert_eq!(client.power(lacking).await.expect_err("it is lacking").class, ErrorClass::Unsupported);
    }
    assert_eq!(bmc.requests(&Method::POST).len(), 0);
    let asked = bmc.requests(&Method::GET).iter().filter(|request| request.path == RESET_INFO).count();
    assert_eq!(asked, 1, "the description does not change, and every reading would cost a request more");
}
