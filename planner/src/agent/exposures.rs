//! What the host sees, by kind: its disks and its NICs may be presented by drivers of their own, and what one of them cannot tell does not hide the
//! other.

use crate::exposure::{Exposure, FunctionKind};
use crate::seen::Seen;

#[derive(Debug, Clone, Default)]
pub struct Exposures {
    all: Vec<Exposure>,
    disks: Reading,
    nics: Reading,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reading {
    Fresh,
    Stale,
    #[default]
    Never,
}

impl Exposures {
    pub fn new(disks: &Seen<Vec<Exposure>>, nics: &Seen<Vec<Exposure>>) -> Self {
        let all = [disks, nics].into_iter().filter_map(Seen::last).flatten().cloned().collect();
        Self { all, disks: reading(disks), nics: reading(nics) }
    }

    /// Functions of this kind were read in this round.
    pub fn tells(&self, kind: FunctionKind) -> bool {
        let of_kind = match kind {
            FunctionKind::Disk => self.disks,
            FunctionKind::Nic => self.nics,
        };
        of_kind == Reading::Fresh
    }

    /// Everything, only if all of it was read in this round.
    pub fn fresh(&self) -> Option<&Vec<Exposure>> {
        (self.disks == Reading::Fresh && self.nics == Reading::Fresh).then_some(&self.all)
    }

    /// Everything that was ever told of, however old; `None`: nothing was.
    pub fn last(&self) -> Option<&Vec<Exposure>> {
        (self.disks != Reading::Never || self.nics != Reading::Never).then_some(&self.all)
    }
}

fn reading(seen: &Seen<Vec<Exposure>>) -> Reading {
    match seen {
        Seen::Fresh(_) => Reading::Fresh,
        Seen::Stale { .. } => Reading::Stale,
        Seen::Unknown => Reading::Never,
    }
}
