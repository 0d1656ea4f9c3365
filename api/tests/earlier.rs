//! Version skew: definitions are upgraded before the programs, agents one after the other, and a rollback leaves objects of the later release.
//!
//! What an earlier release wrote is read whole, and what a later one adds is no reason not to read the rest. The objects in `earlier/` have
//! the fields that the programs of 2026-11-22 wrote, and no field since. A field that is renamed, removed or made mandatory is found here.

use api::{BareMetalMachine, DiskAttachment, Dpu, NicAttachment, VolumeHold};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// Whose keys are anybody's.
const MAPS: [&str; 4] = ["annotations", "attributes", "labels", "matchLabels"];

/// What is in `earlier` and not in `now`, by path.
fn lost(earlier: &Value, now: Option<&Value>, path: &str) -> Vec<String> {
    match (earlier, now) {
        (Value::Object(fields), Some(Value::Object(now))) => {
            fields.iter().flat_map(|(name, value)| lost(value, now.get(name), &format!("{path}.{name}"))).collect()
        }
        (Value::Array(items), Some(Value::Array(now))) => {
            let at = |(n, item)| lost(item, now.get(n), &format!("{path}[{n}]"));
            items.iter().enumerate().flat_map(at).collect()
        }
        (earlier, Some(now)) if earlier == now => Vec::new(),
        // What is empty may be left out.
        (Value::Array(items), None) if items.is_empty() => Vec::new(),
        (Value::Object(fields), None) if fields.is_empty() => Vec::new(),
        (Value::Bool(false), None) => Vec::new(),
        (earlier, now) => vec![format!("{path}: {earlier} became {now:?}")],
    }
}

/// With a field that nobody knows in every object of it.
fn of_a_later_release(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let of_field = |(name, value): (&String, &Value)| {
                let is_map = MAPS.contains(&name.as_str());
                (name.clone(), if is_map { value.clone() } else { of_a_later_release(value) })
            };
            let unknown = ("ofALaterRelease".to_owned(), json!({"mode": "Unheard", "sizes": [1, 2]}));
            Value::Object(fields.iter().map(of_field).chain([unknown]).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(of_a_later_release).collect()),
        value => value.clone(),
    }
}

fn read<K: Serialize + DeserializeOwned + Debug + PartialEq>(text: &str) -> K {
    let earlier: Value = serde_json::from_str(text).expect("JSON");
    let object: K = serde_json::from_value(earlier.clone()).expect("what an earlier release wrote is read");
    let now = serde_json::to_value(&object).expect("JSON");
    assert_eq!(lost(&earlier, Some(&now), ""), Vec::<String>::new());
    let later = of_a_later_release(&earlier);
    assert_ne!(later, earlier);
    let known: K = serde_json::from_value(later).expect("what a later release wrote is read");
    assert_eq!(known, object, "of what is known nothing is read in another way");
    object
}

#[test]
fn a_dpu_whose_agent_tells_less_is_read() {
    let dpu: Dpu = read(include_str!("earlier/dpu.json"));
    let status = dpu.status.expect("a status");
    // What such an agent does not tell, it cannot do.
    assert_eq!((status.erasers, status.hold_disks, status.boot_controller), (vec![], vec![], None));
    assert_eq!((status.orphans, status.network, status.went_back), (vec![], None, 0));
    assert_eq!(status.agent_version.as_deref(), Some("0.1.0"));
}

#[test]
fn attachments_of_an_earlier_release_are_read() {
    let disk: DiskAttachment = read(include_str!("earlier/disk-attachment.json"));
    assert_eq!((disk.spec.eraser, disk.spec.hold_disk, disk.spec.qos), (None, None, None));
    let import: DiskAttachment = read(include_str!("earlier/import.json"));
    // Images were raw.
    assert_eq!(import.spec.import.expect("an import").format, api::image::ImageFormat::Raw);
    let nic: NicAttachment = read(include_str!("earlier/nic-attachment.json"));
    // NICs were those of hosts.
    assert_eq!(nic.spec.consumer, api::attachment::NicConsumer::Host);
}

#[test]
fn holds_and_machines_of_an_earlier_release_are_read() {
    let hold: VolumeHold = read(include_str!("earlier/volume-hold.json"));
    assert_eq!((hold.spec.epoch, hold.spec.fences.len()), (3, 1));
    let machine: BareMetalMachine = read(include_str!("earlier/machine.json"));
    let power = machine.status.and_then(|status| status.power).expect("power");
    assert!(!power.booted_elsewhere && !power.in_setup);
}

#[test]
fn what_is_lost_is_found() {
    let earlier = json!({"a": {"b": [1, {"c": "x"}], "d": false, "e": []}});
    assert_eq!(lost(&earlier, Some(&earlier), ""), Vec::<String>::new());
    let now = json!({"a": {"b": [1, {}]}});
    assert_eq!(lost(&earlier, Some(&now), ""), [".a.b[1].c: \"x\" became None"]);
}
