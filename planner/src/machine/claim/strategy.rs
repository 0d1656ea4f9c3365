//! How a machine would boot on a server: from its DPU's disks, or installed by a workflow. `Auto` is decided here, for good.
//!
//! A server whose DPU is unwell is a server with a DPU: `Auto` waits for it. To install there would overwrite a disk because of an
//! agent that is silent for a moment.

use crate::machine::observed::{DpuSeen, Observed};
use crate::meta::{annotation, name};
use crate::reason::{Blocked, Reason};
use api::Dpu;
use api::labels::HAD_DPU;
use api::machine::{BareMetalMachineSpec, BootStrategy, DeletionPolicy, Disk, DiskBus, MaintenancePolicy};
use api::tinkerbell::Hardware;
use api::tinkerbell::hardware::Interface;

/// `dpu`: any that names this Hardware, in whatever state.
pub(super) fn strategy(o: &Observed, hardware: &Hardware, dpu: Option<&DpuSeen>) -> Result<BootStrategy, Reason> {
    let hardware_name = || name(&hardware.metadata).to_owned();
    let spec = &o.machine.spec;
    match (spec.boot.strategy, dpu) {
        (BootStrategy::CloudDisk, _) | (BootStrategy::Auto, Some(_)) => return Ok(BootStrategy::CloudDisk),
        (BootStrategy::Workflow, Some(dpu)) if !is_named(spec, &hardware_name()) => {
            return Err(Blocked::HardwareHasDpu { hardware: hardware_name(), dpu: dpu.name().to_owned() }.into());
        }
        (BootStrategy::Workflow, _) => {}
        (BootStrategy::Auto, None) => {
            if let Some(what) = needs_dpu(o) {
                return Err(Blocked::NeedsDpu { hardware: hardware_name(), what }.into());
            }
            if let Some(dpu) = o.dpus.iter().find(|seen| is_unassigned(&seen.dpu)) {
                return Err(Blocked::DpuUnassigned { hardware: hardware_name(), dpu: dpu.name().to_owned() }.into());
            }
            // A Dpu that was deleted, for its DPU to be registered anew, or is assigned elsewhere by mistake.
            if let Some(dpu) = annotation(&hardware.metadata, HAD_DPU) {
                return Err(Blocked::HardwareHadDpu { hardware: hardware_name(), dpu: dpu.to_owned() }.into());
            }
        }
    }
    if agent(hardware).is_none() {
        return Err(Blocked::NoNetbootInterface { hardware: hardware_name() }.into());
    }
    o.same_mac.get(&hardware_name()).map_or(Ok(BootStrategy::Workflow), |reason| Err(reason.clone()))
}

fn is_named(spec: &BareMetalMachineSpec, hardware: &str) -> bool {
    spec.hardware.as_ref().and_then(|choice| choice.name.as_deref()) == Some(hardware)
}

/// A DPU of which nobody has said in which server it sits.
fn is_unassigned(dpu: &Dpu) -> bool {
    !dpu.spec.type_.is_node() && dpu.spec.hardware_ref.is_none()
}

/// Whether a machine may be installed on this server, by all Dpus as the API server has them at this moment. An error says why not.
pub fn confirm_bare(spec: &BareMetalMachineSpec, hardware: &str, dpus: &[Dpu]) -> Result<(), String> {
    let auto = spec.boot.strategy == BootStrategy::Auto;
    let forbids = |dpu: &&Dpu| match &dpu.spec.hardware_ref {
        Some(reference) => reference.name == hardware && (auto || !is_named(spec, hardware)),
        None => auto && is_unassigned(dpu),
    };
    match dpus.iter().find(forbids) {
        Some(dpu) => {
            Err(format!("Dpu '{}' is, or may be, in the server of Hardware '{hardware}'", name(&dpu.metadata)))
        }
        None => Ok(()),
    }
}

/// What the machine asks for that a server without a DPU cannot give; so nothing of a spec is ignored.
fn needs_dpu(o: &Observed) -> Option<String> {
    let spec = &o.machine.spec;
    let [disk] = spec.disks.as_slice() else { return Some(format!("{} disks", spec.disks.len())) };
    let image = disk.source.image.as_ref().and_then(|image| o.images.get(&(image.kind, image.name.clone())));
    if image.is_none_or(|image| image.http.is_none()) {
        return Some(format!("disk '{}' is not from an image with an HTTP source", disk.name));
    }
    let said = [
        (!spec.interfaces.is_empty(), "interfaces"),
        (spec.node_name.is_some(), "nodeName"),
        (spec.readiness_probe.is_some(), "readinessProbe"),
        (spec.maintenance_policy != MaintenancePolicy::Wait, "maintenancePolicy"),
        (!is_plain(disk), "a field of the disk other than name, bootOrder, source and size"),
    ];
    said.into_iter().find(|(is_so, _)| *is_so).map(|(_, what)| what.to_owned())
}

fn is_plain(disk: &Disk) -> bool {
    let claims = disk.storage_class_name.is_some() || disk.volume_attributes_class_name.is_some();
    !claims && !disk.read_only && disk.bus == DiskBus::NVMe && disk.deletion_policy == DeletionPolicy::Delete
}

/// By which the server's agent asks: `spec.agentID`, else the MAC by which it boots.
pub(in crate::machine) fn agent(hardware: &Hardware) -> Option<String> {
    let interface = netboot(hardware)?;
    let own = hardware.spec.agent_id.clone().filter(|id| !id.is_empty());
    own.or_else(|| Some(interface.dhcp.as_ref()?.mac.as_ref()?.to_ascii_lowercase()))
}

/// The MAC address by which the server boots from the network.
pub fn netboot_mac(hardware: &Hardware) -> Option<&str> {
    netboot(hardware)?.dhcp.as_ref()?.mac.as_deref()
}

/// The interface by which the server boots from the network: the first that may by itself, else the first that DHCP answers on.
pub(in crate::machine) fn netboot(hardware: &Hardware) -> Option<&Interface> {
    let answered = |interface: &&Interface| {
        interface.disable_dhcp != Some(true) && interface.dhcp.as_ref().is_some_and(|dhcp| dhcp.mac.is_some())
    };
    let allowed =
        |interface: &&Interface| interface.netboot.as_ref().and_then(|netboot| netboot.allow_pxe) == Some(true);
    let all = || hardware.spec.interfaces.iter().filter(answered);
    all().find(allowed).or_else(|| all().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::observed::ImageSeen;
    use api::BareMetalMachine;
    use api::image::HttpSource;
    use api::machine::ImageKind;
    use serde_json::json;
    use std::sync::Arc;

    /// Of a machine that could be installed on any server without a DPU.
    fn observed(strategy: &str) -> Observed {
        let disk = json!({"name": "root", "bootOrder": 1, "source": {"image": {"name": "debian"}}});
        let spec = json!({"boot": {"strategy": strategy}, "disks": [disk], "hardware": {"name": "hw"}});
        let machine = json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine", "metadata": {"name": "a"}, "spec": spec});
        let machine: BareMetalMachine = serde_json::from_value(machine).expect("a machine");
        let http = json!({"url": "http://images.example/debian.raw", "checksum": "sha256:00", "format": "Raw"});
        let http: HttpSource = serde_json::from_value(http).expect("a source");
        let image = ImageSeen { http: Some(http), ..ImageSeen::default() };
        let images = [((ImageKind::MachineImage, "debian".to_owned()), image)].into();
        Observed { machine: Arc::new(machine), images, ..Observed::default() }
    }

    fn hardware(had: Option<&str>) -> Hardware {
        let annotations = had.map(|dpu| json!({HAD_DPU: dpu}));
        let interfaces = json!([{"dhcp": {"mac": "52:54:00:00:00:01"}}]);
        let object =
            json!({"metadata": {"name": "hw", "annotations": annotations}, "spec": {"interfaces": interfaces}});
        serde_json::from_value(object).expect("a Hardware")
    }

    /// Its Dpu was deleted, and its agent has not registered it anew yet.
    #[test]
    fn auto_installs_on_no_server_that_had_a_dpu() {
        let auto = observed("Auto");
        assert_eq!(strategy(&auto, &hardware(None), None), Ok(BootStrategy::Workflow));
        let refused = strategy(&auto, &hardware(Some("dpu-1")), None).expect_err("it had a DPU");
        assert_eq!(refused.name(), "HardwareHadDpu");
        assert!(refused.told().contains("'dpu-1'") && refused.told().contains("had-dpu-"), "{}", refused.told());
        let dpu = DpuSeen::default();
        assert_eq!(strategy(&auto, &hardware(Some("dpu-1")), Some(&dpu)), Ok(BootStrategy::CloudDisk), "it is back");
        // Who asks for a Workflow has decided.
        assert_eq!(strategy(&observed("Workflow"), &hardware(Some("dpu-1")), None), Ok(BootStrategy::Workflow));
    }
}
