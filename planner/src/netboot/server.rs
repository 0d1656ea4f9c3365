//! Whether the server that asks is the one whose BMC the controller commands: by the SMBIOS UUID, which firmware sends (DHCP option 97)
//! and the BMC tells (Redfish's `ComputerSystem.UUID`). A MAC address that stands in another server's Hardware, or a `bmcRef` that is
//! another server's, would have the wrong disks written.

use super::{Subject, Verdict, Why};
use crate::meta::{annotation, name};
use api::labels::{FIRMWARE_UUID, SYSTEM_UUID};
use api::tinkerbell::Hardware;

/// The UUID that the firmware of this Hardware's server has to send: by an administrator's word, else by its BMC. `None`: nobody knows.
fn expected(hardware: &Hardware) -> Option<&str> {
    let meta = &hardware.metadata;
    annotation(meta, FIRMWARE_UUID).or_else(|| annotation(meta, SYSTEM_UUID))
}

/// Why this is another server; `None`: it is this one, or that cannot be told.
pub fn other_server(hardware: &Hardware, told: Option<&str>) -> Option<Why> {
    let (told, expected) = (told?, expected(hardware)?);
    let is_other = !is_same(told, expected)?;
    let hardware = name(&hardware.metadata).to_owned();
    is_other.then(|| Why::OtherServer { hardware, told: told.to_owned(), expected: expected.to_owned() })
}

/// Some BMCs write the first three fields in the other byte order: before SMBIOS 2.6 it was not said which one is meant (SMBIOS 2.6,
/// 7.2.1). `None`: one of them is no UUID.
fn is_same(one: &str, other: &str) -> Option<bool> {
    let (one, other) = (bytes(one)?, bytes(other)?);
    Some(one == other || one == swapped(other))
}

fn bytes(uuid: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = uuid.bytes().filter(|byte| *byte != b'-').collect();
    let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let bytes: [u8; 16] = pairs.collect::<Option<Vec<u8>>>()?.try_into().ok()?;
    let is_set = bytes.iter().any(|byte| *byte != 0) && bytes.iter().any(|byte| *byte != 0xff);
    is_set.then_some(bytes)
}

fn swapped(uuid: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = uuid;
    let mut other = [d, c, b, a, f, e, h, g, 0, 0, 0, 0, 0, 0, 0, 0];
    other[8..].copy_from_slice(&rest);
    other
}

impl Verdict {
    /// The same, for the server whose firmware sends this UUID: no other one boots.
    pub fn for_server(self, subject: &Subject<'_>, told: Option<&str>) -> Self {
        match other_server(subject.hardware, told) {
            Some(why) if self == Self::Boot => Self::AddressOnly(why),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TOLD: &str = "00112233-4455-6677-8899-aabbccddeeff";

    fn hardware(annotations: serde_json::Value) -> Hardware {
        let object = json!({"metadata": {"name": "hw", "annotations": annotations}, "spec": {}});
        serde_json::from_value(object).expect("a Hardware")
    }

    #[test]
    fn a_uuid_is_the_same_in_either_byte_order() {
        for bmcs in [TOLD, "00112233-4455-6677-8899-AABBCCDDEEFF", "33221100-5544-7766-8899-aabbccddeeff"] {
            assert_eq!(other_server(&hardware(json!({"metalplane.io/system-uuid": bmcs})), Some(TOLD)), None, "{bmcs}");
        }
        let other = hardware(json!({"metalplane.io/system-uuid": "00112233-4455-6677-8899-aabbccddeefe"}));
        let why = other_server(&other, Some(TOLD)).expect("another server");
        assert!(why.to_string().contains(TOLD), "{why}");
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        let other = || hardware(json!({"metalplane.io/system-uuid": "ff112233-4455-6677-8899-aabbccddeeff"}));
        assert_eq!(other_server(&other(), None), None);
        assert_eq!(other_server(&other(), Some("00000000-0000-0000-0000-000000000000")), None);
        assert_eq!(other_server(&hardware(json!({})), Some(TOLD)), None);
        for none in ["", "N/A", "0", "ffffffff-ffff-ffff-ffff-ffffffffffff"] {
            assert_eq!(other_server(&hardware(json!({"metalplane.io/system-uuid": none})), Some(TOLD)), None, "{none}");
        }
        let said = hardware(
            json!({"metalplane.io/system-uuid": "ff112233-4455-6677-8899-aabbccddeeff", "metalplane.io/firmware-uuid": TOLD}),
        );
        assert_eq!(other_server(&said, Some(TOLD)), None, "an administrator's word stands above the BMC's");
    }
}
