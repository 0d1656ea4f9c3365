//! A DPU, its storage and the API server, as small as the plan can tell them apart. Taking a step checks the protocol.

mod take;

use crate::agent::*;
use crate::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Presence, Slot};
use crate::seen::Seen;
use api::image::ImageFormat;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

pub const DRIVER: &str = "csi.example.com";
pub const DPU: &str = "dpu-1";
/// That stands for every NIC.
const DEVICE: &str = "pf0hpf";
const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, Default)]
pub struct World {
    /// The API server's truth.
    pub attachments: BTreeMap<String, Attachment>,
    /// What the watch told last.
    pub watched: Option<Vec<Attachment>>,
    pub api_down: bool,
    pub emulation_down: bool,
    /// Of what presents NICs alone.
    pub nics_down: bool,
    pub storage_down: bool,
    pub recovery: Option<Recovery>,
    pub boots: u32,
    pub now: Timestamp,
    pub record: BTreeMap<String, Entry>,
    pub exposures: Vec<Exposure>,
    pub connections: Vec<Connected>,
    pub ports: Vec<Plugged>,
    pub released: BTreeSet<ExposureId>,
    pub word: Word,
    pub seeds: BTreeSet<String>,
    pub imports: BTreeMap<String, ImportRun>,
    pub failures: BTreeMap<(String, StepKind), Failure>,
    pub hidden_at: BTreeMap<String, Timestamp>,
    pub not_in_force_since: BTreeMap<String, Timestamp>,
    pub ungranted_since: BTreeMap<String, Timestamp>,
    /// What OVN has done for whatever is plugged.
    pub ovn: Ovn,
    pub finished: Vec<String>,
    /// The volumes' present size.
    pub volume_bytes: u64,
    pub resizes_offline_only: bool,
    /// The DPU's own limits.
    pub bounds: Limits,
    /// The emulation does not limit what is read.
    pub limits_no_reading: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ovn {
    Nothing,
    Installed,
    #[default]
    InForce,
}

pub fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

fn presentation() -> Presentation {
    Presentation { bus: Bus::NVMe, slot: Slot::HotPlug, serial: "MP1".into(), uuid: "u".into(), read_only: false }
}

pub fn volume() -> Volume {
    Volume { driver: DRIVER.into(), handle: "h".into(), attributes: BTreeMap::new(), read_only: false, holder: None }
}

/// One of the five kinds by number.
pub fn function(number: u8) -> Function {
    match number % 6 {
        0 => Function::Disk { volume: volume(), presentation: presentation() },
        1 => Function::Nic(Nic {
            mac: "02:00:00:00:00:01".into(),
            mtu: 1400,
            logical_port: "p".into(),
            representor: "mp0".into(),
            addresses: Vec::new(),
        }),
        2 => Function::Seed(Seed { secret: "seed".into(), presentation: presentation() }),
        3 => Function::Import(Import {
            volume: volume(),
            url: "http://images/a".into(),
            sha256: "00".repeat(32),
            ca_bundle: None,
            format: ImageFormat::Raw,
        }),
        4 => Function::Eraser(Eraser { machine: "x86_64".into(), presentation: presentation() }),
        _ => Function::HoldDisk(HoldDisk { machine: "x86_64".into(), presentation: presentation() }),
    }
}

pub fn attachment(uid: &str, function: Function) -> Attachment {
    let kind = if matches!(function, Function::Nic(_)) { Kind::Nic } else { Kind::Disk };
    Attachment {
        key: Key { kind, namespace: "metalplane-dpu-dpu-1".into(), name: format!("n-{uid}"), uid: uid.into() },
        generation: Some(1),
        dpu_name: DPU.into(),
        epoch: None,
        deleting: false,
        release: false,
        held: true,
        function: Ok(function),
        size_bytes: Some(MIB),
        limits: Limits::default(),
        fence: None,
        import_done: None,
    }
}

impl World {
    pub fn new() -> Self {
        Self { volume_bytes: MIB, ..Self::default() }
    }

    pub fn boot_id(&self) -> String {
        format!("boot-{}", self.boots)
    }

    pub fn add(&mut self, uid: &str, function: Function) -> &mut Attachment {
        if !self.attachments.contains_key(uid) {
            // The names here come again; a UID never does.
            self.released.retain(|id| id.uid != uid);
        }
        self.attachments.entry(uid.to_owned()).or_insert_with(|| attachment(uid, function))
    }

    pub fn sync(&mut self) {
        if !self.api_down {
            self.watched = Some(self.attachments.values().cloned().collect());
        }
    }

    fn read<T: Clone>(down: bool, value: &[T]) -> Seen<Vec<T>> {
        match down {
            true => Seen::Stale { value: value.to_vec(), since: Timestamp::UNIX_EPOCH },
            false => Seen::Fresh(value.to_vec()),
        }
    }

    pub fn observed(&self, fresh: bool) -> Observed {
        let attachments = match &self.watched {
            _ if fresh && !self.api_down => Seen::Fresh(self.attachments.values().cloned().collect()),
            Some(list) => Seen::Stale { value: list.clone(), since: self.now },
            None => Seen::Unknown,
        };
        Observed {
            now: self.now,
            dpu_name: DPU.into(),
            boot_id: self.boot_id(),
            bounds: self.bounds,
            attachments,
            record: self.record.clone(),
            exposures: Exposures::new(&self.shown(FunctionKind::Disk), &self.shown(FunctionKind::Nic)),
            recovery: self.recovery.clone(),
            connections: BTreeMap::from([(DRIVER.to_owned(), Self::read(self.storage_down, &self.connections))]),
            ports: Seen::Fresh(self.plugged()),
            released: self.released.clone(),
            word: self.word.clone(),
            seeds: self.seeds.clone(),
            erasers: BTreeMap::new(),
            imports: self.imports.clone(),
            guests: BTreeMap::new(),
            hidden_at: self.hidden_at.clone(),
            not_in_force_since: self.not_in_force_since.clone(),
            ungranted_since: self.ungranted_since.clone(),
            unanswered: BTreeMap::new(),
            failures: self.failures.clone(),
        }
    }

    fn is_down(&self, kind: FunctionKind) -> bool {
        self.emulation_down || (self.nics_down && kind == FunctionKind::Nic)
    }

    fn shown(&self, kind: FunctionKind) -> Seen<Vec<Exposure>> {
        let all: Vec<_> = self.exposures.iter().filter(|exposure| exposure.kind == kind).cloned().collect();
        Self::read(self.is_down(kind), &all)
    }

    fn plugged(&self) -> Vec<Plugged> {
        let (installed, in_force) = (self.ovn != Ovn::Nothing, self.ovn == Ovn::InForce);
        self.ports.iter().map(|port| Plugged { installed, in_force, ..port.clone() }).collect()
    }

    pub fn plug(&mut self, id: &ExposureId) {
        self.ports.retain(|port| port.id != *id);
        let (id, version) = (id.clone(), id.version());
        let device = DEVICE.to_owned();
        self.ports.push(Plugged {
            id,
            device,
            version,
            forwarding: true,
            installed: true,
            in_force: true,
            error: None,
        });
    }

    fn is_up(&self, id: &ExposureId) -> bool {
        self.exposures.iter().any(|e| e.id == *id && e.link_up == Some(true))
    }

    fn is_plugged(&self, id: &ExposureId) -> bool {
        self.ports.iter().any(|port| port.id == *id)
    }

    /// One round of the agent; whether it did anything. `crash_after`: it dies after so many steps.
    pub fn round(&mut self, crash_after: Option<usize>) -> bool {
        let late: BTreeSet<_> =
            self.plugged().into_iter().filter(|port| !port.in_force).map(|port| port.id.uid).collect();
        self.not_in_force_since.retain(|uid, _| late.contains(uid));
        for uid in late {
            self.not_in_force_since.entry(uid).or_insert(self.now);
        }
        let mut plan = plan(&self.observed(false));
        let mut fresh = false;
        if plan.needs_fresh_list && !self.api_down {
            fresh = true;
            plan = super::super::plan(&self.observed(true));
            assert!(!plan.needs_fresh_list);
        }
        if let Some(orphans) = plan.orphans.as_ref().filter(|_| !self.api_down) {
            self.word.reported = orphans.clone();
        }
        let steps: Vec<Step> = plan.items.iter().filter_map(|i| i.step.clone()).chain(plan.clear.clone()).collect();
        for (number, step) in steps.iter().enumerate() {
            if crash_after == Some(number) {
                self.restart_agent();
                return true;
            }
            self.check(step, fresh);
            match self.take(step) {
                Ok(()) => drop(self.failures.remove(&(step.uid().to_owned(), step.kind()))),
                Err(class) => self.fail(step, class),
            }
        }
        !steps.is_empty()
    }

    fn fail(&mut self, step: &Step, class: FailureClass) {
        let key = (step.uid().to_owned(), step.kind());
        let earlier = self.failures.get(&key).filter(|f| f.step == *step).map_or(0, |f| f.count);
        let message = "refused".to_owned();
        let failure = Failure { step: step.clone(), class, message, count: earlier + 1, at: self.now };
        self.failures.insert(key, failure);
    }

    pub fn settle(&mut self) {
        for _ in 0..200 {
            self.sync();
            self.now += SignedDuration::from_secs(20);
            self.host_lets_go();
            let imports: Vec<_> = self.imports.keys().cloned().collect();
            imports.iter().for_each(|uid| self.import_ends(uid));
            if !self.round(None) && self.exposures.iter().all(|e| e.presence == Presence::Present) {
                return;
            }
        }
        panic!("does not settle: {self:#?}");
    }

    pub fn host_lets_go(&mut self) {
        self.exposures.retain(|e| e.presence != Presence::Leaving);
    }

    pub fn import_ends(&mut self, uid: &str) {
        if self.imports.remove(uid).is_some()
            && let Some(entry) = self.record.get_mut(uid)
        {
            entry.import_done = Some(ImportDone { bytes: MIB, checksum: "sha256:00".into() });
        }
    }

    pub fn restart_agent(&mut self) {
        self.watched = None;
        self.imports.clear();
        self.failures.clear();
        self.hidden_at.clear();
        self.not_in_force_since.clear();
    }

    /// `kept`: the emulator kept its functions, as a virtual server on standby power does.
    pub fn reboot_dpu(&mut self, kept: bool) {
        self.restart_agent();
        self.boots += 1;
        self.record.clear();
        self.released.clear();
        self.seeds.clear();
        self.connections.clear();
        if !kept {
            self.exposures.clear();
            self.ports.clear();
        }
    }

    /// The protocol, from the API server's truth.
    fn check(&self, step: &Step, fresh: bool) {
        let truth = self.attachments.get(step.uid());
        // Of one UID, `release` and a deletionTimestamp never go again: an old reading that has them is true.
        let told = self.watched.iter().flatten().filter(|a| a.key.uid == step.uid());
        let released = told.chain(truth).any(|a| a.deleting && a.release);
        match step {
            Step::Connect { id, .. }
            | Step::ExposeDisk { id, .. }
            | Step::ExposeNic { id, .. }
            | Step::Plug { id, .. }
            | Step::LinkUp { id }
            | Step::StartImport { id, .. } => {
                let entry = self.record.get(&id.uid).unwrap_or_else(|| panic!("{step:?} without a claim"));
                assert_eq!((&entry.id, &entry.boot_id), (id, &self.boot_id()), "{step:?} under another claim");
                let in_force = self.is_plugged(id) && self.ovn == Ovn::InForce;
                assert!(in_force || !matches!(step, Step::LinkUp { .. }), "{step:?} before its ACLs are in force");
                let may_plug = !self.is_up(id) || self.is_plugged(id);
                assert!(may_plug || !matches!(step, Step::Plug { .. }), "{step:?} while the NIC is up");
            }
            Step::LinkDown { id } if !self.is_plugged(id) => {}
            Step::Hide { id, .. } | Step::Disconnect { id, .. } | Step::Unplug { id } | Step::LinkDown { id } => {
                let explained = truth.is_some_and(|a| a.deleting || a.epoch == Some(id.epoch));
                assert!(released || (!explained && fresh), "{step:?} takes away what is granted (fresh list: {fresh})");
                assert!(released || self.may_go(id), "{step:?} takes an orphan from its host");
                let shown = self.exposures.iter().any(|e| e.id == *id);
                let kind = self.exposures.iter().find(|e| e.id == *id).map(|e| e.kind);
                assert!(!kind.is_some_and(|kind| self.is_down(kind)), "{step:?} on an old reading");
                assert!(!matches!(step, Step::Disconnect { .. }) || !shown, "{step:?} under the host");
                assert!(matches!(step, Step::LinkDown { .. }) || !self.is_up(id), "{step:?} while the NIC is up");
                assert!(
                    !matches!(step, Step::Hide { .. }) || !self.is_plugged(id),
                    "{step:?} while the NIC is plugged"
                );
            }
            Step::Finish { key } => {
                assert!(released, "{step:?} without release");
                assert!(!self.exposures.iter().any(|e| e.id.uid == key.uid), "{step:?} while exposed");
                assert!(!self.connections.iter().any(|c| c.id.uid == key.uid), "{step:?} while connected");
                assert!(!self.ports.iter().any(|p| p.id.uid == key.uid), "{step:?} while plugged");
            }
            Step::Forget { uid } => {
                assert!(released || fresh, "{step:?} on an old list");
                let id = &self.record[uid].id;
                assert!(released || self.may_go(id), "{step:?} forgets what its host has");
            }
            Step::RemoveSeed { .. } | Step::StopImport { .. } => {
                assert!(released || fresh, "{step:?} on an old list");
            }
            Step::NoteRelease { id } => assert!(released || self.may_go(id), "{step:?} without release"),
            Step::Claim { .. }
            | Step::WriteSeed { .. }
            | Step::WriteEraser { .. }
            | Step::WriteHoldDisk { .. }
            | Step::Resize { .. }
            | Step::Limit { .. } => {}
        }
    }

    /// The host was not shown it, or somebody has said that it goes.
    fn may_go(&self, id: &ExposureId) -> bool {
        let shown = self.exposures.iter().any(|e| e.id == *id);
        let was_shown = self.record.get(&id.uid).is_some_and(|entry| entry.id == *id && entry.shown);
        let said =
            self.released.contains(id) || self.word.releasable.contains(id) || self.word.forget.contains(&id.uid);
        said || !(shown || was_shown)
    }

    fn one_epoch(&self, id: &ExposureId) {
        let exposed = self.exposures.iter().map(|e| &e.id);
        let connected = self.connections.iter().map(|c| &c.id);
        let plugged = self.ports.iter().map(|p| &p.id);
        let other = exposed.chain(connected).chain(plugged).find(|o| o.uid == id.uid && o.epoch != id.epoch);
        assert_eq!(other, None, "two epochs of {id:?}");
    }
}
