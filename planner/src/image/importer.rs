//! Which DPU fills an image's volume.

use super::{Action, Draft, Observed};
use crate::connector;
use crate::late;
use crate::meta::{name, uid};
use crate::observed::{ClaimSeen, DpuSeen};
use crate::reason::{Reason, Waiting};
use crate::target;
use api::attachment::Connector;
use api::conditions::{self, is_true};
use api::dpu::Maintenance;
use api::names;
use jiff::Timestamp;

/// A claim of a late class is told the node of the DPU that will import.
pub(super) fn late(o: &Observed, seen: &ClaimSeen, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let driver = seen.binds_late.as_deref()?;
    let Some((dpu, _)) = importer(o, seen, driver) else { return Some(no_importer(o, seen, driver)) };
    let late = late::pending(seen, dpu.name(), o.is_import(), now)?;
    if let Some(select) = late.select {
        draft.act(Action::SelectNode(select));
    }
    Some(late.reason)
}

/// The DPU that imports: the one for which the volume was made, else any that can; images spread over them by their UID.
pub(super) fn importer<'a>(o: &'a Observed, claim: &ClaimSeen, driver: &str) -> Option<(&'a DpuSeen, &'a str)> {
    let selected = late::selected(claim);
    let order =
        |dpu: &&DpuSeen| (Some(dpu.name()) != selected, names::short(&format!("{}/{}", uid(&o.meta), dpu.name()), 8));
    let can = connecting(o, claim, driver).filter(|dpu| refusal(claim, driver, dpu).is_none());
    let chosen = can.min_by_key(order)?;
    Some((chosen, chosen.namespace()?))
}

/// Those that could connect it now.
fn connecting<'a>(o: &'a Observed, claim: &ClaimSeen, driver: &str) -> impl Iterator<Item = &'a DpuSeen> {
    o.dpus.iter().filter(move |dpu| {
        let status = dpu.dpu.status.as_ref();
        !dpu.silent
            && dpu.dpu.metadata.deletion_timestamp.is_none()
            && dpu.dpu.spec.approved
            && dpu.dpu.spec.maintenance == Maintenance::None
            && status.is_some_and(|s| is_true(&s.conditions, conditions::READY))
            && connects(claim, driver, dpu)
    })
}

/// Natively: the agent writes the volume itself, and kubelet gives a device to whoever shows it, not to an agent without
/// privileges.
fn connects(claim: &ClaimSeen, driver: &str, dpu: &DpuSeen) -> bool {
    match &claim.volume {
        Some(volume) => connector::choose(name(&claim.claim.metadata), volume, dpu) == Ok(Connector::Native),
        // Not made yet: what its attributes will be is not known.
        None => connector::offers(dpu, driver),
    }
}

/// Why that DPU connects such a volume and does not write it.
fn refusal<'a>(claim: &ClaimSeen, driver: &str, dpu: &'a DpuSeen) -> Option<&'a str> {
    let by = claim.volume.as_ref().map_or(driver, |volume| target::connector(&volume.driver, &volume.attributes));
    connector::import_refusal(dpu, by)
}

pub(super) fn no_importer(o: &Observed, claim: &ClaimSeen, driver: &str) -> Reason {
    let refusing = connecting(o, claim, driver).find_map(|dpu| Some((dpu, refusal(claim, driver, dpu)?)));
    let (dpu, message) = match refusing {
        Some((dpu, why)) => (dpu.name(), format!("it imports no image into volumes of '{driver}': {why}")),
        None => ("any", format!("no approved, ready Dpu connects volumes of '{driver}' natively")),
    };
    Waiting::DpuNotReady { dpu: dpu.to_owned(), message }.into()
}
