//! What an administrator says of a server, and how it is printed.

use super::bmctl;
use super::fake::Fake;
use serde_json::{Value, json};

fn server(labels: Value, annotations: Value) -> Fake {
    let fake = Fake::with(Value::Null);
    fake.lock().hardware = Some(json!({
        "apiVersion": "tinkerbell.org/v1alpha1", "kind": "Hardware",
        "metadata": {"name": "rack1-u03", "namespace": "inventory", "uid": "h-1", "resourceVersion": "1",
            "labels": labels, "annotations": annotations},
        "spec": {"bmcRef": {"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": "rack1-u03"}},
    }));
    fake
}

const NAME: &str = "hardware.tinkerbell.org/rack1-u03";

#[tokio::test]
async fn each_verb_prints_the_hardware_as_it_is_asked_to() {
    let unapproved = || server(json!({"metalplane.io/unapproved": "true"}), json!({}));
    let erased = || server(json!({}), json!({"metalplane.io/claimed-by": "m-1", "metalplane.io/erase": "1/Begun/w-1"}));
    let verbs: [(&str, &str, &str, &dyn Fn() -> Fake); 3] = [
        ("approve rack1-u03", " approved\n", "/metadata/labels/metalplane.io~1unapproved", &unapproved),
        (
            "erase rack1-u03",
            " is erased once more, if it has failed\n",
            "/metadata/annotations/metalplane.io~1erase-requested-at",
            &erased,
        ),
        (
            "release rack1-u03 --with-data --yes",
            " is released with the data on its disks\n",
            "/metadata/annotations/metalplane.io~1release-with-data",
            &erased,
        ),
    ];
    for (verb, told, changed, server) in verbs {
        let line = format!("hardware {verb}");
        assert_eq!(bmctl(&server(), &line).await.expect("done"), format!("{NAME}{told}"));
        assert_eq!(bmctl(&server(), &format!("{line} -o name")).await.expect("done"), format!("{NAME}\n"));
        let fake = server();
        let before = fake.lock().hardware.clone().expect("there");
        let json = bmctl(&fake, &format!("{line} --dry-run -o json")).await.expect("done");
        let shown: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((shown["kind"].as_str(), shown["metadata"]["uid"].as_str()), (Some("Hardware"), Some("h-1")));
        assert_ne!(shown.pointer(changed), before.pointer(changed), "{verb}: it is as it would be: {shown}");
        assert_eq!(fake.lock().hardware.as_ref(), Some(&before), "{verb}: a dry run changes nothing");
        let yaml = bmctl(&fake, &format!("{line} -o yaml")).await.expect("done");
        assert!(yaml.contains("kind: Hardware") && yaml.contains("name: rack1-u03"), "{yaml}");
        let after = fake.lock().hardware.clone().expect("there");
        assert_ne!(after.pointer(changed), before.pointer(changed), "{verb}: {after}");
    }
}

#[tokio::test]
async fn a_dry_run_says_so() {
    let fake = server(json!({"metalplane.io/unapproved": "true"}), json!({}));
    let said = bmctl(&fake, "hardware approve rack1-u03 --dry-run").await.expect("done");
    assert_eq!(said, format!("{NAME} approved (server dry run)\n"));
}
