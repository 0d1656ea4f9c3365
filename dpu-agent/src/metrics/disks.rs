//! What each disk did. The label is the attachment's UID: a DPU has some 64 disks, and a disk's numbers mean something
//! only beside its own.

use ports::emulation::{DiskStatistics, LATENCY_BOUNDS, Latencies, Traffic};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt::{self, Error};
use std::time::Duration;

/// Of one scrape.
pub(super) struct Disks(pub(super) Vec<DiskStatistics>);

impl fmt::Debug for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} disks", self.0.len())
    }
}

impl Disks {
    /// One series for each disk and direction.
    fn traffic(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        value: fn(&Traffic) -> u64,
    ) -> Result<(), Error> {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for disk in &self.0 {
            for (direction, traffic) in [("read", &disk.read), ("write", &disk.written)] {
                let labels = [("attachment", disk.id.uid.clone()), ("direction", direction.to_owned())];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, u64>(&value(traffic), None)?;
            }
        }
        Ok(())
    }
}

impl Collector for Disks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let operations = ("metalplane_agent_disk_operations", "Operations of a disk's host");
        self.traffic(&mut encoder, operations, |traffic| traffic.operations)?;
        let bytes = ("metalplane_agent_disk_bytes", "Bytes that a disk's host moved");
        self.traffic(&mut encoder, bytes, |traffic| traffic.bytes)?;
        let (name, help) = ("metalplane_agent_disk_latency_seconds", "How long a disk's operations took");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for disk in &self.0 {
            let Some(latencies) = &disk.latencies else { continue };
            let sum = (disk.read.busy + disk.written.busy).as_secs_f64();
            let labels = [("attachment", disk.id.uid.clone())];
            let count = latencies.iter().sum();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets(latencies), None)?;
        }
        Ok(())
    }
}

fn buckets(latencies: &Latencies) -> Vec<(f64, u64)> {
    let bounds = LATENCY_BOUNDS.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
    bounds.zip(latencies.iter().copied()).collect()
}
