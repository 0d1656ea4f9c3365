//! Lives, and the same without faults to compare them with.

use super::simulate;
use api::dpu::PowerDomain;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tests::sim::faults::{Plan, Who};
use tests::sim::life::{self, Record};
use tests::sim::{Simulation, bare, jobs, lives, runs};

pub fn seed() -> u64 {
    std::env::var("SIM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20261121)
}

/// Lives that are compared with one of their kind without faults.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A machine on a DPU on standby power.
    Machine,
    /// A machine on a DPU that shares its host's power.
    SharedPower,
    /// An image from the web.
    Import,
    /// A machine on a server without a DPU.
    Bare,
    /// Tinkerbell's Jobs, on a server that no machine has at first.
    Jobs,
    /// Workflows on two servers that no machine has.
    Runs,
}

impl Kind {
    pub fn start(self, plan: Plan) -> Simulation {
        let power_domain = if matches!(self, Self::SharedPower) { PowerDomain::Host } else { PowerDomain::Standby };
        let hosts = if matches!(self, Self::Runs) { 2 } else { 1 };
        Simulation::start_on(power_domain, hosts, seed(), plan)
    }

    pub async fn live(self, s: &Simulation) -> Result<Record, String> {
        match self {
            Self::Machine | Self::SharedPower => life::whole(s).await,
            Self::Import => lives::import(s).await,
            Self::Bare => bare::life(s).await.map(|()| Record::default()),
            Self::Runs => runs::life(s).await.map(|()| Record::default()),
            Self::Jobs => jobs::life(s).await.map(|()| Record::default()),
        }
    }
}

/// A life without faults.
pub struct Reference {
    /// What it leads to.
    pub record: Record,
    effects: BTreeMap<Who, usize>,
}

impl Reference {
    /// How many they had.
    pub fn effects(&self, who: Who) -> usize {
        self.effects[&who]
    }
}

pub fn reference_of(kind: Kind) -> &'static Reference {
    static REFERENCES: [OnceLock<Reference>; 6] = [const { OnceLock::new() }; 6];
    REFERENCES[kind as usize].get_or_init(|| {
        simulate(async {
            let s = kind.start(Plan::None);
            let record = kind.live(&s).await;
            let record = record.unwrap_or_else(|e| panic!("SIM_SEED={}: {kind:?} without a fault: {e}", seed()));
            let all = [Who::Controller, Who::Agent, Who::Boot];
            Reference { record, effects: all.map(|who| (who, s.scene.faults.count(who))).into() }
        })
    })
}

pub fn reference() -> &'static Reference {
    reference_of(Kind::Machine)
}

/// One life with a fault, and what is wrong with it.
pub fn life_with(kind: Kind, plan: Plan) -> Result<(), String> {
    let expected = &reference_of(kind).record;
    simulate(async {
        let s = kind.start(plan);
        let record = kind.live(&s).await?;
        life::difference(expected, &record).map_or(Ok(()), |d| Err(format!("{d}\n{}", s.story())))
    })
}
