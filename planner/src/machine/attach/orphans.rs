//! What the machine's own host has although no attachment explains it.

use crate::machine::observed::{Belongings, OrphanOn};
use crate::machine::situation::Host;
use crate::reason::{Reason, Waiting};
use api::dpu::OrphanKind;
use jiff::SignedDuration;

/// How often it is looked whether an orphan is still there.
pub(in crate::machine) const EVERY: SignedDuration = SignedDuration::from_secs(5);

impl OrphanOn {
    /// It may stand in the way of this machine: a volume of its claims, one of its VNics, or whatever its own host has.
    pub fn concerns(&self, o: &Belongings) -> bool {
        let own_host = o.dpus.iter().any(|dpu| dpu.uid() == self.dpu.uid());
        own_host
            || o.claims.values().filter_map(|claim| claim.volume.as_ref()).any(|volume| self.is_of(volume))
            || o.vnics.values().any(|vnic| self.is_at(vnic))
    }
}

/// Why this host gets no cloud-init disk now: it has one that no attachment explains, in the one place for it.
pub(in crate::machine) fn seed_shown(o: &Belongings, host: Host<'_>) -> Option<Reason> {
    shown(o, host, |one| one.orphan.kind == OrphanKind::Disk && one.orphan.volume.is_none())
}

/// What of that this host has.
pub(in crate::machine) fn shown(
    o: &Belongings,
    host: Host<'_>,
    is_meant: impl Fn(&OrphanOn) -> bool,
) -> Option<Reason> {
    let here = |one: &&OrphanOn| one.dpu.uid() == host.dpu.uid() && !one.is_down();
    let count = o.orphans.iter().filter(here).filter(|one| is_meant(one)).count();
    let (hardware, dpu) = (host.name().to_owned(), host.dpu.name().to_owned());
    (count > 0).then(|| Waiting::HardwareHasOrphans { hardware, dpu, count }.into())
}
