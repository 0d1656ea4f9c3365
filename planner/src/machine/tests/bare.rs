//! A machine on a server without a DPU, in a model of its own: the inventory, one server with its BMC and firmware, and an agent
//! that runs Workflows by the very functions that `boot` calls.

use crate::host::{BootChange, BootConfiguration, BootOverride, BootSource, HostObserved, PowerAction, PowerState};
use crate::install::{Phase, Record};
use crate::machine::observed::{BmcSeen, DpuSeen, Observed, annotation, name, uid};
use crate::machine::{Action, Disruptive, Plan, asks_for, confirm_bare, foreign_workflow, needs_fresh_machine, plan};
use crate::netboot::{Directory, Verdict, verdict};
use crate::seen::Seen;
use crate::workflow::{Report, Reported, advance, candidates, report, serve, state};
use api::conditions;
use api::dpu::{DpuSpec, HardwarePolicySpec, HardwareReference};
use api::machine::{BootStrategy, MachineState, RunStrategy};
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{BareMetalMachine, Dpu, HardwarePolicy, labels, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    counter: u64,
    machine: Option<BareMetalMachine>,
    hardware: BTreeMap<String, Hardware>,
    dpus: Vec<Dpu>,
    template: Option<Template>,
    copies: BTreeMap<String, Template>,
    workflows: BTreeMap<String, Workflow>,
    power: PowerState,
    next: Option<BootOverride>,
    accepted_at: Option<Timestamp>,
    bmc_answers: bool,
    /// What runs: the installer, or something on the disk.
    in_installer: bool,
    agent_fails: bool,
    /// By the UID of the Workflow that wrote it.
    writes: Vec<String>,
    requests: usize,
}

type Done = Result<(), ()>;

impl World {
    fn new() -> Self {
        let hardware = json!({
            "metadata": {"name": "hw", "namespace": "inventory"},
            "spec": {"bmcRef": {"kind": "Machine", "name": "bmc"}, "interfaces": [{"dhcp": {"mac": MAC, "uefi": true}}]},
        });
        let machine = json!({
            "apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine",
            "metadata": {"name": "a", "namespace": "team", "uid": "machine", "generation": 1, "resourceVersion": "1"},
            "spec": {"boot": {"strategy": "Workflow", "workflow":
                {"templateName": "debian", "parameters": {"url": "http://images/debian.img"}}}},
        });
        let mut world = Self {
            now: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1),
            counter: 1,
            machine: Some(serde_json::from_value(machine).expect("a machine")),
            hardware: BTreeMap::new(),
            dpus: Vec::new(),
            template: Some(template(TEXT)),
            copies: BTreeMap::new(),
            workflows: BTreeMap::new(),
            power: PowerState::On,
            next: None,
            accepted_at: None,
            bmc_answers: true,
            in_installer: false,
            agent_fails: false,
            writes: Vec::new(),
            requests: 0,
        };
        world.register(serde_json::from_value(hardware).expect("a Hardware"));
        world
    }

    fn register(&mut self, mut hardware: Hardware) {
        self.made(&mut hardware.metadata);
        self.hardware.insert(name(&hardware.metadata).to_owned(), hardware);
    }

    fn made(&mut self, meta: &mut ObjectMeta) {
        self.counter += 1;
        meta.uid = Some(format!("uid-{}", self.counter));
        meta.resource_version = Some(self.counter.to_string());
        meta.creation_timestamp = Some(Time(self.now));
    }

    fn touch(&mut self, meta: &mut ObjectMeta) {
        self.counter += 1;
        meta.resource_version = Some(self.counter.to_string());
    }

    fn change(&mut self, change: impl FnOnce(&mut BareMetalMachine)) {
        let Some(mut machine) = self.machine.take() else { return };
        change(&mut machine);
        machine.metadata.generation = machine.metadata.generation.map(|generation| generation + 1);
        self.touch(&mut machine.metadata);
        self.machine = Some(machine);
    }

    fn observe(&self) -> Option<Observed> {
        let machine = self.machine.clone()?;
        let own = uid(&machine.metadata).to_owned();
        let held = |hardware: &&Hardware| annotation(&hardware.metadata, labels::CLAIMED_BY) == Some(&own);
        let mut o = Observed { machine: Arc::new(machine), ..Observed::default() };
        o.hardware = self.hardware.values().filter(held).map(|h| Arc::new(h.clone())).collect();
        if o.hardware.is_empty() {
            o.hardware = self.hardware.values().map(|h| Arc::new(h.clone())).collect();
            let mut policy = HardwarePolicy::new("all", HardwarePolicySpec::default());
            policy.metadata.namespace = Some("inventory".into());
            o.policies = vec![Arc::new(policy)];
            let all: Vec<_> = self.workflows.values().map(|workflow| Arc::new(workflow.clone())).collect();
            o.busy.extend(foreign_workflow(&all).map(|workflow| ("hw".to_owned(), workflow)));
        } else if self.bmc_answers {
            let boot = BootConfiguration { next: self.next, order: vec!["Boot0001".into()], ..Default::default() };
            let host = HostObserved { boot, ..HostObserved::with_power(self.power) };
            let host = Seen::Fresh(host);
            o.bmc = BmcSeen { host, read_at: Some(self.now), accepted_at: self.accepted_at, ..BmcSeen::default() };
        }
        let seen = |dpu: &Dpu| DpuSeen { dpu: Arc::new(dpu.clone()), silent: true, ..DpuSeen::default() };
        o.dpus = self.dpus.iter().map(seen).collect();
        o.template = self.template.clone().map(Arc::new);
        let ours = |meta: &ObjectMeta| meta.labels.as_ref().and_then(|all| all.get(labels::MACHINE_UID)) == Some(&own);
        o.templates = self.copies.values().filter(|t| ours(&t.metadata)).map(|t| Arc::new(t.clone())).collect();
        o.workflows = self.workflows.values().filter(|w| ours(&w.metadata)).map(|w| Arc::new(w.clone())).collect();
        Some(o)
    }

    fn carry_out(&mut self, o: &Observed, plan: &Plan, limit: usize) {
        for action in plan.actions.iter().take(limit) {
            let _ = self.act(o, action);
        }
        if limit <= plan.actions.len() {
            return;
        }
        let written = self.write_status(o, plan).is_ok();
        if let (true, true, Some(disruptive)) = (written, plan.actions.is_empty(), &plan.disruptive) {
            self.disrupt(o, disruptive);
        }
    }

    fn write_status(&mut self, o: &Observed, plan: &Plan) -> Done {
        let there = self.machine.as_mut().ok_or(())?;
        if there.metadata.resource_version != o.machine.metadata.resource_version {
            return Err(());
        }
        if there.status.as_ref() != Some(&plan.status) {
            there.status = Some(plan.status.clone());
            let mut meta = std::mem::take(&mut there.metadata);
            self.touch(&mut meta);
            self.machine.as_mut().expect("there").metadata = meta;
        }
        Ok(())
    }

    fn disrupt(&mut self, o: &Observed, disruptive: &Disruptive) {
        let Some(hardware) = crate::machine::claim::current(o).and_then(|h| self.hardware.get(name(&h.metadata)))
        else {
            return;
        };
        if annotation(&hardware.metadata, labels::CLAIMED_BY) != Some(o.uid()) || !self.bmc_answers {
            return;
        }
        match disruptive {
            Disruptive::ConfigureBoot(BootChange::Next { source, mode }) => {
                self.next = Some(BootOverride { source: *source, mode: Some(*mode) });
            }
            Disruptive::ConfigureBoot(BootChange::Restore { .. }) => self.next = None,
            Disruptive::ConfigureBoot(change) => panic!("{change:?} was planned"),
            Disruptive::Power(order) => {
                self.accepted_at = Some(self.now);
                match (order.action, self.power) {
                    (PowerAction::On, PowerState::Off) => self.boots(),
                    (PowerAction::SoftOff | PowerAction::ForceOff, _) => self.goes_off(),
                    (PowerAction::WarmReset, PowerState::On) => self.boots(),
                    _ => {}
                }
            }
        }
    }

    fn goes_off(&mut self) {
        (self.power, self.in_installer) = (PowerState::Off, false);
    }

    /// The firmware follows its override once; from the network it gets what the verdict allows, and else its own disk.
    fn boots(&mut self) {
        self.power = PowerState::On;
        let network = self.next.take().is_some_and(|next| next.source == BootSource::Pxe);
        let directory = Directory::new(self.hardware.values().map(|h| Arc::new(h.clone())).collect());
        let allowed = directory.by_mac(MAC).is_ok_and(|subject| verdict(&subject) == Verdict::Boot);
        self.in_installer = network && allowed;
    }

    fn act(&mut self, o: &Observed, action: &Action) -> Done {
        if needs_fresh_machine(action) {
            asks_for(&o.machine, self.machine.as_ref().ok_or(())?, action).map_err(drop)?;
        }
        match action {
            Action::AddMachineFinalizer => {
                self.change(|m| m.metadata.finalizers = Some(vec![labels::FINALIZER_MACHINE.into()]));
                Ok(())
            }
            Action::RemoveMachineFinalizer => {
                self.machine = None;
                Ok(())
            }
            Action::ClaimHardware { name, resource_version, strategy, .. } => {
                assert_eq!(*strategy, BootStrategy::Workflow);
                confirm_bare(&o.machine.spec, name, &self.dpus).map_err(drop)?;
                let own = o.uid().to_owned();
                self.annotate(name, Some(resource_version), |all| {
                    all.remove(labels::INSTALL);
                    all.remove(labels::INSTALL_REQUEST);
                    all.insert(labels::CLAIMED_BY.into(), own);
                    all.insert(labels::BOOT_STRATEGY.into(), "Workflow".into());
                })
            }
            Action::UnclaimHardware { name } => {
                let version = o.hardware.iter().find(|h| h.metadata.name.as_deref() == Some(name)).ok_or(())?;
                let version = version.metadata.resource_version.clone();
                self.annotate(name, version.as_deref(), BTreeMap::clear)
            }
            Action::RememberBootOrder { name, order } => self.annotate(name, None, |all| {
                all.entry(labels::BOOT_ORDER_BEFORE.into()).or_insert_with(|| order.clone());
            }),
            Action::CreateTemplate(template) => {
                let mut template = (**template).clone();
                let key = name(&template.metadata).to_owned();
                if self.copies.contains_key(&key) {
                    return Err(());
                }
                self.made(&mut template.metadata);
                self.copies.insert(key, template);
                Ok(())
            }
            Action::CreateWorkflow(workflow) => {
                let mut workflow = (**workflow).clone();
                let key = name(&workflow.metadata).to_owned();
                if self.workflows.contains_key(&key) {
                    return Err(());
                }
                self.made(&mut workflow.metadata);
                self.workflows.insert(key, workflow);
                Ok(())
            }
            Action::RecordInstall { name, resource_version, record, request, .. } => {
                if record.phase == Phase::Begun {
                    let there = self.workflows.get(&names::install(o.uid(), record.number)).ok_or(())?;
                    (uid(&there.metadata) == record.workflow).then_some(()).ok_or(())?;
                }
                self.annotate(name, Some(resource_version), |all| {
                    all.insert(labels::INSTALL.into(), record.to_string());
                    if let Some(request) = request {
                        all.insert(labels::INSTALL_REQUEST.into(), request.clone());
                    }
                })
            }
            Action::DeleteTemplate { target } => {
                self.copies.retain(|_, there| uid(&there.metadata) != target.uid);
                Ok(())
            }
            Action::DeleteWorkflow { target } => {
                self.workflows.retain(|_, there| uid(&there.metadata) != target.uid);
                Ok(())
            }
            other => panic!("{other:?} was planned"),
        }
    }

    fn annotate(
        &mut self,
        hardware: &str,
        version: Option<&str>,
        change: impl FnOnce(&mut BTreeMap<String, String>),
    ) -> Done {
        let mut there = self.hardware.get(hardware).cloned().ok_or(())?;
        if version.is_some_and(|version| there.metadata.resource_version.as_deref() != Some(version)) {
            return Err(());
        }
        change(there.metadata.annotations.get_or_insert_default());
        self.touch(&mut there.metadata);
        self.hardware.insert(hardware.to_owned(), there);
        Ok(())
    }

    /// `boot` renders, and the agent does one thing. Time passes.
    fn step(&mut self) {
        self.now += SignedDuration::from_secs(7);
        for (name, workflow) in self.workflows.clone() {
            let hardware = self.hardware.get(workflow.spec.hardware_ref.as_deref().unwrap_or_default());
            if let Some(status) = advance(&workflow, self.copies.get(&name), hardware, self.now).status {
                self.workflows.get_mut(&name).expect("there").status = Some(status);
            }
        }
        if self.power == PowerState::On && self.in_installer {
            self.agent();
        }
    }

    fn agent(&mut self) {
        let directory = Directory::new(self.hardware.values().map(|h| Arc::new(h.clone())).collect());
        let all: Vec<Workflow> = self.workflows.values().cloned().collect();
        let candidate = candidates(MAC, &all).into_iter().find(|workflow| directory.may_run(MAC, workflow));
        let Some(mut workflow) = candidate.cloned() else { return };
        let Some(served) = serve(MAC, &workflow) else { return };
        workflow.status = served.status.clone().or(workflow.status);
        let running = workflow.status.as_ref().is_some_and(|status| {
            status
                .tasks
                .iter()
                .flat_map(|task| &task.actions)
                .any(|action| action.id == served.action_id && action.state.as_deref() == Some(state::RUNNING))
        });
        let said = match running {
            false => Reported::Running,
            true if self.agent_fails => Reported::Failed,
            true => Reported::Success,
        };
        if served.name == "write" {
            self.check_write(&workflow);
            self.writes.push(uid(&workflow.metadata).to_owned());
        }
        let report_of = Report {
            agent_id: MAC.to_owned(),
            task_id: served.task_id,
            action_id: served.action_id,
            state: said,
            start: None,
            stop: None,
            duration: String::new(),
            message: "disk full".to_owned(),
        };
        if let Some(status) = report(&workflow, &report_of, self.now) {
            workflow.status = Some(status);
        }
        let restarts = served.name == "restart" && said == Reported::Success;
        self.workflows.insert(name(&workflow.metadata).to_owned(), workflow);
        if restarts {
            self.boots();
        }
    }

    /// No disk is written without its beginning on record for this claim.
    fn check_write(&self, workflow: &Workflow) {
        let hardware = &self.hardware["hw"].metadata;
        let record = Record::of(hardware).expect("a record");
        assert_eq!((record.phase, record.workflow.as_str()), (Phase::Begun, uid(&workflow.metadata)));
        assert_eq!(annotation(hardware, labels::CLAIMED_BY), Some("machine"));
    }

    fn installations(&self) -> usize {
        let mut all = self.writes.clone();
        all.sort();
        all.dedup();
        all.len()
    }

    fn round(&mut self, limit: usize) -> Option<Plan> {
        let o = self.observe()?;
        let plan = plan(&o, self.now);
        check(self, &o, &plan);
        self.carry_out(&o, &plan, limit);
        Some(plan)
    }

    /// Until it is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        for _ in 0..400 {
            if is_so(self) {
                return;
            }
            self.step();
            for _ in 0..16 {
                if self.round(usize::MAX).is_none_or(|plan| plan.is_empty()) {
                    break;
                }
            }
        }
        panic!("{what}: {:?}", self.machine.as_ref().and_then(|machine| machine.status.clone()));
    }

    fn reason(&self, type_: &str) -> String {
        let status = self.machine.as_ref().and_then(|machine| machine.status.as_ref());
        let condition = status.and_then(|status| conditions::get(&status.conditions, type_));
        condition.map(|condition| condition.reason.clone()).unwrap_or_default()
    }

    fn is_running(&self) -> bool {
        let status = self.machine.as_ref().and_then(|machine| machine.status.as_ref());
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
        self.change(|m| m.metadata.deletion_timestamp = Some(now));
        if self.machine.as_ref().is_some_and(|m| m.metadata.finalizers.is_none()) {
            self.machine = None;
        }
    }
}

fn template(text: &str) -> Template {
    serde_json::from_value(json!({"metadata": {"name": "debian", "namespace": "team"}, "spec": {"data": text}}))
        .expect("a Template")
}

fn check(world: &World, o: &Observed, plan: &Plan) {
    assert!(world.installations() <= 1 + world.requests, "{} installations", world.installations());
    let hardware = o.hardware.iter().find(|h| annotation(&h.metadata, labels::CLAIMED_BY) == Some(o.uid()));
    let record = hardware.and_then(|hardware| Record::of(&hardware.metadata));
    let done = record.as_ref().is_some_and(|record| record.phase == Phase::Done);
    if conditions::is_true(&plan.status.conditions, conditions::POWERED_ON) {
        assert!(done, "PoweredOn is true before Installed");
    }
    match &plan.disruptive {
        Some(Disruptive::ConfigureBoot(BootChange::Next { .. })) => {
            assert_eq!(world.power, PowerState::Off, "the override is set under a host that is on");
            assert!(!done);
        }
        Some(Disruptive::Power(order)) if order.started_for.is_some() => {
            assert_eq!(order.started_for, record.map(|record| record.workflow));
            assert!(o.bmc.host.fresh().is_some_and(|host| host.boot.next.is_some()), "not read back");
        }
        _ => {}
    }
    for action in &plan.actions {
        if matches!(action, Action::UnclaimHardware { .. }) && hardware.is_some_and(|h| is_recorded(h)) {
            assert_eq!(world.power, PowerState::Off, "given back while its host is on");
            assert!(o.workflows.is_empty() && o.templates.is_empty());
        }
    }
}

fn is_recorded(hardware: &Hardware) -> bool {
    annotation(&hardware.metadata, labels::INSTALL).is_some()
}

#[test]
fn it_is_installed_and_runs_from_its_own_disk() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    assert_eq!(world.installations(), 1);
    assert!(!world.in_installer && world.next.is_none());
    for (type_, reason) in [
        (conditions::VOLUMES_READY, "NoneAsked"),
        (conditions::INSTALLED, "Installed"),
        (conditions::BOOT_CONFIGURED, "FallsThrough"),
    ] {
        assert_eq!(world.reason(type_), reason);
    }
    let status = world.machine.as_ref().and_then(|m| m.status.clone()).expect("a status");
    assert_eq!(status.boot_strategy, Some(BootStrategy::Workflow));
    assert_eq!(status.install.map(|install| (install.number, install.phase)), Some((1, "Done".to_owned())));
    // A guest that reboots is left alone, whatever the firmware tries first.
    world.next = Some(BootOverride { source: BootSource::Pxe, mode: None });
    world.boots();
    assert!(!world.in_installer);
    world.delete();
    world.until("it is gone", |world| world.machine.is_none());
    assert_eq!(world.power, PowerState::Off);
    assert!(world.copies.is_empty() && world.workflows.is_empty());
    assert!(world.hardware["hw"].metadata.annotations.as_ref().is_none_or(BTreeMap::is_empty));
}

#[test]
fn nothing_is_installed_before_it_is_started_or_without_a_template_that_renders() {
    let mut world = World::new();
    world.change(|m| m.spec.run_strategy = RunStrategy::Halted);
    world.until("it waits", |world| world.reason(conditions::INSTALLED) == "StartFirst");
    assert!(world.workflows.is_empty() && world.copies.is_empty());
    world.change(|m| m.spec.run_strategy = RunStrategy::Always);
    for (text, why) in [
        (None, "TemplateMissing"),
        (Some("{{.nothing}}".to_owned()), "TemplateNotRendered"),
        (Some(TEXT.replace("{{.device_1}}", "52:54:00:00:00:02")), "TemplateNotRendered"),
        (Some(TEXT.replace("actions/reboot", "actions/cexec")), "TemplateNotRendered"),
    ] {
        world.template = text.as_deref().map(template);
        world.until(why, |world| world.reason(conditions::INSTALLED) == why);
        assert!(world.workflows.is_empty(), "{why}");
        let status = world.machine.as_ref().and_then(|m| m.status.clone()).expect("a status");
        assert_eq!(status.state, Some(MachineState::Waiting), "{why}");
    }
    world.template = Some(template(TEXT));
    world.until("it runs", World::is_running);
}

#[test]
fn what_failed_or_was_lost_is_not_repeated_but_by_a_request() {
    let mut world = World::new();
    world.agent_fails = true;
    world.until("it failed", |world| world.reason(conditions::INSTALLED) == "InstallFailed");
    for _ in 0..200 {
        world.step();
        world.round(usize::MAX);
    }
    assert!(world.power == PowerState::On && world.in_installer, "the host stays in the installer");
    assert_eq!(world.installations(), 1);
    world.agent_fails = false;
    world.ask();
    world.until("the second is begun", |world| world.in_installer && world.workflows.len() == 2);
    world.workflows.clear();
    world.until("it is lost", |world| world.reason(conditions::INSTALLED) == "InstallRecordLost");
    world.ask();
    world.until("it runs", World::is_running);
    assert!(world.installations() <= 3);
}

#[test]
fn what_becomes_of_its_hardware_or_workflow_installs_nothing_again() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    let mut hardware = world.hardware["hw"].clone();
    hardware.metadata.annotations = None;
    world.hardware.clear();
    world.until("it is missing", |world| world.reason(conditions::HARDWARE_CLAIMED) == "HardwareMissing");
    world.register(hardware);
    world.workflows.clear();
    world.until("it runs again", World::is_running);
    for _ in 0..50 {
        world.step();
        world.round(usize::MAX);
    }
    assert_eq!(world.installations(), 1);
    world.ask();
    world.until("it is installed once more", |world| world.installations() == 2 && world.is_running());
}

/// A server that is found off twice is powered on again; then somebody has to look.
#[test]
fn a_server_that_loses_its_power_is_started_again_a_few_times() {
    let mut world = World::new();
    for _ in 0..3 {
        world.until("it installs", |world| world.in_installer);
        world.until("it is seen", |world| world.reason(conditions::POWERED_ON) == "Installing");
        world.goes_off();
    }
    world.until("it failed", |world| world.reason(conditions::INSTALLED) == "InstallFailed");
    assert_eq!((world.power, world.installations()), (PowerState::Off, 1));
}

#[test]
fn auto_waits_for_a_dpu_in_whatever_state_and_never_installs_there() {
    let mut world = World::new();
    let spec = DpuSpec {
        hardware_ref: Some(HardwareReference { name: "hw".into(), serial_number: None }),
        ..DpuSpec::default()
    };
    world.dpus = vec![Dpu::new("dpu", spec)];
    for (strategy, why) in [(BootStrategy::Auto, "NoFreeHardware"), (BootStrategy::Workflow, "NoHardwareFits")] {
        world.change(|m| m.spec.boot.strategy = strategy);
        world.until("it waits", |world| {
            let reason = world.reason(conditions::HARDWARE_CLAIMED);
            reason == why || reason == "NoHardwareFits"
        });
        assert!(world.hardware["hw"].metadata.annotations.is_none());
    }
    // A cache that does not know the Dpu yet.
    let mut o = world.observe().expect("there");
    o.dpus.clear();
    let blind = plan(&o, world.now);
    assert!(matches!(blind.actions.as_slice(), [Action::ClaimHardware { .. }]), "{:?}", blind.actions);
    world.carry_out(&o, &blind, usize::MAX);
    assert!(world.hardware["hw"].metadata.annotations.is_none());
    // By name it is somebody's decision.
    let named = json!({"name": "hw"});
    world.change(|m| m.spec.hardware = serde_json::from_value(named).ok());
    world.until("it runs", World::is_running);
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Round,
    Crash(usize),
    /// Carries out what was planned earlier: a leader that was deposed.
    Late,
    Step,
    PowerLost,
    BmcAway,
    WorkflowDeleted,
    StatusLost,
    HardwareAnew,
    AgentFails,
    Halt,
    Start,
    Reinstall,
    Delete,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        14 => Just(Event::Round),
        4 => (0..3usize).prop_map(Event::Crash),
        3 => Just(Event::Late),
        14 => Just(Event::Step),
        1 => Just(Event::PowerLost),
        1 => Just(Event::BmcAway),
        1 => Just(Event::WorkflowDeleted),
        1 => Just(Event::StatusLost),
        1 => Just(Event::HardwareAnew),
        1 => Just(Event::AgentFails),
        1 => Just(Event::Halt),
        2 => Just(Event::Start),
        1 => Just(Event::Reinstall),
        1 => Just(Event::Delete),
    ]
}

fn happens(world: &mut World, event: Event, late: &mut Option<(Observed, Plan)>) {
    match event {
        Event::Round => {
            let before = world.observe();
            let planned = world.round(usize::MAX);
            *late = before.zip(planned).or(late.take());
        }
        Event::Crash(limit) => drop(world.round(limit)),
        Event::Late => {
            if let Some((o, plan)) = late.take() {
                world.carry_out(&o, &plan, usize::MAX);
            }
        }
        Event::Step => world.step(),
        Event::PowerLost => world.goes_off(),
        Event::BmcAway => world.bmc_answers = !world.bmc_answers,
        Event::WorkflowDeleted => world.workflows.clear(),
        Event::StatusLost => world.change(|m| {
            // Conditions and rows are derived; what it keeps of an installation is the Hardware's to say.
            if let Some(status) = &mut m.status {
                (status.power, status.conditions) = (None, Vec::new());
            }
        }),
        Event::HardwareAnew => {
            let Some(mut hardware) = world.hardware.remove("hw") else { return };
            hardware.metadata.annotations = None;
            world.register(hardware);
        }
        Event::AgentFails => world.agent_fails = !world.agent_fails,
        Event::Halt => world.change(|m| m.spec.run_strategy = RunStrategy::Halted),
        Event::Start => world.change(|m| m.spec.run_strategy = RunStrategy::Always),
        Event::Reinstall => world.ask(),
        Event::Delete => world.delete(),
    }
    assert!(world.installations() <= 1 + world.requests);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// Whatever happens, and in whatever order: nothing is installed that was not asked for, and a machine that is deleted gives
    /// its server back, switched off.
    #[test]
    fn whatever_happens_nothing_is_installed_that_was_not_asked_for(
        events in proptest::collection::vec(event(), 0..120)
    ) {
        let (mut world, mut late) = (World::new(), None);
        for event in events {
            happens(&mut world, event, &mut late);
        }
        (world.bmc_answers, world.agent_fails) = (true, false);
        world.change(|m| m.spec.run_strategy = RunStrategy::Always);
        if world.machine.as_ref().is_some_and(|m| m.metadata.deletion_timestamp.is_none()) {
            world.ask();
            world.until("it runs", World::is_running);
            world.delete();
        }
        world.until("it is gone", |world| world.machine.is_none());
        prop_assert!(world.workflows.is_empty() && world.copies.is_empty());
        let free = world.hardware["hw"].metadata.annotations.as_ref().is_none_or(|all| !all.contains_key(labels::CLAIMED_BY));
        prop_assert!(free);
    }
}
