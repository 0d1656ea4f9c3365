//! Which way a volume reaches a DPU: *native*, the agent speaks the storage's protocol; *kubelet*, a holder pod on the
//! DPU's node makes kubelet connect it, with the CSI driver's own node plugin, and the agent takes the block device.
//!
//! [`choose`] is the only place that compares a volume with what a DPU offers. It fails closed: a volume with an
//! attribute that its adapter does not understand is never connected natively.

use crate::observed::{DpuSeen, VolumeSeen};
use crate::reason::{Blocked, Reason};
use crate::target;
use api::attachment::Connector;
use api::dpu::ConnectorStatus;
use serde::{Deserialize, Serialize};

/// In `Dpu.status.connectors`: volumes of any CSI driver, by kubelet. It is also the name of that connector at the agent.
pub const KUBELET: &str = "*";

/// The pod by which kubelet connects a volume, and under which name kubelet knows that volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderPod {
    /// Empty: the volume is not granted yet.
    pub uid: String,
    pub persistent_volume_name: String,
}

/// Whether the DPU says that it connects volumes of this CSI driver natively.
pub fn offers(dpu: &DpuSeen, driver: &str) -> bool {
    fence(dpu, driver).is_some()
}

fn offered<'a>(dpu: &'a DpuSeen, driver: &str) -> Option<&'a ConnectorStatus> {
    dpu.dpu.status.as_ref()?.connectors.iter().find(|connector| connector.driver == driver)
}

/// How the storage can refuse the DPU, as it says itself: it knows by whose client it connects.
pub fn fence<'a>(dpu: &'a DpuSeen, driver: &str) -> Option<&'a str> {
    offered(dpu, driver).map(|connector| connector.fence.as_str())
}

/// Why this DPU, as it says itself, imports no image into the volumes that it connects by this connector.
pub fn import_refusal<'a>(dpu: &'a DpuSeen, driver: &str) -> Option<&'a str> {
    offered(dpu, driver)?.import_refusal.as_deref()
}

/// The connector of this volume on this DPU, or why there is none. `claim` is for people.
pub fn choose(claim: &str, volume: &VolumeSeen, dpu: &DpuSeen) -> Result<Connector, Reason> {
    let native = match offers(dpu, target::connector(&volume.driver, &volume.attributes)) {
        true => target::of(&volume.driver, &volume.handle, &volume.attributes),
        false => None,
    };
    let by_kubelet = offers(dpu, KUBELET);
    let (claim, driver, dpu) = (claim.to_owned(), volume.driver.clone(), dpu.name().to_owned());
    match native {
        Some(Ok(_)) => Ok(Connector::Native),
        _ if by_kubelet => Ok(Connector::Kubelet),
        Some(Err(refusal)) => {
            Err(Blocked::UnknownVolumeAttribute { claim, driver, dpu, message: refusal.to_string() }.into())
        }
        None => Err(Blocked::NoConnector { claim, driver, dpu }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::{Dpu, DpuSpec, DpuStatus};
    use std::sync::Arc;

    fn dpu(drivers: &[&str]) -> DpuSeen {
        let connector = |driver: &&str| ConnectorStatus {
            driver: (*driver).to_owned(),
            fence: "None".to_owned(),
            import_refusal: None,
        };
        let mut dpu = Dpu::new("dpu-1", DpuSpec::default());
        dpu.status = Some(DpuStatus { connectors: drivers.iter().map(connector).collect(), ..DpuStatus::default() });
        DpuSeen { dpu: Arc::new(dpu), ..DpuSeen::default() }
    }

    fn volume(driver: &str, attribute: &str) -> VolumeSeen {
        let mut volume = VolumeSeen { driver: driver.to_owned(), handle: "h".to_owned(), ..VolumeSeen::default() };
        volume.attributes.insert(attribute.to_owned(), "fast".to_owned());
        volume
    }

    fn chosen(volume: &VolumeSeen, drivers: &[&str]) -> Result<Connector, &'static str> {
        choose("claim", volume, &dpu(drivers)).map_err(|reason| reason.name())
    }

    #[test]
    fn native_where_all_is_understood_else_kubelet_else_a_reason() {
        let own = "csi.metalplane.io";
        let (plain, strange, foreign) = (volume(own, "pool"), volume(own, "cipher"), volume("other.example.com", "x"));
        assert_eq!(chosen(&plain, &[own, KUBELET]), Ok(Connector::Native));
        assert_eq!(chosen(&plain, &[KUBELET]), Ok(Connector::Kubelet));
        assert_eq!(chosen(&strange, &[own, KUBELET]), Ok(Connector::Kubelet));
        assert_eq!(chosen(&foreign, &[own, KUBELET]), Ok(Connector::Kubelet));
        assert_eq!(chosen(&strange, &[own]), Err("UnknownVolumeAttribute"), "never raw");
        assert_eq!(chosen(&foreign, &[own]), Err("NoConnector"));
        assert_eq!(chosen(&foreign, &[]), Err("NoConnector"));
        // A DPU that says more than we have an adapter for is not believed.
        assert_eq!(chosen(&foreign, &["other.example.com"]), Err("NoConnector"));
        // A namespace of our own driver takes the connector for NVMe over fabrics.
        let mut namespace = volume(own, "pool");
        let place = [("targetTrType", "tcp"), ("targetTrAddr", "198.51.100.1"), ("targetTrPort", "4420")];
        let names = [("deviceUUID", "58668891-c3e4-45d0-b90e-824525c16080"), ("nqn", "nqn.2026-01.test:a")];
        namespace
            .attributes
            .extend(place.into_iter().chain(names).map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(chosen(&namespace, &[own, "nvmf.csi.k8s.io"]), Ok(Connector::Native));
        assert_eq!(chosen(&namespace, &[own]), Err("NoConnector"));
        let reason = choose("claim", &strange, &dpu(&[own])).expect_err("refused");
        assert!(reason.message().contains("cipher"), "{reason}");
    }
}
