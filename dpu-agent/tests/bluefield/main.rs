//! The agent on a BlueField, from its first registration to the last disk: against a real API server with RBAC and a real Open vSwitch, with
//! `--disks-by=snap` and each of the two that present NICs there, with the arguments that the chart gives it.

mod board;
#[path = "../../../drivers/bluefield/tests/dpu/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part of it")]
mod dpu;
#[path = "../../../drivers/ovsdb/tests/open_vswitch/lab.rs"]
#[expect(dead_code, reason = "each test program uses a part of it")]
mod lab;
#[path = "../../../drivers/ovsdb/tests/open_vswitch/pki.rs"]
#[expect(dead_code, reason = "each test program uses a part of it")]
mod pki;
#[path = "../../../drivers/bluefield/tests/recorded/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part of it")]
mod recorded;
#[path = "../site/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part of it")]
mod site;
#[path = "../../../drivers/spdk/tests/storage/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part of it")]
mod storage;

use api::conditions;
use api::machine::AttachPhase;
use board::{BOOT, Board, FUNCTION, Nics};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use planner::exposure::ExposureId;
use sandbox::chart::Helm;
use sandbox::spdk::world::World;
use serde_json::json;
use site::{ApiServer, InCluster, attached, until};
use spdk::names;

const NODE: &str = "bluefield-1";
const MIB: u64 = 1 << 20;

#[test]
fn with_the_hosts_own_nics() {
    on_a_bluefield("with_the_hosts_own_nics", Nics::Static);
}

#[test]
fn with_nics_of_virtio_net() {
    on_a_bluefield("with_nics_of_virtio_net", Nics::Virtnet);
}

/// What there is no way to later: programs are built with a network.
fn prepare(nics: Nics) -> Result<Helm, String> {
    if let Some(missing) = lab::missing() {
        return Err(missing);
    }
    if nics == Nics::Virtnet && board::virtnet().is_none() {
        return Err("the sandbox's program virtnet is not built".to_owned());
    }
    site::api_server::programs()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Helm::find()).map_err(|error| format!("{error:#}"))
}

fn on_a_bluefield(test: &'static str, nics: Nics) {
    let helm = match prepare(nics) {
        Ok(helm) => helm,
        Err(missing) => {
            eprintln!("SKIP {test}: {missing}");
            return;
        }
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    lab::in_namespace(test, move || async move {
        // Its own loopback comes up with the switch, before the API server is there.
        dpu::ip(&["link", "set", "lo", "up"]);
        let site = ApiServer::start().await.expect("an API server");
        let cluster = InCluster::node(&site, NODE).await;
        let board = Board::new(&helm, nics, NODE, &site.kubeconfig).await;
        Box::pin(from_the_first_start_to_the_last_disk(&cluster, board)).await;
    });
}

async fn from_the_first_start_to_the_last_disk(cluster: &InCluster<'_>, mut board: Board) {
    board.start();
    cluster.approve().await;
    cluster.until_ready_on(BOOT).await;
    functions_are_told(cluster, &board).await;
    let [root, seed, data] = machine_starts(cluster, &board).await;
    agent_is_restarted(cluster, &mut board).await;
    snap_is_restarted(cluster, &board).await;
    assert_eq!(shown(&board), [(1, names::bdev(&root)), (2, names::bdev(&seed))], "each where it was");
    assert!(board.with(|world| world.bdevs.keys().any(|name| *name == names::bdev(&data))), "the hot-plugged one too");
    machine_is_released(cluster, &board).await;
    board.lab.assert_harmless();
    board.stop().await;
}

/// What the host has on the static function.
fn shown(board: &Board) -> Vec<(u64, String)> {
    board.with(|world| {
        let ours = world.snap.subsystems.get(&format!("nqn.2026-01.io.metalplane:dpu:{NODE}"));
        let all = ours.into_iter().flat_map(|subsystem| &subsystem.namespaces);
        all.filter(|(_, ns)| ns.shown_by.is_some()).map(|(nsid, ns)| (*nsid, ns.bdev.clone())).collect()
    })
}

fn count(board: &Board, method: &str) -> usize {
    board.snap().calls().iter().filter(|call| *call == method).count()
}

/// The agent has gone through all of SNAP twice since then, so whatever was to follow has followed.
async fn until_looked_again(board: &Board) {
    let before = count(board, "emulation_function_list");
    until("the agent looks at SNAP", async || {
        let now = count(board, "emulation_function_list");
        (now >= before + 3).then_some(()).ok_or_else(|| format!("{now} looks, {before} before"))
    })
    .await;
}

/// Before any machine: the host may be powered on at any time, and must find a controller.
async fn functions_are_told(cluster: &InCluster<'_>, board: &Board) {
    let status = cluster.dpu().await.status.expect("a status");
    let told = status.boot_controller.expect("the boot controller");
    assert_eq!((told.serial_number, told.pci_address), (api::names::boot_serial(NODE), None));
    let capacity = status.capacity.expect("its capacity");
    assert_eq!(capacity.nics, board.nics());
    assert!(capacity.disks > 1 && capacity.hot_plug_ports > 1, "{capacity:?}");
    assert_eq!((shown(board), count(board, "nvme_controller_resume")), (Vec::new(), 1));
    board.lab.assert_harmless();
}

/// Granted, presented, booted; then a disk is added to the host that runs.
async fn machine_starts(cluster: &InCluster<'_>, board: &Board) -> [ExposureId; 3] {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seed", "namespace": cluster.namespace},
        "stringData": {"meta-data": "instance-id: i\n", "user-data": "#cloud-config\n", "network-config": "version: 2\n"},
    });
    cluster.site.apply(&[secret]).await;
    let volume = board.lab.nvme_volume("root", 4 * MIB).await;
    let root = json!({"slot": "Boot", "uuid": "0d7e1f52-0000-4000-8000-000000000001", "grant": {"epoch": 1}});
    let root = cluster.disk("root", Some(&volume), root).await;
    let seed = json!({"slot": "Seed", "uuid": "0d7e1f52-0000-4000-8000-000000000002", "seedSecretName": "seed",
        "serial": "MP2", "grant": {"epoch": 1}});
    let seed = cluster.disk("seed", None, seed).await;
    cluster.nic("eth0").await;
    for disk in ["root", "seed"] {
        cluster.until_disk(disk, "Attached", attached).await;
    }
    let [root, seed] = [root, seed].map(|uid| ExposureId { uid, epoch: 1 });
    assert_eq!(shown(board), [(1, names::bdev(&root)), (2, names::bdev(&seed))]);
    assert_eq!(count(board, "nvme_controller_resume"), 1, "on the controller that is there");

    board.ovn_installs("a.v").await;
    until_nic(cluster, AttachPhase::Attached).await;
    assert!(board.host_has_link());
    assert_eq!(board.mac().as_deref(), Some("02:00:00:00:00:07"));

    board.start_host();
    assert_eq!(board.with(|world| world.host_found()), [(FUNCTION.to_owned(), vec![1, 2])]);
    until("the host's enumeration is told", async || {
        let told = cluster.dpu().await.status.and_then(|status| status.boot_controller);
        (told.as_ref().and_then(|told| told.pci_address.as_deref()) == Some("26:00.2"))
            .then_some(())
            .ok_or_else(|| format!("{told:?}"))
    })
    .await;
    let volume = board.lab.nvme_volume("data", 4 * MIB).await;
    let data = json!({"uuid": "0d7e1f52-0000-4000-8000-000000000003", "serial": "MP3", "grant": {"epoch": 1}});
    let data = cluster.disk("data", Some(&volume), data).await;
    cluster.until_disk("data", "Attached", attached).await;
    assert_eq!(board.with(|world| world.host_found()).len(), 2, "on a function of its own");
    board.lab.assert_harmless();
    [root, seed, ExposureId { uid: data, epoch: 1 }]
}

async fn until_nic(cluster: &InCluster<'_>, phase: AttachPhase) {
    until("the NIC", async || {
        let status = cluster.nics().get("eth0").await.expect("get").status.unwrap_or_default();
        (status.phase == phase).then_some(()).ok_or_else(|| format!("{status:?}"))
    })
    .await;
}

/// What others see of the machine: at the API server, at the storage, in the switch, at the host.
async fn outside(cluster: &InCluster<'_>, board: &Board) -> Vec<String> {
    let mut all = Vec::new();
    for disk in ["root", "seed", "data"] {
        all.extend(cluster.disks().get(disk).await.expect("get").resource_version());
    }
    all.extend(cluster.nics().get("eth0").await.expect("get").resource_version());
    all.push(format!("{:?} {:?}", shown(board), board.with(|world| world.host_found())));
    all.push(format!(
        "{:?}",
        board.with(|world| (world.initiator.controllers.clone(), world.outside.dpu.plugged.clone()))
    ));
    all.push(board.switch.vsctl(&["--columns=name,external_ids,type", "list", "interface", board.representor()]));
    all.push(format!("{:?} {}", board.mac(), dpu::ip(&["-d", "link", "show", board.representor()])));
    all
}

/// The host runs on, and nobody hears of it.
async fn agent_is_restarted(cluster: &InCluster<'_>, board: &mut Board) {
    let before = outside(cluster, board).await;
    board.stop().await;
    let (calls, renewed) = (board.snap().calls().len(), cluster.renewed().await);
    board.start();
    until("its Lease is renewed", async || {
        let now = cluster.renewed().await;
        (now != renewed).then_some(()).ok_or(now)
    })
    .await;
    until_looked_again(board).await;
    let asked = board.snap().calls()[calls..].to_vec();
    let changed: Vec<&String> =
        asked.iter().filter(|call| !call.contains("_get_") && !call.ends_with("_list")).collect();
    assert!(changed.is_empty(), "a restart changes nothing on the wire: {changed:?}");
    assert_eq!(outside(cluster, board).await, before);
    board.lab.assert_harmless();
}

/// Under the host that runs: it gets everything back at once, each controller is resumed once, and then never again.
async fn snap_is_restarted(cluster: &InCluster<'_>, board: &Board) {
    let found = board.with(|world| world.host_found());
    let resumes = count(board, "nvme_controller_resume");
    board.snap().kill();
    cluster.until_condition(conditions::READY, "False EmulationUnreachable").await;
    board.snap().revive().expect("a new SNAP");
    cluster.until_condition(conditions::READY, "True AgentRunning").await;
    for disk in ["root", "seed", "data"] {
        cluster.until_disk(disk, "Attached", attached).await;
    }
    until("all is there again", async || {
        let now = board.with(|world| world.bdevs.len());
        let resumed = count(board, "nvme_controller_resume") - resumes;
        (resumed == 2 && shown(board).len() == 2).then_some(()).ok_or_else(|| format!("{resumed} resumed, {now} bdevs"))
    })
    .await;
    // A controller that was resumed with less than the host had is a violation of the fake's.
    board.lab.assert_harmless();
    until_looked_again(board).await;
    assert_eq!(count(board, "nvme_controller_resume"), resumes + 2, "the static function's and the hot-plugged one's");
    assert_eq!(board.with(|world| world.host_found()), found);
    assert!(board.host_has_link(), "the NIC is another's");
    board.lab.assert_harmless();
}

/// As the controller does it: the host is off, the attachments are released and deleted.
async fn machine_is_released(cluster: &InCluster<'_>, board: &Board) {
    board.stop_host();
    let release = Patch::Merge(json!({"spec": {"release": true}}));
    cluster.nics().patch("eth0", &PatchParams::default(), &release).await.expect("patch");
    cluster.nics().delete("eth0", &DeleteParams::default()).await.expect("delete");
    for disk in ["root", "seed", "data"] {
        cluster.patch_disk(disk, json!({"release": true})).await;
        cluster.delete_disk(disk).await;
    }
    for disk in ["root", "seed", "data"] {
        cluster.until_gone(disk).await;
    }
    until("the NIC no longer exists", async || match cluster.nics().get_opt("eth0").await.expect("get") {
        None => Ok(()),
        Some(there) => Err(format!("{there:?}")),
    })
    .await;
    board.until_no_nic().await;
    let left = board.with(|world| {
        let connected = world.initiator.controllers.len();
        (world.bdevs.len(), connected, world.outside.dpu.plugged.len(), world.snap.subsystems.len())
    });
    assert_eq!(left, (0, 0, 0, 1), "bdevs, connections, plugged functions, subsystems");
    assert_eq!(shown(board), []);
    for folder in ["record", "seeds"] {
        assert_eq!(std::fs::read_dir(board.run_dir().join(folder)).expect(folder).count(), 0, "{folder}");
    }
    // The static function is backed all the time.
    board.with(World::start_host);
    board.with(World::stop_host);
}
