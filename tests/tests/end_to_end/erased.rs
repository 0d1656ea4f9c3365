//! What is left of a server whose disks were erased: nothing on the disk, and a report at its Hardware.

use anyhow::{Context, Result, bail, ensure};
use api::labels;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use tests::sim::life::is_unclaimed;
use tests::site::{INVENTORY_NAMESPACE, Site};

/// Whether all of a disk is zero, as the virtual server's file has it.
pub fn is_zero(disk: &Path) -> Result<bool> {
    let (mut file, mut part) = (File::open(disk)?, vec![0; 1 << 20]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(true),
            length if part[..length].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Of `hardware`'s only disk; nothing else of the machine is left there.
pub async fn is_reported(site: &Site, hardware: &str, is_serial: impl Fn(&str) -> bool) -> Result<()> {
    let hardware = site.get(&["hardware", hardware, "-n", INVENTORY_NAMESPACE]).await?.unwrap_or_default();
    ensure!(is_unclaimed(&hardware), "something of the machine is left: {hardware}");
    let report = hardware["metadata"]["annotations"][labels::ERASE_REPORT].as_str().unwrap_or_default();
    let report: Value = serde_json::from_str(report).with_context(|| format!("no report: {hardware}"))?;
    let disks = report["disks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [erased] = disks else { bail!("the server has one disk: {report}") };
    let is_shown = erased["result"] == "Erased" && erased["method"] != Value::Null && erased["read"] != Value::Null;
    ensure!(report["result"] == "Erased" && is_shown, "{report}");
    ensure!(erased["serial"].as_str().is_some_and(is_serial), "{report}");
    eprintln!("erased: {report}");
    Ok(())
}
