//! Whom storage has to let in: where its fence is a list of who may come (TargetAcl), that list is the storage's, and a target
//! that was started anew has lost it, with what it says of fences.
//!
//! A grant lasts as long as its attachment, and so does the admission that it stands for: one that the storage has forgotten is
//! given again, to the same identity and epoch. No fence must be undone by that. None is begun before its attachment is being
//! deleted (docs/design/fencing.md, *StorageRefuses*), and a deletion is never taken back. So an attachment that is read from
//! quorum and is not being deleted was not fenced by then, whatever the storage remembers. The hold is compared as well, for it is
//! what the grant rests on.

use crate::exposure::ExposureId;
use crate::meta::uid;
use api::attachment::Connector;
use api::{DiskAttachment, VolumeHold};

/// The grant that lets this attachment's agent in, as far as the attachment says.
pub fn of(attachment: &DiskAttachment) -> Option<ExposureId> {
    let (meta, spec) = (&attachment.metadata, &attachment.spec);
    let volume = spec.volume.as_ref()?;
    // A reader is not admitted; a holder pod's node is its driver's business.
    let admitted = volume.connector == Connector::Native && !spec.read_only;
    let stays = meta.deletion_timestamp.is_none() && !spec.release;
    let epoch = spec.grant.as_ref()?.epoch;
    (admitted && stays).then(|| ExposureId { uid: uid(meta).to_owned(), epoch })
}

/// Both read from quorum: whether this identity is to be let in still.
pub fn stands(id: &ExposureId, attachment: &DiskAttachment, hold: &VolumeHold) -> bool {
    let holds = hold.spec.holder.as_ref().is_some_and(|holder| holder.attachment_uid == id.uid);
    let fenced = hold.spec.fences.iter().any(|fence| fence.attachment_uid == id.uid);
    of(attachment).as_ref() == Some(id) && holds && hold.spec.epoch == id.epoch && !fenced
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::hold::{FenceProof, FenceRecord, Holder, VolumeHoldSpec};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    const OWN: &str = "5f0c1c9e-58a4";

    fn granted() -> (DiskAttachment, VolumeHold) {
        let claim = json!({"namespace": "team", "name": "root", "uid": "c"});
        let spec = json!({
            "owner": {"kind": "BareMetalMachine", "name": "a", "uid": "m"}, "dpuName": "dpu-1", "diskName": "root",
            "volume": {"driver": "d", "volumeHandle": "h", "persistentVolumeName": "pv", "claim": claim},
            "slot": "Boot", "serial": "MP1", "uuid": "c", "grant": {"epoch": 3},
        });
        let mut attachment = DiskAttachment::new("root", serde_json::from_value(spec).expect("a spec"));
        attachment.metadata.uid = Some(OWN.to_owned());
        let holder = Some(Holder { attachment_uid: OWN.to_owned(), ..Holder::default() });
        (attachment, VolumeHold::new("h", VolumeHoldSpec { holder, epoch: 3, ..VolumeHoldSpec::default() }))
    }

    #[test]
    fn a_live_grant_stands() {
        let (attachment, hold) = granted();
        let id = of(&attachment).expect("granted");
        assert_eq!(id, ExposureId { uid: OWN.to_owned(), epoch: 3 });
        assert!(stands(&id, &attachment, &hold));
    }

    #[test]
    fn who_may_have_been_fenced_is_not_let_in_again() {
        let id = ExposureId { uid: OWN.to_owned(), epoch: 3 };
        let now = Time(Timestamp::UNIX_EPOCH);
        let attachments: [fn(&mut DiskAttachment); 6] = [
            |it| it.spec.release = true,
            |it| it.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
            |it| it.spec.grant = None,
            |it| it.spec.read_only = true,
            |it| it.metadata.uid = Some("another".to_owned()),
            |it| it.spec.volume.as_mut().expect("it has one").connector = Connector::Kubelet,
        ];
        for (number, change) in attachments.into_iter().enumerate() {
            let (mut attachment, hold) = granted();
            change(&mut attachment);
            assert!(!stands(&id, &attachment, &hold), "{number}");
        }
        let record = |uid: &str| FenceRecord {
            attachment_uid: uid.to_owned(),
            epoch: 3,
            dpu_uid: String::new(),
            boot_id: None,
            proof: FenceProof::StorageFenced,
            at: now.clone(),
        };
        let (attachment, hold) = granted();
        let with = |change: &dyn Fn(&mut VolumeHoldSpec)| {
            let mut hold = hold.clone();
            change(&mut hold.spec);
            stands(&id, &attachment, &hold)
        };
        assert!(with(&|hold| hold.fences.push(record("an earlier one"))));
        assert!(!with(&|hold| hold.fences.push(record(OWN))));
        assert!(!with(&|hold| hold.holder = None));
        assert!(!with(&|hold| hold.epoch = 4));
        assert!(!with(&|hold| hold.holder = Some(Holder::default())));
    }
}
