//! What a fake target has, and what it answers. One file per part of SPDK.

mod bdevs;
mod nvmf;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{INVALID_PARAMS, METHOD_NOT_FOUND, Refusal};
pub use bdevs::{Bdev, Kind};
pub use nvmf::Subsystem;

type Outcome = Result<Value, Refusal>;

/// The answer to a method of this part, or `None` where it is another's.
type Part = fn(&mut World, &str, &Value) -> Option<Outcome>;

const PARTS: &[Part] = &[bdevs::call, nvmf::call];

#[derive(Default)]
pub struct World {
    pub bdevs: BTreeMap<String, Bdev>,
    pub nvmf: nvmf::Target,
    pub(super) violations: Vec<String>,
}

impl World {
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Outcome {
        if method == "spdk_get_version" {
            return Ok(json!({"version": "SPDK v26.05 (fake)"}));
        }
        let outcome = PARTS.iter().find_map(|part| part(self, method, params));
        outcome.unwrap_or_else(|| Err((METHOD_NOT_FOUND, "Method not found".to_owned())))
    }

    /// SPDK takes it and harm is done.
    fn harmful(&mut self, what: String) {
        self.violations.push(what);
    }
}

/// A parameter that is text.
fn text<'a>(params: &'a Value, name: &str) -> &'a str {
    params[name].as_str().unwrap_or_default()
}

/// What most of `nvmf_*` answers, whatever the reason.
fn invalid() -> Outcome {
    Err((INVALID_PARAMS, "Invalid parameters".to_owned()))
}

fn errno(code: i64) -> Outcome {
    let message = match code {
        -1 => "Operation not permitted",
        -2 => "No such file or directory",
        -16 => "Device or resource busy",
        -17 => "File exists",
        -19 => "No such device",
        -22 => "Invalid argument",
        -28 => "No space left on device",
        _ => "Unknown error",
    };
    Err((code, message.to_owned()))
}
