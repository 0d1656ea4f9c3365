//! `oci2disk` in a virtual server: a disk from the distribution's own registry (Debian's `docker-registry`), beside what is none.

use crate::machine::{HOST, MIB, Machine, disk, message};
use crate::server::{Server, action};
use proto::tink::action_status_request::StateType;
use sandbox::registry;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

fn digest(data: &[u8]) -> String {
    format!("sha256:{}", Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// The answer's head.
async fn send(registry: SocketAddr, what: &str, kind: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(registry).await.expect("the registry answers");
    let length = body.len();
    let head = format!(
        "{what} HTTP/1.1\r\nHost: {registry}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(body).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    assert!(answer.starts_with("HTTP/1.1 20"), "{what}: {answer}");
    answer
}

/// As `oras push` does it, but for the title where there is none.
async fn push(registry: SocketAddr, name: &str, tag: &str, title: Option<&str>, disk: &[u8]) {
    for blob in [disk, b"{}"] {
        let answer = send(registry, &format!("POST /v2/{name}/blobs/uploads/"), "application/json", &[]).await;
        let place = answer.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a place");
        let place = place.trim().trim_start_matches(&format!("http://{registry}"));
        send(registry, &format!("PUT {place}&digest={}", digest(blob)), "application/octet-stream", blob).await;
    }
    let annotations = title.map_or_else(|| json!({}), |title| json!({"org.opencontainers.image.title": title}));
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(b"{}"), "size": 2},
        "layers": [{"mediaType": LAYER, "digest": digest(disk), "size": disk.len(), "annotations": annotations}],
    });
    send(registry, &format!("PUT /v2/{name}/manifests/{tag}"), MANIFEST, manifest.to_string().as_bytes()).await;
}

#[tokio::test]
async fn a_disk_is_written_from_a_registry_of_containers() {
    let test = "a_disk_is_written_from_a_registry_of_containers";
    let machine = Machine::here();
    let missing = match machine.has(&[]).await {
        Err(missing) => Some(missing),
        Ok(()) => registry::program().await.err().map(|error| format!("{error:#}")),
    };
    if let Some(missing) = missing {
        eprintln!("SKIP {test}: {missing}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let address = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let (config, images) = (folder.path().join("registry.yml"), folder.path().join("images"));
    let text = format!(
        "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{address}\"}}\n",
        images.display()
    );
    std::fs::write(&config, text).expect("written");
    let _registry = registry::serve(&config, address).await.expect("the registry starts");
    let image: Vec<u8> = (0..3 * MIB).map(|at| (at % 251) as u8 + 1).collect();
    push(address, "disks/debian", "raw", Some("debian.raw"), &image).await;
    push(address, "disks/container", "1", None, &image).await;

    let disks = [("disk-1", "virtio-blk-pci"), ("disk-2", "nvme")];
    let [first, second] = disks.map(|(name, _)| disk(folder.path(), name, 8 * MIB));
    let reference = |path: &str| format!("http://{HOST}:{}/{path}", address.port());
    let work = vec![
        action(
            "container",
            "oci2disk",
            &[("IMG_URL", &reference("disks/container:1")), ("DEST_DISK", "select:serial=disk-2")],
        ),
        action(
            "disk",
            "quay.io/tinkerbell/actions/oci2disk:latest",
            &[("IMG_URL", &reference("disks/debian:raw")), ("DEST_DISK", "/dev/vda"), ("COMPRESSED", "false")],
        ),
        action("restart", "reboot", &[]),
    ];
    let (server, asked) = Server::start(work).await;
    machine.run(folder.path(), &machine.arguments(asked), &server, &disks).await;
    server.done(Duration::from_secs(1)).await;
    let said = message(&server, "container");
    assert_eq!(server.result("container").map(|report| report.action_state()), Some(StateType::Failed), "{said}");
    assert!(said.contains("without a title"), "{said}");
    let said = message(&server, "disk");
    assert_eq!(server.result("disk").map(|report| report.action_state()), Some(StateType::Success), "{said}");
    assert!(said.contains(&digest(&image)) && said.contains("\"debian.raw\""), "{said}");
    assert!(std::fs::read(first).expect("read")[..image.len()] == image, "the disk is the image");
    assert!(std::fs::read(second).expect("read").iter().all(|byte| *byte == 0xff), "the other one is as it was");
}
