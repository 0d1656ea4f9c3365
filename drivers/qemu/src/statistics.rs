//! What the host did to its disks, by `query-blockstats`: counted where a device meets its block node, so QEMU's own reads of an image are
//! not among it. The counters start anew with each QEMU, which is each start of a virtual server's host.

use crate::observed::Observed;
use crate::qmp::{Qmp, QmpError};
use planner::exposure::FunctionKind;
use ports::emulation::{DiskStatistics, Traffic};
use serde_json::{Value, json};
use std::time::Duration;

pub async fn read(qmp: &Qmp) -> Result<Vec<DiskStatistics>, QmpError> {
    let observed = Observed::read(qmp).await?;
    let counted = qmp.execute("query-blockstats", json!({})).await?;
    Ok(of_disks(&observed, &counted))
}

fn of_disks(observed: &Observed, counted: &Value) -> Vec<DiskStatistics> {
    let of = |node: &str| {
        counted.as_array().into_iter().flatten().find(|entry| entry["node-name"] == node).map(|entry| &entry["stats"])
    };
    let disks = observed.functions.iter().filter(|function| function.kind == FunctionKind::Disk);
    let all = disks.filter_map(|disk| {
        let stats = of(&disk.backend)?;
        let (read, written) = (traffic(stats, "rd"), traffic(stats, "wr"));
        Some(DiskStatistics { id: disk.id.clone(), read, written, latencies: None })
    });
    all.collect()
}

fn traffic(stats: &Value, direction: &str) -> Traffic {
    let number = |what: &str| stats[format!("{direction}_{what}")].as_u64().unwrap_or_default();
    Traffic {
        operations: number("operations"),
        bytes: number("bytes"),
        busy: Duration::from_nanos(number("total_time_ns")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::Function;
    use planner::exposure::ExposureId;

    #[test]
    fn each_disk_has_what_its_node_counted() {
        let disk = |uid: &str, node: &str| Function {
            id: ExposureId { uid: uid.to_owned(), epoch: 1 },
            kind: FunctionKind::Disk,
            model: "nvme".to_owned(),
            port: "boot".to_owned(),
            backend: node.to_owned(),
        };
        let observed = Observed { functions: vec![disk("a", "n1"), disk("b", "n2")], ..Observed::default() };
        let counted = json!([
            {"device": "", "node-name": "n2", "stats": {"rd_operations": 7, "rd_bytes": 3584, "rd_total_time_ns": 1500, "wr_operations": 1, "wr_bytes": 512}},
            {"device": "cd", "stats": {"rd_operations": 9}},
        ]);
        let all = of_disks(&observed, &counted);
        assert_eq!(all.len(), 1, "what is not counted is not told: {all:?}");
        assert_eq!((all[0].id.uid.as_str(), all[0].read.operations, all[0].read.bytes), ("b", 7, 3584));
        assert_eq!((all[0].read.busy, all[0].written.bytes), (Duration::from_nanos(1500), 512));
    }
}
