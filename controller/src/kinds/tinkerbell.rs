//! What a machine is installed by: Templates, wherever machines are, and the Workflows of the inventory; the rule sets by which such are
//! made; and the Jobs there.

use super::{made_for, namespace_of, own_uid, shares_mac};
use crate::cache::key;
use crate::index::IndexKey;
use crate::objects::{InstallSeed, Objects};
use crate::work::Work;
use crate::world::{Kind, Namespaces, World};
use api::labels;
use api::tinkerbell::{Hardware, Job, Machine, Task, Template, Workflow, WorkflowRuleSet};
use kube::Api;
use kube::runtime::watcher;
use planner::workflow::{comes, is_prepared, tells};
use std::sync::Arc;

impl Kind for Template {
    fn index(&self) -> Vec<IndexKey> {
        made_for(&self.metadata).map(IndexKey::Owner).collect()
    }

    fn wake(&self, world: &World) {
        let meta = &self.metadata;
        world.of_maker(meta);
        world.machines_that_name::<Self>(namespace_of(meta), meta.name.as_deref().unwrap_or_default());
    }
}

impl Kind for Workflow {
    fn watched(objects: &Objects, of: &Namespaces) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(&of.inventory), watcher::Config::default())
    }

    fn index(&self) -> Vec<IndexKey> {
        let hardware = self.spec.hardware_ref.iter().map(|name| IndexKey::names::<Hardware>("", name));
        // Of a machine's own the machine tells what it waits for.
        let awaited = if tells(self) { comes(self) } else { Vec::new() };
        let awaited = awaited.into_iter().map(IndexKey::agent);
        let told = self.status.iter().flat_map(|status| &status.conditions).filter_map(|told| told.reason.as_deref());
        let owners = made_for(&self.metadata).map(IndexKey::Owner);
        owners.chain(hardware).chain(awaited).chain(shares_mac(told)).collect()
    }

    /// One that is no machine's keeps its server from being claimed while it runs, and is told of.
    fn wake(&self, world: &World) {
        if is_prepared(self) || tells(self) {
            world.look(Work::Workflow, key(&self.metadata));
        }
        world.of_maker(&self.metadata);
        if super::label(&self.metadata, labels::MACHINE_UID).is_none() {
            world.machines_without_hardware();
        }
        match &self.spec.hardware_ref {
            Some(hardware) => {
                world.enrolment_of(namespace_of(&self.metadata), hardware);
                // Another one may wait for the server.
                world.workflows_prepared_on(hardware);
            }
            None => world.enrolments_of_strangers(),
        }
    }
}

impl Kind for InstallSeed {
    fn watched(objects: &Objects, of: &Namespaces) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(&of.seeds), watcher::Config::default())
    }

    fn index(&self) -> Vec<IndexKey> {
        made_for(&self.metadata).map(IndexKey::Owner).collect()
    }

    fn wake(&self, world: &World) {
        world.of_maker(&self.metadata);
    }
}

impl Kind for WorkflowRuleSet {
    fn watched(objects: &Objects, of: &Namespaces) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(&of.inventory), watcher::Config::default())
    }

    /// It may match what any agent has reported.
    fn wake(&self, world: &World) {
        for report in world.reports.all() {
            let (namespace, name) = key(&report.metadata);
            world.enrolment_of(&namespace, &name);
        }
    }
}

impl Kind for Job {
    fn watched(objects: &Objects, of: &Namespaces) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(&of.inventory), watcher::Config::default())
    }

    fn index(&self) -> Vec<IndexKey> {
        let machine = IndexKey::names::<Machine>("", &self.spec.machine_ref.name);
        own_uid(&self.metadata).into_iter().chain([machine]).collect()
    }

    fn wake(&self, world: &World) {
        world.look(Work::Job, key(&self.metadata));
        for owner in self.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == "Workflow") {
            world.look(Work::Workflow, (namespace_of(&self.metadata).to_owned(), owner.name.clone()));
        }
        if planner::job::is_over(self) {
            // Others may wait for the server.
            world.jobs_of(&self.spec.machine_ref.name);
            world.machines_without_hardware();
        }
    }
}

impl Kind for Task {
    fn watched(objects: &Objects, of: &Namespaces) -> (Api<Self>, watcher::Config) {
        (objects.namespaced(&of.inventory), watcher::Config::default())
    }

    fn wake(&self, world: &World) {
        let owners = self.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == "Job");
        for owner in owners {
            world.look(Work::Job, (namespace_of(&self.metadata).to_owned(), owner.name.clone()));
        }
    }
}

impl World {
    pub(crate) fn workflows_of(&self, hardware: &str) -> Vec<Arc<Workflow>> {
        self.workflows.by(&IndexKey::names::<Hardware>("", hardware))
    }

    /// The Workflows of this Hardware whose boot options are at work.
    pub(crate) fn workflows_prepared_on(&self, hardware: &str) {
        for workflow in &self.workflows_of(hardware) {
            if is_prepared(workflow) {
                self.look(Work::Workflow, key(&workflow.metadata));
            }
        }
    }

    /// The Jobs of this BMC that are under way.
    pub(crate) fn jobs_of(&self, machine: &str) {
        for job in self.jobs.by(&IndexKey::names::<Machine>("", machine)).iter() {
            if !planner::job::is_over(job) {
                self.look(Work::Job, key(&job.metadata));
            }
        }
    }
}
