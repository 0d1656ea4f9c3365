//! A north-bound database of several servers: only the leader of the cluster is believed, and one that may not be written is as
//! good as away.

use crate::lab::{Daemon, OpenVSwitchLab, config, eventually, in_namespace, missing_of_ovn, run, shared};
use crate::rows::{in_step, leader};
use ovsdb::OvnNorthBound;
use ovsdb::north_bound::{DATABASE, monitored};
use planner::network::rows::{Vpc, diff};
use ports::{ErrorClass, NorthBound, PortError};
use std::path::Path;
use std::time::Duration;

fn skipped(name: &str) -> bool {
    let missing = missing_of_ovn();
    missing.iter().for_each(|reason| eprintln!("SKIP {name}: {reason}"));
    missing.is_some()
}

/// Server `number` of a cluster of two, which talk over Unix sockets.
struct Server {
    _daemon: Daemon,
    socket: String,
}

impl Server {
    fn start(directory: &Path, number: u8) -> Self {
        let path = |file: &str| directory.join(file).to_str().expect("a plain path").to_owned();
        let raft = |number: u8| format!("unix:{}", path(&format!("raft{number}")));
        let database = path(&format!("{number}.db"));
        let schema = shared("ovn/ovn-nb.ovsschema").expect("looked for by missing_of_ovn");
        match number {
            1 => run("ovsdb-tool", &["create-cluster", &database, &schema.to_string_lossy(), &raft(1)]),
            _ => run("ovsdb-tool", &["join-cluster", &database, DATABASE, &raft(number), &raft(1)]),
        };
        let socket = path(&format!("db{number}.sock"));
        let own = ["pidfile", "unixctl", "log-file"]
            .map(|option| format!("--{option}={}", path(&format!("{number}.{option}"))));
        let arguments = [own.to_vec(), vec![format!("--remote=punix:{socket}"), database]].concat();
        Self { _daemon: Daemon::start(directory, "ovsdb-server", &arguments), socket: format!("unix:{socket}") }
    }

    fn handle(&self) -> OvnNorthBound {
        let mut config = config(&self.socket, monitored());
        config.database = DATABASE.to_owned();
        OvnNorthBound::new(config, "site")
    }
}

fn message<T>(result: Result<T, PortError>) -> String {
    result.map_err(|error| error.message).err().unwrap_or_default()
}

#[test]
fn only_the_leader_of_the_cluster_is_believed() {
    let name = "only_the_leader_of_the_cluster_is_believed";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        let directory = tempfile::Builder::new().prefix("ovn").tempdir_in("/var/tmp").expect("a directory");
        let first = Server::start(directory.path(), 1);
        let leader = first.handle();
        let told = async { while !message(leader.changes().await.link).contains("NB_Global") {} };
        tokio::time::timeout(Duration::from_secs(60), told).await.expect("nobody has initialised it, which is told");
        run("ovn-nbctl", &["--timeout=60", &format!("--db={}", first.socket), "init"]);
        in_step(&leader).await;
        let second = Server::start(directory.path(), 2);
        let follower = second.handle();
        // Until it has joined it is not connected; then it follows.
        let says = || message(follower.uids()).contains("follows");
        eventually("the second server says that it follows", says).await;
        assert_eq!(follower.uids().map_err(|error| error.class), Err(ErrorClass::Unreachable));
        leader.uids().expect("the first server leads on");
    });
}

#[test]
fn a_read_only_server_counts_as_unreachable() {
    let name = "a_read_only_server_counts_as_unreachable";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        let lab = OpenVSwitchLab::ovn(DATABASE).await;
        let north_bound = leader(&lab, "site").await;
        let appctl = |arguments: &[&str]| {
            let target = format!("--target={}", lab.path("ovsdb-server.unixctl"));
            run("ovs-appctl", &[&[target.as_str()], arguments].concat())
        };
        // As an active-backup pair has it after the other server became the active one.
        appctl(&["ovsdb-server/set-active-ovsdb-server", "unix:/nobody"]);
        appctl(&["ovsdb-server/connect-active-ovsdb-server"]);
        let change = diff(&Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows("site"), &[]);
        let refused = north_bound.apply(&change).await.expect_err("read-only");
        assert_eq!(refused.class(), ErrorClass::Unreachable, "{refused}");
        assert!(refused.to_string().contains("not allowed"), "said by the server: {refused}");
    });
}
