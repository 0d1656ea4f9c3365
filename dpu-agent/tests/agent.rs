//! The agent against a real API server with RBAC, its ports in memory, the test in the controller's place.

mod site;

use api::attachment::DiskAttachment;
use api::conditions;
use api::machine::AttachPhase;
use kube::api::{DeleteParams, Patch, PatchParams};
use planner::exposure::{Exposure, ExposureId, Presence};
use ports::switch::SwitchPort;
use ports::{Emulation, Switch, VolumeConnector};
use proto::agent::v1alpha1::agent_client::AgentClient;
use proto::agent::v1alpha1::{GetStatusRequest, ListExposuresRequest};
use serde_json::json;
use site::dpu::TestDpu;
use site::{ApiServer, attached, until};

const MIB: u64 = 1 << 20;

/// The reason of a condition, with its status.
fn reason(object: &DiskAttachment, type_: &str) -> Option<String> {
    let condition = conditions::get(&object.status.as_ref()?.conditions, type_)?.clone();
    Some(format!("{} {}", condition.status, condition.reason))
}

async fn exposed(dpu: &TestDpu<'_>) -> Vec<Exposure> {
    let mut all = dpu.emulation.list().await.expect("list");
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

/// Starting one takes seconds, so the scenarios share it, each with a DPU of its own.
#[tokio::test]
async fn the_agent_and_a_real_api_server() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let site = match ApiServer::start().await {
        Ok(site) => site,
        Err(reason) => {
            eprintln!("SKIP the_agent_and_a_real_api_server: {reason}");
            return;
        }
    };
    tokio::join!(
        Box::pin(a_disk_from_grant_to_release(&site)),
        Box::pin(restarts_and_boots(&site)),
        Box::pin(ports_that_outlived_a_boot_are_told_until_the_next(&site)),
        Box::pin(orphans_stay_until_they_may_go_and_fenced_stays_fenced(&site)),
        Box::pin(a_nic_and_a_seed(&site)),
        Box::pin(what_the_host_may_do_is_told(&site)),
        Box::pin(a_bridge_that_is_not_secure_is_told(&site)),
    );
}

/// What mlxprivhost prints is written after the agent was started, and again when somebody has restricted the host.
async fn what_the_host_may_do_is_told(site: &ApiServer) {
    let mut dpu = TestDpu::joined(site, "restricted").await;
    dpu.until_condition(conditions::HOST_RESTRICTED, "Unknown NotReported").await;
    let write = |level: &str, disabled: &str| {
        let keys = ["disable_rshim", "disable_tracer", "disable_port_owner", "disable_counter_rd"];
        let lines: String = keys.iter().map(|key| format!("{key:<30}: {disabled}\n")).collect();
        let text =
            format!("Host configurations\n-------------------\nlevel                         : {level}\n\n{lines}");
        std::fs::write(dpu.dir.path().join("host-privilege"), text).expect("write");
    };
    write("PRIVILEGED", "FALSE");
    dpu.until_condition(conditions::HOST_RESTRICTED, "False HostPrivileged").await;
    write("RESTRICTED", "TRUE");
    dpu.until_condition(conditions::HOST_RESTRICTED, "True Restricted").await;
    dpu.stop().await;
}

/// Nothing new is granted on such a Dpu, for the controller wants it Ready.
async fn a_bridge_that_is_not_secure_is_told(site: &ApiServer) {
    let mut dpu = TestDpu::joined(site, "standalone").await;
    dpu.until_ready().await;
    dpu.switch.set_not_secure(Some("bridge br-int has fail mode standalone"));
    dpu.until_condition(conditions::READY, "False BridgeNotSecure").await;
    dpu.switch.set_not_secure(None);
    dpu.until_condition(conditions::READY, "True AgentRunning").await;
    dpu.stop().await;
}

async fn a_disk_from_grant_to_release(site: &ApiServer) {
    let mut dpu = TestDpu::joined(site, "disk").await;
    let volume = dpu.volumes.volume(4 * MIB);
    let uid = dpu.disk("root", Some(&volume), json!({"size": "4Mi"})).await;
    dpu.until_disk("root", "it says that it waits", |o| {
        (reason(o, conditions::EXPOSED)? == "False NotGranted").then_some(())
    })
    .await;
    assert_eq!(dpu.volumes.list().await.expect("list"), [], "nothing is connected without a grant");

    dpu.patch_disk("root", json!({"grant": {"epoch": 7}})).await;
    dpu.until_disk("root", "Attached", attached).await;
    let status = dpu.disks().get("root").await.expect("get").status.expect("a status");
    let fence = status.fence.expect("a fence");
    assert_eq!((fence.boot_id.as_str(), fence.epoch), ("boot-1", 7));
    assert_eq!(fence.identity, format!("memory.{uid}.7"));
    assert_eq!(status.capacity.map(|q| q.0), Some("4Mi".to_owned()));
    assert_eq!(status.wwid.as_deref(), Some("uuid.0d7e1f52-0000-4000-8000-000000000001"));

    // Grown, on a bus that needs a power cycle for it.
    let path: std::path::PathBuf = volume.handle.clone().into();
    std::fs::File::options().write(true).open(&path).and_then(|f| f.set_len(8 * MIB)).expect("grow the file");
    dpu.patch_disk("root", json!({"size": "8Mi"})).await;
    dpu.until_disk("root", "not resized", |o| reason(o, conditions::RESIZED)?.starts_with("False").then_some(())).await;

    // Being deleted is not enough, and an ending agent takes nothing along.
    dpu.delete_disk("root").await;
    dpu.until_disk("root", "it says why it stays", |o| {
        (reason(o, conditions::EXPOSED)? == "True NotReleased").then_some(())
    })
    .await;
    dpu.stop().await;
    assert_eq!(exposed(&dpu).await.len(), 1, "ending hides nothing");
    dpu.start();
    dpu.patch_disk("root", json!({"release": true})).await;
    until("it is asked to leave", async || {
        let all = exposed(&dpu).await;
        all.iter().all(|e| e.presence == Presence::Leaving).then_some(()).ok_or_else(|| format!("{all:?}"))
    })
    .await;
    assert_eq!(dpu.volumes.list().await.expect("list").len(), 1, "connected until the host let go");
    assert!(dpu.disks().get_opt("root").await.expect("get").is_some(), "the finalizer stands until then");
    dpu.emulation.let_go();
    dpu.until_gone("root").await;
    assert_eq!(dpu.volumes.list().await.expect("list"), []);
    assert_eq!(std::fs::read_dir(dpu.run_dir().join("record")).expect("the record").count(), 0);
    dpu.stop().await;
}

async fn restarts_and_boots(site: &ApiServer) {
    let mut dpu = TestDpu::joined(site, "boots").await;
    let volume = dpu.volumes.volume(MIB);
    let uid = dpu.disk("root", Some(&volume), json!({"grant": {"epoch": 1}})).await;
    dpu.until_disk("root", "Attached", attached).await;
    let before = dpu.disks().get("root").await.expect("get");

    // A restart on the same boot adopts: nothing is written, nothing is touched.
    dpu.stop().await;
    let lease_before = dpu.renewed().await;
    dpu.start();
    until("the Lease is renewed", async || {
        let now = dpu.renewed().await;
        (now != lease_before).then_some(()).ok_or_else(|| now.to_string())
    })
    .await;
    let after = dpu.disks().get("root").await.expect("get");
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "a restart writes nothing");

    // The target crashed: replayed from the record under the same identity.
    dpu.emulation.crash();
    until("it is presented again", async || {
        let all = exposed(&dpu).await;
        (all.len() == 1 && all[0].id.epoch == 1).then_some(()).ok_or_else(|| format!("{all:?}"))
    })
    .await;

    // The same, of an emulation whose host has to find all of its disks at once.
    dpu.emulation.restart();
    until("all is presented at once", async || {
        let all = exposed(&dpu).await;
        (all.len() == 1 && dpu.emulation.recovered() == [1]).then_some(()).ok_or_else(|| format!("{all:?}"))
    })
    .await;

    // Another boot: nothing is adopted until it is claimed anew.
    dpu.stop().await;
    dpu.set_boot("boot-2");
    dpu.start();
    let boot = dpu.until_disk("root", "claimed and exposed on the new boot", |o| {
        let status = o.status.as_ref()?;
        let both = status.fence.as_ref()?.boot_id == "boot-2" && status.exposed_boot_id.as_deref() == Some("boot-2");
        both.then(|| status.fence.as_ref().map(|f| f.identity.clone()))
    });
    assert_eq!(boot.await, Some(format!("memory.{uid}.1")), "the same identity");
    dpu.until_ready().await;
    dpu.until_condition(conditions::BOOT_WINDOW, "False NothingForwarded").await;
    dpu.stop().await;
}

/// Nobody has run `--sanitize` before the switch forwarded: it is told for as long as that boot lasts.
async fn ports_that_outlived_a_boot_are_told_until_the_next(site: &ApiServer) {
    let mut dpu = TestDpu::joined(site, "window").await;
    dpu.until_condition(conditions::BOOT_WINDOW, "False NothingForwarded").await;
    dpu.stop().await;
    let stale = SwitchPort {
        id: ExposureId { uid: "stale".to_owned(), epoch: 1 },
        device: "mpstale".to_owned(),
        mac: "02:00:00:00:00:01".to_owned(),
        logical_port: "mp-stale".to_owned(),
        version: "stale.1".to_owned(),
    };
    dpu.switch.plug(&stale).await.expect("plug");
    dpu.set_boot("boot-2");
    dpu.start();
    dpu.until_condition(conditions::BOOT_WINDOW, "True PortsTakenLate").await;
    let told = conditions::get(&dpu.dpu().await.status.expect("a status").conditions, conditions::BOOT_WINDOW).cloned();
    assert!(told.as_ref().is_some_and(|told| told.message.contains("mpstale")), "{told:?}");
    dpu.stop().await;
    let before = dpu.renewed().await;
    dpu.start();
    until("the agent lives again", async || {
        let now = dpu.renewed().await;
        (now != before).then_some(()).ok_or(now)
    })
    .await;
    dpu.until_condition(conditions::BOOT_WINDOW, "True PortsTakenLate").await;
    dpu.stop().await;
    dpu.set_boot("boot-3");
    dpu.start();
    dpu.until_condition(conditions::BOOT_WINDOW, "False NothingForwarded").await;
    dpu.stop().await;
}

async fn orphans_stay_until_they_may_go_and_fenced_stays_fenced(site: &ApiServer) {
    let mut dpu = TestDpu::joined(site, "orphans").await;
    let (lost, kept) = (dpu.volumes.volume(MIB), dpu.volumes.volume(MIB));
    let lost_uid = dpu.disk("lost", Some(&lost), json!({"grant": {"epoch": 1}})).await;
    let kept_uid = dpu.disk("kept", Some(&kept), json!({"grant": {"epoch": 2}})).await;
    dpu.until_disk("lost", "Attached", attached).await;
    dpu.until_disk("kept", "Attached", attached).await;

    // As after a restore of etcd: the object is missing, and its release was never asked for.
    dpu.emulation.set_host_off(true);
    let no_finalizer = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    dpu.disks().patch("lost", &PatchParams::default(), &no_finalizer).await.expect("patch");
    dpu.disks().delete("lost", &DeleteParams::default()).await.expect("delete");
    dpu.until_condition(conditions::ORPHANS_HELD, "True OrphansHeld").await;
    let orphans = dpu.dpu().await.status.expect("a status").orphans;
    let told: Vec<_> = orphans.iter().map(|o| (o.uid.as_str(), o.epoch, o.attachment_name.as_deref())).collect();
    assert_eq!(told, [(lost_uid.as_str(), 1, Some("lost"))]);
    assert_eq!(orphans[0].volume.as_ref().map(|v| &v.volume_handle), Some(&lost.handle));

    // It is kept over a restart of the agent, and served: what presents it crashes.
    dpu.stop().await;
    dpu.emulation.crash();
    dpu.start();
    until("both are presented again", async || {
        let all = exposed(&dpu).await;
        (all.len() == 2).then_some(()).ok_or_else(|| format!("{all:?}"))
    })
    .await;

    // The controller has read the host off.
    let releasable = json!({"status": {"releasable": [{"uid": lost_uid, "epoch": 1}]}});
    dpu.patch_dpu_status(&releasable).await;
    until("only what is granted is left", async || {
        let (all, connected) = (exposed(&dpu).await, dpu.volumes.list().await.expect("list"));
        let only = |ids: Vec<&str>| ids == [kept_uid.as_str()];
        let done = only(all.iter().map(|e| e.id.uid.as_str()).collect())
            && only(connected.iter().map(|c| c.id.uid.as_str()).collect());
        done.then_some(()).ok_or_else(|| format!("{all:?} {connected:?}"))
    })
    .await;
    dpu.until_condition(conditions::ORPHANS_HELD, "False NoOrphans").await;

    let refused = dpu.volumes.volume(MIB);
    let uid = dpu.disk("refused", Some(&refused), json!({})).await;
    dpu.volumes.fence(&uid);
    dpu.patch_disk("refused", json!({"grant": {"epoch": 1}})).await;
    dpu.until_disk("refused", "Fenced", |o| (reason(o, conditions::FENCED)? == "True Fenced").then_some(())).await;
    assert!(dpu.volumes.list().await.expect("list").iter().all(|c| c.id.uid != uid), "no other identity is tried");
    // It never was connected; what a try left at the storage goes all the same.
    dpu.patch_disk("refused", json!({"release": true})).await;
    dpu.disks().delete("refused", &DeleteParams::default()).await.expect("delete");
    let gone = async || match dpu.disks().get_opt("refused").await {
        Ok(None) => Ok(()),
        there => Err(format!("{there:?}")),
    };
    until("it is let go of", gone).await;
    assert!(dpu.volumes.has_let_go(&ExposureId { uid, epoch: 1 }), "what is at the storage stays");
    dpu.stop().await;
}

async fn local_interface_tells(dpu: &TestDpu<'_>) {
    let socket = dpu.run_dir().join("agent.sock");
    let connect = tower::service_fn(move |_: http::Uri| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://agent");
    let channel = endpoint.connect_with_connector(connect).await.expect("agent.sock");
    let mut agent = AgentClient::new(channel);
    let status = agent.get_status(GetStatusRequest {}).await.expect("GetStatus").into_inner();
    assert_eq!((status.dpu_name.as_str(), status.boot_id.as_str()), ("nic", "boot-1"));
    let told: Vec<_> = status.attachments.iter().map(|a| (a.name.as_str(), a.phase.as_str(), a.epoch)).collect();
    assert_eq!(told, [("eth0", "Attached", 1), ("seed", "Attached", 1)]);
    let exposures = agent.list_exposures(ListExposuresRequest {}).await.expect("ListExposures").into_inner().exposures;
    assert_eq!(exposures.len(), 2, "{exposures:?}");
}

async fn a_nic_and_a_seed(site: &ApiServer) {
    let mut dpu = TestDpu::joined(site, "nic").await;
    dpu.nic("eth0").await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seed", "namespace": dpu.namespace},
        "stringData": {"meta-data": "instance-id: i\n", "user-data": "#cloud-config\n", "network-config": "version: 2\n"},
    });
    let seed = dpu.disk("seed", None, json!({"seedSecretName": "seed", "slot": "Seed", "grant": {"epoch": 1}})).await;
    let image = dpu.run_dir().join(format!("seeds/{seed}.img"));
    dpu.until_disk("seed", "it says what is missing", |o| {
        (reason(o, conditions::EXPOSED)? == "False SeedFailed").then_some(())
    })
    .await;
    site.apply(&[secret]).await;
    dpu.until_disk("seed", "Attached", attached).await;
    assert!(image.exists(), "{}", image.display());

    until("the NIC is attached", async || {
        let status = dpu.nics().get("eth0").await.expect("get").status.unwrap_or_default();
        (status.phase == AttachPhase::Attached).then_some(()).ok_or_else(|| format!("{status:?}"))
    })
    .await;
    assert_eq!(dpu.switch.list().await.expect("list").len(), 1);
    dpu.switch.start_guest("02:00:00:00:00:07", "10.20.0.7".parse().expect("an address"));
    until("the guest was seen to answer", async || {
        let guest = dpu.nics().get("eth0").await.expect("get").status.and_then(|status| status.guest);
        let answered = guest.as_ref().is_some_and(|g| g.answered_at.is_some() && g.first_packet_at.is_some());
        let address = guest.as_ref().and_then(|g| g.answered_address.as_deref()) == Some("10.20.0.7");
        (answered && address).then_some(()).ok_or_else(|| format!("{guest:?}"))
    })
    .await;

    local_interface_tells(&dpu).await;
    dpu.emulation.set_host_off(true);
    dpu.patch_disk("seed", json!({"release": true})).await;
    dpu.delete_disk("seed").await;
    dpu.until_gone("seed").await;
    assert!(!image.exists(), "the seed is removed with its attachment");
    dpu.stop().await;
}
