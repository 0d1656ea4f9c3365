//! How often a host has read its boot disk: the agent of its DPU tells it with each renewal of its Lease
//! (`metalplane.io/boot-disk-reads`). Whether the host was started from that disk rests on it (`machine::elsewhere`).

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootDiskReads {
    /// One run of the agent: the next one does not know what this one has counted.
    pub run: String,
    /// The UID of the DiskAttachment in the boot slot.
    pub attachment: String,
    /// Operations since the disk was presented; 0 only if this very run has presented it.
    pub count: u64,
}

impl fmt::Display for BootDiskReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.attachment, self.count)
    }
}

impl BootDiskReads {
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut word = || parts.next().filter(|word| !word.is_empty()).map(str::to_owned);
        let (run, attachment, count) = (word()?, word()?, word()?.parse().ok()?);
        parts.next().is_none().then_some(Self { run, attachment, count })
    }

    /// Nothing was read of `attachment` since `before` was told, or nothing at all where that was of another disk.
    pub fn none_since(&self, before: Option<&Self>, attachment: &str) -> bool {
        let same = before.filter(|before| before.attachment == self.attachment);
        self.attachment == attachment && same.map_or(self.count == 0, |before| before == self)
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
        for (now, before, expected) in [
            ("r1/u/0", None, true),
            ("r1/u/0", Some("r1/old/70"), true),
            ("r1/u/7", Some("r1/u/7"), true),
            ("r1/u/8", Some("r1/u/7"), false),
            ("r1/u/1", None, false),
            // Another run of the agent knows nothing of the time before it.
            ("r2/u/7", Some("r1/u/7"), false),
            ("r2/u/0", Some("r1/u/0"), false),
            ("r1/old/0", None, false),
        ] {
            let before = before.map(told);
            assert_eq!(told(now).none_since(before.as_ref(), "u"), expected, "{now} after {before:?}");
        }
        for text in ["", "r1/u", "r1/u/x", "r1/u/1/2", "/u/1"] {
            assert_eq!(BootDiskReads::parse(text), None, "{text}");
        }
    }
}
