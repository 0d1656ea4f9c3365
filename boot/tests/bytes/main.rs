//! Every entry of the corpora in `fuzz/corpus`, and some thousand changes of each, the same in every run, through the engines.

use boot::any_bytes::{Engines, TARGETS};
use std::path::Path;

const CHANGED: usize = 2000;
/// Of a Template, which takes longer.
const CHANGED_TEXTS: usize = 150;
const LONGEST: usize = 2048;

/// Numbers that are the same on every machine.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end.max(1)
    }

    fn byte(&mut self) -> u8 {
        const EDGES: [u8; 10] = [0, 1, 0x3f, 0x40, 0x7f, 0x80, 0xff, b'{', b'}', b'/'];
        match self.below(3) {
            0 => EDGES[self.below(EDGES.len())],
            _ => u8::try_from(self.below(256)).expect("a byte"),
        }
    }

    /// A few changes, of which each is one that a wire, a client or an attacker makes.
    fn changed(&mut self, entry: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = entry.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(16)).min(bytes.len());
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = self.byte(),
                2 => bytes.insert(at, self.byte()),
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let again = bytes[at..end].repeat(1 + self.below(20));
                    bytes.splice(at..at, again);
                }
                _ => {
                    let other = &others[self.below(others.len())];
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[self.below(other.len() + 1)..]);
                }
            }
            bytes.truncate(LONGEST);
        }
        bytes
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| std::fs::read(path).expect("an entry")).collect()
}

fn survives(target: &str, many: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("vmlinuz-x86_64"), "a kernel").expect("written");
    let engines = Engines::new(folder.path()).expect("engines");
    let (_, run) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    let (entries, mut draw) = (corpus(target), Draw(1));
    for entry in &entries {
        run(&engines, entry);
        for _ in 0..many {
            let bytes = draw.changed(entry, &entries);
            // What panics says for which bytes.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&engines, &bytes)));
            assert!(done.is_ok(), "{target}: {}", bytes.escape_ascii());
        }
    }
}

macro_rules! targets {
    ($($name:ident $many:ident)*) => {
        $(
            #[test]
            fn $name() {
                survives(stringify!($name), $many);
            }
        )*

        #[test]
        fn every_target_has_a_test() {
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets! {
    dhcp CHANGED
    tftp CHANGED
    http CHANGED
    syslog CHANGED
    template CHANGED_TEXTS
}
