//! Where a volume is: from its handle and attributes to a path, refusing everything that is not understood.

use ports::volume::Volume;
use ports::{ErrorClass, PortError};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Added by external-provisioner, and true of any volume: they do not change what the blocks mean.
const PROVISIONERS: [&str; 4] = [
    "storage.kubernetes.io/csiProvisionerIdentity",
    "csi.storage.k8s.io/pvc/name",
    "csi.storage.k8s.io/pvc/namespace",
    "csi.storage.k8s.io/pv/name",
];

const POOL: &str = "pool";
const FORMAT: &str = "format";

/// Directories by the name of the pool.
pub(crate) type Pools = BTreeMap<String, PathBuf>;

/// A volume's own directory; the blocks are in [`Located::disk`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located {
    pool: PathBuf,
    directory: PathBuf,
}

impl Located {
    pub(crate) fn folder(&self) -> &Path {
        &self.directory
    }

    /// What the CSI driver locks while it changes anything of the pool.
    pub(crate) fn pool_lock(&self) -> PathBuf {
        self.pool.join(".lock")
    }

    /// The CSI driver's record of the volume.
    pub(crate) fn record(&self) -> PathBuf {
        self.directory.join("volume.json")
    }

    /// There, while the node takes part in the pool; `None`: no node can have that name.
    pub(crate) fn registration(&self, node: &str) -> Option<PathBuf> {
        let is_name = !node.is_empty() && !node.starts_with('.') && !node.contains(['/', '\0']);
        is_name.then(|| self.pool.join("nodes").join(node))
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.directory.join("disk.img")
    }

    /// A name of the image that one connection has for itself. Another one each time: a target may open a file long after
    /// whoever asked it to has given up, and then finds nothing, also if the same writer has connected anew.
    pub(crate) fn new_link(&self, identity: &str) -> PathBuf {
        self.writers().join(format!("{identity}.{}.img", Uuid::new_v4().simple()))
    }

    /// All names that a writer has, by however many connects.
    pub(crate) fn links(&self, identity: &str) -> io::Result<Vec<PathBuf>> {
        links(&self.writers(), identity)
    }

    fn writers(&self) -> PathBuf {
        self.directory.join("writers")
    }

    pub(crate) fn writer(&self) -> PathBuf {
        self.directory.join("writer.json")
    }

    /// Of a connection that only reads. In the pool's own folder: who has forgotten the volume still finds it by identity.
    pub(crate) fn reader(&self, identity: &str) -> PathBuf {
        let volume = self.directory.file_name().unwrap_or_default().to_string_lossy();
        readers(&self.pool).join(format!("{volume}.{identity}"))
    }

    pub(crate) fn pool(&self) -> &Path {
        &self.pool
    }

    pub(crate) fn fence(&self) -> PathBuf {
        self.directory.join("fence.json")
    }
}

/// A file `<volume>.<identity>` for each connection that only reads; none of the two has a dot.
pub(crate) fn readers(pool: &Path) -> PathBuf {
    pool.join("readers")
}

/// The handle is `<volume>` or `<pool>/<volume>`; the pool may be named there, by the attribute `pool`, or by both alike.
pub(crate) fn locate(volume: &Volume, pools: &Pools) -> Result<Located, PortError> {
    let invalid = |cause: String| PortError::new(ErrorClass::Invalid, format!("volume {}: {cause}", volume.handle));
    if volume.driver != crate::DRIVER {
        return Err(invalid(format!("it belongs to the CSI driver {}, not to {}", volume.driver, crate::DRIVER)));
    }
    for name in volume.attributes.keys() {
        if name != POOL && name != FORMAT && !PROVISIONERS.contains(&name.as_str()) {
            return Err(invalid(format!(
                "the volume attribute `{name}` is not understood, so the volume is not shown"
            )));
        }
    }
    if let Some(format) = volume.attributes.get(FORMAT)
        && format != "raw"
    {
        return Err(invalid(format!("`format: {format}` is not supported, only `raw`")));
    }
    let (from_handle, name) = match volume.handle.split_once('/') {
        Some((pool, name)) => (Some(pool), name),
        None => (None, volume.handle.as_str()),
    };
    if !is_name(name) {
        return Err(invalid("the handle is not [<pool>/]<volume> with 1 to 64 of a-z, 0-9 and -".to_owned()));
    }
    let from_attribute = volume.attributes.get(POOL).map(String::as_str);
    let pool = match (from_handle, from_attribute) {
        (Some(one), Some(other)) if one != other => {
            return Err(invalid(format!("the handle names the pool {one}, the attribute `pool` names {other}")));
        }
        (Some(pool), _) | (None, Some(pool)) => pool,
        (None, None) => return Err(invalid("neither handle nor attributes name a `pool`".to_owned())),
    };
    let directory = pools.get(pool).ok_or_else(|| {
        let known: Vec<&str> = pools.keys().map(String::as_str).collect();
        let cause = format!("this DPU has no pool `{pool}` (it has: {})", known.join(", "));
        PortError::new(ErrorClass::NotFound, format!("volume {}: {cause}", volume.handle))
    })?;
    Ok(Located { pool: directory.clone(), directory: directory.join("volumes").join(name) })
}

/// Also what a record's file name is made of.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// As [`Located::links`], of the folder that they are in.
pub(crate) fn links(writers: &Path, identity: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(writers) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut own = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(identity));
        if rest.is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".img")) {
            own.push(writers.join(&name));
        }
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    fn pools() -> Pools {
        Pools::from([("fast".to_owned(), PathBuf::from("/pool")), ("slow".to_owned(), PathBuf::from("/slow"))])
    }

    fn volume(handle: &str, attributes: &[(&str, &str)]) -> Volume {
        let attributes = attributes.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Volume { driver: crate::DRIVER.to_owned(), handle: handle.to_owned(), attributes, ..Volume::default() }
    }

    fn class(handle: &str, attributes: &[(&str, &str)]) -> Option<ErrorClass> {
        locate(&volume(handle, attributes), &pools()).err().map(|error| error.class)
    }

    #[test]
    fn the_pool_is_named_by_handle_or_attribute() {
        let provisioned = [
            ("pool", "fast"),
            ("format", "raw"),
            ("storage.kubernetes.io/csiProvisionerIdentity", "17-csi.metalplane.io"),
            ("csi.storage.k8s.io/pvc/name", "disk"),
            ("csi.storage.k8s.io/pvc/namespace", "team"),
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
        ];
        for (handle, attributes) in
            [("pvc-1", &provisioned[..]), ("fast/pvc-1", &provisioned[..]), ("fast/pvc-1", &[][..])]
        {
            let located = locate(&volume(handle, attributes), &pools()).expect(handle);
            assert_eq!(located.disk(), Path::new("/pool/volumes/pvc-1/disk.img"));
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let invalid = Some(ErrorClass::Invalid);
        assert_eq!(class("pvc-1", &[]), invalid, "no pool");
        assert_eq!(class("slow/pvc-1", &[("pool", "fast")]), invalid, "two pools");
        assert_eq!(class("fast/pvc-1", &[("format", "qcow2")]), invalid);
        assert_eq!(class("fast/pvc-1", &[("encrypted", "true")]), invalid);
        assert_eq!(class("fast/pvc-1", &[("Pool", "fast")]), invalid, "names are exact");
        assert_eq!(class("other/pvc-1", &[]), Some(ErrorClass::NotFound), "a pool that is not mounted here");
        let long = format!("fast/{}", "a".repeat(65));
        for handle in
            ["", "fast/", "fast/..", "fast/a/b", "../a", "fast/A", "fast/a.b", "fast/a\0", "/a", long.as_str()]
        {
            assert!(class(handle, &[("pool", "fast")]).is_some(), "{handle}");
        }
    }

    proptest! {
        #[test]
        fn no_handle_leaves_its_pool(handle in "(fast/)?[a-zA-Z0-9./\\\\\u{0}-]{0,70}", pool in "fast|slow|\\.\\./x") {
            if let Ok(located) = locate(&volume(&handle, &[("pool", &pool)]), &pools()) {
                let disk = located.disk();
                prop_assert!(disk.starts_with("/pool/volumes") || disk.starts_with("/slow/volumes"));
                prop_assert!(disk.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_))));
                prop_assert_eq!(disk.components().count(), 5);
            }
        }
    }
}
