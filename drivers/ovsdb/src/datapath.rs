//! Which type an Interface for a representor needs. A wrong one gives an Interface with `error` set, or one that nothing passes.
//!
//! - Open vSwitch with DOCA (`other_config:doca-init`) has its hardware's ports by DPDK: in a bridge of its user-space datapath the type is `dpdk`.
//! - The kernel's datapath, offloaded or not, takes network devices as they are; so does a user-space datapath without DOCA, packet by packet.

use crate::cache::Cache;
use crate::value::{Row, Value};

const USER_SPACE: &str = "netdev";

/// `None`: the system's own. By Open vSwitch's record, for nothing else says how it was started.
pub(crate) fn interface_type(cache: &Cache, bridge: &Row) -> Option<&'static str> {
    let datapath = bridge.get("datapath_type").and_then(Value::as_str).unwrap_or_default();
    let config = cache.rows("Open_vSwitch").find_map(|(_, row)| row.get("other_config"));
    let doca =
        config.and_then(|config| config.get("doca-init")).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    (datapath == USER_SPACE && doca).then_some("dpdk")
}
