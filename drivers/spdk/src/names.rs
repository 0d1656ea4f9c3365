//! What is ours inside the target, and whose it is. A bdev's name carries the whole identity: it is what a restarted
//! agent finds its own by, since a namespace names its bdev.

use planner::exposure::{ExposureId, Slot};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Namespace IDs of the fixed slots; hot-plugged disks follow.
pub const BOOT_NSID: u32 = 1;
pub const SEED_NSID: u32 = 2;
pub const FIRST_HOT_PLUG_NSID: u32 = 3;

/// `mp-<uid>-<epoch>`.
pub fn bdev(id: &ExposureId) -> String {
    format!("mp-{}-{}", id.uid, id.epoch)
}

/// The inverse of [`bdev`]; `None` for what is not ours.
pub fn parse_bdev(name: &str) -> Option<ExposureId> {
    parse(name.strip_prefix("mp-")?)
}

/// `mpc-<uid>-<epoch>`: whose connections they are.
pub fn client(id: &ExposureId) -> String {
    format!("mpc-{}-{}", id.uid, id.epoch)
}

/// `mpc-<uid>-<epoch>.<8 hexadecimal digits>`: what a connection is called in the target, under which the disk's bdev
/// stands. Another name each time: the target may end a request long after whoever sent it has given up, and what was
/// sent for one connection must not find another.
pub fn connection(id: &ExposureId) -> String {
    let (attempt, ..) = Uuid::new_v4().as_fields();
    format!("{}.{attempt:08x}", client(id))
}

/// Whose a [`connection`] is; `None`: it is not ours. An agent before this one may have made it, without the digits.
pub fn parse_connection(name: &str) -> Option<ExposureId> {
    let rest = name.strip_prefix("mpc-")?;
    let Some((client, attempt)) = rest.rsplit_once('.') else { return parse(rest) };
    let is_attempt = attempt.len() == 8 && attempt.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_attempt.then(|| parse(client)).flatten()
}

/// `mpw-<uid>-<epoch>`: the controller by which an import writes what is connected.
pub fn writer(id: &ExposureId) -> String {
    format!("mpw-{}-{}", id.uid, id.epoch)
}

/// The inverse of [`writer`]; `None` for what is not ours.
pub fn parse_writer(name: &str) -> Option<ExposureId> {
    parse(name.strip_prefix("mpw-")?)
}

fn parse(rest: &str) -> Option<ExposureId> {
    let (uid, epoch) = rest.rsplit_once('-')?;
    is_valid_uid(uid).then_some(())?;
    Some(ExposureId { uid: uid.to_owned(), epoch: epoch.parse().ok()? })
}

/// Letters, digits, `-` and `_`: nothing that SPDK reads as part of a path, as `lvs/volume`.
pub fn is_valid_uid(uid: &str) -> bool {
    !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// The slot's own EUI-64, as 16 hexadecimal digits: a UEFI boot path holds it beside the NSID, and must stay true when
/// another volume takes the slot. Locally administered.
pub fn eui64(nqn: &str, slot: Slot) -> Option<String> {
    let slot = match slot {
        Slot::Boot => "boot",
        Slot::Seed => "seed",
        Slot::HotPlug => return None,
    };
    let digest = Sha256::digest(format!("{nqn}/{slot}").as_bytes());
    let hex: String = digest.iter().skip(1).take(7).map(|byte| format!("{byte:02X}")).collect();
    Some(format!("02{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bdev_names_are_read_back() {
        let id = ExposureId { uid: "0b5c9a4e-9f0e-4f8e-8a53-6a1c6f0f8b11".to_owned(), epoch: 12 };
        assert_eq!(parse_bdev(&bdev(&id)), Some(id.clone()));
        for foreign in ["Malloc0", "mp--1", "mp-a-b", "lvs/mp", "mp-1"] {
            assert_eq!(parse_bdev(foreign), None, "{foreign}");
        }
        assert_eq!(parse_connection(&connection(&id)), Some(id.clone()));
        assert_eq!(
            (parse_bdev(&connection(&id)), parse_connection(&bdev(&id))),
            (None, None),
            "never one for the other"
        );
        assert_ne!(connection(&id), connection(&id), "another one each time");
        assert_eq!(parse_connection(&client(&id)), Some(id), "of an agent before this one");
        assert_eq!(parse_connection("mpc-a-1.more"), None);
    }

    #[test]
    fn names_are_short_enough() {
        // Of a RAID: RAID_BDEV_SB_NAME_SIZE with its end.
        const LONGEST: usize = 63;
        let id = ExposureId { uid: Uuid::nil().to_string(), epoch: 999_999_999_999 };
        for name in [bdev(&id), connection(&id), writer(&id)] {
            assert!(name.len() <= LONGEST, "{name}");
        }
    }

    #[test]
    fn a_slot_keeps_its_address() {
        let boot = eui64("nqn.2026-01.io.metalplane:host", Slot::Boot).expect("a fixed slot");
        assert_eq!(boot, eui64("nqn.2026-01.io.metalplane:host", Slot::Boot).expect("again"));
        assert_eq!(boot.len(), 16);
        assert_ne!(Some(boot), eui64("nqn.2026-01.io.metalplane:host", Slot::Seed));
        assert_eq!(eui64("nqn", Slot::HotPlug), None);
    }
}
