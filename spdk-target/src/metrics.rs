//! What all bdevs did, for Prometheus. The label is the bdev's name: a target has as many as its host has disks.

use anyhow::{Context, Result};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use spdk_sys::{Statistics, Traffic};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::Duration;

/// It takes a round of the app thread.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Moved {
    bdev: String,
    direction: Direction,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "as in the agent's metrics")]
enum Direction {
    read,
    write,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Disk {
    bdev: String,
    product: String,
}

/// Asks SPDK, from any thread.
pub(crate) fn page() -> Result<String> {
    let (tell, told) = mpsc::channel();
    // Who asked may have given up.
    spdk_sys::send(move |app| app.statistics(move |all| drop(tell.send(all))))?;
    text(&told.recv_timeout(PATIENCE).context("SPDK's app thread does not answer")?)
}

fn text(all: &[Statistics]) -> Result<String> {
    let operations = Family::<Moved, Counter>::default();
    let bytes = Family::<Moved, Counter>::default();
    let busy = Family::<Moved, Counter<f64, AtomicU64>>::default();
    let sizes = Family::<Disk, Gauge>::default();
    for one in all {
        let disk = Disk { bdev: one.name.clone(), product: one.product.clone() };
        sizes.get_or_create(&disk).set(i64::try_from(one.size_bytes).unwrap_or(i64::MAX));
        for (direction, traffic) in [(Direction::read, one.read), (Direction::write, one.written)] {
            let Traffic { operations: number, bytes: moved, busy: time } = traffic;
            let labels = Moved { bdev: one.name.clone(), direction };
            operations.get_or_create(&labels).inc_by(number);
            bytes.get_or_create(&labels).inc_by(moved);
            busy.get_or_create(&labels).inc_by(time.as_secs_f64());
        }
    }
    let mut registry = Registry::with_prefix("spdk_target");
    registry.register_with_unit("bdev_size", "How large bdevs are", Unit::Bytes, sizes);
    registry.register("bdev_operations", "Operations on bdevs", operations);
    registry.register("bdev_bytes", "Bytes that were moved", bytes);
    registry.register_with_unit("bdev_busy", "The sum of the times that operations took", Unit::Seconds, busy);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).context("write the page")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bdev_is_told() {
        let read = Traffic { operations: 3, bytes: 12288, busy: Duration::from_millis(250) };
        let (name, product) = ("disk".to_owned(), "AIO disk".to_owned());
        let one = Statistics { name, product, size_bytes: 1 << 20, read, written: Traffic::default() };
        let page = text(&[one]).expect("a page");
        for line in [
            "spdk_target_bdev_size_bytes{bdev=\"disk\",product=\"AIO disk\"} 1048576",
            "spdk_target_bdev_operations_total{bdev=\"disk\",direction=\"read\"} 3",
            "spdk_target_bdev_bytes_total{bdev=\"disk\",direction=\"read\"} 12288",
            "spdk_target_bdev_busy_seconds_total{bdev=\"disk\",direction=\"read\"} 0.25",
            "spdk_target_bdev_operations_total{bdev=\"disk\",direction=\"write\"} 0",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
