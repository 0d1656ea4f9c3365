//! The session: resuming, older servers, silence, the schema.

use crate::lab::{OpenVSwitchLab, config, eventually, in_namespace, missing, run, switch_schema};
use crate::proxy::Proxy;
use ovsdb::monitor::Dialect;
use ovsdb::switch::{DATABASE, monitored};
use ovsdb::transact::{Condition, Function, Mutation, Outcome};
use ovsdb::value::{Row, Value};
use ovsdb::{Error, Link, Session, Transaction};
use ports::ErrorClass;
use std::collections::BTreeMap;
use std::time::Duration;

/// The Open_vSwitch row and a bridge without ports: enough to see changes without a switch daemon.
fn add_bridge(lab: &OpenVSwitchLab, name: &str) {
    lab.vsctl(&["--no-wait", "init"]);
    lab.vsctl(&["--no-wait", "add-br", name]);
}

fn bridges(session: &Session) -> Vec<String> {
    let view = session.view();
    let mut names: Vec<String> =
        view.cache.rows("Bridge").filter_map(|(_, row)| row.get("name")?.as_str().map(str::to_owned)).collect();
    names.sort();
    names
}

#[test]
fn follows_the_server_across_its_restart() {
    in_namespace("follows_the_server_across_its_restart", || async {
        let mut lab = OpenVSwitchLab::database().await;
        add_bridge(&lab, "br-a");
        let session = Session::start(lab.config(monitored()));
        session.refresh().await.expect("connected");
        assert_eq!(session.view().link, Link::Synced(Dialect::ConditionalSince));
        assert_eq!(bridges(&session), ["br-a"]);
        add_bridge(&lab, "br-b");
        session.refresh().await.expect("connected");
        assert_eq!(bridges(&session), ["br-a", "br-b"], "as new as the refresh");

        lab.stop_server();
        eventually("the loss is noticed", || matches!(session.view().link, Link::Lost(_))).await;
        assert_eq!(bridges(&session), ["br-a", "br-b"], "the cache stays readable");
        lab.start_server().await;
        add_bridge(&lab, "br-c");
        session.refresh().await.expect("connected again");
        assert_eq!(bridges(&session), ["br-a", "br-b", "br-c"]);
        lab.vsctl(&["--no-wait", "del-br", "br-a"]);
        session.refresh().await.expect("connected");
        assert_eq!(bridges(&session), ["br-b", "br-c"]);
    });
}

#[test]
fn an_absent_server_is_unreachable_in_time() {
    in_namespace("an_absent_server_is_unreachable_in_time", || async {
        let mut lab = OpenVSwitchLab::database().await;
        lab.stop_server();
        let mut config = lab.config(monitored());
        config.limits.call = Duration::from_millis(300);
        let session = Session::start(config);
        let error = session.refresh().await.expect_err("nobody listens");
        assert_eq!(error.class(), ErrorClass::Unreachable);
        assert!(matches!(error, Error::Connect { .. }), "the cause is told: {error}");
    });
}

/// On several threads, where the cache's task could lag behind the caller's.
#[test]
fn a_transaction_is_in_the_cache_when_it_returns() {
    let name = "a_transaction_is_in_the_cache_when_it_returns";
    if let Some(reason) = missing() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let lab = OpenVSwitchLab::database().await;
        lab.vsctl(&["--no-wait", "init"]);
        let session = Session::start(lab.config([("Open_vSwitch".to_owned(), vec!["next_cfg".to_owned()])].into()));
        for expected in 1..=300 {
            let mut transaction = Transaction::new(DATABASE);
            transaction.mutate("Open_vSwitch", &[], &[Mutation::Add("next_cfg".to_owned(), 1)]);
            session.transact(&transaction).await.expect("count");
            let view = session.view();
            let (_, row) = view.cache.rows("Open_vSwitch").next().expect("the root row");
            assert_eq!(row["next_cfg"], Value::from(expected));
        }
    });
}

async fn falls_back(refused: &'static [&'static str], to: Dialect) {
    let lab = OpenVSwitchLab::database().await;
    add_bridge(&lab, "br-a");
    let proxy = Proxy::before(lab.path("db.sock"), lab.path("old.sock"), refused);
    let session = Session::start(config(&proxy.address, monitored()));
    session.refresh().await.expect("connected");
    assert_eq!(session.view().link, Link::Synced(to));

    let newest = Session::start(lab.config(monitored()));
    for number in 0..10 {
        add_bridge(&lab, &format!("br-{number}"));
        lab.vsctl(&["--no-wait", "add-port", "br-a", &format!("p{number}")]);
        if number % 3 == 0 {
            lab.vsctl(&["--no-wait", "del-port", &format!("p{number}")]);
            lab.vsctl(&["--no-wait", "set", "interface", "br-a", &format!("external_ids:n{number}=x")]);
        }
    }
    lab.vsctl(&["--no-wait", "remove", "interface", "br-a", "external_ids", "n0"]);
    session.refresh().await.expect("connected");
    newest.refresh().await.expect("connected");
    for table in ["Bridge", "Port", "Interface"] {
        let rows = |session: &Session| {
            let view = session.view();
            view.cache.rows(table).map(|(uuid, row)| (uuid, row.clone())).collect::<BTreeMap<_, _>>()
        };
        assert!(!rows(&newest).is_empty());
        assert_eq!(rows(&session), rows(&newest), "{to:?} and the newest dialect agree on {table}");
    }
}

#[test]
fn falls_back_to_monitor_cond() {
    in_namespace("falls_back_to_monitor_cond", || falls_back(&["monitor_cond_since"], Dialect::Conditional));
}

#[test]
fn falls_back_to_monitor() {
    in_namespace("falls_back_to_monitor", || falls_back(&["monitor_cond_since", "monitor_cond"], Dialect::Plain));
}

#[test]
fn a_silent_server_is_given_up() {
    in_namespace("a_silent_server_is_given_up", || async {
        let lab = OpenVSwitchLab::database().await;
        let proxy = Proxy::before(lab.path("db.sock"), lab.path("mute.sock"), &[]);
        let mut config = config(&proxy.address, monitored());
        config.limits.probe = Duration::from_secs(1);
        let session = Session::start(config);
        session.refresh().await.expect("connected");
        let before = proxy.echoes();
        eventually("several intervals pass", || proxy.echoes() >= before + 4).await;
        assert!(matches!(session.view().link, Link::Synced(_)), "quiet, but it answers our echo");

        proxy.fall_silent(true);
        eventually("the silence is noticed", || match &session.view().link {
            Link::Lost(error) => {
                assert!(error.to_string().contains("nothing heard for 2000 ms"), "{error}");
                true
            }
            Link::Connecting | Link::Synced(_) => false,
        })
        .await;
        proxy.fall_silent(false);
        session.refresh().await.expect("connected again");
    });
}

#[test]
fn what_the_schema_lacks_is_left_out() {
    in_namespace("what_the_schema_lacks_is_left_out", || async {
        let lab = OpenVSwitchLab::database().await;
        add_bridge(&lab, "br-a");
        let mut wanted = monitored();
        wanted.entry("Bridge".to_owned()).or_default().push("column_of_the_future".to_owned());
        wanted.insert("Table_Of_The_Future".to_owned(), Vec::new());
        wanted.insert("Open_vSwitch".to_owned(), Vec::new());
        let session = Session::start(lab.config(wanted));
        session.refresh().await.expect("connected");
        assert_eq!(bridges(&session), ["br-a"]);
        let view = session.view();
        let (_, root) = view.cache.rows("Open_vSwitch").next().expect("the root row");
        assert!(root.contains_key("next_cfg") && root.contains_key("statistics"), "all columns: {root:?}");
        assert_eq!(root["ovs_version"], Value::empty_set(), "a default that the server does not send");
    });
}

#[test]
fn a_new_schema_is_taken_up() {
    in_namespace("a_new_schema_is_taken_up", || async {
        let lab = OpenVSwitchLab::database().await;
        add_bridge(&lab, "br-a");
        let session = Session::start(lab.config([("Bridge".to_owned(), Vec::new())].into()));
        session.refresh().await.expect("connected");
        let has = |column: &str| {
            let view = session.view();
            view.cache.rows("Bridge").any(|(_, row)| row.contains_key(column))
        };
        assert!(has("name") && has("flood_vlans"));

        let old = std::fs::read_to_string(switch_schema()).expect("the schema");
        let mut schema: serde_json::Value = serde_json::from_str(&old).expect("JSON");
        schema["version"] = "99.0.0".into();
        let columns = schema["tables"]["Bridge"]["columns"].as_object_mut().expect("columns");
        columns.remove("flood_vlans").expect("a column that nobody needs");
        columns.insert("colour".to_owned(), serde_json::json!({"type": "string"}));
        std::fs::write(lab.path("new.ovsschema"), schema.to_string()).expect("write");
        run("ovsdb-client", &["convert", &format!("unix:{}", lab.path("db.sock")), &lab.path("new.ovsschema")]);
        eventually("the new schema is taken up", || session.view().schema.version == "99.0.0").await;
        assert!(has("colour") && !has("flood_vlans"));
        assert_eq!(bridges(&session), ["br-a"]);
    });
}

#[test]
fn every_operation_does_what_the_rfc_says() {
    in_namespace("every_operation_does_what_the_rfc_says", || async {
        let lab = OpenVSwitchLab::database_of(&switch_schema()).await;
        let session = Session::start(lab.config(monitored()));
        let named = |name: &str| Row::from([("name".to_owned(), Value::from(name))]);

        let mut insert = Transaction::new(DATABASE);
        let bridge = insert.insert("Bridge", &named("br-a"));
        insert.insert("Open_vSwitch", &Row::from([("bridges".to_owned(), Value::from(bridge))]));
        let outcomes = session.transact(&insert).await.expect("insert");
        let [Outcome::Inserted(bridge), Outcome::Inserted(_)] = outcomes[..] else { panic!("{outcomes:?}") };
        assert_eq!(session.view().cache.row("Bridge", bridge).expect("cached at once")["name"], Value::from("br-a"));

        let mut change = Transaction::new(DATABASE);
        change.expect("Bridge", &[Condition::row(bridge)], &["name"], &[named("br-a")]);
        let ids = Value::map([("a", "1"), ("b", "2")]);
        change.update("Bridge", &[Condition::row(bridge)], &Row::from([("external_ids".to_owned(), ids)]));
        let removal = Mutation::Delete("external_ids".to_owned(), Value::set(["a"]));
        change.mutate("Bridge", &[Condition::row(bridge)], &[removal]);
        change.select("Bridge", &[Condition::new("name", Function::NotEqual, "x")], &["external_ids"]);
        change.mutate("Open_vSwitch", &[], &[Mutation::Add("next_cfg".to_owned(), 5)]);
        change.select("Open_vSwitch", &[], &["next_cfg"]);
        let outcomes = session.transact(&change).await.expect("change");
        let ids = Row::from([("external_ids".to_owned(), Value::map([("b", "2")]))]);
        let counter = Row::from([("next_cfg".to_owned(), Value::from(5))]);
        let expected = [
            Outcome::Done,
            Outcome::Count(1),
            Outcome::Count(1),
            Outcome::Rows(vec![ids]),
            Outcome::Count(1),
            Outcome::Rows(vec![counter]),
        ];
        assert_eq!(outcomes, expected);

        let mut late = Transaction::new(DATABASE);
        late.expect("Bridge", &[Condition::row(bridge)], &["name"], &[]);
        late.delete("Bridge", &[]);
        let error = session.transact(&late).await.expect_err("the guard holds");
        assert_eq!(error.class(), ErrorClass::Busy, "{error}");
        let mut twice = Transaction::new(DATABASE);
        let second = twice.insert("Bridge", &named("br-a"));
        twice.mutate("Open_vSwitch", &[], &[Mutation::Insert("bridges".to_owned(), Value::from(second))]);
        let error = session.transact(&twice).await.expect_err("names are unique");
        assert_eq!(error.class(), ErrorClass::Conflict, "{error}");
        assert!(error.to_string().contains("br-a"), "the server's own words are kept: {error}");

        let mut delete = Transaction::new(DATABASE);
        delete.delete("Open_vSwitch", &[]);
        assert_eq!(session.transact(&delete).await, Ok(vec![Outcome::Count(1)]));
        assert_eq!(bridges(&session), Vec::<String>::new(), "an orphan is collected, and the cache knows at once");
    });
}
