//! How fast a VNic may be.

use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

/// Rates in megabits (1,000,000 bits) per second. What comes faster than that for longer than a tenth of a second is dropped.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("has(self.ingressMbps) || has(self.egressMbps)")
        .message("qos must have ingressMbps or egressMbps, for example 1000; leave qos out for no limit")
)]
pub struct Qos {
    /// Of what the guest receives. Left out: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub ingress_mbps: Option<u32>,
    /// Of what the guest sends. Left out: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub egress_mbps: Option<u32>,
}
