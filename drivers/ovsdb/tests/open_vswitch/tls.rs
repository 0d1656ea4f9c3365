//! `ssl:` to a real `ovsdb-server`: who is believed, what is said where not, and what happens when the files are replaced.

use crate::lab::{Daemon, OpenVSwitchLab, config, eventually, in_namespace, run};
use crate::pki::{CLIENT, Kind, Pki, SERVER, Usage, options, replace};
use ovsdb::switch::monitored;
use ovsdb::{Link, Named, Remotes, Session, TlsFiles};
use std::process::Command;
use std::time::Duration;

const LISTENS: &str = "127.0.0.1:6641";

fn session(remotes: &str, files: &TlsFiles) -> Session {
    let mut config = config("unix:/unused", monitored());
    config.remotes = Remotes::new(remotes.parse().expect("addresses"), Some(files.clone())).expect("with files");
    Session::start(config)
}

/// What comes of a connection: nothing, or why there is none.
async fn outcome(session: &Session) -> Result<(), String> {
    eventually("connected or not", || session.view().link != Link::Connecting).await;
    // The server's opinion of our certificate is an answer to the first question.
    match &session.view().link {
        Link::Synced(_) => Ok(()),
        Link::Lost(error) => Err(error.to_string()),
        Link::Connecting => unreachable!("waited for"),
    }
}

/// A server with a database of its own that listens at `LISTENS`, by `remote`.
struct Server {
    _daemon: Daemon,
    lab: OpenVSwitchLab,
}

impl Server {
    async fn start(remote: &str, files: &TlsFiles) -> Self {
        let mut lab = OpenVSwitchLab::database().await;
        lab.stop_server();
        let remote = format!("--remote={remote}:6641:127.0.0.1");
        let arguments = [lab.own_files("ovsdb-server"), options(files), vec![remote, lab.path("conf.db")]].concat();
        let daemon = Daemon::start(lab.directory(), "ovsdb-server", &arguments);
        eventually("it listens", || std::net::TcpStream::connect(LISTENS).is_ok()).await;
        Self { _daemon: daemon, lab }
    }

    /// Ends every connection, and stays.
    fn cut(&self) {
        let target = format!("--target={}", self.lab.path("ovsdb-server.unixctl"));
        run("ovs-appctl", &[&target, "ovsdb-server/reconnect"]);
    }
}

async fn is_refused(what: &str, session: &Session, parts: &[&str]) {
    let error = outcome(session).await.expect_err(what);
    for part in parts {
        assert!(error.contains(part), "{what}: {part:?} is not in: {error}");
    }
}

#[test]
fn a_server_is_believed_by_its_certificate() {
    in_namespace("a_server_is_believed_by_its_certificate", || async {
        run("ip", &["link", "set", "lo", "up"]);
        let (ours, other, renewed) = (Pki::new("ours"), Pki::new("other"), Pki::with_key("renewed", "ours"));
        let client = ours.sign("client", CLIENT);
        let with = |named: Named| TlsFiles { named, ..client.clone() };
        let named = |name: &str| Named::This(name.to_owned());
        let expired = Kind { valid: (2000, 2001), ..SERVER };
        let future = Kind { valid: (3000, 3001), ..SERVER };
        let for_clients = Kind { usage: Some(Usage::Client), ..SERVER };
        let any_purpose = Kind { usage: None, ..SERVER };
        let unnamed = Kind { names: &[], ..SERVER };
        let cases: [(&str, TlsFiles, Named, &[&str]); 10] = [
            ("as it should be", ours.sign("good", SERVER), Named::Host, &[]),
            ("by a name of its own", ours.sign("good", SERVER), named("ovn-nb.test"), &[]),
            ("for any purpose", ours.sign("any", any_purpose), Named::Host, &[]),
            ("of no name, as with OVN's clients", ours.sign("unnamed", unnamed), Named::Anything, &[]),
            ("of no name", ours.sign("unnamed", unnamed), Named::Host, &["names nothing", "not 127.0.0.1"]),
            (
                "of another name",
                ours.sign("good", SERVER),
                named("ovn-sb.test"),
                &["names", "ovn-nb.test", "127.0.0.1", "not ovn-sb.test"],
            ),
            ("expired", ours.sign("expired", expired), Named::Anything, &["has expired, at 2001-01-01"]),
            ("of the future", ours.sign("future", future), Named::Anything, &["not valid before 3000-01-01"]),
            (
                "for clients",
                ours.sign("client-too", for_clients),
                Named::Anything,
                &["is for no server", "lacks serverAuth"],
            ),
            ("of another authority", other.sign("other", SERVER), Named::Anything, &["no authority of", "ours-ca.crt"]),
        ];
        for (what, shown, named, refused) in cases {
            // The other one's server knows our client all the same.
            let files = TlsFiles { authority: ours.authority(), ..shown };
            let _server = Server::start("pssl", &files).await;
            let session = session(&format!("ssl:{LISTENS}"), &with(named));
            match refused {
                [] => assert_eq!(outcome(&session).await, Ok(()), "{what}"),
                parts => is_refused(what, &session, parts).await,
            }
        }
        let files = TlsFiles { authority: ours.authority(), ..renewed.sign("server", SERVER) };
        let _server = Server::start("pssl", &files).await;
        let session = session(&format!("ssl:{LISTENS}"), &client);
        is_refused("of an authority that was made anew", &session, &["the name of the one in", "another key"]).await;
    });
}

#[test]
fn what_the_server_or_the_files_lack_is_said() {
    in_namespace("what_the_server_or_the_files_lack_is_said", || async {
        run("ip", &["link", "set", "lo", "up"]);
        let (ours, other) = (Pki::new("ours"), Pki::new("other"));
        let (client, server) = (ours.sign("client", CLIENT), ours.sign("server", SERVER));
        let expired = ours.sign("old", Kind { valid: (2000, 2001), ..CLIENT });
        let foreign = TlsFiles { authority: ours.authority(), ..other.sign("foreign", CLIENT) };
        let absent = TlsFiles { certificate: "/nowhere/tls.crt".into(), ..client.clone() };
        let no_pem = TlsFiles { authority: "/etc/hostname".into(), ..client.clone() };
        let no_key = TlsFiles { private_key: client.certificate.clone(), ..client.clone() };
        let mixed = TlsFiles { private_key: server.private_key.clone(), ..client.clone() };
        let mut running = Some(Server::start("pssl", &server).await);
        for (what, files, parts) in [
            ("expired", &expired, ["refuses", "old.crt", "has expired"].as_slice()),
            ("of another authority", &foreign, &["does not know the authority that signed", "foreign.crt"]),
            ("for servers", &server, &["refuses", "server.crt", "for no client"]),
            ("no such file", &absent, &["cannot read /nowhere/tls.crt"]),
            ("no certificate", &no_pem, &["/etc/hostname", "holds no certificate in PEM"]),
            ("no key", &no_key, &["client.crt", "holds no private key in PEM"]),
            ("another's key", &mixed, &["server.key is not the private key of", "client.crt"]),
        ] {
            is_refused(what, &session(&format!("ssl:{LISTENS}"), files), parts).await;
        }
        is_refused(
            "tcp: to pssl:",
            &session(&format!("tcp:{LISTENS}"), &client),
            &["does it expect TLS there (ssl:)?"],
        )
        .await;
        let unresolved = session("ssl:no-such-host.invalid:6641", &client);
        is_refused("no such host", &unresolved, &["ssl:no-such-host.invalid:6641"]).await;
        drop(running.take());
        let _plain = Server::start("ptcp", &server).await;
        is_refused("ssl: to ptcp:", &session(&format!("ssl:{LISTENS}"), &client), &["does it expect TLS there"]).await;
    });
}

#[test]
fn new_files_are_taken_by_the_next_connection() {
    in_namespace("new_files_are_taken_by_the_next_connection", || async {
        run("ip", &["link", "set", "lo", "up"]);
        let (old, new) = (Pki::new("old"), Pki::new("new"));
        let (mounted, next) = (old.sign("mounted", CLIENT), new.sign("next", CLIENT));
        let (kept, own) = (new.sign("kept", CLIENT), old.sign("server", SERVER));
        let server = Server::start("pssl", &own).await;
        let address = format!("ssl:{LISTENS}");
        let client = session(&address, &mounted);
        assert_eq!(outcome(&client).await, Ok(()));
        for (files, by) in [(&mounted, &next), (&own, &new.sign("server", SERVER))] {
            replace(files, by);
        }
        // The server takes its own when it next looks; a client with the old ones is refused from then on.
        let before = old.sign("of-before", CLIENT);
        let refused = async { while outcome(&session(&address, &before)).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the server has taken its new files");
        client.refresh().await.expect("a connection that is open stays");
        let mut changes = client.changes();
        changes.mark_unchanged();
        server.cut();
        let lost = changes.wait_for(|view| matches!(view.link, Link::Lost(_)));
        tokio::time::timeout(Duration::from_secs(60), lost).await.expect("in time").expect("the session is there");
        client.refresh().await.expect("by the new files");

        std::fs::remove_file(&mounted.private_key).expect("removed");
        server.cut();
        let says = |part: &str| matches!(&client.view().link, Link::Lost(error) if error.to_string().contains(part));
        let missing = format!("cannot read {}", mounted.private_key.display());
        eventually("which file cannot be read", || says(&missing)).await;
        replace(&mounted, &kept);
        eventually("whole again", || matches!(client.view().link, Link::Synced(_))).await;
    });
}

/// What docs/operator/network.md tells to do, with the tool that OVN's own manuals use: one authority, RSA, no extended key usage.
#[test]
fn certificates_of_ovs_pki_will_do() {
    let name = "certificates_of_ovs_pki_will_do";
    let found = |program: &str| Command::new(program).arg("--help").output().is_ok();
    if let Some(absent) = ["ovs-pki", "openssl"].into_iter().find(|program| !found(program)) {
        eprintln!("SKIP {name}: {absent} is not installed");
        return;
    }
    in_namespace(name, || async {
        run("ip", &["link", "set", "lo", "up"]);
        let folder = tempfile::Builder::new().prefix("pki").tempdir_in("/var/tmp").expect("a directory");
        let path = |file: &str| folder.path().join(file);
        let pki = |arguments: &[&str]| {
            let own = [format!("--dir={}", path("pki").display()), format!("--log={}", path("log").display())];
            let made = Command::new("ovs-pki").args(own).args(arguments).current_dir(folder.path()).output();
            let made = made.expect("ovs-pki runs");
            assert!(made.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
        };
        pki(&["init"]);
        for certificate in ["ovn-nb", "metalplane-controller"] {
            pki(&["-u", "req+sign", certificate, "switch"]);
        }
        let files = |name: &str, named: Named| TlsFiles {
            certificate: path(&format!("{name}-cert.pem")),
            private_key: path(&format!("{name}-privkey.pem")),
            authority: path("pki/switchca/cacert.pem"),
            named,
        };
        let _server = Server::start("pssl", &files("ovn-nb", Named::Anything)).await;
        for named in [Named::Anything, Named::This("ovn-nb".to_owned())] {
            let client = session(&format!("ssl:{LISTENS}"), &files("metalplane-controller", named));
            assert_eq!(outcome(&client).await, Ok(()));
        }
        let client = session(&format!("ssl:{LISTENS}"), &files("metalplane-controller", Named::Host));
        is_refused("no address in it", &client, &["names", "ovn-nb", "not 127.0.0.1"]).await;
    });
}
