//! Gather: what is exposed, connected, plugged and recorded now. What cannot be read is an observation too.

use crate::act::Actor;
use crate::clock;
use crate::eraser;
use crate::watch::Desired;
use jiff::Timestamp;
use planner::agent::{Connected, Exposures, Guest, Observed, Plugged, Recovery};
use planner::exposure::Exposure;
use planner::seen::Seen;
use ports::PortError;
use ports::switch::PortObserved;
use std::collections::{BTreeMap, BTreeSet};

/// The last readings, for when the next one fails.
#[derive(Debug, Default)]
pub(crate) struct Last {
    disks: Seen<Vec<Exposure>>,
    nics: Seen<Vec<Exposure>>,
    recovery: Option<Recovery>,
    connections: BTreeMap<String, Seen<Vec<Connected>>>,
    ports: Seen<Vec<Plugged>>,
    not_in_force_since: BTreeMap<String, Timestamp>,
    ungranted_since: BTreeMap<String, Timestamp>,
    read_at: Timestamp,
    /// What could not be read in the last round, so that it is logged once.
    silent: BTreeSet<String>,
}

impl Last {
    pub(crate) async fn gather(
        &mut self,
        actor: &Actor,
        desired: &Desired,
        guests: BTreeMap<String, Guest>,
    ) -> Observed {
        let now = clock::now();
        let connectors = actor.ports.connectors.iter().map(|connector| connector.list());
        let (exposures, ports, connections) = tokio::join!(
            actor.ports.emulation.list_by_kind(),
            actor.ports.switch.list(),
            futures::future::join_all(connectors),
        );
        self.recovery = match (exposures.awaits_recovery, self.recovery.take()) {
            (true, before) => before.or(Some(Recovery { since: now, error: None })),
            (false, before) => before.filter(|_| exposures.disks.is_err()),
        };
        let before = std::mem::take(&mut self.disks);
        self.disks = self.seen("what presents disks", exposures.disks, before);
        let before = std::mem::take(&mut self.nics);
        self.nics = self.seen("what presents NICs", exposures.nics, before);
        let plugged = ports.map(|ports| {
            let read = |PortObserved { port, forwarding, installed, in_force, error }| Plugged {
                id: port.id,
                device: port.device,
                version: port.version,
                forwarding,
                installed,
                in_force,
                error,
            };
            ports.into_iter().map(read).collect::<Vec<_>>()
        });
        if let Ok(ports) = &plugged {
            let waiting = |uid: &String| ports.iter().any(|port| port.id.uid == *uid && !port.in_force);
            self.not_in_force_since.retain(|uid, _| waiting(uid));
            for port in ports.iter().filter(|port| !port.in_force) {
                self.not_in_force_since.entry(port.id.uid.clone()).or_insert(now);
            }
        }
        let before = std::mem::take(&mut self.ports);
        self.ports = self.seen("the switch", plugged, before);
        for (connector, connections) in actor.ports.connectors.iter().zip(connections) {
            let driver = connector.driver();
            let connected = connections
                .map(|all| all.into_iter().map(|c| Connected { id: c.id, size_bytes: c.size_bytes }).collect());
            let before = self.connections.remove(driver).unwrap_or_default();
            let seen = self.seen(driver, connected, before);
            self.connections.insert(driver.to_owned(), seen);
        }
        self.read_at = now;
        let attachments = desired.attachments();
        let ungranted = attachments.last().into_iter().flatten().filter(|attachment| attachment.epoch.is_none());
        let ungranted: BTreeSet<&String> = ungranted.map(|attachment| &attachment.key.uid).collect();
        self.ungranted_since.retain(|uid, _| ungranted.contains(uid));
        for uid in ungranted {
            self.ungranted_since.entry(uid.clone()).or_insert(now);
        }
        let record = actor.record.all();
        let erasers = eraser::reports(&record, &actor.seeds);
        Observed {
            now,
            dpu_name: actor.dpu_name.clone(),
            boot_id: actor.boot_id.clone(),
            bounds: actor.bounds,
            attachments,
            record,
            erasers,
            exposures: Exposures::new(&self.disks, &self.nics),
            recovery: self.recovery.clone(),
            connections: self.connections.clone(),
            ports: self.ports.clone(),
            released: actor.record.released(),
            word: desired.word(),
            seeds: actor.seeds.list().unwrap_or_else(|error| {
                tracing::warn!(%error, "listing the seeds");
                BTreeSet::new()
            }),
            imports: actor.imports.running(),
            unanswered: BTreeMap::new(),
            guests,
            hidden_at: BTreeMap::new(),
            not_in_force_since: self.not_in_force_since.clone(),
            ungranted_since: self.ungranted_since.clone(),
            failures: BTreeMap::new(),
        }
    }

    /// What presents disks did not take them.
    pub(crate) fn recovery_failed(&mut self, error: &PortError) {
        if let Some(recovery) = &mut self.recovery {
            recovery.error = Some(error.to_string());
        }
    }

    fn seen<T>(&mut self, what: &str, reading: Result<T, PortError>, before: Seen<T>) -> Seen<T> {
        match reading {
            Ok(value) => {
                if self.silent.remove(what) {
                    tracing::info!("{what} answers again");
                }
                Seen::Fresh(value)
            }
            Err(error) => {
                if self.silent.insert(what.to_owned()) {
                    tracing::warn!(%error, "{what} cannot be read");
                }
                match before {
                    Seen::Fresh(value) => Seen::Stale { value, since: self.read_at },
                    older => older,
                }
            }
        }
    }
}
