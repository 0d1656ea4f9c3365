//! What is known of all Dpus when the API server may be back in an earlier state: `planner::dpu::went_back` decides.

use crate::Controller;
use api::Dpu;
use planner::dpu::went_back::{self, Heard, Site};
use planner::machine::observed::name;
use planner::reason::Reason;

fn namespace(dpu: &Dpu) -> Option<&str> {
    dpu.status.as_ref()?.namespace.as_deref()
}

pub(crate) fn heard(c: &Controller, dpu: &Dpu) -> Heard {
    let Some(namespace) = namespace(dpu) else { return Heard::default() };
    let liveness = &c.world.liveness;
    liveness.heard(namespace, c.asked.at(dpu, liveness.now()))
}

pub(crate) fn site(c: &Controller) -> Site {
    let all = c.world.dpus.all();
    let noticed = all.iter().find(|dpu| went_back::is_noticed(dpu, heard(c, dpu)));
    Site {
        noticed_by: noticed.map(|dpu| name(&dpu.metadata).to_owned()),
        all_asked: noticed.is_some() && all.iter().all(|dpu| !went_back::counts(dpu) || went_back::is_asked(dpu)),
    }
}

/// Why nothing may be granted on any DPU now.
pub(crate) fn forbids_grant(c: &Controller) -> Option<Reason> {
    c.world.dpus.all().iter().find_map(|dpu| {
        let silent = namespace(dpu).is_none_or(|namespace| c.world.liveness.is_silent(namespace));
        went_back::forbids_grant(dpu, silent, heard(c, dpu))
    })
}
