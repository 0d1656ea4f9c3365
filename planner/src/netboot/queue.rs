//! Which Workflows wait for another one of the same agent, or for the machine that has its server.

use super::{Directory, is_of_machine};
use crate::install;
use crate::meta::name;
use crate::workflow::{self, Ahead};
use api::tinkerbell::Workflow;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Directory {
    /// What an agent does before a Workflow, by its identifier and the name of that Workflow.
    pub fn queues(&self, all: &[Arc<Workflow>]) -> BTreeMap<(String, String), Ahead> {
        let mut by_agent: BTreeMap<&str, Vec<&Workflow>> = BTreeMap::new();
        for workflow in all {
            for agent in workflow::agents(workflow) {
                by_agent.entry(agent).or_default().push(workflow);
            }
        }
        let mut queues = BTreeMap::new();
        for (agent, workflows) in by_agent {
            let (served, others): (Vec<_>, Vec<_>) =
                workflows.into_iter().partition(|workflow| self.may_run(agent, workflow));
            let behind = workflow::ahead(agent, served).into_iter();
            queues.extend(behind.map(|(waits, first)| (key(agent, waits), Ahead::Workflow(first.to_owned()))));
            let claim = self.claim(agent);
            let barred = others.into_iter().filter(|workflow| !is_of_machine(workflow));
            queues.extend(barred.filter_map(|workflow| Some((key(agent, name(&workflow.metadata)), claim.clone()?))));
        }
        queues
    }

    fn claim(&self, agent: &str) -> Option<Ahead> {
        self.by_agent(agent).find_map(|hardware| {
            let meta = &hardware.metadata;
            Some(Ahead::Claim { hardware: name(meta).to_owned(), by: install::claimer(meta)? })
        })
    }
}

fn key(agent: &str, workflow: &str) -> (String, String) {
    (agent.to_owned(), workflow.to_owned())
}
