//! Every name that is derived from a UID, in one place.
//!
//! The full UID goes where there is room; what has less room gets a hash of it. Two sizes matter: an NVMe serial number
//! (20 bytes, NVM Express Base Specification 2.0, figure 275) and a network device's name (15 bytes, IFNAMSIZ - 1).

use sha2::{Digest, Sha256};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz"; // Crockford's base 32, lower case

/// The first `length` base 32 digits of SHA-256 over `input`: 5 bits each.
pub fn short(input: &str, length: usize) -> String {
    let digest = Sha256::digest(input.as_bytes());
    let bit = |i: usize| (digest[i / 8] >> (7 - i % 8)) & 1;
    (0..length.min(51))
        .map(|digit| {
            let value = (0..5).fold(0u8, |value, i| value << 1 | bit(digit * 5 + i));
            char::from(ALPHABET[usize::from(value)])
        })
        .collect()
}

/// The first 64 bits of SHA-256 over `input`, to sort by.
pub fn place(input: &str) -> u64 {
    let digest = Sha256::digest(input.as_bytes());
    digest.iter().take(8).fold(0, |place, byte| place << 8 | u64::from(*byte))
}

/// A disk's serial number: 20 bytes, of which 90 bits are hash.
pub fn serial(volume_uid: &str) -> String {
    format!("MP{}", short(volume_uid, 18).to_ascii_uppercase())
}

/// The serial number of the NVMe controller that a DPU presents in the boot slot: the same for every machine, so that the
/// firmware's boot option stays. By the Dpu's name, which its agent knows before it has seen the API server.
pub fn boot_serial(dpu_name: &str) -> String {
    serial(dpu_name)
}

/// A representor's name: 15 bytes, of which 65 bits are hash.
pub fn representor(attachment_uid: &str) -> String {
    format!("mp{}", short(attachment_uid, 13))
}

/// A locally administered unicast MAC address (IEEE 802-2014, 8.4), for a VNic that names none. `attempt`: how many before it are
/// taken in the Subnet.
pub fn mac(vnic_uid: &str, attempt: u32) -> String {
    let digest = match attempt {
        0 => Sha256::digest(vnic_uid.as_bytes()),
        _ => Sha256::digest(format!("{vnic_uid}/{attempt}").as_bytes()),
    };
    format!("02:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", digest[0], digest[1], digest[2], digest[3], digest[4])
}

/// From which an IPv6 address is made, for a VNic that asks for none.
pub fn bits(vnic_uid: &str, attempt: u32) -> u128 {
    let digest = Sha256::digest(format!("{vnic_uid}/ipv6/{attempt}").as_bytes());
    digest[..16].iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

/// The name of the [`crate::VolumeHold`] of a volume: cluster-wide, one per driver and handle.
pub fn hold(driver: &str, volume_handle: &str) -> String {
    format!("vh-{}", short(&format!("{driver}\n{volume_handle}"), 32))
}

/// The name of the [`crate::AddressHold`] of an address or a MAC address: cluster-wide, one per network and address, however that
/// is written. `network`: the UID of the Subnet, or what names the VLAN that the Subnet is on.
pub fn address_hold(network: &str, address: &str) -> String {
    format!("ah-{}", short(&format!("{network}\n{}", crate::network::canonical(address)), 32))
}

/// The Workflow by which a machine's server is erased, and its Template.
pub fn erase(machine_uid: &str, number: u32) -> String {
    format!("erase-{}-{number}", short(machine_uid, 12))
}

/// The Workflow of a machine's installation, and the copy of the Template that it runs.
pub fn install(machine_uid: &str, number: u32) -> String {
    format!("install-{}-{number}", short(machine_uid, 12))
}

/// A DPU's own namespace. Shortened with a hash where the plain name is no DNS label (RFC 1123, 63 bytes).
pub fn dpu_namespace(dpu_name: &str) -> String {
    label("metalplane-dpu-", dpu_name)
}

/// The claim of a disk that a machine owns.
pub fn claim(machine: &str, disk: &str) -> String {
    subdomain(&format!("{machine}-{disk}"))
}

/// The VNic that an interface with a subnet gets.
pub fn vnic(machine: &str, interface: &str) -> String {
    subdomain(&format!("{machine}-{interface}"))
}

/// The MachineMigration of a machine whose server is in maintenance: `occasion` is one of its kind.
pub fn migration(machine: &str, occasion: &str) -> String {
    subdomain(&format!("{machine}-{}", short(occasion, 10)))
}

/// An attachment's name: unique in the DPU's namespace over all machines of all namespaces.
pub fn attachment(machine_uid: &str, machine: &str, part: &str) -> String {
    let readable: String = format!("{machine}-{part}").chars().take(40).collect();
    format!(
        "{}-{}",
        readable.trim_end_matches(['-', '.']).replace('.', "-"),
        short(&format!("{machine_uid}/{part}"), 10)
    )
}

/// Whether an attachment of this name is for that part of the machine, whatever the machine is called.
pub fn is_attachment(attachment: &str, machine_uid: &str, part: &str) -> bool {
    attachment.ends_with(&format!("-{}", short(&format!("{machine_uid}/{part}"), 10)))
}

/// The VolumeAttachment that keeps a natively connected PersistentVolume from being deleted.
pub fn volume_attachment(claim_uid: &str) -> String {
    format!("metalplane-{claim_uid}")
}

/// The pod by which kubelet connects the volume of this attachment.
pub fn holder_pod(attachment_uid: &str) -> String {
    format!("metalplane-holder-{}", short(attachment_uid, 16))
}

fn label(prefix: &str, name: &str) -> String {
    let plain = format!("{prefix}{name}");
    if plain.len() <= 63 && !name.contains('.') {
        return plain;
    }
    let readable: String = name.replace('.', "-").chars().take(63 - prefix.len() - 11).collect();
    format!("{prefix}{}-{}", readable.trim_end_matches('-'), short(name, 10))
}

fn subdomain(name: &str) -> String {
    if name.len() <= 253 {
        return name.to_owned();
    }
    let readable: String = name.chars().take(253 - 11).collect();
    format!("{readable}-{}", short(name, 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn short_names_do_not_collide_over_a_million_uids() {
        let mut serials = HashSet::with_capacity(1_000_000);
        let mut representors = HashSet::with_capacity(1_000_000);
        for i in 0..1_000_000u32 {
            let uid = format!("0d7e1f52-0000-4000-8000-{i:012x}");
            assert!(serials.insert(serial(&uid)), "serial of {uid} collides");
            assert!(representors.insert(representor(&uid)), "representor of {uid} collides");
        }
    }

    #[test]
    fn an_address_has_one_hold_in_a_subnet_however_it_is_written() {
        assert_eq!(address_hold("s", "fd00::7"), address_hold("s", "FD00:0:0:0:0:0:0:7"));
        assert_ne!(address_hold("s", "fd00::7"), address_hold("t", "fd00::7"));
        assert_ne!(address_hold("s", "10.0.0.1"), address_hold("s", "10.0.0.11"));
    }

    #[test]
    fn names_fit_where_they_go() {
        assert_eq!(serial("a").len(), 20);
        assert_eq!(representor("a").len(), 15);
        assert!(
            boot_serial("dpu-1").bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "one word in a boot option's name"
        );
        assert_eq!(dpu_namespace("rack1-u07"), "metalplane-dpu-rack1-u07");
        let long = dpu_namespace(&"node.example.".repeat(12));
        assert!(long.len() <= 63 && !long.contains('.'), "{long}");
        assert_ne!(dpu_namespace("a.b"), dpu_namespace("a-b"));
    }
}
