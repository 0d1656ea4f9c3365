//! The server: its firmware, and the agent of whatever it boots.

use super::firmware::PLACE;
use super::{MAC, World};
use api::tinkerbell::Workflow;
use api::{BareMetalMachine, labels, names};
use jiff::SignedDuration;
use planner::erase::{self as erasing, Outcome};
use planner::host::PowerState;
use planner::install::{Phase, Record};
use planner::meta::{annotation, label, name, uid};
use planner::netboot::{Directory, Verdict, verdict};
use planner::workflow::{Report, Reported, advance, report, serve};

impl World {
    pub(super) fn goes_off(&mut self) {
        (self.power, self.in_installer, self.begun) = (PowerState::Off, false, None);
    }

    pub(super) fn directory(&self) -> Directory {
        Directory::new(self.hardware.all().cloned().collect())
    }

    /// The firmware follows what it was asked; from the network it gets what the verdict allows, and else its own disk.
    pub(super) fn boots(&mut self) {
        (self.power, self.begun) = (PowerState::On, None);
        let network = self.asks_network();
        let directory = self.directory();
        let allowed = directory.by_mac(MAC).is_ok_and(|subject| verdict(&subject) == Verdict::Boot);
        self.in_installer = network && allowed;
    }

    /// `boot` renders, and the agent does one thing. Time passes.
    pub(super) fn step(&mut self) {
        self.now += SignedDuration::from_secs(7);
        let all: Vec<Workflow> = self.workflows.values().cloned().collect();
        for mut workflow in all {
            let hardware = self.hardware.get(&workflow.spec.hardware_ref.clone().unwrap_or_default());
            let copy = self.templates.get(name(&workflow.metadata));
            if let Some(status) = advance(&workflow, copy, hardware, self.now).status {
                workflow.status = Some(status);
                self.workflows.insert(workflow);
            }
        }
        if self.power == PowerState::On && self.in_installer && !self.hangs {
            self.beats();
            self.agent();
        }
        self.listens();
    }

    fn agent(&mut self) {
        let directory = self.directory();
        let all: Vec<Workflow> = self.workflows.values().cloned().collect();
        let candidate = directory.candidates(MAC, &all).into_iter().next();
        let Some(mut workflow) = candidate.cloned() else { return };
        let Some(served) = serve(MAC, &workflow) else { return };
        workflow.status = served.status.clone().or(workflow.status);
        // What an earlier boot has begun is begun once more.
        let running = self.begun.replace(served.action_id.clone()).as_ref() == Some(&served.action_id);
        let said = match running {
            false => Reported::Running,
            true if self.agent_fails => Reported::Failed,
            true => Reported::Success,
        };
        let message = match served.name.as_str() {
            "write" => {
                self.check_write(&workflow);
                self.writes.push(uid(&workflow.metadata).to_owned());
                self.disks.written_by(label(&workflow.metadata, labels::MACHINE_UID).expect("a machine's"));
                let written = format!("written {{\"name\":\"sda\",\"path\":\"{PLACE}\"}}");
                [self.disks.told(Outcome::Seen), written].join("\n")
            }
            "erase" => {
                self.check_erase(&workflow);
                match said {
                    Reported::Running => "running action".to_owned(),
                    Reported::Success => {
                        self.disks.erased();
                        self.disks.told(Outcome::Erased)
                    }
                    Reported::Failed | Reported::Timeout => self.disks.told(Outcome::Failed),
                }
            }
            _ => "disk full".to_owned(),
        };
        let report_of = Report {
            agent_id: MAC.to_owned(),
            task_id: served.task_id,
            action_id: served.action_id,
            state: said,
            start: None,
            stop: None,
            duration: String::new(),
            message,
        };
        if let Some(status) = report(&workflow, &report_of, self.now) {
            workflow.status = Some(status);
        }
        let restarts = served.name == "restart" && said == Reported::Success;
        self.workflows.insert(workflow);
        if restarts {
            self.boots();
        }
    }

    /// Nor is one erased.
    fn check_erase(&self, workflow: &Workflow) {
        let hardware = &self.hardware["hw"].metadata;
        let record = erasing::Record::of(hardware).expect("a record");
        assert!(!record.is_over() && record.workflow == uid(&workflow.metadata), "{record}");
        let by = annotation(hardware, labels::CLAIMED_BY).expect("a claim");
        assert_eq!(label(&workflow.metadata, labels::MACHINE_UID), Some(by));
        let stays =
            |machine: &BareMetalMachine| uid(&machine.metadata) == by && machine.metadata.deletion_timestamp.is_none();
        assert!(!self.machine().is_some_and(stays), "the disks of a machine that is not being deleted");
    }

    /// No disk is written without its beginning on record for this claim.
    fn check_write(&self, workflow: &Workflow) {
        let hardware = &self.hardware["hw"].metadata;
        let record = Record::of(hardware).expect("a record");
        assert_eq!((record.phase, record.workflow.as_str()), (Phase::Begun, uid(&workflow.metadata)));
        let by = annotation(hardware, labels::CLAIMED_BY);
        assert_eq!(by, label(&workflow.metadata, labels::MACHINE_UID));
        let seed = names::install(by.expect("a claim"), record.number);
        assert!(self.secrets.get(&seed).is_some(), "what its system reads was written before it began");
    }
}
