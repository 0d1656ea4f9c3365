//! Who may write what, as the chart says it: RBAC and admission policies. What an API server makes of them is the judge `kubectl`'s.

use super::Helm;
use api::labels;
use serde_json::Value;
use std::collections::BTreeSet;

/// The keys that a variable of a policy lists.
fn listed(policy: &Value, variable: &str) -> BTreeSet<String> {
    let variables = policy["spec"]["variables"].as_array().expect("variables");
    let found = variables.iter().find(|one| one["name"] == variable).expect(variable);
    let list = found["expression"].as_str().expect("an expression").split_once(".map(").expect("a list of keys").0;
    let keys: Vec<String> = serde_json::from_str(&list.replace('\'', "\"")).expect("words");
    keys.into_iter().map(|key| format!("metalplane.io/{key}")).collect()
}

/// Whoever adds an annotation to a Hardware has to say who writes it.
#[tokio::test]
async fn every_annotation_of_a_hardware_is_the_controllers_or_an_administrators() {
    let test = "every_annotation_of_a_hardware_is_the_controllers_or_an_administrators";
    let Some(helm) = Helm::find(test).await else { return };
    let objects = helm.whole(&["inventory.namespace=servers"]);
    let named = |kind: &str| {
        let mut found = objects.iter().filter(|object| object["kind"] == kind);
        found.find(|object| object["metadata"]["name"] == "metalplane-hardware-records").expect(kind)
    };
    let policy = named("ValidatingAdmissionPolicy");
    assert_eq!(named("ValidatingAdmissionPolicyBinding")["spec"]["validationActions"], serde_json::json!(["Deny"]));
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let conditions = policy["spec"]["matchConditions"].to_string();
    assert!(conditions.contains("request.namespace == 'servers'"), "{conditions}");
    let (kept, told) = (listed(policy, "kept"), listed(policy, "told"));
    let administrators = [
        labels::ERASE_REQUESTED_AT,
        labels::RELEASE_WITH_DATA,
        labels::NETBOOT_BY,
        labels::FIRMWARE_UUID,
        labels::BOOT_OPTION,
        // Of the controller, where no administrator has written it before.
        labels::HAD_DPU,
        // A label.
        labels::UNAPPROVED,
    ];
    let of_hardware = include_str!("../../../api/src/labels.rs").split("\n\n").flat_map(words_of_hardware);
    let of_hardware: BTreeSet<String> = of_hardware.filter(|key| key.starts_with("metalplane.io/")).collect();
    let administrators: BTreeSet<String> = administrators.into_iter().map(str::to_owned).collect();
    assert!(kept.is_disjoint(&told) && kept.is_disjoint(&administrators) && told.is_disjoint(&administrators));
    let said: BTreeSet<String> = [kept, told, administrators].into_iter().flatten().collect();
    assert_eq!(said, of_hardware, "beside what api/src/labels.rs says is on a Hardware");
}

/// The values of the constants in a paragraph of `labels.rs` whose comment says that they are on a Hardware.
fn words_of_hardware(paragraph: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut comment = String::new();
    for line in paragraph.lines() {
        if let Some(text) = line.strip_prefix("///") {
            comment.push_str(text);
        } else if let Some(value) = line.split('"').nth(1) {
            let of_hardware = ["On a Hardware", "On the same Hardware", "On such a Hardware", "On a claimed Hardware"];
            if of_hardware.iter().any(|start| comment.trim().starts_with(start)) {
                found.push(value.to_owned());
            }
            comment.clear();
        } else {
            comment.clear();
        }
    }
    found
}

/// An agent's word goes through `boot`: what that may do is said here a second time, so that nobody adds to it in passing.
#[tokio::test]
async fn the_account_of_boot_reads_no_secret_of_the_inventory_and_writes_no_hardware() {
    let test = "the_account_of_boot_reads_no_secret_of_the_inventory_and_writes_no_hardware";
    let Some(helm) = Helm::find(test).await else { return };
    let objects = helm.whole(&[]);
    let bound = |object: &&Value| {
        let subjects = object["subjects"].as_array();
        subjects.is_some_and(|all| all.iter().any(|subject| subject["name"] == "metalplane-boot"))
    };
    let bindings: Vec<_> = objects.iter().filter(bound).collect();
    assert!(bindings.iter().all(|binding| binding["kind"] == "RoleBinding"), "{bindings:?}");
    let mut may = BTreeSet::new();
    for binding in bindings {
        let (role, namespace) = (&binding["roleRef"], &binding["metadata"]["namespace"]);
        assert_eq!(role["kind"], "Role");
        let same = |object: &&Value| {
            object["kind"] == "Role"
                && object["metadata"]["name"] == role["name"]
                && object["metadata"]["namespace"] == *namespace
        };
        let role = objects.iter().find(same).expect("its Role");
        for rule in role["rules"].as_array().expect("rules") {
            let list = |field: &str| rule[field].as_array().cloned().unwrap_or_default();
            for (resource, verb) in list("resources")
                .iter()
                .flat_map(|resource| list("verbs").into_iter().map(move |verb| (resource.clone(), verb)))
            {
                let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                may.insert(format!("{} {} {}", word(namespace), word(&verb), word(&resource)));
            }
        }
    }
    let inventory = |verbs: &[&str], resources: &[&str]| -> Vec<String> {
        let each = |verb: &&str| {
            resources.iter().map(|what| format!("metalplane-inventory {verb} {what}")).collect::<Vec<_>>()
        };
        verbs.iter().flat_map(each).collect()
    };
    let expected = [
        inventory(&["get", "list", "watch"], &["hardware", "templates", "workflows"]),
        inventory(&["patch"], &["workflows/status", "hardwarereports/status"]),
        inventory(&["get", "list", "create"], &["hardwarereports"]),
        vec!["metalplane-seeds get secrets".to_owned()],
    ];
    assert_eq!(may, expected.into_iter().flatten().collect());
    let policies = objects.iter().filter(|object| object["metadata"]["name"] == "metalplane-boot-writes");
    let kinds: Vec<_> = policies.map(|object| object["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]);
}
