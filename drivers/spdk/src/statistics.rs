//! What disks did, as the target counts it. Counters start anew with the target.

use crate::names;
use crate::rpc::error::{INTERNAL_ERROR, INVALID_PARAMS};
use crate::rpc::methods::bdev::{BdevTraffic, GetHistogram, GetIostat, GetIostatOf, GetIostatOfOne, Histogram, Iostat};
use crate::rpc::{Rpc, RpcError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use planner::exposure::ExposureId;
use ports::emulation::{DiskStatistics, LATENCY_BOUNDS, Latencies, Traffic};
use std::time::Duration;

pub(crate) async fn read(rpc: &Rpc) -> Result<Vec<DiskStatistics>, RpcError> {
    let counted = rpc.call(&GetIostat {}).await?;
    let mut all = Vec::new();
    for bdev in &counted.bdevs {
        let Some(id) = names::parse_bdev(&bdev.name) else { continue };
        let latencies = match rpc.call(&GetHistogram { name: &bdev.name }).await {
            Ok(histogram) => latencies(&histogram),
            // It is gone since, or nobody has switched it on.
            Err(RpcError::Refused { .. }) => None,
            Err(error) => return Err(error),
        };
        let (read, written) = traffic(bdev, counted.tick_rate);
        all.push(DiskStatistics { id, read, written, latencies });
    }
    Ok(all)
}

/// Of one disk, without what the others did.
pub(crate) async fn reads(rpc: &Rpc, id: &ExposureId) -> Result<Option<u64>, RpcError> {
    let name = names::bdev(id);
    match counted(rpc, &name).await {
        Ok(counted) => Ok(counted.bdevs.iter().find(|bdev| bdev.name == name).map(|bdev| bdev.num_read_ops)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn counted(rpc: &Rpc, name: &str) -> Result<Iostat, RpcError> {
    match rpc.call(&GetIostatOf { names: [name] }).await {
        // An older one does not know the parameter, and says so by any of these.
        Err(RpcError::Refused { code: INVALID_PARAMS | INTERNAL_ERROR, .. }) => {
            rpc.call(&GetIostatOfOne { name }).await
        }
        answer => answer,
    }
}

fn traffic(bdev: &BdevTraffic, tick_rate: u64) -> (Traffic, Traffic) {
    let traffic = |operations, bytes, ticks| Traffic { operations, bytes, busy: duration(ticks, tick_rate) };
    (
        traffic(bdev.num_read_ops, bdev.bytes_read, bdev.read_latency_ticks),
        traffic(bdev.num_write_ops, bdev.bytes_written, bdev.write_latency_ticks),
    )
}

fn duration(ticks: u64, rate: u64) -> Duration {
    let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// SPDK counts in ranges of which each is twice as wide as the one before, each in `2^granularity` equal parts
/// (`include/spdk/histogram_data.h`). `None`: it makes no sense.
fn latencies(histogram: &Histogram) -> Option<Latencies> {
    let bytes = STANDARD.decode(&histogram.histogram).ok()?;
    let parts = 1_u64.checked_shl(histogram.granularity)?;
    let mut all = Latencies::default();
    for (number, count) in (0..).zip(bytes.chunks_exact(8)) {
        let count = u64::from_le_bytes(count.try_into().ok()?);
        let range = u64::from(histogram.min_range) + number / parts;
        let end = end(u32::try_from(range).ok()?, number % parts, histogram.granularity)?;
        let longest = duration(end, histogram.tsc_rate);
        let place = LATENCY_BOUNDS.partition_point(|bound| *bound < longest);
        *all.get_mut(place)? += count;
    }
    Some(all)
}

/// In ticks, what is shorter than this is counted there.
fn end(range: u32, part: u64, granularity: u32) -> Option<u64> {
    match range.checked_sub(1) {
        None => Some(part + 1),
        Some(shift) => {
            let start = 1_u64.checked_shl(shift.checked_add(granularity)?)?;
            start.checked_add((part + 1).checked_mul(1_u64.checked_shl(shift)?)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As SPDK sends it, at a tick each nanosecond.
    fn histogram(counts: &[(usize, u64)]) -> Histogram {
        let mut buckets = vec![0_u64; 23 << 7];
        for (number, count) in counts {
            buckets[*number] = *count;
        }
        let bytes: Vec<u8> = buckets.iter().flat_map(|count| count.to_le_bytes()).collect();
        Histogram { histogram: STANDARD.encode(bytes), granularity: 7, min_range: 5, tsc_rate: 1_000_000_000 }
    }

    #[test]
    fn each_count_goes_where_its_time_belongs() {
        // Range 5 starts at 2^11 ns; range 9 at 2^15 ns with parts of 2^8 ns; the last one ends at 2^34 ns, some 17 s.
        let counted = histogram(&[(0, 3), ((9 - 5) << 7, 5), ((23 << 7) - 1, 7)]);
        let all = latencies(&counted).expect("a histogram");
        let found: Vec<_> = (0..).zip(all).filter(|(_, count)| *count > 0).collect();
        let place = |micros| LATENCY_BOUNDS.partition_point(|bound| *bound < Duration::from_micros(micros));
        assert_eq!(found, [(place(3), 3), (place(33), 5), (LATENCY_BOUNDS.len(), 7)]);
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let good = histogram(&[]);
        assert_eq!(latencies(&Histogram { histogram: "?".to_owned(), ..good.clone() }), None);
        assert_eq!(latencies(&Histogram { granularity: 64, ..good.clone() }), None);
        assert_eq!(latencies(&Histogram { min_range: 60, ..good }), None, "longer than a number can tell");
    }
}
