//! How often a host has read its boot disk: the agent of its DPU tells it with each renewal of its Lease
//! (`metalplane.io/boot-disk-reads`). Whether the host was started from that disk rests on it (`machine::elsewhere`).

use crate::exposure::ExposureId;
use std::fmt;

/// Of a power-on for which the agent had not told of the disk yet.
const NOT_TOLD: &str = "-";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootDiskReads {
    /// One run of the agent: the next one does not know what this one has counted.
    pub run: String,
    /// Which grant presents the disk in the boot slot ([`ExposureId::version`]).
    pub disk: String,
    /// Operations since the disk was presented; 0 only if this very run has presented it.
    pub count: u64,
}

impl fmt::Display for BootDiskReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.disk, self.count)
    }
}

impl BootDiskReads {
    pub fn not_told(disk: &ExposureId) -> Self {
        Self { run: NOT_TOLD.to_owned(), disk: disk.version(), count: 0 }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut word = || parts.next().filter(|word| !word.is_empty()).map(str::to_owned);
        let (run, disk, count) = (word()?, word()?, word()?.parse().ok()?);
        parts.next().is_none().then_some(Self { run, disk, count })
    }

    /// Nothing was read of `disk` since `before` was so.
    pub fn none_since(&self, before: &Self, disk: &ExposureId) -> bool {
        let disk = disk.version();
        let is_untouched = before.run == NOT_TOLD && self.count == 0;
        self.disk == disk && before.disk == disk && (self == before || is_untouched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> BootDiskReads {
        let parsed = BootDiskReads::parse(text).expect(text);
        assert_eq!(parsed.to_string(), text);
        parsed
    }

    #[test]
    fn what_does_not_grow_was_not_read() {
        let disk = ExposureId { uid: "u".to_owned(), epoch: 2 };
        assert_eq!(BootDiskReads::not_told(&disk), told("-/u.2/0"));
        for (now, before, expected) in [
            ("r1/u.2/0", "-/u.2/0", true),
            ("r1/u.2/7", "r1/u.2/7", true),
            ("r1/u.2/8", "r1/u.2/7", false),
            ("r1/u.2/1", "-/u.2/0", false),
            // Another run of the agent knows nothing of the time before it.
            ("r2/u.2/7", "r1/u.2/7", false),
            ("r2/u.2/0", "r1/u.2/0", false),
            // It was presented anew since the power-on, under a host that had the one before.
            ("r1/u.3/0", "-/u.2/0", false),
            ("r1/u.2/0", "-/u.1/0", false),
            ("r1/u.1/0", "-/u.1/0", false),
        ] {
            assert_eq!(told(now).none_since(&told(before), &disk), expected, "{now} after {before}");
        }
        for text in ["", "r1/u", "r1/u/x", "r1/u/1/2", "/u/1"] {
            assert_eq!(BootDiskReads::parse(text), None, "{text}");
        }
    }
}
