//! What is known of all Dpus when the API server may be back in an earlier state: `planner::dpu::went_back` decides.

use crate::Controller;
use crate::index::IndexKey;
use api::Dpu;
use planner::dpu::went_back::{self, Heard, Site};
use planner::machine::observed::name;
use planner::reason::Reason;
use std::sync::Arc;

fn namespace(dpu: &Dpu) -> Option<&str> {
    dpu.status.as_ref()?.namespace.as_deref()
}

pub(crate) fn heard(c: &Controller, dpu: &Dpu) -> Heard {
    let Some(namespace) = namespace(dpu) else { return Heard::default() };
    let liveness = &c.world.liveness;
    liveness.heard(namespace, c.asked.at(dpu, liveness.now()))
}

/// Those by which it may be so: with whatever other Dpu, nothing is.
fn noteworthy(c: &Controller) -> Vec<Arc<Dpu>> {
    let namespaces = c.world.liveness.noteworthy();
    namespaces.iter().flat_map(|namespace| c.world.dpus.by(&IndexKey::namespace(namespace))).collect()
}

pub(crate) fn site(c: &Controller) -> Site {
    let noteworthy = noteworthy(c);
    let noticed = noteworthy.iter().find(|dpu| went_back::is_noticed(dpu, heard(c, dpu)));
    let is_asked = |dpu: &Arc<Dpu>| !went_back::counts(dpu) || went_back::is_asked(dpu);
    Site {
        noticed_by: noticed.map(|dpu| name(&dpu.metadata).to_owned()),
        all_asked: noticed.is_some() && c.world.dpus.all().iter().all(is_asked),
    }
}

/// Why nothing may be granted on any DPU now.
pub(crate) fn forbids_grant(c: &Controller) -> Option<Reason> {
    let asked = c.world.dpus.by(&IndexKey::AskedForReport);
    asked.iter().chain(&noteworthy(c)).find_map(|dpu| {
        let silent = namespace(dpu).is_none_or(|namespace| c.world.liveness.is_silent(namespace));
        went_back::forbids_grant(dpu, silent, heard(c, dpu))
    })
}
