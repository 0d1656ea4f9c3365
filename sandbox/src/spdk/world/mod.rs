//! What a fake target has, and what it answers. One file per part of SPDK.

mod bdevs;
mod dpu;
mod initiator;
mod lvols;
mod nvmf;
mod outside;
mod snap;
mod vhost;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use super::{INVALID_PARAMS, METHOD_NOT_FOUND, Refusal};
pub use bdevs::{Bdev, Kind};
pub use dpu::{Host, SerialName};
pub use initiator::Way;
pub use nvmf::Subsystem;
pub use vhost::Controller;

type Outcome = Result<Value, Refusal>;

/// The answer to a method of this part, or `None` where it is another's.
type Part = fn(&mut World, &str, &Value) -> Option<Outcome>;

const PARTS: &[Part] = &[bdevs::call, lvols::call, initiator::call, outside::call, vhost::call, snap::call, nvmf::call];

#[derive(Default)]
pub struct World {
    pub bdevs: BTreeMap<String, Bdev>,
    /// The bdev that each will stand on when it comes: no list of bdevs has them.
    pub waiting_raids: BTreeMap<String, String>,
    pub lvols: lvols::Lvols,
    pub nvmf: nvmf::Target,
    pub initiator: initiator::Initiator,
    pub vhost: BTreeMap<String, Controller>,
    /// The program is `nvmf_tgt`.
    pub lacks_vhost: bool,
    pub snap: snap::Snap,
    pub outside: outside::Outside,
    pub(super) violations: Vec<String>,
}

impl World {
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Outcome {
        if method == "spdk_get_version" {
            return Ok(json!({"version": "SPDK v26.05 (fake)"}));
        }
        self.look_outside();
        let outcome = PARTS.iter().find_map(|part| part(self, method, params));
        outcome.unwrap_or_else(|| Err((METHOD_NOT_FOUND, "Method not found".to_owned())))
    }

    /// The process has ended: all is forgotten but what is outside of it.
    pub(super) fn die(&mut self) {
        initiator::leave_all(self);
        let mut outside = std::mem::take(&mut self.outside);
        outside.forget();
        let lvols = std::mem::take(&mut self.lvols);
        *self = World { outside, ..World::default() };
        self.load_lvols(lvols);
    }

    /// The first byte of a bdev, where it is kept.
    pub(super) fn write(&mut self, bdev: &str, byte: u8) -> io::Result<bool> {
        self.look_outside();
        match self.bdev(bdev).map(|bdev| bdev.kind.clone()) {
            Some(Kind::Aio { file, readonly: false }) => {
                File::options().write(true).open(file)?.write_all_at(&[byte], 0).map(|()| true)
            }
            Some(Kind::Raid { bases }) => {
                let written = bases.first().map_or(Ok(false), |base| self.write(base, byte))?;
                if !written {
                    self.nvmf.waited_for.insert(bdev.to_owned());
                }
                Ok(written)
            }
            Some(Kind::Nvme { controller }) => initiator::write(self, &controller, bdev, byte),
            _ => Ok(false),
        }
    }

    /// What came, went and grew outside since the last call.
    fn look_outside(&mut self) {
        initiator::look(self);
        outside::look(self);
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
        -5 => "Input/output error",
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
