//! The transition rules of the CRDs that fencing rests on, by hand: what they say in CEL is in `api/src/{hold,attachment}.rs`.

use serde_json::Value;

/// Why the API server refuses this change.
pub fn refuse(resource: &str, old: &Value, new: &Value) -> Option<String> {
    let (old, new) = (&old["spec"], &new["spec"]);
    match resource {
        "metalplane.io/volumeholds" => hold(old, new),
        "metalplane.io/diskattachments" => attachment(old, new, &["size", "qos", "grant", "holderPodUID", "release"]),
        "metalplane.io/nicattachments" => {
            attachment(old, new, &["addresses", "mtu", "logicalPort", "grant", "release"])
        }
        _ => None,
    }
}

fn hold(old: &Value, new: &Value) -> Option<String> {
    if ["driver", "volumeHandle"].iter().any(|key| old[key] != new[key]) {
        return Some("the volume of a hold is immutable".to_owned());
    }
    let epoch = |spec: &Value| spec["epoch"].as_u64().unwrap_or_default();
    if epoch(new) < epoch(old) {
        return Some("epoch only grows".to_owned());
    }
    let (from, to) = (&old["holder"], &new["holder"]);
    let passes = to.is_null() || from == to || (from.is_null() && epoch(new) > epoch(old));
    (!passes).then(|| "a hold passes to another holder only through an empty hold, with a larger epoch".to_owned())
}

fn attachment(old: &Value, new: &Value, may_change: &[&str]) -> Option<String> {
    let keys = |spec: &Value| spec.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    for key in keys(old).into_iter().chain(keys(new)) {
        if !may_change.contains(&key.as_str()) && old[&key] != new[&key] {
            return Some(format!("spec is immutable but for {}: {key}", may_change.join(", ")));
        }
    }
    if !old["grant"].is_null() && old["grant"] != new["grant"] {
        return Some("grant is set once".to_owned());
    }
    if old["release"] == true && new["release"] != true {
        return Some("release is set once".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::refuse;
    use serde_json::json;

    #[test]
    fn a_hold_passes_only_through_an_empty_one() {
        let hold = |holder: serde_json::Value, epoch: u64| json!({"spec": {"driver": "d", "volumeHandle": "v", "holder": holder, "epoch": epoch}});
        let may = |old, new| refuse("metalplane.io/volumeholds", &old, &new).is_none();
        let null = serde_json::Value::Null;
        assert!(may(hold(null.clone(), 1), hold(json!("a"), 2)));
        assert!(!may(hold(null.clone(), 2), hold(json!("a"), 2)));
        assert!(!may(hold(json!("a"), 2), hold(json!("b"), 3)));
        assert!(may(hold(json!("a"), 2), hold(null.clone(), 2)));
        assert!(!may(hold(null.clone(), 2), hold(null, 1)));
    }
}
