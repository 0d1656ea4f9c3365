//! Chance from a seed (splitmix64, Steele et al. 2014): a run can be repeated.

use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone)]
pub struct Random(Arc<Mutex<u64>>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    pub fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `limit`.
    pub fn below(&self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// From 0 to 1.
    pub fn part(&self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}
