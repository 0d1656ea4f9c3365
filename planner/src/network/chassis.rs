//! The chassis of a Dpu in OVN, by the name that its agent reports. A node that was made from a copy of another one's disk has that
//! one's name too (`external_ids:system-id` of Open vSwitch), and OVN takes the two for one chassis that moves to and fro. The older
//! Dpu keeps the name; nothing more is bound to the other one's.

use crate::machine::observed::{name, uid};
use crate::reason::{Blocked, Reason};
use api::{Dpu, ProviderNetwork, Subnet};
use std::sync::Arc;

pub fn reported(dpu: &Dpu) -> Option<&str> {
    Some(dpu.status.as_ref()?.network.as_ref()?.chassis.as_str())
}

/// `all`: the Dpus that report this one's chassis.
pub fn taken(dpu: &Dpu, all: &[Arc<Dpu>]) -> Option<Reason> {
    let chassis = reported(dpu)?.to_owned();
    let age = |dpu: &&Arc<Dpu>| {
        let meta = &dpu.metadata;
        (meta.creation_timestamp.as_ref().map(|at| at.0), uid(meta).to_owned())
    };
    let first = all.iter().min_by_key(age)?;
    let (dpu, by) = (&dpu.metadata, &first.metadata);
    let is_other = uid(dpu) != uid(by);
    is_other.then(|| Blocked::ChassisTaken { dpu: name(dpu).to_owned(), chassis, by: name(by).to_owned() }.into())
}

/// `network`: that the Subnet is on. `maps`: whether the chassis maps its physical network to a bridge; unknown is no reason.
pub fn lacks(dpu: &Dpu, subnet: &Subnet, network: &ProviderNetwork, maps: Option<bool>) -> Option<Reason> {
    let reason = || Blocked::PhysicalNetworkUnmapped {
        physical_network: network.spec.physical_network.clone(),
        subnet: name(&subnet.metadata).to_owned(),
        dpu: name(&dpu.metadata).to_owned(),
    };
    (maps == Some(false)).then(|| reason().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::{DpuNetwork, DpuSpec, DpuStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn dpu(name: &str, created: &str, chassis: &str) -> Arc<Dpu> {
        let mut dpu = Dpu::new(name, DpuSpec::default());
        dpu.metadata.uid = Some(format!("uid-{name}"));
        dpu.metadata.creation_timestamp = Some(Time(created.parse().expect("a time")));
        let network = Some(DpuNetwork { chassis: chassis.to_owned() });
        dpu.status = Some(DpuStatus { network, ..DpuStatus::default() });
        Arc::new(dpu)
    }

    #[test]
    fn the_older_of_two_dpus_keeps_the_chassis() {
        let (copy, old) = (dpu("a", "2026-02-01T00:00:00Z", "same"), dpu("b", "2026-01-01T00:00:00Z", "same"));
        let all = [copy.clone(), old.clone()];
        assert_eq!(taken(&old, &all), None);
        assert_eq!(taken(&copy, std::slice::from_ref(&copy)), None, "alone");
        let reason = taken(&copy, &all).expect("the other one has it");
        assert_eq!(reason.name(), "ChassisTaken");
        assert!(reason.message().contains("Dpu 'b'"), "{}", reason.message());
        assert_eq!(taken(&Dpu::new("c", DpuSpec::default()), &all), None, "it has reported none");
    }
}
