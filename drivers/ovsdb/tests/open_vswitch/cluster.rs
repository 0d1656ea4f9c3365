//! A north-bound database of several servers: only the leader of the cluster is believed, and one that may not be written is as
//! good as away.

use crate::lab::{Daemon, OpenVSwitchLab, config, eventually, in_namespace, run, shared, skipped};
use crate::pki::{CLIENT, Kind, Pki, SERVER, options};
use crate::rows::{in_step, leader};
use nix::sys::signal::Signal;
use ovsdb::north_bound::{DATABASE, monitored};
use ovsdb::{OvnNorthBound, Remotes, TlsFiles};
use planner::network::rows::{Vpc, diff};
use ports::north_bound::Token;
use ports::{ErrorClass, NorthBound, PortError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Server `number` of a cluster, whose members talk by TLS, as they do to clients.
pub struct Server {
    daemon: Daemon,
    number: u8,
    directory: PathBuf,
}

impl Server {
    /// Makes its database, if it has none yet.
    pub async fn start(directory: &Path, number: u8, files: &TlsFiles) -> Self {
        let path = |file: &str| directory.join(file).to_str().expect("a plain path").to_owned();
        let raft = |number: u8| format!("ssl:127.0.0.1:{}", 6650 + u16::from(number));
        let database = path(&format!("{number}.db"));
        let schema = shared("ovn/ovn-nb.ovsschema").expect("looked for by missing_of_ovn");
        if !Path::new(&database).exists() {
            match number {
                1 => run("ovsdb-tool", &["create-cluster", &database, &schema.to_string_lossy(), &raft(1)]),
                _ => run("ovsdb-tool", &["join-cluster", &database, DATABASE, &raft(number), &raft(1)]),
            };
        }
        let own = ["pidfile", "unixctl", "log-file"]
            .map(|option| format!("--{option}={}", path(&format!("{number}.{option}"))));
        let remotes = [
            format!("--remote=punix:{}", path(&format!("db{number}.sock"))),
            format!("--remote=pssl:{}:127.0.0.1", 6640 + u16::from(number)),
        ];
        let arguments = [own.to_vec(), options(files), remotes.to_vec(), vec![database]].concat();
        let daemon = Daemon::start(directory, "ovsdb-server", &arguments);
        let server = Self { daemon, number, directory: directory.to_owned() };
        let socket = path(&format!("db{number}.sock"));
        eventually("it listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok()).await;
        server
    }

    fn address(&self) -> String {
        format!("ssl:127.0.0.1:{}", 6640 + u16::from(self.number))
    }

    pub fn socket(&self) -> String {
        format!("unix:{}/db{}.sock", self.directory.display(), self.number)
    }

    /// What it says of itself.
    fn is(&self, role: &str) -> bool {
        let target = format!("--target={}/{}.unixctl", self.directory.display(), self.number);
        let asked =
            Command::new("ovs-appctl").args([&target, "cluster/status", DATABASE]).output().expect("ovs-appctl");
        String::from_utf8_lossy(&asked.stdout).contains(&format!("Role: {role}"))
    }
}

/// Of the servers, in this order.
fn handle(servers: &[&Server], files: &TlsFiles) -> OvnNorthBound {
    let addresses: Vec<String> = servers.iter().map(|server| server.address()).collect();
    let mut config = config("unix:/unused", monitored());
    config.remotes = Remotes::new(addresses.join(",").parse().expect("addresses"), Some(files.clone())).expect("files");
    config.database = DATABASE.to_owned();
    config.limits.probe = Duration::from_secs(1);
    OvnNorthBound::new(config, "site")
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
        run("ip", &["link", "set", "lo", "up"]);
        let pki = Pki::new("ovn");
        let (files, client) = (pki.sign("server", Kind { usage: None, ..SERVER }), pki.sign("client", CLIENT));
        let directory = tempfile::Builder::new().prefix("ovn").tempdir_in("/var/tmp").expect("a directory");
        let first = Server::start(directory.path(), 1, &files).await;
        let leader = handle(&[&first], &client);
        let told = async { while !message(leader.changes().await.link).contains("NB_Global") {} };
        tokio::time::timeout(Duration::from_secs(60), told).await.expect("nobody has initialised it, which is told");
        run("ovn-nbctl", &["--timeout=60", &format!("--db={}", first.socket()), "init"]);
        in_step(&leader).await;
        let second = Server::start(directory.path(), 2, &files).await;
        let follower = handle(&[&second], &client);
        // Until it has joined it is not connected; then it follows.
        let says = || message(follower.uids()).contains("follows");
        eventually("the second server says that it follows", says).await;
        assert_eq!(follower.uids().map_err(|error| error.class), Err(ErrorClass::Unreachable));
        leader.uids().expect("the first server leads on");
    });
}

/// Whose leader is killed, and the next one frozen.
#[test]
fn the_next_leader_is_found() {
    let name = "the_next_leader_is_found";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        run("ip", &["link", "set", "lo", "up"]);
        let pki = Pki::new("ovn");
        let (files, client) = (pki.sign("server", Kind { usage: None, ..SERVER }), pki.sign("client", CLIENT));
        let directory = tempfile::Builder::new().prefix("ovn").tempdir_in("/var/tmp").expect("a directory");
        let mut servers = Vec::new();
        for number in 1..=3 {
            servers.push(Server::start(directory.path(), number, &files).await);
            let newest = &servers[servers.len() - 1];
            let role = if number == 1 { "leader" } else { "follower" };
            eventually("it has joined", || newest.is(role)).await;
        }
        run("ovn-nbctl", &["--timeout=60", &format!("--db={}", servers[0].socket()), "init"]);
        let [first, second, third] = [0, 1, 2].map(|at| &servers[at]);
        let north_bound = handle(&[third, second, first], &client);
        in_step(&north_bound).await;
        let token = Token { lease_uid: "lease".to_owned(), transitions: 1 };
        north_bound.take_token(&token, None).await.expect("the leader is found behind two that follow");
        let put = async |uid: &str| {
            eventually("in step", || north_bound.uids().is_ok()).await;
            let wanted = Vpc { uid: uid.to_owned(), hops: Vec::new() }.rows("site");
            let change = diff(&wanted, &north_bound.rows(uid).expect("in step"));
            north_bound.apply(&change).await.expect("written");
        };
        put("a").await;

        // Killed.
        let killed = servers.remove(0);
        drop(killed.daemon);
        let lost = async { while north_bound.changes().await.link.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(60), lost).await.expect("the loss is told");
        eventually("another server leads", || servers.iter().any(|server| server.is("leader"))).await;
        put("b").await;
        servers.push(Server::start(directory.path(), 1, &files).await);
        eventually("it follows now", || servers[2].is("follower")).await;

        // Frozen: its sockets stay open.
        let frozen = servers.iter().position(|server| server.is("leader")).expect("one leads");
        servers[frozen].daemon.signal(Signal::SIGSTOP);
        let others: Vec<&Server> = servers.iter().filter(|server| server.number != servers[frozen].number).collect();
        let lost = async { while north_bound.changes().await.link.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(60), lost).await.expect("its silence is noticed");
        eventually("another server leads", || others.iter().any(|server| server.is("leader"))).await;
        put("c").await;
        servers[frozen].daemon.signal(Signal::SIGCONT);
        eventually("it follows now", || servers[frozen].is("follower")).await;
        put("d").await;
        let uids = north_bound.uids().expect("in step");
        assert_eq!(uids, ["a", "b", "c", "d"].map(str::to_owned).into());
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
