//! The same client on the OVN north-bound database, judged by OVN's own `ovn-nbctl`.

use crate::lab::{OpenVSwitchLab, in_namespace, run, shared};
use ovsdb::transact::{Condition, Function, Mutation};
use ovsdb::value::{Row, Value};
use ovsdb::{Session, Transaction};
use std::collections::BTreeMap;

const SCHEMA: &str = "ovn/ovn-nb.ovsschema";
const DATABASE: &str = "OVN_Northbound";

#[test]
fn a_logical_switch_is_written_and_followed() {
    let name = "a_logical_switch_is_written_and_followed";
    let Some(schema) = shared(SCHEMA) else {
        eprintln!("SKIP {name}: share/{SCHEMA} is not installed (package ovn-common)");
        return;
    };
    in_namespace(name, || async move {
        let lab = OpenVSwitchLab::database_of(&schema).await;
        let nbctl = |arguments: &[&str]| {
            let database = format!("--db=unix:{}", lab.path("db.sock"));
            run("ovn-nbctl", &[&[database.as_str()], arguments].concat())
        };
        nbctl(&["init"]);
        let wanted = ["Logical_Switch", "Logical_Switch_Port", "ACL", "NB_Global", "QoS"];
        let mut config = lab.config(wanted.map(|table| (table.to_owned(), Vec::new())).into_iter().collect());
        config.database = DATABASE.to_owned();
        let session = Session::start(config);

        let mut transaction = Transaction::new(session.database());
        let named = |name: &str| ("name".to_owned(), Value::from(name));
        let addresses = Value::set(["02:00:00:00:00:01 10.0.0.1"]);
        let port =
            transaction.insert("Logical_Switch_Port", &Row::from([named("p1"), ("addresses".to_owned(), addresses)]));
        let ports = ("ports".to_owned(), Value::from(port));
        let owner = ("external_ids".to_owned(), Value::map([("owner", "a")]));
        transaction.insert("Logical_Switch", &Row::from([named("net"), ports, owner]));
        let counter = Mutation::Add("nb_cfg".to_owned(), 1);
        transaction.mutate("NB_Global", &[], &[counter]);
        session.transact(&transaction).await.expect("write");
        assert!(nbctl(&["show"]).contains("port p1"));
        assert!(nbctl(&["lsp-get-addresses", "p1"]).contains("10.0.0.1"));

        nbctl(&["lsp-add", "net", "p2", "--", "lsp-set-options", "p2", "requested-chassis=dpu-1", "x=y"]);
        nbctl(&["remove", "logical_switch_port", "p2", "options", "x"]);
        nbctl(&["acl-add", "net", "to-lport", "100", "ip4", "allow"]);
        session.refresh().await.expect("connected");
        {
            let view = session.view();
            let (_, p2) = view.cache.find("Logical_Switch_Port", "name", "p2").expect("followed");
            assert_eq!(p2["options"], Value::map([("requested-chassis", "dpu-1")]));
            let (_, net) = view.cache.find("Logical_Switch", "name", "net").expect("followed");
            assert_eq!((net["ports"].uuids().count(), net["acls"].uuids().count()), (2, 1));
            let (_, acl) = view.cache.rows("ACL").next().expect("followed");
            assert_eq!((acl["priority"].as_integer(), acl["match"].as_str()), (Some(100), Some("ip4")));
            assert_eq!(acl["log"], Value::from(false), "the default of a boolean");
        }

        let mut delete = Transaction::new(session.database());
        delete.delete("Logical_Switch", &[Condition::new("name", Function::Equal, "net")]);
        session.transact(&delete).await.expect("delete");
        let left: BTreeMap<&str, usize> = {
            let view = session.view();
            wanted.map(|table| (table, view.cache.rows(table).count())).into()
        };
        let expected = [("Logical_Switch", 0), ("Logical_Switch_Port", 0), ("ACL", 0), ("NB_Global", 1), ("QoS", 0)];
        assert_eq!(left, BTreeMap::from(expected));
    });
}
