//! What is Tinkerbell's own, beside sprig's.

use super::convert::int;
use super::{Function, bounded, fault, function, str_of, string};
use crate::workflow::functions::json::{Layout, encode};
use crate::workflow::values::floats;
use gotmpl::{Result, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("toYaml", "a", |a| {
        let json: serde_json::Value = serde_json::from_str(&encode(&a[0], Layout::Raw)?).map_err(|_| no_yaml())?;
        let yaml = serde_saphyr::to_string(&json).map_err(|_| no_yaml())?;
        bounded(yaml.trim_end())
    }),
    function("fromYaml", "s", |a| {
        let all = str_of(&a[0]);
        if all.trim().is_empty() {
            return Err(fault("fromYaml: the text is empty"));
        }
        let json: serde_json::Value = serde_saphyr::from_str(all).map_err(|_| fault("fromYaml: this is no YAML"))?;
        Ok(floats(&json))
    }),
    function("formatPartition", "sa", |a| Ok(string(&partition(str_of(&a[0]), int(&a[1]))))),
    function("netmaskToPrefixLength", "s", prefix_length),
];

fn no_yaml() -> gotmpl::TemplateError {
    fault("toYaml: this has no YAML")
}

/// `/dev/sda` and 1 are `/dev/sda1`, `/dev/nvme0n1` and 1 are `/dev/nvme0n1p1`, `/dev/disk/by-id/x` and 1 are `…/x-part1`.
fn partition(device: &str, number: i64) -> String {
    if device.starts_with("/dev/disk/") {
        format!("{device}-part{number}")
    } else if device.ends_with(|last: char| last.is_ascii_digit()) {
        format!("{device}p{number}")
    } else {
        format!("{device}{number}")
    }
}

fn prefix_length(a: &[Value]) -> Result<Value> {
    let mask: std::net::Ipv4Addr =
        str_of(&a[0]).parse().map_err(|_| fault("netmaskToPrefixLength: this is no netmask"))?;
    let bits = u32::from(mask);
    match bits.leading_ones() + bits.trailing_zeros() {
        32 => Ok(string(&bits.leading_ones().to_string())),
        _ => Err(fault("netmaskToPrefixLength: the ones of this netmask are not in one piece")),
    }
}
