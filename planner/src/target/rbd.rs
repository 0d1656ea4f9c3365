//! Ceph RBD images as ceph-csi describes them.

use super::{Adapter, Given, Refusal, Target};

pub(super) const ADAPTER: Adapter = Adapter {
    driver: "rbd.csi.ceph.com",
    understood: &[
        "clusterID",
        "pool",
        "dataPool",
        "journalPool",
        "radosNamespace",
        "imageName",
        "imageFeatures",
        "imageFormat",
        "staticVolume",
        "mounter",
        "encrypted",
    ],
    read,
};

/// `pool[/namespace]/image` of one cluster. The user and the key are in a Secret, never here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RbdImage {
    /// ceph-csi's name of the cluster: the key of its list of monitors.
    pub cluster_id: String,
    pub pool: String,
    pub namespace: Option<String>,
    pub image: String,
}

fn read(given: &Given<'_>) -> Result<Target, Refusal> {
    given.only("encrypted", "false")?;
    given.only("mounter", "rbd")?;
    // Of a volume that was made by hand the handle is the image.
    let image = match given.get("staticVolume") {
        Some("true") => given.handle.to_owned(),
        _ => given.need("imageName")?,
    };
    let (cluster_id, pool) = (given.need("clusterID")?, given.need("pool"));
    Ok(Target::Rbd(RbdImage {
        cluster_id,
        pool: pool?,
        namespace: given.get("radosNamespace").map(str::to_owned),
        image,
    }))
}
