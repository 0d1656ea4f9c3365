//! Every CustomResourceDefinition, in the order in which they are listed in the chart.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube_core::CustomResourceExt;

pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        named_like_a_host(crate::BareMetalMachine::crd()),
        crate::MachineImage::crd(),
        crate::ClusterMachineImage::crd(),
        crate::MachineSnapshot::crd(),
        crate::MachineRestore::crd(),
        crate::MachineMigration::crd(),
        crate::Dpu::crd(),
        crate::HardwarePolicy::crd(),
        crate::HardwareReport::crd(),
        crate::VolumeHold::crd(),
        crate::DiskAttachment::crd(),
        crate::NicAttachment::crd(),
        crate::Vpc::crd(),
        crate::Subnet::crd(),
        crate::SecurityGroup::crd(),
        crate::VNic::crd(),
        crate::ProviderNetwork::crd(),
        crate::NatGateway::crd(),
        crate::FloatingIP::crd(),
        crate::AddressHold::crd(),
        crate::tinkerbell::Hardware::crd(),
        crate::tinkerbell::Machine::crd(),
        crate::tinkerbell::Job::crd(),
        crate::tinkerbell::Task::crd(),
        crate::tinkerbell::Template::crd(),
        crate::tinkerbell::Workflow::crd(),
        crate::tinkerbell::WorkflowRuleSet::crd(),
    ];
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        if let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            formats_of_openapi(root);
        }
    }
    crds
}

/// OpenAPI knows no unsigned formats, and the API server warns at every apply of one. The minimum stays.
fn formats_of_openapi(schema: &mut JSONSchemaProps) {
    schema.format = schema.format.take().map(|format| match format.as_str() {
        "uint8" | "uint16" => "int32".to_owned(),
        "uint" | "uint32" | "uint64" => "int64".to_owned(),
        _ => format,
    });
    schema.properties.iter_mut().flatten().for_each(|(_, property)| formats_of_openapi(property));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        formats_of_openapi(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        formats_of_openapi(values);
    }
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
        assert_eq!(crds.len(), 27);
        let text = serde_json::to_string(&crds).expect("json");
        assert!(!text.contains("\"format\":\"uint"), "the API server warns of unsigned formats");
    }
}
