//! A large inventory: how long `boot` takes from its start until it is ready, and its memory.

use super::dhcp::{self, Way};
use super::figure;
use super::ground::Ground;
use super::network::{Network, Place};
use super::service::Service;
use crate::Figures;
use crate::args::Boot;
use crate::figure::{Figure, Unit};
use crate::stage::Story;
use anyhow::Result;

pub async fn measure(
    story: &Story,
    options: &Boot,
    (ground, service): (&Ground, &mut Service),
    network: &Network,
) -> Result<Figures> {
    story.say(&format!("{} Hardware", options.hardware));
    ground.make(options.clients..options.hardware.max(options.clients)).await?;
    let (mut ready, mut resident, mut peak) = (Vec::new(), Vec::new(), Vec::new());
    let (mut offer, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let took = service.start().await?;
        ready.push(took.as_secs_f64() * 1000.0);
        resident.push(service.process()?.memory("VmRSS")?);
        let hall = dhcp::ask(network, Place::Boot, options.clients, Way::InASecond).await?;
        offer.extend(hall.offer);
        whole.extend(hall.whole);
        peak.push(service.process()?.memory("VmHWM")?);
        service.stop().await?;
        let (resident, peak) = (resident.last(), peak.last());
        story.say(&format!("ready after {} ms, {resident:.1?} MiB, at most {peak:.1?} MiB", took.as_millis()));
    }
    let all: [(&str, Figure); 5] = [
        ("memory", figure(Unit::Mebibytes, &resident)?),
        ("memoryPeak", figure(Unit::Mebibytes, &peak)?),
        ("ready", figure(Unit::Milliseconds, &ready)?),
        ("offerLarge", figure(Unit::Milliseconds, &offer)?),
        ("wholeLarge", figure(Unit::Milliseconds, &whole)?),
    ];
    Ok(all.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect())
}
