//! `.references`: what rules give, what becomes of what they withhold, and that nothing else leads to an object.

use super::{AGENT, at, hardware, workflow};
use crate::workflow::references::{Place, References, Rules, Why, Withheld, check};
use crate::workflow::{Advance, advance_with};
use api::labels;
use api::tinkerbell::workflow::Workflow;
use api::tinkerbell::{Hardware, Template};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SEEDS: &str = "seeds";

fn template(expression: &str) -> Template {
    let text = format!(
        "version: '0.1'\nname: n\ntasks:\n- name: os\n  worker: '{AGENT}'\n  actions:\n  - {{name: a, image: a, command: ['{expression}']}}\n"
    );
    serde_json::from_value(json!({"spec": {"data": text}})).expect("a Template")
}

fn server(references: &Value) -> Hardware {
    let mut server = hardware();
    server.metadata.namespace = Some("tink".to_owned());
    server.spec.references = serde_json::from_value(references.clone()).expect("references");
    server
}

fn lvm() -> Value {
    json!({"lvm": {"namespace": "tink", "name": "lvm1", "group": "example.org", "version": "v1", "resource": "lvms"}})
}

fn secret(namespace: &str) -> Value {
    json!({"lvm": {"namespace": namespace, "name": "s", "version": "v1", "resource": "secrets"}})
}

fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let own = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
    Rules::new(own(allow), own(deny), SEEDS.to_owned())
}

fn asked(references: &Value, rules: &Rules) -> References<Place> {
    References::asked(&workflow("w"), Some(&template("{{ .references.lvm }}")), Some(&server(references)), rules)
}

fn is_asked(references: &Value, rules: &Rules) -> bool {
    asked(references, rules).places().count() == 1
}

/// What becomes of a Workflow whose template reads this, with what the object was.
fn advanced(expression: &str, references: &Value, rules: &Rules, object: Result<Value, Withheld>) -> Advance {
    let (workflow, template, server) = (workflow("w"), template(expression), server(references));
    let asked = References::asked(&workflow, Some(&template), Some(&server), rules);
    let objects: BTreeMap<_, _> = asked.places().map(|(name, _)| (name.clone(), object.clone())).collect();
    advance_with(&workflow, Some(&template), Some(&server), &asked.read(objects), at(0))
}

const LVMS: &str = r#"{"reference": {"resource": ["lvms"]}}"#;

#[test]
fn rules_give_as_upstreams_do() {
    for (allow, deny, given) in [
        // Upstream's documentation: denied by default; a rule to deny takes the place of that one; one to allow comes first.
        (&[][..], &[][..], false),
        (&[LVMS], &[], true),
        (&[], &[r#"{"reference": {"resource": ["pods"]}}"#], true),
        (&[], &[LVMS], false),
        (&[LVMS], &[LVMS], true),
        (&[r#"{"source": {"namespace": ["tink"]}}"#], &[], true),
        (&[r#"{"source": {"namespace": ["other"]}}"#], &[], false),
        (
            &[
                r#"{"source": {"name": ["h"], "namespace": ["tink"]}, "reference": {"name": ["lvm1"], "namespace": ["tink"], "resource": ["lvms"]}}"#,
            ],
            &[],
            true,
        ),
        (&[r#"{"source": {"namespace": ["tink"]}, "reference": {"resource": ["bonds"]}}"#], &[], false),
        (&[r#"{"reference": {"resource": ["bonds"]}}"#, LVMS], &[], true),
        (&[r#"{"reference": {"group": [{"exists": false}]}}"#], &[], false),
        (&[r#"{"reference": {"name": [{"wildcard": "lvm*"}]}}"#], &[], true),
    ] {
        assert_eq!(is_asked(&lvm(), &rules(allow, deny)), given, "{allow:?} {deny:?}");
    }
    assert_eq!(check(LVMS), Ok(()));
    for wrong in ["", "lvms", r#"{"reference": "lvms"}"#, r#"{"reference": {"resource": "lvms"}}"#] {
        let error = check(wrong).expect_err(wrong);
        assert!(error.contains("write for example {"), "{error}");
    }
}

#[test]
fn a_secret_is_given_by_a_rule_that_names_it_and_a_machines_by_none() {
    let named = r#"{"reference": {"resource": ["secrets"]}}"#;
    for (allow, deny, given) in [
        (&[][..], &[][..], false),
        (&[r#"{"source": {"namespace": ["tink"]}}"#], &[], false),
        (&[r#"{"reference": {"resource": [{"wildcard": "*"}]}}"#], &[], false),
        (&[], &[r#"{"reference": {"resource": ["pods"]}}"#], false),
        (&[named], &[], true),
    ] {
        assert_eq!(is_asked(&secret("tink"), &rules(allow, deny)), given, "{allow:?} {deny:?}");
    }
    assert!(!is_asked(&secret(SEEDS), &rules(&[named], &[r#"{"reference": {"resource": ["pods"]}}"#])));
}

#[test]
fn the_template_of_a_machine_is_given_nothing() {
    let mut run = workflow("w");
    run.metadata.labels = Some([(labels::MACHINE_UID.to_owned(), "m".to_owned())].into());
    let template = template("{{ .references.lvm.spec.size }}");
    let asked = References::asked(&run, Some(&template), Some(&server(&lvm())), &rules(&[LVMS], &[]));
    assert_eq!(asked.places().count(), 0);
    let given = asked.read(BTreeMap::new());
    let status = advance_with(&run, Some(&template), Some(&server(&lvm())), &given, at(0)).status.expect("a status");
    assert_eq!(status.conditions[0].reason.as_deref(), Some("ReferenceDenied"));
}

#[test]
fn nothing_is_read_that_no_template_reads_or_that_is_rendered_already() {
    let (rules, server) = (rules(&[LVMS], &[]), server(&lvm()));
    let count = |run: &Workflow, text: &str| {
        References::asked(run, Some(&template(text)), Some(&server), &rules).places().count()
    };
    let reads = "{{ .references.lvm.spec.size }}";
    let mut run = workflow("w");
    assert_eq!((count(&run, reads), count(&run, "{{ .device_1 }}")), (1, 0));
    run.spec.disabled = Some(true);
    assert_eq!(count(&run, reads), 0);
    run.spec.disabled = None;
    run.status = Some(serde_json::from_value(json!({"state": "PENDING"})).expect("a status"));
    assert_eq!(count(&run, reads), 0);
}

#[test]
fn a_reference_that_is_no_place_leads_nowhere() {
    let all = rules(&[r#"{"source": {"namespace": ["tink"]}}"#], &[]);
    for (key, value) in [
        ("name", "../secrets/s"),
        ("name", ".."),
        ("name", "a?b=c"),
        ("name", "a%2fb"),
        ("name", ""),
        ("namespace", "a/b"),
        ("namespace", ".."),
        ("group", "/api"),
        ("version", ""),
        ("resource", "pods/exec"),
        ("resource", ""),
    ] {
        let mut references = lvm();
        references["lvm"][key] = json!(value);
        assert!(!is_asked(&references, &all), "{key}={value}");
        let told = advanced("{{ .references.lvm.spec.size }}", &references, &all, Ok(json!({})));
        let condition = told.status.expect("a status").conditions.remove(0);
        assert_eq!(condition.reason.as_deref(), Some("ReferenceInvalid"), "{key}={value}");
        assert!(condition.message.unwrap_or_default().contains(&format!("its {key} is")), "{key}={value}");
    }
}

#[test]
fn a_template_reads_the_object_by_its_own_names() {
    let object =
        json!({"kind": "Lvm", "metadata": {"name": "lvm1"}, "spec": {"size": "10G", "disks": [{"wipe": true}]}});
    let text =
        "{{ .references.lvm.kind }} {{ .references.lvm.spec.size }} {{ (index .references.lvm.spec.disks 0).wipe }}";
    let told = advanced(text, &lvm(), &rules(&[LVMS], &[]), Ok(object));
    let status = told.status.expect("a status");
    assert_eq!(status.state.as_deref(), Some("PENDING"), "{:?}", status.conditions);
    assert_eq!(status.tasks[0].actions[0].command, ["Lvm 10G true"]);
    assert_eq!(told.wake_at, None, "it is not looked at again");
    let mut run = workflow("w");
    run.spec.hardware_map.insert("references".to_owned(), "a parameter".to_owned());
    let template = template("{{ .references.lvm }}");
    let status = advance_with(&run, Some(&template), Some(&server(&lvm())), &References::default(), at(0)).status;
    let message = status.expect("a status").conditions.remove(0).message.unwrap_or_default();
    assert!(message.contains("no entry for key: lvm"), "a parameter does not take its place, as upstream: {message}");
}

#[test]
fn what_is_withheld_says_why_and_is_looked_at_again() {
    let read = "{{ .references.lvm.spec.size }}";
    let allowed = rules(&[LVMS], &[]);
    for (rules, object, reason, said) in [
        (&rules(&[], &[]), Ok(json!({})), "ReferenceDenied", "boot.references.allow"),
        (
            &allowed,
            Err(Withheld::new(Why::Missing, "there is none")),
            "ReferenceMissing",
            "lvms.example.org 'lvm1' of namespace 'tink': there is none",
        ),
        (
            &allowed,
            Err(Withheld::new(Why::Forbidden, "no")),
            "ReferenceForbidden",
            "lvms.example.org 'lvm1' of namespace 'tink': no",
        ),
        (&allowed, Err(Withheld::new(Why::Unread, "no answer")), "ReferenceUnread", "no answer"),
        // It is given, and has no such field: that is the template's own fault.
        (&allowed, Ok(json!({"spec": {}})), "Error", "size"),
    ] {
        let Advance { status, wake_at } = advanced(read, &lvm(), rules, object.clone());
        let status = status.expect("a status");
        let (state, condition) = (status.state.clone(), status.conditions[0].clone());
        let message = condition.message.unwrap_or_default();
        assert_eq!((state, condition.reason.as_deref()), (None, Some(reason)), "{message}");
        assert!(message.starts_with("Template 't': ") && message.contains(said), "{message}");
        assert!(wake_at.is_some(), "what a reference leads to is not watched");
        let by_index = "{{ (index .references \"lvm\").spec.size | default \"1G\" }}";
        if reason != "Error" {
            let status = advanced(by_index, &lvm(), rules, object.clone()).status.expect("a status");
            assert_eq!(status.conditions[0].reason.as_deref(), Some(reason), "nothing is rendered in its place");
        }
        // One that is withheld and not read holds up nothing.
        let status = advanced("references {{ .device_1 }}", &lvm(), rules, object).status.expect("a status");
        assert_eq!(status.state.as_deref(), Some("PENDING"));
    }
}
