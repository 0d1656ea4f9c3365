//! The engine with what it answers from, and whom it tells what it saw.

use super::refusals::Refusals;
use super::{Answer, Arrival, Config, Leases, Seen, Server};
use crate::reports::Eyes;
use planner::netboot::report::Sight;
use planner::netboot::{Directory, Why};
use runtime::clock;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

pub struct Answers {
    server: Server,
    directory: watch::Receiver<Arc<Directory>>,
    eyes: Eyes,
    refusals: Refusals,
}

impl Answers {
    pub(crate) fn new(config: Config, leases: Leases, directory: watch::Receiver<Arc<Directory>>, eyes: Eyes) -> Self {
        Self { server: Server { config, leases }, directory, eyes, refusals: Refusals::default() }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.server.config
    }

    /// `None`: nobody is answered.
    pub fn of(&mut self, arrival: Arrival<'_>) -> Option<Answer> {
        let known = self.directory.borrow().clone();
        let (answer, seen) = self.server.answer(&known, arrival, clock::now());
        if let Some(seen) = seen {
            self.tell(seen, &known);
        }
        answer
    }

    fn tell(&mut self, seen: Seen, directory: &Directory) {
        let saw = |mac: &str, sight: Option<Sight>| {
            let Some(sight) = sight else { return };
            match directory.by_mac_or_stranger(mac, true) {
                // Of a stranger there is a sight where DHCP is for strangers.
                Ok(subject) => self.eyes.saw(&subject, sight),
                Err(_) => directory.with_mac(mac).for_each(|each| self.eyes.saw_of(each, mac, sight.clone())),
            }
        };
        match seen {
            Seen::Answered { mac, with, address, file, sight } => {
                saw(&mac, sight);
                let address = address.map(tracing::field::display);
                tracing::info!(mac, with, address, file, "DHCP");
            }
            Seen::NotAnswered { mac, why, sight } => {
                saw(&mac, sight);
                // Of the inventory's an administrator has to know; of all others on the network there may be any number.
                let known = !matches!(directory.by_mac(&mac), Err(Why::UnknownMac { .. }));
                if known && self.refusals.is_news(&mac, &why, Instant::now()) {
                    tracing::warn!(mac, why, "DHCP: not answered");
                } else {
                    tracing::debug!(mac, why, "DHCP: not answered");
                }
            }
            Seen::Declined { mac, address, sight } => {
                saw(&mac, sight);
                tracing::warn!(mac, ?address, "DHCP: declined; somebody else has the address");
            }
            Seen::Foreign { mac, server, address, sight } => {
                saw(&mac, sight);
                tracing::warn!(
                    mac,
                    %server,
                    ?address,
                    "DHCP: another server's offer was taken, so this server gets no boot program: switch that DHCP server off here, or \
                     write Proxy as the mode of this network"
                );
            }
        }
    }
}
