//! Which operations are done on a bdev, and what is written: numbers only.

use crate::args::Workload;

/// Where the next operations go.
#[derive(Debug)]
pub struct Work {
    workload: Workload,
    size_bytes: u64,
    /// How many operations there is room for, side by side.
    places: u64,
    next: u64,
    random: u64,
    seed: u64,
}

impl Work {
    /// `None`: there is no room for one operation.
    pub fn new(workload: Workload, io_size_bytes: u32, bdev_size_bytes: u64, seed: u32) -> Option<Self> {
        let size_bytes = u64::from(io_size_bytes);
        let places = bdev_size_bytes.checked_div(size_bytes).filter(|places| *places > 0)?;
        let seed = u64::from(seed);
        // Any number but zero.
        let random = mixed(seed) | 1;
        Some(Self { workload, size_bytes, places, next: 0, random, seed })
    }

    /// Ends by itself.
    pub fn is_finite(&self) -> bool {
        matches!(self.workload, Workload::WritePattern | Workload::CheckPattern)
    }

    /// In bytes from the bdev's start; `None`: all are done.
    pub fn next_offset(&mut self) -> Option<u64> {
        let place = if self.is_finite() {
            let place = self.next;
            self.next += 1;
            Some(place).filter(|place| *place < self.places)?
        } else {
            // Xorshift: quick, and any place is as likely as any other.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % self.places
        };
        Some(place * self.size_bytes)
    }

    /// What belongs there, if it is to be checked.
    pub fn fill(&self, offset: u64, memory: &mut [u8]) {
        if self.workload == Workload::WritePattern {
            for (at, word) in (offset..).step_by(8).zip(memory.chunks_exact_mut(8)) {
                word.copy_from_slice(&pattern(self.seed, at));
            }
        }
    }

    pub fn is_right(&self, offset: u64, memory: &[u8]) -> bool {
        self.workload != Workload::CheckPattern
            || (offset..).step_by(8).zip(memory.chunks_exact(8)).all(|(at, word)| word == pattern(self.seed, at))
    }
}

/// Eight bytes that are nowhere else.
fn pattern(seed: u64, at: u64) -> [u8; 8] {
    mixed(at ^ (seed << 48)).to_le_bytes()
}

/// The finalizer of SplitMix64: a bijection.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(workload: Workload, bdev_size_bytes: u64) -> Work {
        Work::new(workload, 4096, bdev_size_bytes, 7).expect("there is room")
    }

    #[test]
    fn random_places_are_everywhere_and_inside() {
        let mut work = work(Workload::RandomRead, 64 * 4096 + 512);
        let mut seen = [0_u32; 64];
        for _ in 0..6400 {
            let offset = work.next_offset().expect("it goes on");
            assert_eq!(offset % 4096, 0);
            seen[usize::try_from(offset / 4096).expect("small")] += 1;
        }
        assert!(seen.iter().all(|count| (40..200).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_pattern_covers_every_place_once() {
        let mut work = work(Workload::WritePattern, 3 * 4096);
        let all: Vec<_> = std::iter::from_fn(|| work.next_offset()).collect();
        assert_eq!(all, [0, 4096, 8192]);
    }

    #[test]
    fn a_block_that_is_lost_misplaced_or_old_is_noticed() {
        let (writer, reader) = (work(Workload::WritePattern, 1 << 20), work(Workload::CheckPattern, 1 << 20));
        let mut memory = vec![0; 4096];
        assert!(!reader.is_right(8192, &memory), "never written");
        writer.fill(8192, &mut memory);
        assert!(reader.is_right(8192, &memory));
        assert!(!reader.is_right(4096, &memory), "of another place");
        let other = Work::new(Workload::CheckPattern, 4096, 1 << 20, 8).expect("there is room");
        assert!(!other.is_right(8192, &memory), "of another run");
        memory[4095] ^= 1;
        assert!(!reader.is_right(8192, &memory), "one bit");
    }

    #[test]
    fn a_bdev_without_room_is_refused() {
        assert!(Work::new(Workload::RandomRead, 4096, 4095, 1).is_none());
    }
}
