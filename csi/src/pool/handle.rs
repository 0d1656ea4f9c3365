//! Volume handles and snapshot ids: file names, `[a-z0-9-]{1,64}`, a hash of the name that the caller chose.

use sha2::{Digest, Sha256};
use std::fmt::{self, Write};

/// A volume's handle or a snapshot's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(String);

impl Handle {
    pub fn of_volume(name: &str) -> Handle {
        Handle::hashed("vol-", name)
    }

    pub fn of_snapshot(name: &str) -> Handle {
        Handle::hashed("snap-", name)
    }

    pub fn of_group(name: &str) -> Handle {
        Handle::hashed("group-", name)
    }

    /// The snapshot of one volume in a group. A handle has no zero byte, so no two pairs are the same text.
    pub fn of_member(group: &str, volume: &Handle) -> Handle {
        Handle::hashed("snap-", &format!("{volume}\0{group}"))
    }

    /// `None` for what cannot be a handle of ours, so that no request names a path outside the pool.
    pub fn parse(text: &str) -> Option<Handle> {
        let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        ((1..=64).contains(&text.len()) && text.bytes().all(known)).then(|| Handle(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// 128 bits of the hash: no two names will meet, and the record beside the image holds the whole name to prove it.
    fn hashed(prefix: &str, name: &str) -> Handle {
        let mut text = String::from(prefix);
        for byte in &Sha256::digest(name.as_bytes())[..16] {
            write!(text, "{byte:02x}").expect("writing to a String");
        }
        Handle(text)
    }
}

/// 8 digits that tell the names of one thing apart.
pub(super) fn short(name: &str) -> String {
    Sha256::digest(name.as_bytes())[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Handle;

    #[test]
    fn a_name_always_gives_the_same_handle_of_the_promised_form() {
        for name in ["pvc-1", &"x".repeat(128), "Größe/../..", ""] {
            let handle = Handle::of_volume(name);
            assert_eq!(handle, Handle::of_volume(name));
            assert_eq!(Handle::parse(handle.as_str()), Some(handle.clone()));
            assert_ne!(handle, Handle::of_snapshot(name));
            let group = Handle::of_group(name);
            assert_eq!(Handle::parse(group.as_str()), Some(group));
            assert_ne!(Handle::of_member(name, &handle), Handle::of_member("other", &handle));
        }
        assert_ne!(Handle::of_volume("pvc-1"), Handle::of_volume("pvc-2"));
    }

    #[test]
    fn no_handle_leaves_the_pool() {
        for text in ["", "..", ".", "a/b", "../x", "A", "a_b", ".tmp-vol", &"a".repeat(65)] {
            assert_eq!(Handle::parse(text), None, "{text}");
        }
    }
}
