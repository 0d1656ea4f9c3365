//! Every CustomResourceDefinition, in the order in which they are listed in the chart.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, ValidationRule};
use kube_core::CustomResourceExt;

pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        named_like_a_host(crate::BareMetalMachine::crd()),
        crate::MachineImage::crd(),
        crate::ClusterMachineImage::crd(),
        crate::Dpu::crd(),
        crate::HardwarePolicy::crd(),
        crate::VolumeHold::crd(),
        crate::DiskAttachment::crd(),
        crate::NicAttachment::crd(),
        crate::Subnet::crd(),
        crate::VNic::crd(),
        crate::tinkerbell::Hardware::crd(),
        crate::tinkerbell::Machine::crd(),
    ]
}

/// A rule about `metadata` can stand at the root of the schema only, where the derive cannot put one without a client crate.
fn named_like_a_host(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            root.x_kubernetes_validations = Some(vec![ValidationRule {
                rule: "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')".to_owned(),
                message: Some(
                    "metadata.name must be a DNS label of at most 63 characters: it becomes the guest's host name"
                        .to_owned(),
                ),
                ..ValidationRule::default()
            }]);
        }
    }
    crd
}

#[cfg(test)]
mod tests {
    #[test]
    fn crds_have_structural_schemas() {
        let crds = super::crds();
        assert_eq!(crds.len(), 12);
    }
}
