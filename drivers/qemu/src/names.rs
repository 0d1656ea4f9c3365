//! What our functions are called inside QEMU. A device's id carries the whole identity, which is how a restarted agent
//! finds its own again; a NIC's back end also carries the representor, because QEMU has no typed query for it.

use planner::exposure::{ExposureId, FunctionKind};
use sha2::{Digest, Sha256};

fn prefix(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Disk => "disk",
        FunctionKind::Nic => "nic",
    }
}

/// `disk-<uid>-<epoch>` or `nic-<uid>-<epoch>`.
pub fn device(kind: FunctionKind, id: &ExposureId) -> String {
    format!("{}-{}-{}", prefix(kind), id.uid, id.epoch)
}

/// The inverse of [`device`]; `None` for what is not ours.
pub fn parse_device(name: &str) -> Option<(FunctionKind, ExposureId)> {
    let (kind, rest) = name.split_once('-')?;
    let kind = [FunctionKind::Disk, FunctionKind::Nic].into_iter().find(|k| prefix(*k) == kind)?;
    let (uid, epoch) = rest.rsplit_once('-')?;
    if uid.is_empty() {
        return None;
    }
    Some((kind, ExposureId { uid: uid.to_owned(), epoch: epoch.parse().ok()? }))
}

/// `n` and 15 hexadecimal digits: QEMU allows a node-name 31 bytes.
pub fn node(uid: &str) -> String {
    let digest = Sha256::digest(uid.as_bytes());
    digest.iter().take(8).fold(String::from("n"), |name, byte| name + &format!("{byte:02x}")).chars().take(16).collect()
}

pub fn is_node(name: &str) -> bool {
    name.len() == 16 && name.starts_with('n') && name[1..].bytes().all(|b| b.is_ascii_hexdigit())
}

/// The storage daemon's node of an image, by what tells images apart: `i` and 15 hexadecimal digits.
pub fn image(place: &[&str]) -> String {
    node(&place.join("\0")).replacen('n', "i", 1)
}

pub fn is_image(name: &str) -> bool {
    name.strip_prefix('i').is_some_and(|digits| is_node(&format!("n{digits}")))
}

/// `net-<uid>-<epoch>.<representor>`.
pub fn netdev(id: &ExposureId, representor: &str) -> String {
    format!("{}{representor}", netdev_prefix(id))
}

/// What the back ends of this NIC start with, whatever representor they have.
pub fn netdev_prefix(id: &ExposureId) -> String {
    format!("net-{}-{}.", id.uid, id.epoch)
}

/// The identity and the representor; `None` for what is not ours.
pub fn parse_netdev(name: &str) -> Option<(ExposureId, &str)> {
    let (identity, representor) = name.strip_prefix("net-")?.split_once('.')?;
    let (uid, epoch) = identity.rsplit_once('-')?;
    Some((ExposureId { uid: uid.to_owned(), epoch: epoch.parse().ok()? }, representor))
}

/// `link-<uid>-<epoch>`: the object that is there while the link of this NIC is up.
pub fn link(id: &ExposureId) -> String {
    format!("link-{}-{}", id.uid, id.epoch)
}

/// The inverse of [`link`]; `None` for what is not ours.
pub fn parse_link(name: &str) -> Option<ExposureId> {
    let (uid, epoch) = name.strip_prefix("link-")?.rsplit_once('-')?;
    Some(ExposureId { uid: uid.to_owned(), epoch: epoch.parse().ok()? })
}

/// QEMU takes letters, digits, `-`, `_` in ids; `.` is kept for [`netdev`].
pub fn is_valid_uid(uid: &str) -> bool {
    !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(uid: &str, epoch: u64) -> ExposureId {
        ExposureId { uid: uid.to_owned(), epoch }
    }

    #[test]
    fn device_names_are_read_back() {
        let disk = id("0b5c9a4e-9f0e-4f8e-8a53-6a1c6f0f8b11", 12);
        for kind in [FunctionKind::Disk, FunctionKind::Nic] {
            assert_eq!(parse_device(&device(kind, &disk)), Some((kind, disk.clone())));
        }
        for foreign in ["hp0", "boot", "disk--1", "disk-a-b", "usb-a-1", "disk-1"] {
            assert_eq!(parse_device(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn link_names_are_read_back() {
        let nic = id("0b5c9a4e-9f0e", 3);
        assert_eq!(parse_link(&link(&nic)), Some(nic));
        assert_eq!(["link-a", "pc.ram", "nic-a-1"].map(parse_link), [None, None, None]);
    }

    #[test]
    fn netdev_names_are_read_back() {
        let nic = id("0b5c9a4e-9f0e", 3);
        let name = netdev(&nic, "mp-1234.5");
        assert_eq!(parse_netdev(&name), Some((nic.clone(), "mp-1234.5")));
        assert!(name.starts_with(&netdev_prefix(&nic)));
        assert!(!netdev(&id("0b5c9a4e-9f0e", 33), "x").starts_with(&netdev_prefix(&nic)));
    }

    #[test]
    fn node_names_fit_and_are_recognised() {
        let name = node("0b5c9a4e-9f0e-4f8e-8a53-6a1c6f0f8b11");
        assert_eq!(name.len(), 16);
        assert!(is_node(&name));
        assert_ne!(name, node("0b5c9a4e-9f0e-4f8e-8a53-6a1c6f0f8b12"));
        assert!(!is_node("#block146") && !is_node("pflash0"));
    }

    #[test]
    fn images_have_nodes_of_their_own() {
        let name = image(&["c", "pool", "", "a"]);
        assert!(is_image(&name) && !is_node(&name) && !is_image(&node("a")), "{name}");
        assert_ne!(name, image(&["c", "poo", "l", "a"]));
    }
}
