//! DHCP: all clients within a second, as when a hall is switched on; all in the same moment, which is more than a socket takes: what is
//! lost is asked again after a second; and a few over and over, which is how fast a server is. Each round has every server, one right
//! behind the other.

use super::load::{Dhcp, load};
use super::network::{FIRST, Network, Place, RELAY};
use super::parts::Parts;
use super::server::{self, Server};
use super::{figure, ratios};
use crate::Figures;
use crate::args::Boot;
use crate::figure::{Figure, Unit};
use crate::stage::Story;
use anyhow::{Context, Result};

/// How the clients ask.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// One after the other, all of them within a second.
    InASecond,
    AtOnce,
    /// A few, over and over.
    Few,
}

/// So many clients are under way where the rate is measured, for so many seconds.
const FEW: u16 = 50;
const SECONDS: u64 = 2;

/// Of one server, over all rounds.
#[derive(Default)]
struct Rounds {
    offer: Vec<f64>,
    whole: Vec<f64>,
    /// One of each round.
    offer_p99: Vec<f64>,
    whole_p99: Vec<f64>,
    /// Packets that had no answer in time, where a server has the time.
    again: Vec<f64>,
    last: Vec<f64>,
    lost: Vec<f64>,
    rate: Vec<f64>,
}

impl Rounds {
    async fn add(&mut self, network: &Network, place: Place, clients: u16) -> Result<()> {
        let hall = ask(network, place, clients, Way::InASecond).await?;
        let storm = ask(network, place, clients, Way::AtOnce).await?;
        let steady = ask(network, place, clients, Way::Few).await?;
        self.offer_p99.push(figure(Unit::Milliseconds, &hall.offer)?.p99);
        self.whole_p99.push(figure(Unit::Milliseconds, &hall.whole)?.p99);
        self.offer.extend(&hall.offer);
        self.whole.extend(&hall.whole);
        self.again.push((hall.again + steady.again) as f64);
        self.last.push(figure(Unit::Milliseconds, &storm.whole)?.max);
        self.lost.push(storm.again as f64);
        self.rate.push(steady.offer.len() as f64 / steady.seconds);
        Ok(())
    }

    fn told(&self, name: &str) -> Result<[(String, Figure); 6]> {
        Ok([
            (format!("dhcpOffer{name}"), figure(Unit::Milliseconds, &self.offer)?),
            (format!("dhcpWhole{name}"), figure(Unit::Milliseconds, &self.whole)?),
            (format!("dhcpAgain{name}"), figure(Unit::Count, &self.again)?),
            (format!("dhcpLast{name}"), figure(Unit::Milliseconds, &self.last)?),
            (format!("dhcpLost{name}"), figure(Unit::Count, &self.lost)?),
            (format!("dhcpRate{name}"), figure(Unit::Count, &self.rate)?),
        ])
    }

    /// Of us by those of another.
    fn by(&self, other: &Self, name: &str) -> Result<[(String, Figure); 3]> {
        let ratio = |ours: &[f64], others: &[f64]| figure(Unit::Count, &ratios(ours, others));
        Ok([
            (format!("dhcpOfferBy{name}"), ratio(&self.offer_p99, &other.offer_p99)?),
            (format!("dhcpWholeBy{name}"), ratio(&self.whole_p99, &other.whole_p99)?),
            (format!("dhcpRateBy{name}"), ratio(&self.rate, &other.rate)?),
        ])
    }
}

pub async fn measure(story: &Story, options: &Boot, parts: &Parts, network: &Network) -> Result<Figures> {
    let folder = tempfile::tempdir().context("a folder")?;
    let mut servers: Vec<(Place, &str, Option<Server>)> = vec![(Place::Boot, "", None)];
    let clients = options.clients;
    if let Some(program) = &parts.dnsmasq {
        let running = server::dnsmasq(program, network.namespace(Place::Dnsmasq), clients, folder.path()).await?;
        servers.push((Place::Dnsmasq, "Dnsmasq", Some(running)));
    }
    if let Some(program) = &parts.kea {
        let running = server::kea(program, network.namespace(Place::Kea), clients, folder.path()).await?;
        servers.push((Place::Kea, "Kea", Some(running)));
    }
    let mut all: Vec<Rounds> = servers.iter().map(|_| Rounds::default()).collect();
    for round in 1..=options.rounds {
        for ((place, ..), rounds) in servers.iter().zip(&mut all) {
            rounds.add(network, *place, clients).await?;
            let last = |all: &[f64]| all.last().copied().unwrap_or_default();
            story.say(&format!(
                "DHCP {round}, {place:?}: p99 of OFFER {:.1} ms, of ACK {:.1} ms; at once {:.0} ms and {} lost; {:.0} offers/s",
                last(&rounds.offer_p99),
                last(&rounds.whole_p99),
                last(&rounds.last),
                last(&rounds.lost),
                last(&rounds.rate)
            ));
        }
    }
    let mut figures = Figures::new();
    for ((_, name, _), rounds) in servers.iter().zip(&all) {
        figures.extend(rounds.told(name)?);
        if !name.is_empty() {
            figures.extend(all[0].by(rounds, name)?);
        }
    }
    for (.., server) in servers {
        if let Some(server) = server {
            server.stop().await?;
        }
    }
    Ok(figures)
}

/// Clients of the first Hardware.
pub async fn ask(network: &Network, place: Place, clients: u16, way: Way) -> Result<Dhcp> {
    let (at_once, more) = match way {
        Way::InASecond => (clients, Some("--over=1000".to_owned())),
        Way::AtOnce => (clients, None),
        Way::Few => (FEW, Some(format!("--seconds={SECONDS}"))),
    };
    let mut words = vec![
        "dhcp".to_owned(),
        format!("--server={}", place.address()),
        format!("--relay={RELAY}"),
        format!("--first={FIRST}"),
        format!("--clients={clients}"),
        format!("--at-once={at_once}"),
    ];
    words.extend(more);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    load(&network.clients, &words).await.with_context(|| format!("DHCP of {place:?}, {way:?}"))
}
