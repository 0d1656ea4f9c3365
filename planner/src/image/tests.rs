//! An import whose DPU dies, step by step.

use super::*;
use crate::host::{BmcNeed, HostObserved, PowerState};
use crate::observed::VolumeSeen;
use api::Dpu;
use api::VolumeHold;
use api::attachment::{DiskAttachmentStatus, FenceIdentity, Grant};
use api::conditions::{self, ConditionStatus};
use api::dpu::{BmcReference, ConfirmedDown, ConnectorStatus, DpuSpec, DpuStatus, Orphan, OrphanVolume, VerifiedBmc};
use api::hold::{FenceProof, FenceRecord};
use api::image::{HttpSource, ImageFormat, ImageSource};
use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const DRIVER: &str = "csi.metalplane.io";

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), uid: Some(format!("uid-of-{name}")), ..ObjectMeta::default() }
}

fn dpu(name: &str) -> DpuSeen {
    let mut dpu = Dpu::new(name, DpuSpec { approved: true, ..DpuSpec::default() });
    dpu.metadata = meta(name);
    let connectors =
        vec![ConnectorStatus { driver: DRIVER.to_owned(), fence: "None".to_owned(), import_refusal: None }];
    let mut status = DpuStatus { connectors, namespace: Some(format!("metalplane-{name}")), ..DpuStatus::default() };
    status.boot_id = Some("boot-1".to_owned());
    conditions::set(
        &mut status.conditions,
        conditions::READY,
        ConditionStatus::True,
        "x",
        "",
        None,
        Timestamp::UNIX_EPOCH,
    );
    dpu.status = Some(status);
    DpuSeen { dpu: Arc::new(dpu), ..DpuSeen::default() }
}

/// An image with a bound claim in use by it, and two DPUs that could import.
fn observed() -> Observed {
    let http = HttpSource {
        url: "http://x/disk".into(),
        checksum: "sha256:0".into(),
        ca_bundle: None,
        format: ImageFormat::Raw,
    };
    let import = ImageImport {
        source: ImageSource { http: Some(http), ..ImageSource::default() },
        size: Some(quantity(1 << 20)),
        storage_class_name: None,
        volume_snapshot_class_name: None,
    };
    let mut image = ObjectMeta { namespace: Some("team".into()), ..meta("image") };
    image.finalizers = Some(vec![labels::FINALIZER_IMAGE.to_owned()]);
    let mut claim = PersistentVolumeClaim { metadata: meta("image-import"), ..PersistentVolumeClaim::default() };
    claim.metadata.labels = Some([(labels::IMAGE_UID.to_owned(), uid(&image).to_owned())].into());
    claim.metadata.annotations = Some([(format!("{}{}", labels::IN_USE_BY, uid(&image)), String::new())].into());
    claim.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
    claim.spec = Some(PersistentVolumeClaimSpec { volume_mode: Some("Block".into()), ..Default::default() });
    claim.status = Some(PersistentVolumeClaimStatus { phase: Some("Bound".into()), ..Default::default() });
    let volume = VolumeSeen { name: "pv".into(), driver: DRIVER.into(), handle: "h".into(), ..VolumeSeen::default() };
    Observed {
        meta: image,
        kind: "MachineImage",
        import,
        status: MachineImageStatus::default(),
        namespace: "team".into(),
        lent: Lent {
            claim: Some(ClaimSeen { claim: Arc::new(claim), volume: Some(volume), ..ClaimSeen::default() }),
            dpus: vec![dpu("dpu-1"), dpu("dpu-2")],
            ..Lent::default()
        },
        snapshot: None,
        imported_elsewhere: false,
        no_grants: None,
    }
}

fn planned(o: &Observed) -> (Vec<Action>, String) {
    let plan = plan(o, Timestamp::UNIX_EPOCH);
    let ready = conditions::get(&plan.status.conditions, conditions::READY).map(|c| c.reason.clone());
    (plan.actions, ready.unwrap_or_default())
}

/// The only action, if that is one of the one-writer protocol.
fn volume(actions: &[Action]) -> Option<&writer::Action> {
    match actions {
        [Action::Volume(action)] => Some(action),
        _ => None,
    }
}

/// The import runs: attachment, hold and grant as the controller makes them from the plans.
fn importing() -> Observed {
    let mut o = observed();
    let (actions, _) = planned(&o);
    let Some(Action::CreateAttachment(attachment)) = actions.into_iter().next() else { panic!("no attachment") };
    let mut attachment = *attachment;
    attachment.metadata.uid = Some("uid-of-attachment".to_owned());
    o.attachments = vec![Arc::new(attachment.clone())];
    let (actions, _) = planned(&o);
    let Some(writer::Action::TakeHold(take)) = volume(&actions) else { panic!("no hold") };
    let spec = api::hold::VolumeHoldSpec {
        driver: take.driver.clone(),
        volume_handle: take.volume_handle.clone(),
        persistent_volume_name: Some(take.persistent_volume_name.clone()),
        holder: Some(take.holder.clone()),
        epoch: take.epoch,
        fences: Vec::new(),
    };
    let mut hold = VolumeHold::new(&take.name, spec);
    hold.metadata.labels = Some(o.own_labels());
    o.hold = Some(Arc::new(hold));
    attachment.spec.grant = Some(Grant { epoch: take.epoch });
    o.attachments = vec![Arc::new(attachment)];
    o
}

/// The agent of the DPU that imports falls silent; `word`: an administrator says that it is down.
fn silent(o: &mut Observed, word: bool) {
    let name = o.attachments[0].spec.dpu_name.clone();
    let seen = o.dpus.iter_mut().find(|dpu| dpu.name() == name).expect("it imports");
    (seen.silent, seen.out_of_service) = (true, word);
    let mut dpu = Dpu::clone(&seen.dpu);
    dpu.spec.confirmed_down = word.then(|| ConfirmedDown { boot_id: "boot-1".to_owned() });
    seen.dpu = Arc::new(dpu);
}

fn released(o: &mut Observed) {
    let mut attachment = DiskAttachment::clone(&o.attachments[0]);
    attachment.spec.release = true;
    attachment.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    o.attachments = vec![Arc::new(attachment)];
}

#[test]
fn a_silent_dpu_is_said_and_waited_for() {
    let mut o = importing();
    assert_eq!(planned(&o), (Vec::new(), "Attaching".to_owned()));
    silent(&mut o, false);
    assert_eq!(planned(&o), (Vec::new(), "DpuSilent".to_owned()));
    let mut not_granted = importing();
    let mut attachment = DiskAttachment::clone(&not_granted.attachments[0]);
    attachment.spec.grant = None;
    not_granted.attachments = vec![Arc::new(attachment)];
    silent(&mut not_granted, false);
    assert_eq!(planned(&not_granted), (Vec::new(), "DpuSilent".to_owned()));
    // Deleting the image is no proof either.
    o.meta.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    released(&mut o);
    assert_eq!(planned(&o), (Vec::new(), "DpuSilent".to_owned()));
}

#[test]
fn an_import_on_a_dpu_that_is_confirmed_down_begins_anew_on_another() {
    let mut o = importing();
    let first = o.attachments[0].spec.dpu_name.clone();
    silent(&mut o, true);
    assert!(matches!(volume(&planned(&o).0), Some(writer::Action::Release { .. })));
    released(&mut o);
    let (actions, _) = planned(&o);
    let Some(writer::Action::Abandon { fence: Some(fence), hold: Some(hold), .. }) = volume(&actions) else {
        panic!("{actions:?}")
    };
    assert_eq!(
        (fence.proof, fence.epoch, fence.attachment_uid.as_str()),
        (FenceProof::ConfirmedDown, 1, "uid-of-attachment")
    );
    assert_eq!(*hold, names::hold(DRIVER, "h"));
    // The hold is emptied before another attachment is made.
    o.attachments.clear();
    assert!(matches!(volume(&planned(&o).0), Some(writer::Action::FreeVolume(_))));
    let mut hold = VolumeHold::clone(o.hold.as_ref().expect("it was taken"));
    hold.spec.holder = None;
    o.hold = Some(Arc::new(hold));
    let (actions, _) = planned(&o);
    let [Action::CreateAttachment(second)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_ne!(second.spec.dpu_name, first);
}

#[test]
fn a_dpu_that_cannot_write_such_volumes_is_not_chosen_and_is_named() {
    let refuse = |seen: &mut DpuSeen| {
        let dpu = Arc::make_mut(&mut seen.dpu);
        dpu.status.as_mut().expect("a status").connectors[0].import_refusal = Some("it has no vhost".to_owned());
    };
    let mut o = observed();
    for number in 0..2 {
        let mut one = o.clone();
        refuse(&mut one.dpus[number]);
        let (actions, _) = planned(&one);
        let Some(Action::CreateAttachment(attachment)) = actions.first() else { panic!("{actions:?}") };
        assert_eq!(attachment.spec.dpu_name, one.dpus[1 - number].name());
    }
    o.dpus.iter_mut().for_each(refuse);
    assert_eq!(planned(&o).0, [], "an import that would fail is not begun");
    let status = plan(&o, Timestamp::UNIX_EPOCH).status;
    let said = conditions::get(&status.conditions, conditions::READY).expect("a condition");
    assert!(said.message.contains("dpu-1") && said.message.contains("it has no vhost"), "{said:?}");
}

/// The agent of the DPU that imports has written as whom it connects, and then is unresponsive; the image is being deleted.
fn fencible() -> Observed {
    let mut o = importing();
    for seen in &mut o.dpus {
        Arc::make_mut(&mut seen.dpu).status.as_mut().expect("a status").connectors[0].fence = "OwnDriver".to_owned();
    }
    o.fences = [(DRIVER.to_owned(), "OwnDriver".to_owned())].into();
    silent(&mut o, false);
    released(&mut o);
    let mut attachment = DiskAttachment::clone(&o.attachments[0]);
    let fence = FenceIdentity { epoch: 1, boot_id: "boot-1".to_owned(), identity: "importer".to_owned() };
    attachment.status = Some(DiskAttachmentStatus { fence: Some(fence), ..DiskAttachmentStatus::default() });
    o.attachments = vec![Arc::new(attachment)];
    o.meta.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    o
}

#[test]
fn an_importer_that_is_unresponsive_is_refused_by_the_storage() {
    let o = fencible();
    let at = |seconds| plan(&o, Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(seconds));
    assert_eq!(at(19).actions, [], "an agent that is only being replaced is back by then");
    let actions = at(20).actions;
    let Some(writer::Action::Fence { order, hold, .. }) = volume(&actions) else { panic!("{actions:?}") };
    assert_eq!((order.identity.as_str(), order.record.proof), ("importer", FenceProof::StorageFenced));
    assert_eq!(*hold, names::hold(DRIVER, "h"));
}

#[test]
fn an_import_ends_when_the_bmc_of_its_dpu_reports_it_off() {
    let mut o = importing();
    silent(&mut o, false);
    let name = o.attachments[0].spec.dpu_name.clone();
    let seen = o.dpus.iter_mut().find(|dpu| dpu.name() == name).expect("it imports");
    let dpu = Arc::make_mut(&mut seen.dpu);
    dpu.spec.bmc_ref = Some(BmcReference { name: "own".to_owned(), serial_number: None });
    let verified = VerifiedBmc { name: "own".to_owned(), serial_number: None, identity: "one".to_owned() };
    dpu.status.as_mut().expect("a status").verified_bmc = Some(verified);
    (seen.heard_at, seen.bmc.identity) = (Some(Timestamp::UNIX_EPOCH), Some("one".to_owned()));
    let unread = plan(&o, Timestamp::UNIX_EPOCH + crate::own_bmc::LAG);
    assert_eq!((unread.actions.as_slice(), unread.dpu_bmcs.get("own")), (&[][..], Some(&BmcNeed::Now)));
    let seen = o.dpus.iter_mut().find(|dpu| dpu.name() == name).expect("it imports");
    seen.bmc.read_at = Some(Timestamp::UNIX_EPOCH + crate::own_bmc::LAG);
    seen.bmc.host = crate::seen::Seen::Fresh(HostObserved::with_power(PowerState::Off));
    assert!(matches!(volume(&planned(&o).0), Some(writer::Action::Release { .. })));
    released(&mut o);
    let (actions, _) = planned(&o);
    let Some(writer::Action::Abandon { fence: Some(fence), .. }) = volume(&actions) else { panic!("{actions:?}") };
    assert_eq!(fence.proof, FenceProof::DpuPoweredOff);
}

#[test]
fn nothing_is_granted_that_somebody_has_or_a_host_was_shown_as_an_orphan() {
    let mut held = importing();
    held.hold = None;
    let mut attachment = DiskAttachment::clone(&held.attachments[0]);
    attachment.spec.grant = None;
    held.attachments = vec![Arc::new(attachment)];
    assert!(matches!(volume(&planned(&held).0), Some(writer::Action::TakeHold(_))));
    let mut used = held.clone();
    used.claim.as_mut().expect("a claim").pods = vec!["backup".to_owned()];
    assert_eq!(planned(&used), (Vec::new(), "VolumeInUse".to_owned()));
    let orphan = Orphan {
        uid: "gone".to_owned(),
        epoch: 3,
        volume: Some(OrphanVolume { driver: DRIVER.to_owned(), volume_handle: "h".to_owned() }),
        ..Orphan::default()
    };
    let dpu = Arc::make_mut(&mut held.dpus[1].dpu);
    dpu.status.as_mut().expect("a status").orphans = vec![orphan];
    assert_eq!(planned(&held), (Vec::new(), "VolumeShownElsewhere".to_owned()));
}

#[test]
fn a_fence_is_kept_until_its_dpu_has_booted_since() {
    let mut o = importing();
    let fence = |dpu: &str| FenceRecord {
        attachment_uid: format!("of-{dpu}"),
        epoch: 1,
        dpu_uid: format!("uid-of-{dpu}"),
        boot_id: Some(if dpu == "dpu-1" { "boot-0" } else { "boot-1" }.to_owned()),
        proof: FenceProof::StorageFenced,
        at: Time(Timestamp::UNIX_EPOCH),
    };
    let mut hold = VolumeHold::clone(o.hold.as_ref().expect("it was taken"));
    (hold.spec.holder, hold.spec.fences) = (None, vec![fence("dpu-1"), fence("dpu-2")]);
    o.hold = Some(Arc::new(hold));
    let mut attachment = DiskAttachment::clone(&o.attachments[0]);
    attachment.spec.grant = None;
    o.attachments = vec![Arc::new(attachment)];
    let (actions, _) = planned(&o);
    let Some(writer::Action::TakeHold(take)) = volume(&actions) else { panic!("{actions:?}") };
    assert_eq!((take.epoch, take.fences.as_slice()), (2, &[fence("dpu-2")][..]));
}
