//! Our node plug-in inside a guest, called from outside as kubelet would call it from inside: its image is fetched from the
//! guest's own DPU and unpacked there, and two relays join its socket to one of this machine.
//!
//! The guest has nothing else of ours, no client of any storage and no credential.

use crate::machine::{Machine, SOON};
use anyhow::{Context, Result, ensure};
use proto::csi::v1::node_client::NodeClient;
use proto::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
use proto::csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodeGetInfoRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
};
use sandbox::layout::{API_ADDRESS, API_PORT};
use sandbox::supervisor::process::ProcessSpec;
use std::collections::HashMap;
use std::os::unix::fs::symlink;
use tempfile::TempDir;
use tests::site::{Place, Site, program, until};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// The DPU's address in the guest's network, and the port of its switch that has it.
const DPU: &[&str] = &["10.30.0.250/24"];
const DPU_PORT: &str = "worker0";
const FILES: &str = "10.30.0.250:8100";
/// Where the guest reaches the API server.
pub const API: &str = "10.30.0.250:6443";
const STAGING: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/staging";
pub const TARGET: &str = "/var/lib/kubelet/pods/pod/volumes/mount";

pub struct PlugIn<'a> {
    machine: &'a Machine<'a>,
    node: NodeClient<Channel>,
    /// What the DPU hands out.
    files: TempDir,
}

/// A volume as kubelet knows it: what its PersistentVolume and its VolumeAttachment say.
pub struct Volume {
    pub id: String,
    pub context: HashMap<String, String>,
    pub publish_context: HashMap<String, String>,
}

impl<'a> PlugIn<'a> {
    pub async fn bring(machine: &'a Machine<'a>) -> Result<PlugIn<'a>> {
        let (site, dpu) = (machine.site, machine.on().dpu());
        let files = tempfile::tempdir().context("make a folder")?;
        let own = program("sandbox")?;
        symlink(&own, files.path().join("sandbox")).context("link the relay")?;
        let place = Place { namespace: machine.namespace, subnet: "blue", addresses: DPU };
        site.probe(&dpu, DPU_PORT, place).await?;
        let (own, folder) = (own.display().to_string(), files.path().display().to_string());
        let serve = [own.as_str(), "serve-files", "--listen", FILES, "--folder", folder.as_str()];
        site.sandbox.spawn(&ProcessSpec::new(format!("{dpu}/worker-files"), serve).enter(&dpu)).await?;
        let (outer, api) = (format!("tcp:{API}"), format!("tcp:{API_ADDRESS}:{API_PORT}"));
        let relay = [own.as_str(), "relay", "--listen", &outer, "--to", &api];
        site.sandbox.spawn(&ProcessSpec::new(format!("{dpu}/worker-api"), relay).enter(&dpu)).await?;

        let inside = format!("tcp:{}:7000", machine.address);
        let socket = site.sandbox.layout().dir.join("worker.sock");
        let outside = format!("unix:{}", socket.display());
        let relay = [own.as_str(), "relay", "--listen", &outside, "--to", &inside];
        site.sandbox.spawn(&ProcessSpec::new(format!("{dpu}/worker-relay"), relay).enter(&dpu)).await?;
        let node = NodeClient::new(Endpoint::try_from(outside).context("name the socket")?.connect_lazy());
        let plug_in = PlugIn { machine, node, files };
        plug_in.fetch_image("csi").await?;
        plug_in.fetch("sandbox", "/run/relay").await?;
        let relay = format!(
            "chmod +x /run/relay; /run/relay relay --listen {inside} --to unix:/run/csi.sock >/run/relay.log 2>&1 &"
        );
        machine.guest().order(&relay, SOON).await?;
        plug_in.start().await?;
        Ok(plug_in)
    }

    pub fn hand_out(&self, file: &str, text: &str) -> Result<()> {
        std::fs::write(self.files.path().join(file), text).with_context(|| format!("write {file}"))
    }

    /// Into the guest.
    pub async fn fetch(&self, file: &str, to: &str) -> Result<()> {
        shell(self.machine, &format!("wget -q -O {to} http://{FILES}/{file}")).await.map(drop)
    }

    /// The image's one layer is its largest file. The guest has it in place of a container: nothing of it is in the way.
    pub async fn fetch_image(&self, name: &str) -> Result<()> {
        let file = format!("{name}.tar");
        symlink(Site::image_file(name), self.files.path().join(&file)).context("link the image")?;
        for command in [
            format!("mkdir /run/image && wget -q -O - http://{FILES}/{file} | tar x -C /run/image -f -"),
            "cd /run/image/blobs/sha256 && tar x -C / -f \"$(ls -S | head -n 1)\"; cd / && rm -r /run/image".to_owned(),
        ] {
            shell(self.machine, &command).await?;
        }
        Ok(())
    }

    /// Starts it in the guest; it remembers nothing of an earlier one.
    pub async fn start(&self) -> Result<()> {
        let name = self.machine.name;
        // The programs of its image come first, as they do in its container.
        let command = format!(
            "PATH=/usr/bin:$PATH /csi --proxy node --node-id {name} --csi-address unix:///run/csi.sock >>/run/csi.log 2>&1 &"
        );
        self.machine.guest().order(&command, SOON).await?;
        let id = until("the node plug-in in the guest answers", SOON, async || {
            let answer = self.node.clone().node_get_info(NodeGetInfoRequest {}).await;
            Ok(answer.map(|info| info.into_inner().node_id).map_err(|status| status.to_string()))
        })
        .await?;
        ensure!(id == name, "the node calls itself {id}");
        Ok(())
    }

    pub async fn kill(&self) -> Result<()> {
        shell(self.machine, "kill -9 $(pidof csi)").await.map(drop)
    }

    pub async fn stage(&self, volume: &Volume) -> Result<()> {
        let request = NodeStageVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: volume.publish_context.clone(),
            staging_target_path: STAGING.into(),
            volume_capability: Some(ext4()),
            volume_context: volume.context.clone(),
        };
        told("NodeStageVolume", self.node.clone().node_stage_volume(request).await)
    }

    pub async fn publish(&self, volume: &Volume) -> Result<()> {
        let request = NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: volume.publish_context.clone(),
            staging_target_path: STAGING.into(),
            target_path: TARGET.into(),
            volume_capability: Some(ext4()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        told("NodePublishVolume", self.node.clone().node_publish_volume(request).await)
    }

    /// Again until the disk in the guest is as large as the volume, as kubelet does.
    pub async fn expand(&self, volume: &Volume, bytes: i64) -> Result<()> {
        let request = NodeExpandVolumeRequest {
            volume_id: volume.id.clone(),
            volume_path: TARGET.into(),
            staging_target_path: STAGING.into(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capability: Some(ext4()),
        };
        let grown = until("NodeExpandVolume succeeds", SOON, async || {
            let answer = self.node.clone().node_expand_volume(request.clone()).await;
            Ok(answer.map(|answer| answer.into_inner().capacity_bytes).map_err(|status| status.to_string()))
        })
        .await?;
        ensure!(grown == bytes, "the node has {grown} bytes");
        Ok(())
    }

    /// The size of the filesystem.
    pub async fn total(&self, volume: &Volume) -> Result<i64> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.id.clone(),
            volume_path: TARGET.into(),
            ..Default::default()
        };
        let answer = self.node.clone().node_get_volume_stats(request).await.context("NodeGetVolumeStats")?;
        Ok(answer.into_inner().usage.first().context("no figures")?.total)
    }

    pub async fn take_down(&self, volume: &Volume) -> Result<()> {
        let request = NodeUnpublishVolumeRequest { volume_id: volume.id.clone(), target_path: TARGET.into() };
        told("NodeUnpublishVolume", self.node.clone().node_unpublish_volume(request).await)?;
        let request = NodeUnstageVolumeRequest { volume_id: volume.id.clone(), staging_target_path: STAGING.into() };
        told("NodeUnstageVolume", self.node.clone().node_unstage_volume(request).await)
    }
}

/// Takes what `bring` put on the DPU away.
pub async fn leave(machine: &Machine<'_>) -> Result<()> {
    let (site, dpu) = (machine.site, machine.on().dpu());
    for process in ["worker-files", "worker-relay", "worker-api"] {
        site.sandbox.stop_process(&format!("{dpu}/{process}")).await?;
    }
    site.remove_probe(&dpu, DPU_PORT).await
}

/// Runs a command in the guest, which has to succeed; what was printed.
pub async fn shell(machine: &Machine<'_>, command: &str) -> Result<String> {
    let said = machine.guest().shell(command, SOON).await?;
    ensure!(said.contains("MP-DONE 0"), "in the guest `{command}` failed: {said}");
    Ok(said)
}

fn ext4() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume { fs_type: "ext4".into(), ..Default::default() })),
    }
}

fn told<T>(call: &str, answer: Result<T, Status>) -> Result<()> {
    answer.map(drop).with_context(|| format!("{call} in the guest"))
}
