//! What is written into the firmware's variables between two runs of QEMU: that the next start enters the setup (UEFI 2.10
//! section 8.5.4, `OsIndications`). OVMF takes it back when it does.
//!
//! The file is a firmware volume with EDK2's variable store: headers of authenticated variables, one after another, each aligned to 4
//! bytes (`MdeModulePkg/Include/Guid/VariableFormat.h`).

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// Of the store, in the form in which GUIDs are stored: aaf32c78-947b-439a-a180-2e144ec37792.
const STORE: [u8; 16] =
    [0x78, 0x2c, 0xf3, 0xaa, 0x7b, 0x94, 0x9a, 0x43, 0xa1, 0x80, 0x2e, 0x14, 0x4e, 0xc3, 0x77, 0x92];
/// Of UEFI's own variables: 8be4df61-93ca-11d2-aa0d-00e098032b8c.
const GLOBAL: [u8; 16] =
    [0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c];
const NAME: &str = "OsIndications";
/// EFI_OS_INDICATIONS_BOOT_TO_FW_UI.
const TO_SETUP: u64 = 1;
/// Kept, readable by the firmware and by systems.
const ATTRIBUTES: u32 = 7;

/// Where the length of a firmware volume's header stands.
const VOLUME_HEADER: usize = 48;
const STORE_HEADER: usize = 28;
const VARIABLE_HEADER: usize = 60;
const BEGINS: u16 = 0x55aa;
const ADDED: u8 = 0x3f;
/// Without this bit of its state a variable is deleted.
const DELETED: u8 = 0x02;

/// The next start of the host enters the setup, once.
pub fn enter_setup(variables: &Path) -> Result<()> {
    let what = || format!("the firmware's variables {}", variables.display());
    let mut bytes = fs::read(variables).with_context(what)?;
    request_setup(&mut bytes).with_context(what)?;
    fs::write(variables, bytes).with_context(what)
}

fn request_setup(volume: &mut [u8]) -> Result<()> {
    let store = usize::from(u16::from_le_bytes(array(volume, VOLUME_HEADER)?));
    ensure!(array(volume, store)? == STORE, "there is no store of authenticated variables");
    let end = store + usize::try_from(u32::from_le_bytes(array(volume, store + 16)?)).context("its size")?;
    let name: Vec<u8> = NAME.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    let mut at = store + STORE_HEADER;
    while u16::from_le_bytes(array(volume, at)?) == BEGINS {
        let size = |field: usize| -> Result<usize> { Ok(u32::from_le_bytes(array(volume, at + field)?).try_into()?) };
        let (name_size, data_size) = (size(36)?, size(40)?);
        let is_same = volume.get(at + VARIABLE_HEADER..at + VARIABLE_HEADER + name_size) == Some(&name);
        if is_same && array(volume, at + 44)? == GLOBAL && volume[at + 2] == ADDED {
            volume[at + 2] &= !DELETED;
        }
        at = (at + VARIABLE_HEADER + name_size + data_size).next_multiple_of(4);
    }
    let data = TO_SETUP.to_le_bytes();
    let mut variable = vec![0; VARIABLE_HEADER];
    variable[..2].copy_from_slice(&BEGINS.to_le_bytes());
    variable[2] = ADDED;
    variable[4..8].copy_from_slice(&ATTRIBUTES.to_le_bytes());
    variable[36..40].copy_from_slice(&u32::try_from(name.len()).context("the name")?.to_le_bytes());
    variable[40..44].copy_from_slice(&u32::try_from(data.len()).context("the data")?.to_le_bytes());
    variable[44..60].copy_from_slice(&GLOBAL);
    variable.extend([name.as_slice(), &data].concat());
    ensure!(at + variable.len() <= end, "the store is full");
    volume[at..at + variable.len()].copy_from_slice(&variable);
    Ok(())
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().with_context(|| format!("it ends before byte {}", at + N))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume with an empty store.
    fn volume(size: u32) -> Vec<u8> {
        let mut volume = vec![0; 72];
        volume[VOLUME_HEADER] = 72;
        volume.extend(STORE);
        volume.extend(size.to_le_bytes());
        volume.extend([0; 8]);
        volume.resize(72 + usize::try_from(size).expect("small"), 0xff);
        volume
    }

    fn states(volume: &[u8]) -> Vec<u8> {
        let entry = (VARIABLE_HEADER + 28 + 8).next_multiple_of(4);
        volume[72 + STORE_HEADER..].chunks(entry).take_while(|e| e[..2] == BEGINS.to_le_bytes()).map(|e| e[2]).collect()
    }

    #[test]
    fn a_new_request_takes_the_place_of_an_old_one() {
        let mut volume = volume(1024);
        request_setup(&mut volume).expect("there is room");
        request_setup(&mut volume).expect("there is room");
        assert_eq!(states(&volume), [ADDED & !DELETED, ADDED]);
    }

    #[test]
    fn a_full_store_and_another_file_are_refused() {
        let mut full = volume(100);
        assert!(request_setup(&mut full).is_err_and(|e| e.to_string().contains("full")));
        assert!(request_setup(&mut [0; 128]).is_err_and(|e| e.to_string().contains("no store")));
        assert!(request_setup(&mut []).is_err());
    }
}
