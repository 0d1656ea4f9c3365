//! The boot service with a real API server, under the rights that the chart gives, and clients that others wrote: busybox's udhcpc
//! and tftp, in [`tftp_clients`] others' too, curl; in [`packets`] packets of our own; in [`origin`] an image of nginx's; in [`networks`] relays and other DHCP servers; and in [`netboot`] whole servers.

mod current;
mod full_disk;
mod graph;
mod netboot;
mod networks;
mod older;
mod origin;
mod packets;
mod references;
mod renewed;
mod sessions;
mod site;
mod tftp_clients;
mod wrong_server;

use api::tinkerbell::{Hardware, Template, Workflow};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_client::WorkflowServiceClient;
use proto::tink::{ActionMessage, ActionRequest, ActionResponse, ActionStatusRequest};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use site::{ApiServer, US, client, field, path, udhcpc, until};
use std::path::Path;
use std::time::Duration;

const INVENTORY: &str = "inventory";
const SEEDS: &str = "seeds";
const MAC: &str = "52:54:00:88:00:01";
/// Behind a relay.
const RELAYED: &str = "52:54:00:88:00:03";
/// Claimed by a machine.
const CLAIMED: &str = "52:54:00:88:00:02";
const TASKS: &str = "
version: '0.1'
name: debian
global_timeout: 600
tasks:
- name: os
  worker: {{.device_1}}
  environment: {Z: task, A: task}
  actions:
  - {name: image, image: image2disk, timeout: 90, environment: {DEST_DISK: '{{ index .Hardware.Disks 0 }}', MODE: 0600}}
  - {name: reboot, image: reboot}
";

#[tokio::test]
async fn a_server_boots_and_its_workflow_succeeds() {
    let test = "a_server_boots_and_its_workflow_succeeds";
    if site::clients().is_none() {
        networks::prefetch().await;
        tftp_clients::prefetch().await;
        origin::prefetch().await;
        references::prefetch();
        if let Err(reason) = site::run_inside(test, &[]) {
            eprintln!("SKIP {test}: {reason}");
        }
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut site = match ApiServer::start().await {
        Ok(site) => site,
        Err(reason) => {
            eprintln!("SKIP {test}: {reason}");
            return;
        }
    };
    let dir = tempfile::tempdir().expect("a folder");
    prepare(&site).await;
    renewed::has_few_rights(&site).await;
    let (arguments, log) = (arguments(&dir), path(&dir, "boot.log"));
    full_disk::stops_nothing(&site, &dir, &arguments).await;
    let service = site::boot(&site.of_a_pod, &arguments, US, &log).await;
    site.renew_token();
    addresses(&dir).await;
    files(test, &site, &dir).await;
    packets::are_answered_from_the_address_that_was_asked(&dir).await;
    packets::a_thousand_at_once(&dir, &service, &log).await;
    networks::behind_a_relay(test, &dir, &log).await;
    Box::pin(workflow(&site)).await;
    Box::pin(graph::workflow(&site)).await;
    Box::pin(references::workflows(test, &site)).await;
    Box::pin(older::workflow(test, &site)).await;
    Box::pin(current::workflow(test, &site)).await;
    Box::pin(renewed::workflow(&mut site)).await;
    ends_at_once(service).await;
    Box::pin(sessions::workflow(&site, &dir, &arguments)).await;
    networks::beside_another_server(test, &site, &dir, arguments).await;
}

fn arguments(dir: &tempfile::TempDir) -> Vec<String> {
    let program = vec![7_u8; 40_000];
    std::fs::write(path(dir, "ipxe.efi"), &program).expect("written");
    std::fs::create_dir(path(dir, "files")).expect("made");
    std::fs::write(path(dir, "files").join("vmlinuz-x86_64"), vec![9_u8; 700_000]).expect("written");
    let iso = [&[5; 3000][..], proto::argument_area::empty().as_bytes(), &[6; 3000]].concat();
    std::fs::write(path(dir, "files").join("installer.iso"), iso).expect("written");
    let digest: String = Sha256::digest(&program).iter().map(|byte| format!("{byte:02x}")).collect();
    vec![
        format!("--address={US}"),
        "--interface=br-prov".to_owned(),
        "--agents=open".to_owned(),
        format!("--syslog={US}"),
        format!("--inventory-namespace={INVENTORY}"),
        format!("--seeds-namespace={SEEDS}"),
        format!("--files={}", path(dir, "files").display()),
        format!("--reference-allow={}", references::RULE),
        format!("--program=ipxe.efi={digest}@{}", path(dir, "ipxe.efi").display()),
    ]
}

/// Objects, and the rights of the chart's role for the account that the service has here.
async fn prepare(site: &ApiServer) {
    let user = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
        "name": "system:serviceaccount:metalplane-system:metalplane-dpu-agent"}]);
    site.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": INVENTORY}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SEEDS}}),
    ])
    .await;
    for (namespace, rules) in [INVENTORY, SEEDS].into_iter().zip(rules()) {
        site.apply(&[
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "boot", "namespace": namespace}, "rules": rules}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "boot", "namespace": namespace}, "subjects": user,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "boot"}}),
        ])
        .await;
    }
    let hardware: Api<Hardware> = Api::namespaced(site.admin.clone(), INVENTORY);
    for (name, mac, address, gateway) in
        [("s1", MAC, "10.88.0.50", US), ("s2", CLAIMED, "10.88.0.51", US), ("s3", RELAYED, "10.89.0.50", "10.89.0.1")]
    {
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "disks": [{"device": "/dev/nvme0n1"}],
                "userData": format!("#cloud-config of {name}\n"),
                "interfaces": [{
                    "dhcp": {"mac": mac, "hostname": name,
                        "ip": {"address": address, "netmask": "255.255.255.0", "gateway": gateway}},
                    "netboot": {"allowPXE": true},
                }],
            },
        });
        until("Hardware is created", async || {
            let object: Hardware = serde_json::from_value(object.clone()).expect("a Hardware");
            hardware.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())
        })
        .await;
    }
    let claim = json!({"metadata": {"annotations": {"metalplane.io/claimed-by": "uid"}}});
    hardware.patch("s2", &PatchParams::default(), &Patch::Merge(claim)).await.expect("claimed");
}

/// The rules of the chart's roles: in the inventory, and where the seeds are.
fn rules() -> [Value; 2] {
    let chart = include_str!("../../../charts/metalplane/templates/boot.yaml");
    let all = chart.split("\nrules:\n").skip(1).map(|rest| {
        let (rules, _) = rest.split_once("\n---").expect("its end");
        serde_saphyr::from_str(rules).expect("YAML")
    });
    all.collect::<Vec<Value>>().try_into().expect("two roles")
}

async fn addresses(dir: &tempfile::TempDir) {
    let lease = udhcpc(dir, MAC, &[]).await.expect("a lease");
    assert_eq!(field(&lease, "ip"), "10.88.0.50");
    assert_eq!((field(&lease, "lease"), field(&lease, "hostname")), ("604800".to_owned(), "s1".to_owned()));
    assert_eq!((field(&lease, "serverid"), field(&lease, "boot_file")), (US.to_owned(), String::new()));
    // As UEFI's PXE asks: options 60, 93, 94.
    let pxe = ["-V", "PXEClient:Arch:00007:UNDI:003000", "-x", "0x5d:0007", "-x", "0x5e:010300"];
    let lease = udhcpc(dir, MAC, &pxe).await.expect("a lease");
    assert_eq!((field(&lease, "boot_file"), field(&lease, "siaddr")), ("ipxe.efi".to_owned(), US.to_owned()));
    // As an iPXE with HTTP: options 77 and 175 too.
    let ipxe = [&pxe[..], &["-x", "0x4d:69505845", "-x", "0xaf:130101"]].concat();
    let lease = udhcpc(dir, MAC, &ipxe).await.expect("a lease");
    assert_eq!(field(&lease, "boot_file"), format!("http://{US}:7080/ipxe/script/{MAC}/auto.ipxe"));
    // One that would like another address gets its own.
    let lease = udhcpc(dir, MAC, &["-r", "10.88.0.99"]).await.expect("a lease");
    assert_eq!(field(&lease, "ip"), "10.88.0.50");
    assert_eq!(udhcpc(dir, CLAIMED, &pxe).await, None, "a claimed server gets nothing");
    assert_eq!(udhcpc(dir, "52:54:00:88:00:09", &pxe).await, None, "an unknown one neither");
}

async fn files(test: &str, site: &ApiServer, dir: &tempfile::TempDir) {
    let set = client(&["ip", "addr", "replace", "10.88.0.50/24", "dev", "eth0"]).await;
    assert!(set.status.success(), "{set:?}");
    let got = path(dir, "got");
    let got_text = got.display().to_string();
    for block in ["512", "1468"] {
        let fetched = client(&["busybox", "tftp", "-g", "-b", block, "-r", "ipxe.efi", "-l", &got_text, US]).await;
        assert!(fetched.status.success(), "{fetched:?}");
        assert_eq!(std::fs::read(&got).expect("fetched"), vec![7_u8; 40_000]);
    }
    tftp_clients::read(test, dir, &[7_u8; 40_000]).await;
    let below = format!("{CLAIMED}/ipxe.efi");
    let refused = client(&["busybox", "tftp", "-g", "-r", &below, "-l", &got_text, US]).await;
    assert!(!refused.status.success(), "{refused:?}");
    let curl = async |words: &[&str], path: &str| {
        let url = format!("http://{US}:7080{path}");
        let done = client(&[&["curl", "-s", "--path-as-is", "-w", "\n%{http_code}"], words, &[&url]].concat()).await;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let (body, code) =
            text.rsplit_once('\n').map(|(body, code)| (body.to_owned(), code.to_owned())).expect("a code");
        (code, body)
    };
    let (code, script) = curl(&[], &format!("/ipxe/script/{MAC}/auto.ipxe")).await;
    assert_eq!(code, "200");
    assert!(script.starts_with("#!ipxe\n") && script.contains(&format!("worker_id={MAC} hw_addr={MAC} ")), "{script}");
    let doubled = curl(&[], &format!("//ipxe//script/{MAC}//auto.ipxe")).await;
    assert_eq!(
        doubled,
        ("200".to_owned(), script),
        "upstream's URLs have double slashes, and iPXE follows no redirect"
    );
    let kernel = format!("/osie/{MAC}/vmlinuz-x86_64");
    let (code, body) = curl(&[], &kernel).await;
    assert_eq!((code.as_str(), body.len()), ("200", 700_000));
    let (code, body) = curl(&["-r", "699990-"], &kernel).await;
    assert_eq!((code.as_str(), body.len()), ("206", 10));
    let (code, _) = curl(&["-r", "700000-"], &kernel).await;
    assert_eq!(code, "416");
    let (code, head) = curl(&["-I"], &kernel).await;
    assert!(
        code == "200" && head.to_lowercase().contains("content-length: 700000") && head.contains("etag: "),
        "{head}"
    );
    image(&curl).await;
    origin::image(test, site, dir, &curl).await;
    metadata(site, &curl).await;
    syslog(&path(dir, "boot.log")).await;
    for bad in [
        format!("/iso/{CLAIMED}/installer.iso"),
        format!("/iso/{MAC}/vmlinuz-x86_64"),
        format!("/osie/{MAC}/../../etc/passwd"),
        format!("/osie/{MAC}/%2e%2e/ipxe.efi"),
        format!("/osie/{CLAIMED}/vmlinuz-x86_64"),
        format!("/ipxe/script/{CLAIMED}/auto.ipxe"),
        "/ipxe/script/52:54:00:88:00:09/auto.ipxe".to_owned(),
        "/".to_owned(),
    ] {
        assert_eq!(curl(&[], &bad).await.0, "404", "{bad}");
    }
    let (code, _) = curl(&["-X", "POST"], &kernel).await;
    assert_eq!(code, "405");
}

/// An ISO image with this server's arguments, whatever part of it is asked for.
async fn image(curl: &impl AsyncFn(&[&str], &str) -> (String, String)) {
    let iso = format!("/iso/{}/installer.iso", MAC.replace(':', "-"));
    let (code, whole) = curl(&[], &iso).await;
    assert_eq!((code.as_str(), whole.len()), ("200", 7024));
    let arguments = whole[3000..4024].trim_end();
    assert!(arguments.contains(&format!(" worker_id={MAC} ")) && !arguments.contains("initrd="), "{arguments}");
    for (first, last) in [(0, 7023), (2990, 3100), (3500, 3501), (4000, 5000), (0, 2999)] {
        let (code, part) = curl(&["-r", &format!("{first}-{last}")], &iso).await;
        assert_eq!((code.as_str(), part.as_str()), ("206", &whole[first..=last]));
    }
    let etag = async |path: &str| {
        let (_, head) = curl(&["-I"], path).await;
        head.lines().find_map(|line| Some(line.to_lowercase().strip_prefix("etag: ")?.to_owned())).expect("an ETag")
    };
    let tag = etag(&iso).await;
    let (code, _) = curl(&["-r", "0-9", "-H", &format!("If-Range: {tag}")], &iso).await;
    assert_eq!(code, "206");
    let (code, body) = curl(&["-r", "0-9", "-H", "If-Range: \"another\""], &iso).await;
    assert_eq!((code.as_str(), body.len()), ("200", 7024));
}

/// Each server is told about itself, by the address that it asks from.
async fn metadata(site: &ApiServer, curl: &impl AsyncFn(&[&str], &str) -> (String, String)) {
    let user_data = "/2009-04-04/user-data";
    for (path, wanted) in [
        ("/2009-04-04/meta-data/hostname", "s1"),
        ("/2009-04-04/meta-data/local-ipv4/", "10.88.0.50"),
        ("/latest/meta-data/mac", MAC),
        (user_data, "#cloud-config of s1\n"),
        ("/nocloud/user-data", "#cloud-config of s1\n"),
        ("/metadata", r#"{"metadata":{"instance":{"storage":{}}}}"#),
    ] {
        assert_eq!(curl(&[], path).await, ("200".to_owned(), wanted.to_owned()), "{path}");
    }
    let (code, heads) = curl(&["-I"], user_data).await;
    assert!(code == "200" && heads.contains("cache-control: no-store"), "{heads}");
    assert_eq!(curl(&[], "/latest/meta-data/iqn").await.0, "404");
    assert_eq!(curl(&["-H", "X-Forwarded-For: 10.88.0.50"], user_data).await.0, "403");
    // Of a server whose disks are its DPU's, and of one that no Hardware names.
    for (address, why) in [("10.88.0.51", "is claimed by"), ("10.88.0.77", "has the address 10.88.0.77")] {
        let set = client(&["ip", "addr", "add", &format!("{address}/24"), "dev", "eth0"]).await;
        assert!(set.status.success(), "{set:?}");
        for path in [user_data, "/nocloud/meta-data", "/metadata"] {
            let (code, told) = curl(&["--interface", address], path).await;
            assert!(code == "404" && told.contains(why) && !told.contains("cloud-config"), "{told}");
        }
        let set = client(&["ip", "addr", "del", &format!("{address}/24"), "dev", "eth0"]).await;
        assert!(set.status.success(), "{set:?}");
    }
    installed(site, curl).await;
}

/// A machine that was installed there reads what its installation was given, by the Secret that its own claim names.
async fn installed(site: &ApiServer, curl: &impl AsyncFn(&[&str], &str) -> (String, String)) {
    let hardware: Api<Hardware> = Api::namespaced(site.admin.clone(), INVENTORY);
    let claim = |install: Option<&str>| {
        let annotations = json!({"metalplane.io/claimed-by": "uid", "metalplane.io/install": install,
            "metalplane.io/boot-strategy": install.map(|_| "Workflow")});
        Patch::Merge(json!({"metadata": {"annotations": annotations}}))
    };
    for (name, of) in [(api::names::install("uid", 2), "uid"), (api::names::install("uid", 3), "another")] {
        site.apply(&[json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": SEEDS, "labels": {"metalplane.io/machine-uid": of}},
            "stringData": {"source": "Metadata", "user-data": format!("#cloud-config of {of}\n"), "meta-data": "instance-id: uid\n"}})])
            .await;
    }
    let set = client(&["ip", "addr", "add", "10.88.0.51/24", "dev", "eth0"]).await;
    assert!(set.status.success(), "{set:?}");
    for (record, told) in [("2/Done/w", "#cloud-config of uid\n"), ("3/Done/w", "")] {
        hardware.patch("s2", &PatchParams::default(), &claim(Some(record))).await.expect("patched");
        until("the machine reads its own", async || {
            let (code, text) = curl(&["--interface", "10.88.0.51"], "/latest/user-data").await;
            assert!(!text.contains("another"), "{text}");
            if (code.as_str(), text.as_str()) == ("200", told) { Ok(()) } else { Err(format!("{code} {text}")) }
        })
        .await;
    }
    hardware.patch("s2", &PatchParams::default(), &claim(None)).await.expect("patched");
    let set = client(&["ip", "addr", "del", "10.88.0.51/24", "dev", "eth0"]).await;
    assert!(set.status.success(), "{set:?}");
}

/// busybox's `logger` writes to a socket of this machine alone; bash sends a datagram.
async fn syslog(log: &Path) {
    let send = format!("printf '<4>%s' 'kernel: worker_id={MAC}.1a2b.{} said' > /dev/udp/{US}/514", "0f".repeat(32));
    let sent = client(&["bash", "-c", &send]).await;
    assert!(sent.status.success(), "{sent:?}");
    let said = until("the server's line is in the log", async || {
        let text = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
        let line = text.lines().find(|line| line.contains("(token) said")).map(str::to_owned);
        line.ok_or(text)
    })
    .await;
    assert!(said.contains("s1") && said.contains("warning"), "{said}");
}

/// An agent that sends what upstream's does.
struct Agent(WorkflowServiceClient<tonic::transport::Channel>);

impl Agent {
    async fn next(&mut self) -> Result<ActionResponse, tonic::Status> {
        self.next_of(MAC).await
    }

    async fn next_of(&mut self, agent: &str) -> Result<ActionResponse, tonic::Status> {
        let request = ActionRequest { agent_id: Some(agent.to_owned()), agent_attributes: None };
        self.0.get_action(request).await.map(tonic::Response::into_inner)
    }

    async fn say(&mut self, agent: &str, of: &ActionResponse, state: StateType) -> Result<(), tonic::Status> {
        let unset = Some(prost_types::Timestamp { seconds: -62_135_596_800, nanos: 0 });
        let request = ActionStatusRequest {
            workflow_id: of.workflow_id.clone(),
            agent_id: Some(agent.to_owned()),
            task_id: of.task_id.clone(),
            action_id: of.action_id.clone(),
            action_name: of.name.clone(),
            action_state: Some(state as i32),
            execution_start: unset,
            execution_stop: unset,
            execution_duration: Some(String::new()),
            message: Some(ActionMessage { message: Some("said".to_owned()) }),
        };
        self.0.report_action_status(request).await.map(|_| ())
    }
}

/// An agent that waits for work is told that it has to ask elsewhere, before the pod's grace period is over.
async fn ends_at_once(service: site::Running) {
    let channel = WorkflowServiceClient::connect(format!("http://{US}:42113")).await.expect("connected");
    let mut waiting = tokio::spawn(async move { Agent(channel).next().await });
    let held = tokio::time::timeout(Duration::from_millis(500), &mut waiting).await;
    assert!(held.is_err(), "there is nothing to do, and it waits: {held:?}");
    let (status, took) = service.stopped().await;
    assert!(status.success() && took < Duration::from_secs(2), "it ended with {status} after {took:?}");
    let told = tokio::time::timeout(Duration::from_secs(1), waiting).await.expect("at once").expect("it ran");
    told.expect_err("nobody is there");
}

async fn workflow(site: &ApiServer) {
    let workflows: Api<Workflow> = Api::namespaced(site.admin.clone(), INVENTORY);
    let state = async || {
        let status = workflows.get("w").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        Ok::<_, String>((status.state.clone().unwrap_or_default(), status))
    };
    let object = json!({"metadata": {"name": "w"}, "spec": {
        "templateRef": "t", "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    workflows.create(&PostParams::default(), &object).await.expect("created");
    until("it says that there is no Template", async || {
        let (_, status) = state().await?;
        let said = status.conditions.first().and_then(|condition| condition.message.clone()).unwrap_or_default();
        if said == "Template 't' does not exist" { Ok(()) } else { Err(said) }
    })
    .await;

    // An agent that asks first is woken when there is something to do.
    let channel = WorkflowServiceClient::connect(format!("http://{US}:42113")).await.expect("connected");
    let mut waiting = Agent(channel.clone());
    let waiting = tokio::spawn(async move { waiting.next().await });
    let templates: Api<Template> = Api::namespaced(site.admin.clone(), INVENTORY);
    let template = json!({"metadata": {"name": "t"}, "spec": {"data": TASKS}});
    let template: Template = serde_json::from_value(template).expect("a Template");
    templates.create(&PostParams::default(), &template).await.expect("created");
    let first = waiting.await.expect("it ran").expect("an action");
    assert_eq!(first.name.as_deref(), Some("image"));
    assert_eq!(first.environment, ["A=task", "DEST_DISK=/dev/nvme0n1", "MODE=0600", "Z=task"]);
    assert_eq!(
        (first.workflow_id.as_deref(), first.timeout, first.pid.as_deref()),
        (Some("inventory/w"), Some(90), Some(""))
    );

    let mut agent = Agent(channel);
    assert_eq!(agent.next().await.expect("again").action_id, first.action_id, "one that was restarted");
    agent.say(MAC, &first, StateType::Running).await.expect("acknowledged");
    let (word, status) = state().await.expect("a status");
    assert_eq!(word, "RUNNING");
    assert!(status.global_execution_stop.is_some());
    assert_eq!(status.current_state.and_then(|current| current.action_name).as_deref(), Some("image"));
    agent.say(MAC, &first, StateType::Success).await.expect("acknowledged");
    let second = agent.next().await.expect("the next action");
    assert_eq!((second.name.as_deref(), second.timeout), (Some("reboot"), Some(3600)));
    agent.say(MAC, &first, StateType::Failed).await.expect("a late report is acknowledged");
    agent.say(MAC, &second, StateType::Success).await.expect("acknowledged");
    let (word, status) = state().await.expect("a status");
    assert_eq!(word, "SUCCESS");
    assert!(status.tasks[0].actions.iter().all(|action| action.state.as_deref() == Some("SUCCESS")));
    agent.say(MAC, &second, StateType::Failed).await.expect("acknowledged, and nothing changes");
    assert_eq!(state().await.expect("a status").0, "SUCCESS");
    until("iPXE goes on with the disk", async || {
        let script = client(&["curl", "-s", &format!("http://{US}:7080/ipxe/script/{MAC}/auto.ipxe")]).await;
        let script = String::from_utf8_lossy(&script.stdout).into_owned();
        if script.ends_with("\nexit 1\n") && script.contains("Workflow 'w'") { Ok(()) } else { Err(script) }
    })
    .await;
    let gone = ActionResponse { workflow_id: Some("inventory/gone".to_owned()), ..second.clone() };
    agent.say(MAC, &gone, StateType::Success).await.expect("known by its Hardware");
    let foreign = agent.say("somebody", &gone, StateType::Success).await.expect_err("not known");
    assert_eq!(foreign.code(), tonic::Code::NotFound);
}
