//! The holder pod: how kubelet is made to connect a volume on a DPU's node. It is the connector's own claim on the volume
//! ([`crate::writer`]): made after the hold is taken and before the grant, gone before the hold is emptied.
//!
//! It has no ownerReference, for the reason that claims have none: a deletion in the foreground would take it, and with it
//! the disk, from a running host. A grant names one pod by its UID; a pod that is lost is not replaced under a running host.

use super::seen::detaching;
use crate::about::About;
use crate::machine::draft::Draft;
use crate::machine::named::own_labels;
use crate::machine::observed::Observed;
use crate::machine::plan::Action;
use crate::machine::situation::{Host, Situation};
use crate::meta::{target, uid};
use crate::observed::Bound;
use crate::reason::{Blocked, Reason, Waiting};
use crate::writer::claim::{pod, pod_name};
use api::{DiskAttachment, labels};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, LocalObjectReference, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec,
    ResourceRequirements, SeccompProfile, SecurityContext, Toleration, Volume, VolumeDevice,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Nobody's on any image: the pod only waits.
const USER: i64 = 65532;
const DISK: &str = "disk";

/// The UID to grant with, once kubelet has connected the volume.
pub(in crate::machine) fn running(
    o: &Observed,
    host: Host<'_>,
    attachment: &DiskAttachment,
    bound: Bound<'_>,
    draft: &mut Draft,
) -> Result<String, Reason> {
    let name = pod_name(attachment);
    let Some(pod) = pod(&o.holder_pods, attachment) else {
        let made = manifest(o, host, attachment, bound, &name);
        draft.act(Action::CreateHolderPod(Box::new(made)));
        return Err(Waiting::Creating { what: About::HolderPod(name.to_owned()) }.into());
    };
    if pod.ended && !pod.deleting {
        // Refused by its node, or ended before it was of any use: another one is made.
        draft.act(Action::DeleteHolderPod { target: pod.target.clone(), node_is_down: false });
    }
    if pod.running && !pod.ended && !pod.deleting {
        return Ok(pod.target.uid.clone());
    }
    let (node, message) = (host.dpu.name().to_owned(), pod.message.clone());
    Err(Waiting::HolderPodStarting { pod: name, node, message }.into())
}

/// A granted disk whose pod is gone, and kubelet's connection with it. Only a host that is off gets another one, as a new
/// attachment, or one that is on for its DPU's sake alone: no system was started on it by us since that DPU booted, and its
/// agent takes the disk away in good order. Until then the hold stays where it is.
pub(in crate::machine) fn lost(
    o: &Situation<'_>,
    host: Host<'_>,
    attachment: &DiskAttachment,
    draft: &mut Draft,
) -> Option<Reason> {
    let granted = attachment.spec.holder_pod_uid.as_deref()?;
    if pod(&o.holder_pods, attachment).is_some_and(|pod| pod.target.uid == granted && !pod.ended && !pod.deleting) {
        return None;
    }
    let started_boot_id = o.owned.record.started_boot_id;
    let not_started = host.shares_power() && host.boot_id().is_some_and(|boot| started_boot_id != Some(boot));
    if not_started || o.owned.is_off() {
        draft.act(Action::ReleaseDisk { target: target(&attachment.metadata) });
        let what = About::Disk(attachment.spec.disk_name.clone());
        return Some(detaching(what, &attachment.spec.dpu_name));
    }
    let pod = pod_name(attachment);
    Some(Blocked::HolderPodLost { pod, disk: attachment.spec.disk_name.clone() }.into())
}

fn manifest(o: &Observed, host: Host<'_>, attachment: &DiskAttachment, bound: Bound<'_>, name: &str) -> Pod {
    let mut own = own_labels(&o.machine);
    own.insert(labels::HOLDER_POD.to_owned(), "true".to_owned());
    own.insert(labels::ATTACHMENT_UID.to_owned(), uid(&attachment.metadata).to_owned());
    let claim_name = bound.claim_name().to_owned();
    let claim = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(o.namespace().to_owned()),
            labels: Some(own),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            // Not the scheduler's to decide: the disk is of use on this node alone.
            node_name: Some(host.dpu.name().to_owned()),
            priority_class_name: Some("system-node-critical".to_owned()),
            tolerations: Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }]),
            restart_policy: Some("Always".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(1),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                run_as_group: Some(USER),
                seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
                ..PodSecurityContext::default()
            }),
            image_pull_secrets: (!o.holder_pull_secrets.is_empty()).then(|| pull_secrets(&o.holder_pull_secrets)),
            containers: vec![container(o)],
            volumes: Some(vec![Volume {
                name: DISK.to_owned(),
                persistent_volume_claim: Some(claim),
                ..Volume::default()
            }]),
            ..PodSpec::default()
        }),
        status: None,
    }
}

fn pull_secrets(names: &[String]) -> Vec<LocalObjectReference> {
    names.iter().map(|name| LocalObjectReference { name: name.clone() }).collect()
}

fn container(o: &Observed) -> Container {
    let amount = |cpu: &str, memory: &str| {
        let all = [("cpu", cpu), ("memory", memory)];
        Some(all.map(|(key, value)| (key.to_owned(), Quantity(value.to_owned()))).into())
    };
    Container {
        name: "holder".to_owned(),
        image: Some(o.holder_image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        volume_devices: Some(vec![VolumeDevice { name: DISK.to_owned(), device_path: "/dev/disk".to_owned() }]),
        resources: Some(ResourceRequirements {
            requests: amount("1m", "8Mi"),
            limits: amount("100m", "32Mi"),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}
