//! The link of a NIC: `set_link`, and what tells which way it was set.
//!
//! `set_link` on the back end takes the device's link along; while the back end's is down, nothing passes in either direction,
//! whatever the device is told. QEMU 7.2 to 10 have no command that reads it, so an object of ours, which does nothing, is there
//! for as long as the link is up: it lives and ends with the NIC's QEMU, as the link does. The object comes after the link has
//! gone up and goes after the link has gone down. Interrupted in between, a NIC is listed as it was before, and the same
//! call comes again.

use crate::{Inner, names};
use planner::exposure::ExposureId;
use ports::PortError;
use serde_json::json;

/// Needs nothing, has no thread and no file.
const OBJECT: &str = "rng-builtin";

impl Inner {
    /// `name`: a back end or a device.
    pub(crate) async fn set_link(&self, name: &str, up: bool, object: &str) -> Result<(), PortError> {
        self.command("set_link", json!({"name": name, "up": up}), object).await
    }

    pub(crate) async fn note_link(&self, id: &ExposureId, up: bool, object: &str) -> Result<(), PortError> {
        let name = names::link(id);
        match up {
            true => self.command("object-add", json!({"qom-type": OBJECT, "id": name}), object).await,
            false => self.command("object-del", json!({"id": name}), object).await,
        }
    }
}
