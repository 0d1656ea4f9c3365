//! The BMC before a judge: DMTF's Redfish service validator, with the schemas that the Redfish driver is made from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Server, skip};

/// The folder of the judge's programs, made once.
fn programs() -> Result<PathBuf, String> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools");
    let made = Command::new(tools.join("python.sh")).arg(tools.join("python/redfish-service-validator.txt")).output();
    let made = made.map_err(|error| format!("tools/python.sh: {error}"))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        return Err(format!("no validator: {}", said.lines().last().unwrap_or_default()));
    }
    Ok(Path::new(String::from_utf8_lossy(&made.stdout).trim()).join("bin"))
}

/// The CSDL files inside the crate `nv-redfish-schema`, which cargo has unpacked for the driver.
fn schemas() -> Option<PathBuf> {
    let home = std::env::home_dir()?.join(".cargo");
    let cargo = std::env::var_os("CARGO_HOME").map_or(home, PathBuf::from);
    let registries = fs::read_dir(cargo.join("registry/src")).ok()?;
    let crates = registries.flatten().filter_map(|registry| fs::read_dir(registry.path()).ok()).flatten().flatten();
    let mut found: Vec<PathBuf> = crates
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("nv-redfish-schema-"))
        .map(|entry| entry.path().join("redfish-csdl/csdl"))
        .filter(|folder| folder.is_dir())
        .collect();
    found.sort();
    found.pop()
}

#[test]
fn the_redfish_service_validator_finds_nothing() {
    const TEST: &str = "the_redfish_service_validator_finds_nothing";
    let Some(schemas) = schemas() else { return skip(TEST, "no crate nv-redfish-schema in cargo's registry") };
    let programs = match programs() {
        Ok(programs) => programs,
        Err(reason) => return skip(TEST, &reason),
    };
    for (personality, authentication) in [("standby", "Basic"), ("local-disk", "Session")] {
        let server = Server::start(personality, |folder| json!({ "localDisk": folder.join("local.raw") }));
        let address = fs::read_to_string(server.path("ready")).expect("the BMC's address");
        let output = Command::new(programs.join("rf_service_validator"))
            .args(["--rhost", address.trim(), "--user", "admin", "--password", "s3cret", "--authtype", authentication])
            .arg("--schema_directory")
            .arg(&schemas)
            .arg("--skipschema")
            .arg("--logdir")
            .arg(server.path("judge"))
            .stdin(Stdio::null())
            .output()
            .expect("start the validator");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{personality}: {}\n{said}", output.status);
        let counts = said.lines().skip_while(|line| !line.contains("PASS")).nth(2).unwrap_or_default();
        let counts: Vec<u32> = counts.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        let [passed, warned, failed, _] = counts[..] else { panic!("{personality}: no verdict in\n{said}") };
        assert!(passed > 150 && warned == 0 && failed == 0, "{personality}: {counts:?}\n{said}");
    }
}
