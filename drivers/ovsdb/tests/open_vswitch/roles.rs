//! The two ways to the south-bound database, as docs/operator/network.md has them made: what a chassis may write by its certificate, and
//! what nobody may by the controller's.

use crate::lab::{Daemon, config, eventually, in_namespace, missing_of_ovn, run};
use crate::northd::Ovn;
use crate::pki::{CLIENT, Pki, SERVER, options};
use ovsdb::chassis::{DATABASE, monitored};
use ovsdb::{OvnSouthBound, Remotes, TlsFiles};
use ports::SouthBound;
use std::process::Command;
use std::time::Duration;

const FOR_CHASSIS: u16 = 6642;
const FOR_THE_CONTROLLER: u16 = 6643;

/// OVN's own tool, from elsewhere; or what it says of its refusal.
fn sbctl(port: u16, files: &TlsFiles, arguments: &str) -> Result<String, String> {
    let database = format!("--db=ssl:127.0.0.1:{port}");
    let mut command = Command::new("ovn-sbctl");
    command.args(["--timeout=30", &database]).args(options(files)).args(arguments.split(' '));
    let output = command.output().expect("ovn-sbctl");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn a_chassis_writes_its_own_rows_alone_and_the_controllers_way_is_read_only() {
    let name = "a_chassis_writes_its_own_rows_alone_and_the_controllers_way_is_read_only";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        run("ip", &["link", "set", "lo", "up"]);
        let mut ovn = Ovn::start().await;
        // northd says in the database which role may do what.
        ovn.sync();
        for (chassis, address) in [("dpu-1", "192.0.2.1"), ("dpu-2", "192.0.2.2")] {
            ovn.south.tool("ovn-sbctl", &["chassis-add", chassis, "geneve", address]);
            ovn.south.tool("ovn-sbctl", &["create", "Chassis_Private", &format!("name={chassis}")]);
        }
        let [chassis, readers] = [FOR_CHASSIS, FOR_THE_CONTROLLER].map(|port| format!("pssl:{port}:127.0.0.1"));
        let connections = ["role=ovn-controller", &chassis, "read-only", "role=", &readers];
        ovn.south.tool("ovn-sbctl", &[&["set-connection"], connections.as_slice()].concat());
        let pki = Pki::new("ovn");
        let [server, own, controller] = [("ovn-sb", SERVER), ("dpu-1", CLIENT), ("metalplane-controller", CLIENT)]
            .map(|(name, kind)| pki.sign(name, kind));
        let lab = &mut ovn.south;
        lab.stop_server();
        let remotes = [format!("punix:{}", lab.path("db.sock")), format!("db:{DATABASE},SB_Global,connections")];
        let remotes = remotes.map(|remote| format!("--remote={remote}")).to_vec();
        let arguments = [lab.own_files("ovsdb-server"), options(&server), remotes, vec![lab.path("conf.db")]].concat();
        let _server = Daemon::start(lab.directory(), "ovsdb-server", &arguments);
        let listens = |port| move || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        eventually("chassis are listened to", listens(FOR_CHASSIS)).await;
        eventually("the controller is listened to", listens(FOR_THE_CONTROLLER)).await;

        let all = || {
            ["Chassis", "Chassis_Private", "Encap"]
                .map(|table| ovn.south.tool("ovn-sbctl", &["--format=csv", "list", table]))
        };
        let before = all();
        let others = [
            "set Chassis dpu-2 other_config:ovn-bridge-mappings=physnet1:br-ex",
            "set Chassis_Private dpu-2 nb_cfg=9",
            "chassis-del dpu-2",
            "chassis-add dpu-3 geneve 192.0.2.3",
            "create Chassis_Private name=dpu-3 nb_cfg=9",
        ];
        for other in others {
            let refused = sbctl(FOR_CHASSIS, &own, other).expect_err(other);
            assert!(refused.contains("permission error"), "{other}: {refused}");
        }
        let writes = ["set Chassis_Private dpu-1 nb_cfg=9", "set Chassis dpu-1 other_config:a=b", others[1]];
        for (files, write) in [&own, &controller].into_iter().flat_map(|files| writes.map(|write| (files, write))) {
            let refused = sbctl(FOR_THE_CONTROLLER, files, write).expect_err(write);
            assert!(refused.contains("read only"), "{write}: {refused}");
        }
        assert_eq!(all(), before, "nothing was written");
        // Else the certificate would not be what it is refused by.
        sbctl(FOR_CHASSIS, &own, writes[0]).expect("its own number");

        let mut config = config("unix:/unused", monitored());
        let address = format!("ssl:127.0.0.1:{FOR_THE_CONTROLLER}").parse().expect("an address");
        config.remotes = Remotes::new(address, Some(controller)).expect("with files");
        config.database = DATABASE.to_owned();
        let south_bound = OvnSouthBound::new(config);
        let told = async {
            while !south_bound.chassis().is_ok_and(|all| all.get("dpu-1").is_some_and(|one| one.installed == Some(9))) {
                // An error is told too: of the time before the connection.
                let _ = south_bound.changes().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), told).await.expect("the controller is told all the same");
        assert_eq!(south_bound.chassis().map(|all| all.len()), Ok(2));
    });
}
