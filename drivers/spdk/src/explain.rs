//! Why the target refused: most of `nvmf_*` says "Invalid parameters" and no more, so the state has to tell.

use crate::observed::Observed;
use ports::{ErrorClass, PortError};

/// Why a namespace was refused, if the state shows it.
pub(crate) fn refused_namespace(observed: &Observed, nsid: u32, name: &str) -> Option<PortError> {
    let error = |class, what: String| Some(PortError::new(class, format!("{name}: {what}")));
    if observed.subsystem().is_none() {
        return error(ErrorClass::Busy, "the target lost the host's subsystem meanwhile".to_owned());
    }
    let Some(bdev) = observed.bdev(name) else {
        return error(ErrorClass::NotFound, "the target lost the disk's bdev meanwhile".to_owned());
    };
    for ns in observed.namespaces() {
        if ns.nsid == nsid {
            return error(ErrorClass::Busy, format!("namespace {nsid} was given to {} meanwhile", ns.bdev_name));
        }
    }
    bdev.claimed.then(|| error(ErrorClass::Busy, "something else in the target has claimed it".to_owned())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::methods::{bdev::Bdev, nvmf::Subsystem};
    use serde_json::json;

    const NQN: &str = "nqn.2026-01.io.metalplane:host";

    fn observed(claimed: bool) -> Observed {
        let namespaces = json!([{"nsid": 3, "bdev_name": "mp-a-1", "uuid": ""}]);
        let subsystem: Subsystem =
            serde_json::from_value(json!({"nqn": NQN, "namespaces": namespaces})).expect("a subsystem");
        let bdev: Bdev = serde_json::from_value(json!({
            "name": "mp-b-1", "product_name": "AIO disk", "block_size": 512, "num_blocks": 8, "claimed": claimed,
        }))
        .expect("a bdev");
        Observed { subsystems: vec![subsystem], bdevs: vec![bdev], connected: false, nqn: NQN.to_owned() }
    }

    fn class(observed: &Observed, nsid: u32, name: &str) -> Option<ErrorClass> {
        refused_namespace(observed, nsid, name).map(|error| error.class)
    }

    #[test]
    fn the_state_tells() {
        assert_eq!(class(&observed(false), 4, "mp-b-1"), None, "nothing in the state is against it");
        assert_eq!(class(&observed(false), 3, "mp-b-1"), Some(ErrorClass::Busy), "the number was given away");
        assert_eq!(class(&observed(true), 4, "mp-b-1"), Some(ErrorClass::Busy), "claimed");
        assert_eq!(class(&observed(false), 4, "mp-c-1"), Some(ErrorClass::NotFound), "the bdev is gone");
        let lost = Observed { subsystems: Vec::new(), ..observed(false) };
        assert_eq!(class(&lost, 4, "mp-b-1"), Some(ErrorClass::Busy), "the target is another");
        let said = refused_namespace(&observed(false), 3, "mp-b-1").map(|error| error.message).unwrap_or_default();
        assert!(said.contains("mp-a-1"), "it names who has it: {said}");
    }
}
