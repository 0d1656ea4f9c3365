//! A machine on a server without a DPU: its BMC and firmware, and an agent that runs Workflows by the very functions that `boot` calls.

mod assigned;
mod cases;
mod disks;
mod erase;
mod firmware;
mod ladder;
mod lost;
mod operations;
mod properties;
mod server;
mod sights;
mod unserved;

use super::requests::{self, Outside};
use super::{INVENTORY, USER};
use api::conditions;
use api::dpu::{HardwarePolicySpec, LocalDisks, ReleasePolicy};
use api::machine::MachineState;
use api::tinkerbell::{Hardware, Template};
use api::{BareMetalMachine, Dpu, HardwarePolicy, HardwareReport, labels};
use disks::Disks;
use firmware::{DISK, Firmware, NIC};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use model::Objects;
use planner::erase as erasing;
use planner::host::{BootChange, BootOverride, HostObserved, Lack, MediumChange, PowerAction, PowerState};
use planner::install::{Phase, Record};
use planner::machine::observed::{
    Belongings, BmcSeen, DpuSeen, Gone, Leftovers, Observed, annotation, label, name, uid,
};
use planner::machine::{Action, Disruptive, Plan, foreign_workflow, leftovers, netboot_mac, plan};
use planner::netboot::same_mac;
use planner::seen::Seen;
use planner::workflow::has_run;
use serde_json::json;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// As the BMC of the server tells it.
const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const MAC: &str = "52:54:00:00:00:01";

const TEXT: &str = r#"
version: "0.1"
name: debian
global_timeout: 600
tasks:
  - name: os
    worker: "{{.device_1}}"
    actions:
      - {name: write, image: quay.io/actions/image2disk:v1, timeout: 60, environment: {IMG_URL: "{{.url}}"}}
      - {name: restart, image: quay.io/actions/reboot, timeout: 60}
"#;

#[derive(Clone)]
struct World {
    now: Timestamp,
    objects: Objects,
    power: PowerState,
    firmware: Firmware,
    next: Option<BootOverride>,
    accepted_at: Option<Timestamp>,
    bmc_answers: bool,
    /// As the BMC tells it.
    uuid: Option<&'static str>,
    report: Option<Arc<HardwareReport>>,
    /// What runs: the installer, or something on the disk.
    in_installer: bool,
    /// The action that the agent has begun in this boot.
    begun: Option<String>,
    agent_fails: bool,
    /// Nothing comes of the installer, whoever starts it.
    hangs: bool,
    /// What the policy says of the disks at release.
    local_disks: LocalDisks,
    disks: Disks,
    /// The UIDs of all machines that there were.
    machines_ever: BTreeSet<String>,
    /// By the UID of the Workflow that wrote it.
    writes: Vec<String>,
    requests: usize,
}

/// For whom a controller plans.
enum Subject {
    Machine(Arc<BareMetalMachine>),
    Gone(Gone),
}

/// What it planned with, and its plan.
enum Planned {
    Machine(Box<(Observed, Plan)>),
    Gone(Box<(Leftovers, leftovers::Plan)>),
}

/// A plan, and what was known when it was made.
struct Round {
    known: Objects,
    planned: Planned,
}

impl Round {
    fn is_empty(&self) -> bool {
        match &self.planned {
            Planned::Machine(planned) => planned.1.is_empty(),
            Planned::Gone(planned) => planned.1.is_empty(),
        }
    }

    fn carry_out(&self, world: &mut World, requests: usize) {
        let known = self.known.clone();
        match &self.planned {
            Planned::Machine(planned) => requests::carry_out(world, known, &planned.0, &planned.1, requests),
            Planned::Gone(planned) => requests::carry_out_for_gone(world, known, &planned.0, &planned.1, requests),
        }
    }
}

impl Deref for World {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Objects {
        &mut self.objects
    }
}

fn hardware() -> Hardware {
    serde_json::from_value(json!({
        "metadata": {"name": "hw", "namespace": INVENTORY},
        "spec": {"bmcRef": {"kind": "Machine", "name": "bmc"}, "interfaces": [{"dhcp": {"mac": MAC, "uefi": true}}]},
    }))
    .expect("a Hardware")
}

fn machine() -> BareMetalMachine {
    serde_json::from_value(json!({
        "apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine",
        "metadata": {"name": "a", "namespace": USER},
        "spec": {"boot": {"strategy": "Workflow", "workflow":
            {"templateName": "debian", "parameters": {"url": "http://images/debian.img"}}}},
    }))
    .expect("a machine")
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1),
            objects: Objects::default(),
            power: PowerState::On,
            firmware: Firmware::default(),
            next: None,
            accepted_at: None,
            bmc_answers: true,
            uuid: Some(UUID),
            report: None,
            in_installer: false,
            begun: None,
            agent_fails: false,
            hangs: false,
            local_disks: LocalDisks::Keep,
            disks: Disks::new(),
            machines_ever: BTreeSet::new(),
            writes: Vec::new(),
            requests: 0,
        };
        world.create_machine();
        world.objects.create(hardware()).expect("a new name");
        world.objects.create(template(TEXT)).expect("a new name");
        world
    }

    fn machine(&self) -> Option<&BareMetalMachine> {
        self.machines.get("a")
    }

    /// A machine of that name is made anew: another one.
    fn create_machine(&mut self) {
        let made = self.objects.create(machine()).expect("there is none");
        self.machines_ever.extend(made.metadata.uid.clone());
    }

    /// As its user does it.
    fn change(&mut self, change: impl FnOnce(&mut BareMetalMachine)) {
        // One that is deleted is not changed.
        let _ = self.objects.change((USER, "a"), &model::Rests::default(), |machine: &mut BareMetalMachine| {
            change(machine);
            machine.metadata.generation = machine.metadata.generation.map(|generation| generation + 1);
        });
    }

    /// The machine, and what is left of those that are no more.
    fn subjects(&self) -> Vec<Subject> {
        let there = self.machines.all().next().cloned();
        let gone = self.machines_ever.iter().filter(|own| there.as_ref().is_none_or(|m| uid(&m.metadata) != *own));
        let gone: Vec<_> = gone.filter(|own| self.has_left(own)).map(|own| self.gone(own)).collect();
        there.into_iter().map(Subject::Machine).chain(gone).collect()
    }

    fn gone(&self, own: &str) -> Subject {
        Subject::Gone(Gone { uid: own.to_owned(), namespace: USER.to_owned() })
    }

    fn has_left(&self, own: &str) -> bool {
        let ours = |meta: &ObjectMeta| label(meta, labels::MACHINE_UID) == Some(own);
        self.hardware.all().any(|hw| annotation(&hw.metadata, labels::CLAIMED_BY) == Some(own))
            || self.workflows.values().any(|w| ours(&w.metadata))
            || self.templates.values().any(|t| ours(&t.metadata))
            || self.secrets.values().any(|secret| ours(&secret.metadata))
    }

    fn observe(&self) -> Option<Observed> {
        self.machines.all().next().map(|machine| self.observed(machine))
    }

    fn observed(&self, machine: &Arc<BareMetalMachine>) -> Observed {
        let own = self.belongings(uid(&machine.metadata));
        let mut o = Observed { machine: machine.clone(), own, ..Observed::default() };
        if !o.hardware.iter().any(|hw| annotation(&hw.metadata, labels::CLAIMED_BY) == Some(uid(&machine.metadata))) {
            let all: Vec<_> = self.workflows.all().cloned().collect();
            o.busy.extend(foreign_workflow(&all).map(|workflow| ("hw".to_owned(), workflow)));
        }
        o.template = self.objects.get::<Template>(USER, "debian").ok();
        if planner::machine::reads_cloud_init(&o) {
            o.cloud_init.user_data = machine.spec.cloud_init.as_ref().and_then(|given| given.user_data.clone());
        }
        o
    }

    fn belongings(&self, own: &str) -> Belongings {
        let held = |hardware: &&Arc<Hardware>| annotation(&hardware.metadata, labels::CLAIMED_BY) == Some(own);
        let hardware = self.hardware.all().filter(held).cloned().collect();
        let (report, installer_iso) = (self.report.clone(), self.installer_iso());
        let mut o = Belongings { hardware, report, installer_iso, ..Belongings::default() };
        let release_policy = ReleasePolicy { local_disks: self.local_disks };
        let mut policy = HardwarePolicy::new("all", HardwarePolicySpec { release_policy, ..Default::default() });
        policy.metadata.namespace = Some(INVENTORY.into());
        o.policies = vec![Arc::new(policy)];
        if o.hardware.is_empty() {
            o.hardware = self.hardware.all().cloned().collect();
        } else if self.bmc_answers {
            let (boot, post) = (self.boot(), self.post());
            let system_uuid = self.uuid.map(str::to_owned);
            let lacks = [Lack::VirtualMedia].into_iter().filter(|_| !self.firmware.has_drive).collect();
            let medium = self.firmware.medium.clone();
            let host = HostObserved { boot, post, system_uuid, lacks, medium, ..HostObserved::with_power(self.power) };
            let (host, read_at, accepted_at) = (Seen::Fresh(host), Some(self.now), self.accepted_at);
            o.bmc = BmcSeen { host, read_at, accepted_at, ..BmcSeen::default() };
            (o.bmc.listing_since, o.bmc.boot_attempts) = (self.firmware.post_over, self.firmware.not_taken);
            (o.bmc.boot_sent_at, o.bmc.boot_refused) = (self.firmware.sent_at, self.firmware.refused.clone());
        }
        let all: Vec<_> = self.hardware.all().cloned().collect();
        let shared = |hardware: &Arc<Hardware>| {
            let reason = same_mac(hardware, netboot_mac(hardware)?, all.clone())?;
            Some((name(&hardware.metadata).to_owned(), reason))
        };
        o.same_mac = o.hardware.iter().filter_map(shared).collect();
        let seen = |dpu: &Arc<Dpu>| DpuSeen { dpu: dpu.clone(), silent: true, ..DpuSeen::default() };
        o.dpus = self.dpus.all().map(seen).collect();
        let ours = |labels: &Option<std::collections::BTreeMap<String, String>>| {
            labels.as_ref().and_then(|all| all.get(labels::MACHINE_UID)).map(String::as_str) == Some(own)
        };
        o.templates = self.templates.all().filter(|t| ours(&t.metadata.labels)).cloned().collect();
        o.workflows = self.workflows.all().filter(|w| ours(&w.metadata.labels)).cloned().collect();
        let seeds = self.secrets.values().map(|secret| &secret.metadata);
        o.install_seeds = seeds.filter(|meta| ours(&meta.labels)).cloned().collect();
        o
    }

    fn carry_out(&mut self, o: &Observed, plan: &Plan, requests: usize) {
        let known = self.objects.clone();
        requests::carry_out(self, known, o, plan, requests);
    }

    /// Templates that were copied for a Workflow.
    fn copies(&self) -> usize {
        self.templates.values().filter(|template| template.metadata.namespace.as_deref() == Some(INVENTORY)).count()
    }

    fn installations(&self) -> usize {
        let mut all = self.writes.clone();
        all.sort();
        all.dedup();
        all.len()
    }

    /// One of the controller for each that there is; what each was planned with, and its plan.
    fn round(&mut self, limit: usize) -> Vec<Round> {
        let subjects = self.subjects().into_iter();
        let rounds = subjects.map(|subject| {
            let known = self.objects.clone();
            let planned = match subject {
                Subject::Machine(machine) => {
                    let o = self.observed(&machine);
                    let plan = plan(&o, self.now);
                    Planned::Machine(Box::new((o, plan)))
                }
                Subject::Gone(of) => {
                    let left = Leftovers { own: self.belongings(&of.uid), of };
                    let plan = leftovers::plan(&left, self.now);
                    Planned::Gone(Box::new((left, plan)))
                }
            };
            let round = Round { known, planned };
            check(self, &round.planned);
            round.carry_out(self, limit);
            round
        });
        rounds.collect()
    }

    /// Until it is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        for _ in 0..400 {
            if is_so(self) {
                return;
            }
            self.step();
            for _ in 0..16 {
                if self.round(usize::MAX).iter().all(Round::is_empty) {
                    break;
                }
            }
        }
        panic!("{what}: {:?}", self.machine().and_then(|machine| machine.status.clone()));
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        let status = self.machine().and_then(|machine| machine.status.as_ref());
        status.and_then(|status| conditions::get(&status.conditions, type_))
    }

    fn reason(&self, type_: &str) -> String {
        self.condition(type_).map(|condition| condition.reason.clone()).unwrap_or_default()
    }

    fn message(&self, type_: &str) -> String {
        self.condition(type_).map(|condition| condition.message.clone()).unwrap_or_default()
    }

    fn is_running(&self) -> bool {
        let status = self.machine().and_then(|machine| machine.status.as_ref());
        status.is_some_and(|s| {
            s.state == Some(MachineState::Running) && conditions::is_true(&s.conditions, conditions::READY)
        })
    }

    fn ask(&mut self) {
        self.requests += 1;
        let request = format!("request-{}", self.requests);
        let key = labels::REINSTALL_REQUESTED_AT.to_owned();
        self.change(|m| drop(m.metadata.annotations.get_or_insert_default().insert(key, request)));
    }

    fn delete(&mut self) {
        let now = Time(self.now);
        // It may be deleted already.
        let _ = self.objects.delete::<BareMetalMachine>((USER, "a"), &model::Rests::default(), now, false);
    }

    /// Its finalizer is taken away by force: the object is gone, whatever runs.
    fn forced(&mut self) {
        self.objects.machines.remove("a");
    }

    /// On its Hardware, as an administrator does it.
    fn annotate(&mut self, key: &str, value: String) {
        let _ = self.objects.change((INVENTORY, "hw"), &model::Rests::default(), |hardware: &mut Hardware| {
            hardware.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value);
        });
    }

    fn erase_again(&mut self) {
        self.annotate(labels::ERASE_REQUESTED_AT, "now".to_owned());
    }

    fn with_data(&mut self) {
        let by = self.hardware.get("hw").and_then(|hw| annotation(&hw.metadata, labels::CLAIMED_BY));
        self.annotate(labels::RELEASE_WITH_DATA, by.unwrap_or_default().to_owned());
    }

    /// Somebody takes what is on record off, as a restore of the Hardware does.
    fn register_anew(&mut self) {
        if self.hardware.remove("hw").is_some() {
            self.disks.registered_anew();
            self.objects.create(hardware()).expect("it was removed");
        }
    }

    /// After something was taken away by hand: data that nobody can know of any more are nobody's fault.
    fn forgets(&mut self) {
        let mut dirty = std::mem::take(&mut self.disks.dirty);
        dirty.retain(|disk, by| {
            let claimed = self.hardware.get("hw").map(|hardware| &hardware.metadata);
            let claimed = claimed.filter(|hardware| annotation(hardware, labels::CLAIMED_BY) == Some(by));
            let machine = self.machine().filter(|machine| uid(&machine.metadata) == by);
            let runs = || self.workflows.values().filter(|run| label(&run.metadata, labels::MACHINE_UID) == Some(by));
            let installed = machine.and_then(|m| m.status.as_ref()).is_some_and(|status| status.install.is_some());
            let on_record = claimed.is_some_and(|hardware| {
                machine.is_none() || Record::of(hardware).is_some() || erasing::is_recorded(hardware)
            });
            let messages = runs().filter_map(|run| run.status.as_ref()).flat_map(|status| &status.tasks);
            let messages = messages.flat_map(|task| &task.actions).filter_map(|action| action.message.as_deref());
            let recorded = claimed.map(erasing::seen).transpose().expect("readable").unwrap_or_default();
            let seen = erasing::seen_with(&recorded, messages.flat_map(erasing::disks));
            (installed || on_record || runs().any(has_run))
                && (*disk == disks::FIRST || seen.iter().any(|seen| seen.serial == **disk))
        });
        self.disks.dirty = dirty;
    }
}

impl Outside for World {
    fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    fn now(&self) -> Time {
        Time(self.now)
    }

    /// A server whose policy says Erase is never given back unerased.
    fn check(&self, _: Option<&PersistentVolumeClaim>) {
        if let Some(hardware) = self.hardware.get("hw").filter(|_| self.local_disks == LocalDisks::Erase) {
            self.disks.check(&hardware.metadata);
        }
    }

    fn refuse(&mut self, attachment_uid: &str) {
        panic!("{attachment_uid} is fenced: no server here has a disk of a cluster");
    }

    fn refuses(&self, _: &str) -> bool {
        false
    }

    fn lives(&self, _: &str) -> bool {
        false
    }

    fn disrupt(&mut self, _: &str, disruptive: &Disruptive) {
        if !self.bmc_answers {
            return;
        }
        match disruptive {
            Disruptive::ConfigureBoot(change) => self.configure(change),
            Disruptive::ChangeMedium(change) => self.insert(change),
            Disruptive::Power(order) => {
                self.accepted_at = Some(self.now);
                match (order.action, self.power) {
                    (PowerAction::On, PowerState::Off) | (PowerAction::WarmReset, PowerState::On) => self.boots(),
                    (PowerAction::SoftOff | PowerAction::ForceOff, _) => self.goes_off(),
                    _ => {}
                }
            }
        }
    }
}

fn template(text: &str) -> Template {
    serde_json::from_value(json!({"metadata": {"name": "debian", "namespace": USER}, "spec": {"data": text}}))
        .expect("a Template")
}

fn check(world: &World, planned: &Planned) {
    assert!(world.installations() <= 1 + world.requests, "{} installations", world.installations());
    let (own, o, deleting) = match planned {
        Planned::Machine(planned) => (planned.0.uid(), &planned.0.own, planned.0.deleting()),
        Planned::Gone(planned) => (planned.0.of.uid.as_str(), &planned.0.own, true),
    };
    let (actions, disruptive) = match planned {
        Planned::Machine(planned) => (&planned.1.actions, &planned.1.disruptive),
        Planned::Gone(planned) => (&planned.1.actions, &planned.1.disruptive),
    };
    let hardware = o.hardware.iter().find(|h| annotation(&h.metadata, labels::CLAIMED_BY) == Some(own));
    let record = hardware.and_then(|hardware| Record::of(&hardware.metadata));
    let done = record.as_ref().is_some_and(|record| record.phase == Phase::Done);
    if let Planned::Machine(planned) = planned
        && conditions::is_true(&planned.1.status.conditions, conditions::POWERED_ON)
    {
        assert!(done, "PoweredOn is true before Installed");
    }
    match disruptive {
        // What it boots from next is its own system's disk: nobody has to be off for that.
        Some(Disruptive::ConfigureBoot(BootChange::First { reference })) if reference == DISK => {
            assert!(done && !deleting, "the disk comes first before its system is there");
        }
        Some(Disruptive::ConfigureBoot(
            BootChange::Next { .. } | BootChange::Always { .. } | BootChange::First { .. },
        )) => {
            assert_eq!(world.power, PowerState::Off, "the override is set under a host that is on");
            assert!(!done || deleting);
        }
        Some(Disruptive::ChangeMedium(MediumChange::Insert(_))) => {
            assert_eq!(world.power, PowerState::Off, "a medium is inserted under a host that is on");
            assert!(!done || deleting);
        }
        Some(Disruptive::Power(order)) if order.started_for.is_some() => {
            let asks = |host: &HostObserved| host.boot.next.or(host.boot.always).is_some() || host.boot.order[0] == NIC;
            assert!(order.action != PowerAction::On || o.bmc.host.fresh().is_some_and(asks), "not read back");
            let erases = hardware.and_then(|hardware| erasing::Record::of(&hardware.metadata));
            let on_record = match deleting {
                true => erases.map(|record| record.workflow),
                false => record.map(|record| record.workflow),
            };
            assert_eq!(order.started_for, on_record);
        }
        // Of one that was started once more after the end.
        Some(Disruptive::Power(order)) if order.for_agent && order.action == PowerAction::WarmReset => {
            assert!(done && !deleting && world.in_installer, "a system that runs is reset");
        }
        Some(Disruptive::Power(order)) if order.for_agent => {
            assert_eq!(o.bmc.host.fresh().map(|host| host.power), Some(PowerState::On));
            assert!(world.silence() >= SignedDuration::from_mins(5), "its agent was heard");
            assert!(!done || deleting);
        }
        _ => {}
    }
    for action in actions {
        if matches!(action, Action::UnclaimHardware { .. }) && hardware.is_some_and(|h| is_recorded(h)) {
            assert_eq!(world.power, PowerState::Off, "released while its host is on");
            assert!(o.workflows.is_empty() && o.templates.is_empty());
        }
    }
}

fn is_recorded(hardware: &Hardware) -> bool {
    [labels::INSTALL, labels::ERASE].iter().any(|key| annotation(&hardware.metadata, key).is_some())
}
