//! Interfaces on their way to the host. The same protocol as for disks; a VNic's holder is its hold.

use super::made::{own_attachment, owner};
use super::seed;
use super::seen::{Seen, assigned, detaching, not_exposed, phase};
use crate::about::About;
use crate::machine::draft::Draft;
use crate::machine::named::{is_by_disk, own_labels, vnic_name};
use crate::machine::observed::Observed;
use crate::machine::plan::{Action, Seed};
use crate::machine::situation::{Host, Owned, Situation};
use crate::meta::{annotation, in_use_by, label, name, target, uid};
use crate::network::{desired, port};
use crate::orphan::vnic_shown_elsewhere;
use crate::reason::{Blocked, Reason, Waiting};
use crate::vnic::{logical_port, mac};
use crate::writer::down;
use crate::writer::hold::{Standing, holder, standing};
use api::attachment::{FunctionKind, NicAttachmentSpec, NicConsumer, NicMetadata};
use api::hold::Holder;
use api::machine::{Interface, InterfaceStatus};
use api::network::VNicSpec;
use api::{NicAttachment, VNic, labels, names};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(in crate::machine) fn current<'a>(o: &'a Observed, interface: &str) -> Option<&'a Arc<NicAttachment>> {
    o.nic_attachments.iter().find(|a| a.spec.interface_name == interface && a.metadata.deletion_timestamp.is_none())
}

fn leaving<'a>(o: &'a Observed, interface: &str) -> Option<&'a Arc<NicAttachment>> {
    o.nic_attachments.iter().find(|a| a.spec.interface_name == interface && a.metadata.deletion_timestamp.is_some())
}

/// Plans one interface; `None`: the host can see it.
pub(in crate::machine) fn plan(
    o: &Situation<'_>,
    host: Host<'_>,
    interface: &Interface,
    grant_blocked_by: Option<&Reason>,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    if let Some(old) = leaving(o, &interface.name) {
        return Some(detaching(About::Interface(interface.name.clone()), &old.spec.dpu_name));
    }
    let vnic = match vnic(o, interface, draft) {
        Ok(vnic) => vnic,
        Err(reason) => return Some(reason),
    };
    if interface.vnic.is_none() && vnic.spec.security_groups != interface.security_groups {
        let groups = interface.security_groups.clone();
        draft.act(Action::SetSecurityGroups { target: target(&vnic.metadata), groups });
    }
    let Some(attachment) = current(o, &interface.name) else {
        return Some(create(o, host, interface, vnic, draft));
    };
    if attachment.spec.grant.is_none() {
        if vnic.metadata.deletion_timestamp.is_some() {
            // Its addresses are released next: nobody gets it any more.
            return Some(detach(&o.owned, attachment, now, draft));
        }
        if let Some(reason) = grant_blocked_by {
            return Some(reason.clone());
        }
        if let Some(reason) = vnic_shown_elsewhere(&o.orphans, vnic).or_else(|| assigned(vnic).err()) {
            return Some(reason);
        }
        return Some(grant(o, host, interface, vnic, attachment, draft));
    }
    not_exposed(host, About::Interface(interface.name.clone()), Seen::nic(attachment))
}

fn vnic<'a>(o: &'a Observed, interface: &Interface, draft: &mut Draft) -> Result<&'a VNic, Reason> {
    let vnic_name = vnic_name(&o.machine, interface);
    let Some(vnic) = o.vnics.get(&vnic_name) else {
        if interface.vnic.is_some() {
            return Err(Blocked::VNicMissing { vnic: vnic_name }.into());
        }
        return Err(make(o, interface, vnic_name, draft));
    };
    if interface.vnic.is_none() && label(&vnic.metadata, labels::MACHINE_UID) != Some(o.uid()) {
        return Err(Blocked::VNicNotOurs { vnic: vnic_name }.into());
    }
    if let Some(node) = &vnic.spec.node_name {
        return Err(Blocked::VNicOfNode { vnic: vnic_name, node: node.clone() }.into());
    }
    if vnic.metadata.deletion_timestamp.is_some() && current(o, &interface.name).is_none() {
        return Err(Waiting::VNicBeingDeleted { vnic: vnic_name }.into());
    }
    Ok(vnic)
}

fn make(o: &Observed, interface: &Interface, vnic_name: String, draft: &mut Draft) -> Reason {
    let subnet_name = interface.subnet.clone().unwrap_or_default();
    let Some(subnet) = o.subnets.get(&subnet_name) else {
        return Blocked::SubnetMissing { subnet: subnet_name }.into();
    };
    if subnet.metadata.deletion_timestamp.is_some() {
        return Blocked::SubnetBeingDeleted { subnet: subnet_name }.into();
    }
    let addresses = interface.addresses.clone().unwrap_or_default();
    let mut vnic = VNic::new(
        &vnic_name,
        VNicSpec {
            subnet: subnet_name,
            addresses,
            mac_address: interface.mac_address.clone(),
            security_groups: interface.security_groups.clone(),
            ..VNicSpec::default()
        },
    );
    vnic.metadata.namespace = Some(o.namespace().to_owned());
    vnic.metadata.labels = Some(own_labels(&o.machine));
    // Of what others made `ProtectVNic` says it.
    vnic.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
    let mark = (format!("{}{}", labels::IN_USE_BY, o.uid()), interface.name.clone());
    vnic.metadata.annotations = Some([mark].into());
    draft.act(Action::CreateVNic(Box::new(vnic)));
    Waiting::Creating { what: About::VNic(vnic_name.to_owned()) }.into()
}

fn create(o: &Observed, host: Host<'_>, interface: &Interface, vnic: &VNic, draft: &mut Draft) -> Reason {
    let vnic_name = name(&vnic.metadata).to_owned();
    let addresses = match assigned(vnic) {
        Ok(addresses) => addresses.to_vec(),
        Err(reason) => return reason,
    };
    if !in_use_by(&vnic.metadata, o.uid()) {
        draft.act(Action::ProtectVNic { target: target(&vnic.metadata), interface: interface.name.clone() });
        return Waiting::Creating { what: About::VNicProtection(vnic_name) }.into();
    }
    let subnet = o.subnets.get(&vnic.spec.subnet);
    let told = subnet.filter(|subnet| !is_by_disk(&o.machine) && desired::metadata(subnet));
    if let Some(reason) = nobody_tells(o) {
        return reason;
    }
    let spec = NicAttachmentSpec {
        owner: owner(o),
        dpu_name: host.dpu.name().to_owned(),
        interface_name: interface.name.clone(),
        logical_port: logical_port(uid(&vnic.metadata)),
        vnic_name,
        vnic_uid: uid(&vnic.metadata).to_owned(),
        mac_address: mac(vnic),
        addresses,
        consumer: NicConsumer::Host,
        pod: None,
        function_kind: FunctionKind::HotplugPF,
        mtu: subnet.map_or(desired::MTU, |subnet| desired::mtu(subnet)),
        metadata: told.map(|subnet| NicMetadata {
            secret_name: format!("metadata-{}", names::short(&format!("{}/{}", o.uid(), interface.name), 12)),
            subnet_uid: uid(&subnet.metadata).to_owned(),
        }),
        grant: None,
        release: false,
    };
    let mut attachment = NicAttachment::new(&names::attachment(o.uid(), o.name(), &interface.name), spec);
    own_attachment(o, host.namespace, &mut attachment.metadata);
    draft.act(Action::CreateNicAttachment(Box::new(attachment)));
    Waiting::Creating { what: About::NicAttachment(interface.name.clone()) }.into()
}

/// The machine has its cloud-init data from the metadata address, and no Subnet of its interfaces has that.
fn nobody_tells(o: &Observed) -> Option<Reason> {
    let subnet_of = |interface: &Interface| {
        let vnic = o.vnics.get(&vnic_name(&o.machine, interface));
        interface.subnet.clone().or_else(|| Some(vnic?.spec.subnet.clone()))
    };
    let names: BTreeSet<String> = o.machine.spec.interfaces.iter().filter_map(subnet_of).collect();
    let all_known = names.iter().all(|name| o.subnets.contains_key(name));
    let tells = |name: &String| o.subnets.get(name).is_some_and(|subnet| desired::metadata(subnet));
    if is_by_disk(&o.machine) || !all_known || names.iter().any(tells) {
        return None;
    }
    let subnets = names.into_iter().collect::<Vec<_>>().join(", ");
    Some(Blocked::MetadataDisabled { subnets }.into())
}

fn grant(
    o: &Observed,
    host: Host<'_>,
    interface: &Interface,
    vnic: &VNic,
    attachment: &NicAttachment,
    draft: &mut Draft,
) -> Reason {
    let vnic_name = || name(&vnic.metadata).to_owned();
    match standing(Some(vnic), &attachment.metadata) {
        Standing::Own { epoch } => {
            if let Err(reason) = port::is_programmed(vnic) {
                return reason;
            }
            let metadata = match &attachment.spec.metadata {
                None => None,
                Some(told) => match seed::metadata(o) {
                    Ok(data) => Some(Seed { secret_name: told.secret_name.clone(), data }),
                    Err(reason) => return reason,
                },
            };
            draft.act(Action::GrantNic { target: target(&attachment.metadata), epoch, metadata });
            Waiting::Granting { what: About::Interface(interface.name.clone()), message: String::new() }.into()
        }
        Standing::Others { by } => Waiting::VNicHeld { vnic: vnic_name(), by }.into(),
        Standing::Empty { .. } => {
            let holder = holder(host.dpu, &attachment.metadata);
            let mac_address = attachment.spec.mac_address.clone();
            draft.act(Action::TakeVNic { target: target(&vnic.metadata), holder, mac_address });
            Waiting::Creating { what: About::VNicHold(vnic_name()) }.into()
        }
    }
}

pub(in crate::machine) fn row(o: &Observed, interface: &Interface, reason: Option<&Reason>) -> InterfaceStatus {
    let attachment = leaving(o, &interface.name).or_else(|| current(o, &interface.name));
    let vnic_name = vnic_name(&o.machine, interface);
    InterfaceStatus {
        name: interface.name.clone(),
        dpu_name: attachment.map(|a| a.spec.dpu_name.clone()),
        mac_address: attachment
            .map(|a| a.spec.mac_address.clone())
            .or_else(|| o.vnics.get(&vnic_name).map(|vnic| mac(vnic))),
        vnic_name: Some(vnic_name),
        phase: phase(attachment.map(|a| (&a.metadata, a.spec.grant.is_some())), reason),
    }
}

/// Takes an interface away; what is waited for.
pub(in crate::machine) fn detach(
    o: &Owned<'_>,
    attachment: &NicAttachment,
    now: Timestamp,
    draft: &mut Draft,
) -> Reason {
    let (site, target, dpu) = (o.site(now), target(&attachment.metadata), &attachment.spec.dpu_name);
    let is_down = || down::dpu(site.dpus, dpu).is_some_and(|dpu| site.proof(dpu).is_some());
    if attachment.metadata.deletion_timestamp.is_none() || !attachment.spec.release {
        draft.act(Action::ReleaseNic { target });
    } else if attachment.spec.grant.is_none() || is_down() {
        draft.act(Action::AbandonNic { target });
    } else {
        site.watch(dpu, draft);
        if let Some(reason) = site.unresponsive(dpu) {
            return reason;
        }
    }
    detaching(About::Interface(attachment.spec.interface_name.clone()), dpu)
}

/// Gives back every VNic that no attachment needs any more.
pub(in crate::machine) fn sweep(o: &Owned<'_>, wanted: &BTreeSet<String>, draft: &mut Draft) -> Option<Reason> {
    let mut pending = None;
    let present: BTreeSet<&str> = o.nic_attachments.iter().map(|a| uid(&a.metadata)).collect();
    let attached: BTreeSet<&str> = o.nic_attachments.iter().map(|a| a.spec.vnic_uid.as_str()).collect();
    for (vnic_name, vnic) in &o.vnics {
        let meta = &vnic.metadata;
        let used = in_use_by(meta, o.uid());
        let ours = label(meta, labels::MACHINE_UID) == Some(o.uid());
        if !used && !ours || attached.contains(uid(meta)) {
            continue;
        }
        // It is deleted next, and nobody takes a VNic that is being deleted: that its holder is empty would tell nobody anything.
        let ends = ours && !wanted.contains(vnic_name);
        let action = match vnic.status.as_ref().and_then(|status| status.holder.as_ref()).filter(|_| !ends) {
            Some(holder) if used && !present.contains(holder.attachment_uid.as_str()) && held_here(o, vnic, holder) => {
                Action::FreeVNic { target: target(meta), holder: holder.clone() }
            }
            // One that is being deleted is let go, and created again under its name where a machine asks for it.
            _ if wanted.contains(vnic_name) && meta.deletion_timestamp.is_none() => continue,
            _ if used => Action::UnprotectVNic { target: target(meta) },
            _ if meta.deletion_timestamp.is_some() => continue,
            _ => Action::DeleteVNic { target: target(meta) },
        };
        draft.act(action);
        pending.get_or_insert(Waiting::VNicReleasing { vnic: vnic_name.clone() }.into());
    }
    pending
}

/// The holder is the attachment of this machine for which the VNic was marked. What the machine was called need not be known.
fn held_here(o: &Owned<'_>, vnic: &VNic, holder: &Holder) -> bool {
    let interface = annotation(&vnic.metadata, &format!("{}{}", labels::IN_USE_BY, o.uid())).unwrap_or_default();
    names::is_attachment(&holder.attachment_name, o.uid(), interface)
}
