mod agents;
mod boot;
mod drawn;
mod engine;
mod extras;
mod graph;
mod older;
mod property;
mod references;
mod rendering;
mod several;
mod story;
mod unserved;

use api::tinkerbell::{Hardware, Workflow};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

pub(super) const AGENT: &str = "52:54:00:00:00:01";

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_700_000_000 + seconds)
}

pub(super) fn workflow(name: &str) -> Workflow {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-11-24T10:00:00Z"},
        "spec": {"templateRef": "t", "hardwareRef": "h", "hardwareMap": {"device_1": AGENT}},
    }))
    .expect("a Workflow")
}

pub(super) fn hardware() -> Hardware {
    serde_json::from_value(json!({
        "metadata": {"name": "h"},
        "spec": {
            "disks": [{"device": "/dev/nvme0n1"}],
            "interfaces": [{"dhcp": {"mac": AGENT, "ip": {"address": "10.0.0.2", "netmask": "255.255.255.0"}}}],
            "metadata": {"state": "active", "instance": {"operating_system": {"os_slug": "debian_12"}, "ips": [{"address": "10.0.0.2"}]}},
        },
    }))
    .expect("a Hardware")
}
