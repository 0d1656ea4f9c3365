//! Network boot: `boot` as it ships, on a real API server, and what the installer writes by; each beside programs of Debian that do the
//! same, in the same run, so that a figure is also a ratio.
//!
//! | file | what |
//! |---|---|
//! | `parts.rs` | the other programs, unpacked |
//! | `network.rs` | a namespace for each server, one for all clients |
//! | `server.rs` | the other programs as servers |
//! | `service.rs` | `boot`, beside the control plane |
//! | `ground.rs` | the Hardware |
//! | `load.rs` | the clients: the program `boot-load` |
//! | `dhcp.rs` | 1,000 clients at once, and a few over and over: boot, dnsmasq, Kea |
//! | `files.rs` | a program by TFTP (tftpd-hpa, atftpd), an image by HTTP (nginx) |
//! | `image.rs` | an image onto a disk: imaging, and curl, gzip, zstd, dd, qemu-img |
//! | `memory.rs` | a large inventory: memory, and from start to ready |
//!
//! A part that cannot be had is told by its name, and what needs it is not in the table. An answer that is wrong or does not come, and a
//! disk that is not the image, end the run.

mod dhcp;
mod files;
mod ground;
mod image;
mod load;
mod memory;
mod network;
mod parts;
mod server;
mod service;

use crate::Figures;
use crate::args::Boot;
use crate::figure::{Figure, Unit};
use crate::stage::{Story, client};
use anyhow::{Context, Result};
use files::Folder;
use ground::Ground;
use network::Network;
use parts::Parts;
use service::Service;
use std::time::Duration;
use tests::site::Site;

/// Nothing that is waited for takes so long.
const STUCK: Duration = Duration::from_secs(300);

/// What was measured, and beside which versions of the others.
pub async fn measure(options: &Boot) -> Result<(Figures, String)> {
    let story = Story::default();
    let parts = Parts::find().await?;
    let folder = Folder::fill(&story, options)?;
    let site = Site::without_nodes("bench-boot", &|text| story.say(text)).await?;
    let measured = on(&site, &story, options, (&parts, &folder)).await;
    story.say("ending the cluster");
    let ended = site.down().await;
    let figures = measured?;
    ended.map(|()| (figures, parts.versions))
}

async fn on(site: &Site, story: &Story, options: &Boot, (parts, folder): (&Parts, &Folder)) -> Result<Figures> {
    for process in ["kube-controller-manager", "kube-scheduler"] {
        site.sandbox.stop_process(&format!("control-plane/{process}")).await?;
    }
    let network = Network::make(site.sandbox.layout()).await?;
    let ground = Ground::new(client(&site.sandbox.kubeconfig()).await?);
    story.say(&format!("{} Hardware", options.clients));
    ground.make(0..options.clients).await?;
    let mut service = Service::prepare(site, folder, &network).await?;
    service.start().await?;
    let mut figures = dhcp::measure(story, options, parts, &network).await?;
    figures.extend(files::measure(story, options, (parts, folder), &network).await?);
    service.stop().await?;
    figures.extend(image::measure(story, options, (parts, folder), &network).await?);
    figures.extend(memory::measure(story, options, (&ground, &mut service), &network).await?);
    Ok(figures)
}

fn figure(unit: Unit, samples: &[f64]) -> Result<Figure> {
    Figure::of(unit, samples).context("there are samples")
}

/// Each of the first by each of the second, run by run.
fn ratios(ours: &[f64], others: &[f64]) -> Vec<f64> {
    ours.iter().zip(others).map(|(ours, other)| ours / other).collect()
}
