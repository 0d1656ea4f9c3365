//! What DiskAttachments and NicAttachments have in common for the agent: both are granted, claimed and told of in the same way.

use crate::cluster::Cluster;
use crate::watch::{Desired, Mirror};
use api::attachment::{DiskAttachment, DiskAttachmentStatus, FenceIdentity, NicAttachment, NicAttachmentStatus};
use api::machine::AttachPhase;
use jiff::Timestamp;
use kube::Api;
use planner::agent::{Attachment, Report, disk_status, nic_status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;

/// The statuses that were applied last, by UID.
pub(crate) type Applied<K> = Mutex<BTreeMap<String, <K as Kind>::Status>>;

pub(crate) trait Kind:
    kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    type Status: Clone + Default + Serialize;

    fn api(cluster: &Cluster) -> Api<Self>;
    fn seen(desired: &Desired) -> &Mirror<Self>;
    fn read(&self) -> Attachment;
    fn status(&self) -> Option<&Self::Status>;
    /// As the agent sees it now, after what the status said before.
    fn report(before: &Self::Status, attachment: &Attachment, report: &Report, now: Timestamp) -> Self::Status;
    /// From now on the storage, or the switch, may know this DPU by that.
    fn claimed(status: &mut Self::Status, fence: FenceIdentity);
}

macro_rules! kind {
    ($kind:ty, $status:ty, $api:ident, $read:ident, $report:ident) => {
        impl Kind for $kind {
            type Status = $status;

            fn api(cluster: &Cluster) -> Api<Self> {
                cluster.$api()
            }

            fn seen(desired: &Desired) -> &Mirror<Self> {
                &desired.$api
            }

            fn read(&self) -> Attachment {
                Attachment::$read(self)
            }

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }

            fn report(before: &$status, attachment: &Attachment, report: &Report, now: Timestamp) -> $status {
                $report(before, attachment, report, now)
            }

            fn claimed(status: &mut $status, fence: FenceIdentity) {
                status.fence = Some(fence);
                (status.phase, status.exposed_boot_id) = (AttachPhase::Attaching, None);
            }
        }
    };
}

kind!(DiskAttachment, DiskAttachmentStatus, disks, from_disk, disk_status);
kind!(NicAttachment, NicAttachmentStatus, nics, from_nic, nic_status);
