//! How a world stands, for whoever has to find out why it does not come to rest.

use super::schedule::Schedule;
use super::site::Server;
use api::{BareMetalMachine, DiskAttachment, VolumeHold};
use k8s_openapi::api::core::v1::Pod;

impl Schedule {
    pub fn state(&self) -> String {
        let mut lines = Vec::new();
        for machine in self.world.objects().all::<BareMetalMachine>() {
            let conditions = machine.status.iter().flat_map(|status| status.conditions.iter());
            let bad =
                conditions.filter(|c| c.status != "True").map(|c| format!("{}: {} {}", c.type_, c.reason, c.message));
            lines.push(format!("{:?}: {}", machine.metadata.name, bad.collect::<Vec<_>>().join("; ")));
        }
        for disk in self.world.objects().all::<DiskAttachment>() {
            let (meta, spec) = (&disk.metadata, &disk.spec);
            let phase = disk.status.as_ref().map(|status| (status.phase, status.exposed_boot_id.clone()));
            let word =
                format!("{:?} {} {:?} {:?} {phase:?}", meta.uid, spec.dpu_name, spec.grant, meta.deletion_timestamp);
            lines.push(word);
        }
        for hold in self.world.objects().all::<VolumeHold>() {
            let holder = hold.spec.holder.as_ref().map(|holder| (&holder.attachment_uid, &holder.dpu_name));
            lines.push(format!("hold {} {holder:?} {:?}", hold.spec.epoch, hold.spec.fences));
        }
        for pod in self.world.objects().all::<Pod>() {
            lines.push(format!("pod {:?} {:?} {:?}", pod.metadata.name, pod.metadata.deletion_timestamp, pod.status));
        }
        for (name, server) in &self.world.site().servers {
            let record: Vec<_> = server.record.values().map(|entry| &entry.id).collect();
            let Server { domain, power, dpu_on, boot, shown, connected, pods, .. } = server;
            lines.push(format!(
                "{name} {domain:?} {power:?} {dpu_on} {boot} {record:?} {shown:?} {connected:?} {pods:?}"
            ));
        }
        for (lives, now) in &self.leaders {
            let idle = now.borrow().as_ref().map(|leader| leader.idle.borrow().clone());
            lines.push(format!("{} {idle:?}", lives.name));
        }
        lines.join("\n  ")
    }
}
