//! Whether what a disk held is gone, by places all over it.

use super::Stop;
use super::device::Device;
use std::io;

/// Beside both ends.
const PLACES: u64 = 1000;
/// A multiple of every sector's size.
const LENGTH: usize = 4096;

/// What is at each place.
pub(super) struct Before(Vec<(u64, Vec<u8>)>);

impl Before {
    /// Where nothing is a mark is written, or the place would show nothing: most of a large disk is blank.
    pub fn read(device: &mut dyn Device) -> Result<Self, Stop> {
        let mut all = Vec::new();
        for (at, length) in places(device.size_bytes()) {
            let mut held = place(device, at, length)
                .map_err(|error| Stop::Next(format!("reading what is there before: {error}")))?;
            if is_blank(&held) {
                held = mark(at, length);
                device.write(at, &held).map_err(|error| Stop::Next(format!("writing a mark at byte {at}: {error}")))?;
            }
            all.push((at, held));
        }
        device.flush().map_err(|error| Stop::Next(format!("flushing the marks: {error}")))?;
        for (at, held) in &all {
            if place(device, *at, held.len())? != *held {
                return Err(Stop::Next(format!("the disk does not hold the mark that was written at byte {at}")));
            }
        }
        Ok(Self(all))
    }

    pub fn is_gone(&self, device: &mut dyn Device) -> Result<String, Stop> {
        for (at, before) in &self.0 {
            let after = place(device, *at, before.len())
                .map_err(|error| Stop::Next(format!("reading back at byte {at}: {error}")))?;
            if after == *before {
                return Err(Stop::Next(format!(
                    "the disk says that it is done, and at byte {at} is what was there before"
                )));
            }
        }
        Ok(format!("{} places, none of which holds what it held", self.0.len()))
    }
}

fn mark(at: u64, length: usize) -> Vec<u8> {
    format!("to be erased at {at}; ").into_bytes().into_iter().cycle().take(length).collect()
}

fn is_blank(place: &[u8]) -> bool {
    place.iter().all(|byte| Some(byte) == place.first())
}

fn place(device: &mut dyn Device, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut read = vec![0; length];
    device.read(at, &mut read)?;
    Ok(read)
}

/// Both ends, and places between at the same distance. No two overlap: a mark would be written over another.
fn places(size: u64) -> Vec<(u64, usize)> {
    let length = LENGTH as u64;
    if size < 2 * length {
        return vec![(0, usize::try_from(size).unwrap_or(0))];
    }
    let last = size - length;
    let between = (1..=PLACES).map(|at| (u128::from(last) * u128::from(at) / u128::from(PLACES + 1)) as u64);
    let mut all: Vec<u64> = std::iter::once(0).chain(between.map(|at| at / length * length)).collect();
    all.dedup();
    all.retain(|at| at + length <= last);
    // The end may lie between two multiples, at a sector of 512 bytes.
    all.push(last);
    all.into_iter().map(|at| (at, LENGTH)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_both_ends_and_lie_within() {
        for size in [512, 4096, 8192 + 512, 1 << 20, 10_000_831_348_736] {
            let all = places(size);
            assert_eq!(all[0].0, 0);
            assert_eq!(all.last().map(|(at, length)| at + *length as u64), Some(size), "{size}");
            assert!(
                all.windows(2).all(|pair| pair[0].0 + pair[0].1 as u64 <= pair[1].0) && all.len() <= 1002,
                "{size}"
            );
            assert!(all.iter().all(|(at, _)| at % 512 == 0));
        }
        assert_eq!(places(10_000_831_348_736).len(), 1002);
    }
}
