//! What a machine that was deleted has left; and what a Dpu has that looks for its boot option.

use crate::Controller;
use crate::bmc::Owner;
use crate::clock;
use crate::error::Error;
use crate::index::IndexKey;
use crate::machine::gather::{self, Memo};
use crate::machine::{hosts::disrupt_for_gone, want_bmc};
use crate::went_back;
use api::labels;
use executor::act;
use planner::boot_option::discovery::is_under_way;
use planner::machine::leftovers::{self, Plan};
use planner::machine::observed::annotation;
use planner::machine::{Action, Gone, Leftovers};
use runtime::queue::Next;

pub(super) struct Left {
    left: Leftovers,
    pub plan: Plan,
}

impl Left {
    pub async fn of(c: &Controller, uid: &str, memo: &mut Memo) -> Result<Self, Error> {
        let left = observed(c, uid, memo).await?;
        let plan = leftovers::plan(&left, clock::now());
        Ok(Self { left, plan })
    }

    pub fn want_bmc(&self, c: &Controller, reader: &Owner) {
        want_bmc(c, reader, self.plan.hardware_name.as_deref(), (self.plan.bmc, &self.plan.dpu_bmcs));
    }

    pub async fn act(&self, c: &Controller) -> Result<(), Error> {
        act::all(c, act::Owner::Gone(&self.left.of), &self.plan.actions).await?;
        let hardware = leftovers::server(&self.left);
        for (told, hardware) in self.plan.actions.iter().filter_map(Action::told).zip(hardware) {
            c.events.told(hardware, &told);
        }
        match self.plan.actions.is_empty() {
            true => disrupt_for_gone(c, &self.left, &self.plan).await,
            false => Ok(()),
        }
    }

    pub fn wait(&self, c: &Controller) -> Next {
        self.tell(c);
        Next::at(self.plan.wake_at)
    }

    /// A Dpu looks for its boot option.
    pub fn is_discovery(&self) -> bool {
        leftovers::server(&self.left).is_some_and(|hardware| is_under_way(&hardware.metadata))
    }

    /// There is no machine to say it of: its server does, or what is left on a DPU.
    fn tell(&self, c: &Controller) {
        let Some(reason) = &self.plan.waits_for else { return };
        if let Some(hardware) = leftovers::server(&self.left).filter(|_| self.is_discovery()) {
            c.events.tell(hardware, reason.name(), &reason.message());
            return;
        }
        // Nothing is called by the machine's name any more.
        let message = reason.told_of("");
        match (leftovers::server(&self.left), self.left.own.disk_attachments.first()) {
            (Some(hardware), _) => c.events.warn(hardware, reason.name(), &message),
            (None, Some(disk)) => c.events.warn(disk.as_ref(), reason.name(), &message),
            (None, None) => {}
        }
    }
}

async fn observed(c: &Controller, uid: &str, memo: &mut Memo) -> Result<Leftovers, Error> {
    let of = Gone { uid: uid.to_owned(), namespace: namespace(c, uid).unwrap_or_default() };
    let own = gather::belongings(c, (uid, &of.namespace), &gather::Asked::default(), memo).await?;
    let mut left = Leftovers { of, own };
    match left.own.hardware.is_empty() {
        true => gather::servers::inventory(c, &mut left.own).await?,
        false => left.own.hardware = c.world.hardware.all(),
    }
    left.own.no_grants = went_back::forbids_grant(c);
    left.own.bmc = gather::bmc(c, leftovers::server(&left));
    left.own.report = gather::report(c, leftovers::server(&left));
    Ok(left)
}

/// Where it was.
fn namespace(c: &Controller, uid: &str) -> Option<String> {
    let (world, uid) = (&c.world, &IndexKey::owner(uid));
    let disks = world.disks.by(uid).into_iter().find_map(|disk| disk.spec.owner.namespace.clone());
    let nics = || world.nics.by(uid).into_iter().find_map(|nic| nic.spec.owner.namespace.clone());
    let pods = || world.holder_pods.by(uid).into_iter().find_map(|pod| pod.metadata.namespace.clone());
    let vnics = || world.vnics.by(uid).into_iter().find_map(|vnic| vnic.metadata.namespace.clone());
    let claims = || world.claims.by(uid).into_iter().find_map(|claim| claim.metadata.namespace.clone());
    let of_claim = || {
        let hardware = world.hardware.by(uid).into_iter().next()?;
        let name = annotation(&hardware.metadata, labels::CLAIMED_BY_NAME)?;
        name.split_once('/').map(|(namespace, _)| namespace.to_owned())
    };
    disks.or_else(of_claim).or_else(nics).or_else(pods).or_else(vnics).or_else(claims)
}
