//! Our definitions of Tinkerbell's kinds against those that controller-gen makes from upstream's Go types: equal but
//! for descriptions. What differs is listed path by path.

use api::tinkerbell::{Hardware, Job, Machine, Task, Template, Workflow, WorkflowRuleSet};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const MODULE: &str = "github.com/tinkerbell/tinkerbell/api/v1alpha1";

#[test]
fn hardware_is_upstreams() {
    compare("hardware_is_upstreams", "tinkerbell", "tinkerbell.org_hardware.yaml", Hardware::crd());
}

#[test]
fn template_is_upstreams() {
    compare("template_is_upstreams", "tinkerbell", "tinkerbell.org_templates.yaml", Template::crd());
}

#[test]
fn workflow_is_upstreams() {
    compare("workflow_is_upstreams", "tinkerbell", "tinkerbell.org_workflows.yaml", Workflow::crd());
}

#[test]
fn workflow_rule_set_is_upstreams() {
    let ours = WorkflowRuleSet::crd();
    compare("workflow_rule_set_is_upstreams", "tinkerbell", "tinkerbell.org_workflowrulesets.yaml", ours);
}

#[test]
fn machine_is_upstreams() {
    compare("machine_is_upstreams", "bmc", "bmc.tinkerbell.org_machines.yaml", Machine::crd());
}

#[test]
fn job_is_upstreams() {
    compare("job_is_upstreams", "bmc", "bmc.tinkerbell.org_jobs.yaml", Job::crd());
}

#[test]
fn task_is_upstreams() {
    compare("task_is_upstreams", "bmc", "bmc.tinkerbell.org_tasks.yaml", Task::crd());
}

/// The comparison itself: a change in any place is a difference.
#[test]
fn a_changed_schema_is_noticed() {
    let ours = without_descriptions(serde_json::to_value(Machine::crd()).expect("json"), false);
    let connection = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/connection";
    for (path, value) in [
        ("/properties/port/default", json!(443)),
        ("/properties/host/minLength", json!(2)),
        ("/properties/authSecretRef/x-kubernetes-map-type", json!("granular")),
        ("/required", json!(["host"])),
    ] {
        let mut changed = ours.clone();
        *changed.pointer_mut(&format!("{connection}{path}")).expect(path) = value;
        let found = differences(&ours, &changed);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert!(found[0].contains(&path.replace('/', ".")), "{found:?}");
    }
    let mut changed = ours.clone();
    let properties = changed.pointer_mut(&format!("{connection}/properties")).and_then(Value::as_object_mut);
    properties.expect("properties").remove("insecureTLS");
    assert_eq!(differences(&ours, &changed).len(), 1);
}

fn compare(test: &str, package: &str, file: &str, ours: CustomResourceDefinition) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("SKIP {test}: Go is missing, so upstream's definitions cannot be made");
        return;
    }
    let upstream = generate(&root.join("tools"), package, test);
    let text = std::fs::read_to_string(upstream.join(file)).expect(file);
    let mut upstream: Value = serde_saphyr::from_str(&text).expect("YAML of controller-gen");
    // What only names the generator.
    upstream["metadata"].as_object_mut().expect("metadata").remove("annotations");
    let ours = serde_json::to_value(ours).expect("json");
    let found = differences(&without_descriptions(upstream, false), &without_descriptions(ours, false));
    assert!(found.is_empty(), "{file}: upstream's definition and ours differ:\n{}", found.join("\n"));
}

/// Runs controller-gen in the module that pins upstream's types; gives the folder with its definitions.
fn generate(tools: &Path, package: &str, test: &str) -> PathBuf {
    let programs = output(Command::new(tools.join("build.sh")).arg("tinkerbell"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("definitions-{test}"));
    output(
        Command::new(Path::new(programs.trim()).join("controller-gen"))
            .current_dir(tools.join("tinkerbell"))
            .arg("crd")
            .arg(format!("paths={MODULE}/{package}"))
            .arg(format!("output:crd:dir={}", folder.display())),
    );
    folder
}

fn output(command: &mut Command) -> String {
    let done = command.output().expect("started");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{errors}", done.status);
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// `description` is a keyword but where it is the name of a property.
fn without_descriptions(value: Value, names: bool) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(key, value)| names || key != "description" || !value.is_string())
            .map(|(key, value)| {
                let names = !names && key == "properties";
                // The order of a set says nothing.
                let value = match value {
                    Value::Array(mut set) if key == "required" => {
                        set.sort_by_key(Value::to_string);
                        Value::Array(set)
                    }
                    value => value,
                };
                (key, without_descriptions(value, names))
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(list) => list.into_iter().map(|value| without_descriptions(value, false)).collect(),
        value => value,
    }
}

fn differences(upstream: &Value, ours: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", upstream, ours, &mut found);
    found
}

fn walk(path: &str, upstream: &Value, ours: &Value, found: &mut Vec<String>) {
    match (upstream, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => walk(&path, a, b, found),
                    (Some(a), None) => found.push(format!("{path}: upstream {a}, ours lacks it")),
                    (None, Some(b)) => found.push(format!("{path}: upstream lacks it, ours {b}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{index}]"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: upstream {a}, ours {b}")),
    }
}
