//! What a runtime is told after ADD: what the plugins before said, and our interfaces behind it.
//!
//! Behind another plugin, addresses and routes of ours are not told. At CHECK every plugin of a list is given the whole result, and the
//! reference plugins (ptp, bridge, macvlan) look for every address of it on the one interface that they made: they would call a
//! sandbox broken that is not. CRI-O calls CHECK for each pod.

use crate::error::Error;
use proto::interfaces::v1alpha1::Interface;
use serde_json::{Value, json};

pub(crate) const NEWEST: &str = "1.1.0";
pub(crate) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", NEWEST];

pub(crate) fn versions() -> String {
    format!("{}\n", json!({"cniVersion": NEWEST, "supportedVersions": VERSIONS}))
}

/// As the runtime gave it.
pub(crate) fn unchanged(previous: &Value) -> String {
    format!("{previous}\n")
}

/// Nothing was said before.
pub(crate) fn none(version: &str) -> Value {
    json!({"cniVersion": version})
}

/// In the version of the configuration.
pub(crate) fn behind(
    mut previous: Value,
    version: &str,
    netns: &str,
    interfaces: &[Interface],
) -> Result<String, Error> {
    let result = members(&mut previous)?;
    for interface in interfaces {
        list(result, "interfaces")?.push(told(interface, version, netns));
    }
    Ok(format!("{previous}\n"))
}

/// The same with addresses and routes.
pub(crate) fn own(mut previous: Value, version: &str, netns: &str, interfaces: &[Interface]) -> Result<String, Error> {
    let result = members(&mut previous)?;
    for interface in interfaces {
        let index = list(result, "interfaces")?.len();
        list(result, "interfaces")?.push(told(interface, version, netns));
        for address in &interface.addresses {
            let mut told = json!({"address": address, "interface": index});
            // Left out since 1.0.0.
            if version.starts_with('0') {
                told["version"] = json!(if address.contains(':') { "6" } else { "4" });
            }
            list(result, "ips")?.push(told);
        }
        for route in &interface.routes {
            list(result, "routes")?.push(json!({"dst": route.destination, "gw": route.gateway}));
        }
    }
    Ok(format!("{previous}\n"))
}

fn told(interface: &Interface, version: &str, netns: &str) -> Value {
    let mut told = json!({"name": interface.name, "mac": interface.mac_address, "sandbox": netns});
    if version == NEWEST {
        told["mtu"] = json!(interface.mtu);
    }
    told
}

fn members(previous: &mut Value) -> Result<&mut serde_json::Map<String, Value>, Error> {
    previous.as_object_mut().ok_or_else(|| Error::invalid("prevResult is no JSON object"))
}

fn list<'a>(result: &'a mut serde_json::Map<String, Value>, member: &str) -> Result<&'a mut Vec<Value>, Error> {
    let member_of = result.entry(member).or_insert_with(|| json!([]));
    if member_of.is_null() {
        *member_of = json!([]);
    }
    member_of.as_array_mut().ok_or_else(|| Error::invalid(format!("prevResult.{member} is no list")))
}
