use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

const AGENT: &str = "52:54:00:00:00:01";
const NAME: &str = "discovery-52-54-00-00-00-01";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

fn report(change: Value) -> HardwareReport {
    let mut object = json!({
        "metadata": {"name": NAME, "uid": "r", "resourceVersion": "1"},
        "spec": {},
        "status": {
            "agentID": AGENT,
            "netboot": {
                "stage": "Agent", "at": "2027-01-15T07:59:00.000000Z", "beganAt": "2027-01-15T07:58:00.000000Z",
                "macAddress": AGENT, "architecture": 7, "address": "10.88.0.200",
            },
            "attributes": {
                "product": {"serialNumber": "S1", "vendor": "Dell Inc."},
                "cpu": {"totalCores": 32},
                "blockDevices": [
                    {"name": "nvme0n1", "size": "1024"}, {"name": "sr0", "size": "512"}, {"name": "sda"}, {"name": "cciss!c0d0", "size": "1"},
                ],
                "networkInterfaces": [
                    {"name": "eno2", "mac": "52:54:00:00:00:02"}, {"name": "eno1", "mac": AGENT}, {"name": "x", "mac": "no"},
                ],
            },
        },
    });
    merge(&mut object, change);
    serde_json::from_value(object).expect("a report")
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            change.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, change) => *into = change,
    }
}

fn observed(report: HardwareReport) -> Observed {
    Observed {
        report: Arc::new(report),
        hardware: Vec::new(),
        same_mac: None,
        rule_sets: Vec::new(),
        workflows: Vec::new(),
        namespace: "inventory".to_owned(),
        discovers: true,
        unapproved: 0,
    }
}

fn hardware(change: Value) -> Arc<Hardware> {
    let mut object = json!({
        "metadata": {"name": NAME, "namespace": "inventory", "uid": "h", "resourceVersion": "7", "annotations": {"tinkerbell.org/agent-attributes": "{}"}},
        "spec": {"agentID": AGENT, "interfaces": [{"dhcp": {"mac": AGENT}}]},
    });
    merge(&mut object, change);
    Arc::new(serde_json::from_value(object).expect("a Hardware"))
}

fn owned() -> Value {
    let owner = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Hardware", "name": NAME, "uid": "h"});
    json!({"metadata": {"ownerReferences": [owner]}})
}

fn unapproved() -> Arc<Hardware> {
    let labels = json!({"tinkerbell.org/auto-discovered": "true", "metalplane.io/unapproved": "true"});
    hardware(json!({"metadata": {"labels": labels}}))
}

fn rule_set(name: &str, rules: &[&str], workflow: Value) -> Arc<WorkflowRuleSet> {
    let object = json!({"metadata": {"name": name, "uid": name}, "spec": {"rules": rules, "workflow": workflow}});
    Arc::new(serde_json::from_value(object).expect("a rule set"))
}

fn any_server() -> Arc<WorkflowRuleSet> {
    let rules = [r#"{"networkInterfaces": {"mac": [{"wildcard": "*"}]}}"#];
    let template = json!({"agentValue": "device_1", "kvs": {"a": "b"}, "ref": "inspect"});
    rule_set("any", &rules, json!({"namespace": "inventory", "addAttributes": true, "template": template}))
}

fn condition(plan: &Plan, type_: &str) -> Option<(String, String)> {
    let found = plan.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((format!("{}/{}", found.status, found.reason), found.message.clone()))
}

fn reason(plan: &Plan, type_: &str) -> String {
    condition(plan, type_).map(|(reason, _)| reason).unwrap_or_default()
}

#[test]
fn a_stranger_becomes_a_hardware_that_nobody_has_approved() {
    let Some(Act::CreateHardware(made)) = plan(&observed(report(json!({}))), now()).act else { panic!("none") };
    let made = serde_json::to_value(&made).expect("json");
    assert_eq!(made["metadata"]["name"], NAME);
    assert_eq!(
        made["metadata"]["labels"],
        json!({"metalplane.io/unapproved": "true", "tinkerbell.org/auto-discovered": "true"})
    );
    let text = made["metadata"]["annotations"]["tinkerbell.org/agent-attributes"].as_str().expect("attributes");
    assert!(text.contains(r#""serialNumber":"S1""#), "{text}");
    assert_eq!(
        made["spec"],
        json!({
            "agentID": AGENT,
            "auto": {"enrollmentEnabled": false},
            "disks": [{"device": "/dev/nvme0n1"}, {"device": "/dev/cciss/c0d0"}],
            "interfaces": [
                {"dhcp": {"mac": AGENT, "uefi": true}, "netboot": {"allowPXE": true}},
                {"dhcp": {"mac": "52:54:00:00:00:02"}},
            ],
        })
    );
    let off = Observed { discovers: false, ..observed(report(json!({}))) };
    assert_eq!(plan(&off, now()).act, None, "only where that is asked for");
    let silent = json!({"status": {"attributes": null}});
    assert_eq!(plan(&observed(report(silent)), now()), Plan::default(), "its agent has said nothing yet");
}

#[test]
fn no_hardware_is_made_of_a_server_that_has_one_or_beyond_the_limit() {
    let second = hardware(
        json!({"metadata": {"name": "rack1-u07"}, "spec": {"agentID": null, "interfaces": [{"dhcp": {"mac": "52:54:00:00:00:02"}}]}}),
    );
    let plan_of = plan(&Observed { hardware: vec![second], ..observed(report(json!({}))) }, now());
    assert_eq!((plan_of.act.clone(), reason(&plan_of, APPROVED)), (None, "False/AgentOfOther".to_owned()));
    assert!(condition(&plan_of, APPROVED).is_some_and(|(_, message)| message.contains("'rack1-u07'")));
    let many = plan(&Observed { unapproved: MOST_UNAPPROVED, ..observed(report(json!({}))) }, now());
    assert_eq!((many.act.clone(), reason(&many, APPROVED)), (None, "False/TooManyUnapproved".to_owned()));
}

#[test]
fn a_report_goes_with_its_hardware_and_says_whether_that_is_approved() {
    let with = |report, hardware| Observed { hardware: vec![hardware], ..observed(report) };
    let adopted = plan(&with(report(json!({})), unapproved()), now());
    assert!(matches!(adopted.act, Some(Act::Adopt(_))), "{adopted:?}");
    let waits = plan(&with(report(owned()), unapproved()), now());
    assert_eq!((waits.act.clone(), reason(&waits, APPROVED)), (None, "False/HardwareNotApproved".to_owned()));
    assert_eq!(waits.wake_at, None, "it goes with its Hardware");
    assert_eq!(waits.tell, None);
    let labels = json!({"metadata": {"labels": {"tinkerbell.org/auto-discovered": "true"}}});
    let approved = plan(&with(report(owned()), hardware(labels)), now());
    assert_eq!(reason(&approved, APPROVED), "True/Approved");
    assert_eq!(approved.tell.map(|told| told.event), Some(Event::Approved));
    let again = HardwareReport { status: approved.status, ..report(owned()) };
    let labels = json!({"metadata": {"labels": {"tinkerbell.org/auto-discovered": "true"}}});
    let again = plan(&with(again, hardware(labels)), now());
    assert_eq!((again.status, again.tell), (None, None), "nothing is written or told twice");
    assert_eq!(plan(&with(report(owned()), hardware(json!({}))), now()).status, None, "written down by somebody");
}

/// Somebody deletes what was discovered, or writes the server down by another name.
#[test]
fn what_an_administrator_says_stays() {
    assert_eq!(
        plan(&observed(report(owned())), now()).act,
        None,
        "its report goes with it; it is not made again of that"
    );
    let written = hardware(json!({"metadata": {"name": "rack1-u03"}}));
    let o =
        Observed { hardware: vec![unapproved(), written], rule_sets: vec![any_server()], ..observed(report(owned())) };
    let planned = plan(&o, now());
    assert_eq!((planned.act.clone(), reason(&planned, APPROVED)), (None, "False/HardwareWrittenDown".to_owned()));
    let directory = crate::netboot::Directory::new(o.hardware);
    assert_eq!(directory.by_mac(AGENT).expect("one").hardware.metadata.name.as_deref(), Some("rack1-u03"));
    let names: Vec<_> = directory.by_agent(AGENT).filter_map(|hardware| hardware.metadata.name.as_deref()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| *name == "rack1-u03"), "{names:?}");
}

#[test]
fn attributes_are_annotated_once() {
    let bare = || hardware(json!({"metadata": {"annotations": null}}));
    let planned = plan(&Observed { hardware: vec![bare()], ..observed(report(owned())) }, now());
    let Some(Act::Annotate { name, uid, resource_version, attributes }) = planned.act else { panic!("{planned:?}") };
    assert_eq!((name.as_str(), uid.as_str(), resource_version.as_deref()), (NAME, "h", Some("7")));
    assert!(attributes.contains("Dell"));
    let long = "x".repeat(LONGEST);
    let long = report(json!({"metadata": owned()["metadata"], "status": {"attributes": {"product": {"name": long}}}}));
    assert_eq!(plan(&Observed { hardware: vec![bare()], ..observed(long) }, now()).act, None);
}

#[test]
fn a_strangers_report_is_forgotten_after_a_week() {
    let unseen = Observed { discovers: false, ..observed(report(json!({}))) };
    let wake = plan(&unseen, now()).wake_at.expect("a time");
    assert!(plan(&unseen, wake).act == Some(Act::DeleteReport) && plan(&unseen, now()).act.is_none());
}

#[test]
fn the_workflow_of_a_rule_set_is_upstreams() {
    let o = Observed { rule_sets: vec![any_server()], hardware: vec![unapproved()], ..observed(report(owned())) };
    let Some(Act::CreateWorkflow(made)) = plan(&o, now()).act else { panic!("{:?}", plan(&o, now())) };
    let made = serde_json::to_value(&made).expect("json");
    assert_eq!(made["metadata"]["name"], "enrollment-52-54-00-00-00-01");
    assert_eq!(made["metadata"]["labels"], json!({"tinkerbell.org/auto-enrollment": "true"}));
    let owner =
        json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "WorkflowRuleSet", "name": "any", "uid": "any"});
    assert_eq!(made["metadata"]["ownerReferences"], json!([owner]));
    assert!(made["metadata"]["annotations"]["tinkerbell.org/agent-attributes"].is_string());
    let map = json!({"device_1": AGENT, "a": "b"});
    assert_eq!(made["spec"], json!({"templateRef": "inspect", "hardwareRef": NAME, "hardwareMap": map}));
    let unknown = Observed { hardware: Vec::new(), discovers: false, ..o };
    let unknown = Observed { report: Arc::new(report(json!({}))), ..unknown };
    let Some(Act::CreateWorkflow(made)) = plan(&unknown, now()).act else { panic!("none") };
    assert_eq!(made.spec.hardware_ref, None, "without discovery there is none");
}

#[test]
fn who_is_enrolled() {
    let of = |hardware: Arc<Hardware>, more: fn(&mut Observed)| {
        let mut o = Observed { rule_sets: vec![any_server()], hardware: vec![hardware], ..observed(report(owned())) };
        more(&mut o);
        plan(&o, now())
    };
    let is_made = |plan: &Plan| matches!(plan.act, Some(Act::CreateWorkflow(_)));
    assert!(is_made(&of(unapproved(), |_| {})));
    assert!(!is_made(&of(hardware(json!({})), |_| {})), "somebody has written it down, and did not ask for it");
    let asks = |more: Value| {
        let mut object = json!({"spec": {"auto": {"enrollmentEnabled": true}}});
        merge(&mut object, more);
        hardware(object)
    };
    assert!(is_made(&of(asks(json!({})), |_| {})));
    for taken in ["metalplane.io/claimed-by", "metalplane.io/job"] {
        let taken = asks(json!({"metadata": {"annotations": {taken: "m"}}}));
        assert!(!is_made(&of(taken, |_| {})), "a server that is in use is not touched");
    }
    let named = |name: &str| {
        let object = json!({"metadata": {"name": name}, "spec": {}});
        Arc::new(serde_json::from_value::<Workflow>(object).expect("a Workflow"))
    };
    let mut o = Observed { rule_sets: vec![any_server()], hardware: vec![unapproved()], ..observed(report(owned())) };
    o.workflows = vec![named("other")];
    assert_eq!(reason(&plan(&o, now()), ENROLLED), "False/AgentHasWorkflow");
    o.workflows = vec![named("other"), named(&workflow_name(AGENT))];
    let enrolled = plan(&o, now());
    assert_eq!(reason(&enrolled, ENROLLED), "True/Enrolled");
    // Somebody deletes it: of a server that was discovered that was the one.
    let after = HardwareReport { status: enrolled.status, ..report(owned()) };
    let o = Observed { report: Arc::new(after), workflows: Vec::new(), ..o };
    assert_eq!(plan(&o, now()).act, None);
    let o = Observed { hardware: vec![asks(json!({}))], ..o };
    assert!(is_made(&plan(&o, now())), "where it is asked for, it is made again");
}

#[test]
fn the_rule_set_with_the_most_rules_that_match_counts() {
    let of = |name: &str, rules: &[&str]| rule_set(name, rules, json!({"template": {"ref": name}}));
    let dell = r#"{"product": {"vendor": [{"prefix": "Dell"}]}}"#;
    let large = r#"{"cpu": {"totalCores": [32]}}"#;
    let intel = r#"{"cpu": {"processors": {"vendor": ["GenuineIntel"]}}}"#;
    let chosen = |sets: Vec<Arc<WorkflowRuleSet>>| {
        let o = Observed { rule_sets: sets, hardware: vec![unapproved()], ..observed(report(owned())) };
        let planned = plan(&o, now());
        match &planned.act {
            Some(Act::CreateWorkflow(workflow)) => Ok(workflow.spec.template_ref.clone().unwrap_or_default()),
            _ => Err(condition(&planned, ENROLLED).unwrap_or_default()),
        }
    };
    assert_eq!(chosen(vec![of("b", &[dell]), of("c", &[dell, large]), of("a", &[dell, intel])]), Ok("c".to_owned()));
    assert_eq!(chosen(vec![of("b", &[dell]), of("a", &[large])]), Ok("a".to_owned()), "by name");
    assert_eq!(chosen(vec![of("a", &[intel])]).expect_err("none").0, "False/NoRuleMatches");
    let (_, message) = chosen(vec![of("a", &[dell, "{"]), of("b", &[intel])]).expect_err("none");
    assert!(message.contains("WorkflowRuleSet 'a', spec.rules[1]: "), "{message}");
    let (why, message) = chosen(vec![rule_set("a", &[dell], json!({}))]).expect_err("no Template");
    assert!(why == "False/RuleSetIncomplete" && message.contains("spec.workflow.template.ref"), "{message}");
    let elsewhere = json!({"namespace": "tink", "template": {"ref": "t"}});
    let (_, message) = chosen(vec![rule_set("a", &[dell], elsewhere)]).expect_err("not there");
    assert!(message.contains("write inventory"), "{message}");
}

/// What Quamina's patterns can say, as upstream's documents have it.
#[test]
fn patterns_are_quaminas() {
    let attributes: AgentAttributes = serde_json::from_value(json!({
        "product": {"vendor": "Dell Inc.", "serialNumber": "S1"}, "cpu": {"totalCores": 32},
        "networkInterfaces": [{"mac": "aa:bb:cc:00:00:01"}, {"mac": "dd:00:00:00:00:02"}],
    }))
    .expect("attributes");
    let is_match = |rule: &str| rules::tried(&[rule_set("a", &[rule], json!({}))], &attributes).best.is_some();
    for yes in [
        r#"{"product": {"vendor": ["Dell Inc.", "HPE"]}}"#,
        r#"{"product": {"serialNumber": [{"exists": true}]}}"#,
        r#"{"product": {"name": [{"exists": false}]}}"#,
        r#"{"product": {"vendor": [{"anything-but": ["HPE"]}]}}"#,
        r#"{"product": {"vendor": [{"equals-ignore-case": "DELL inc."}]}}"#,
        r#"{"product": {"vendor": [{"shellstyle": "Dell*"}]}}"#,
        r#"{"networkInterfaces": {"mac": [{"wildcard": "dd:*:02"}]}}"#,
        r#"{"networkInterfaces": {"mac": [{"regexp": "aa:.*"}]}}"#,
        r#"{"cpu": {"totalCores": [32]}, "product": {"vendor": [{"prefix": "Dell"}]}}"#,
    ] {
        assert!(is_match(yes), "{yes}");
    }
    for no in [
        r#"{"product": {"vendor": ["Dell"]}}"#,
        r#"{"product": {"serialNumber": [{"exists": false}]}}"#,
        r#"{"product": {"vendor": [{"anything-but": ["Dell Inc."]}]}}"#,
        r#"{"cpu": {"totalCores": [64]}, "product": {"vendor": [{"prefix": "Dell"}]}}"#,
        r#"{"cpu": {"totalCores": ["32"]}}"#,
    ] {
        assert!(!is_match(no), "{no}");
    }
}

#[test]
fn names_are_upstreams() {
    assert_eq!(report_name("52:54:00:AB:00:01"), "discovery-52-54-00-ab-00-01");
    assert_eq!(workflow_name(" a..b_c/ "), "enrollment-a-b-c");
    assert!(report_name(&"a:".repeat(60)).len() <= 63);
}

/// A name that is the disk's own at each start, where enough is told for one.
#[test]
fn a_disk_is_named_as_udev_names_it() {
    for (disk, named) in [
        (json!({"name": "nvme0n1", "wwn": "eui.0025385b01234567"}), "/dev/disk/by-id/nvme-eui.0025385b01234567"),
        (json!({"name": "nvme0n1", "wwn": "nvme.1b36-64-51-00000001"}), "/dev/nvme0n1"),
        (json!({"name": "sda", "wwn": "naa.5000c500a1b2c3d4"}), "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"),
        (json!({"name": "sda", "wwn": "0x5000c500a1b2c3d4"}), "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"),
        (json!({"name": "sda", "wwn": "unknown", "serialNumber": "S1"}), "/dev/sda"),
        (json!({"name": "sda", "wwn": "naa.5/../x y"}), "/dev/sda"),
        (json!({"name": "vda", "serialNumber": "disk-1"}), "/dev/disk/by-id/virtio-disk-1"),
        (json!({"name": "vda"}), "/dev/vda"),
    ] {
        let mut disk = disk;
        disk["size"] = json!("1024");
        let mut report = report(json!({}));
        let status = report.status.as_mut().expect("a status");
        let attributes = json!({"blockDevices": [disk]});
        status.attributes = Some(serde_json::from_value(attributes).expect("attributes"));
        let Some(Act::CreateHardware(made)) = plan(&observed(report), now()).act else { panic!("none") };
        assert_eq!(made.spec.disks[0].device.as_deref(), Some(named));
    }
}

proptest! {
    /// Whatever an agent reports: names are valid, what is made can be written, and the next plan makes nothing else.
    #[test]
    fn whatever_an_agent_reports(agent in "\\PC{1,80}", macs in prop::collection::vec("[0-9a-fA-F:]{0,17}", 0..5), disk in "\\PC{0,12}") {
        let nics: Vec<Value> = macs.iter().map(|mac| json!({"mac": mac})).collect();
        let status = json!({"agentID": agent, "attributes": {"blockDevices": [{"name": disk, "size": "1"}], "networkInterfaces": nics}});
        let mut report = report(json!({}));
        report.status = serde_json::from_value(status).expect("a status");
        report.metadata.name = Some(report_name(&agent));
        let Some(Act::CreateHardware(made)) = plan(&observed(report.clone()), now()).act else { panic!("none") };
        let named = made.metadata.name.clone().unwrap_or_default();
        let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        prop_assert!(!named.is_empty() && named.len() <= 63 && named.chars().all(is_label) && !named.ends_with('-'), "{named}");
        prop_assert!(made.spec.disks.iter().all(|disk| disk.device.as_deref().is_some_and(|path| path.starts_with("/dev/") && !path.contains(' '))));
        let mut there = *made;
        there.metadata.uid = Some("h".to_owned());
        let o = Observed { hardware: vec![Arc::new(there)], ..observed(report) };
        prop_assert!(matches!(plan(&o, now()).act, Some(Act::Adopt(_))));
    }
}

#[test]
fn fields_that_nothing_serves_are_told_with_what_to_write_instead() {
    let rpi = json!({"serialNum": "1", "configTxt": "x"});
    let interfaces = json!([
        {"dhcp": {"mac": AGENT, "ip": {"address": "fd00::1", "family": 6}}},
        {"netboot": {"allowPXE": true, "allowWorkflow": false, "pxelinux": {"config": "default x"}, "rpi": rpi}},
    ]);
    // Firmware has asked, and no agent yet.
    let seen = json!({"metadata": owned()["metadata"], "status": {"agentID": null, "attributes": null}});
    let mut o = observed(report(seen));
    o.hardware = vec![hardware(json!({"spec": {"interfaces": interfaces}}))];
    let status = plan(&o, now()).status.expect("news");
    let condition = conditions::get(&status.conditions, FIELDS_SERVED).cloned().expect("told");
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "FieldsNotServed"));
    for part in [
        "spec.interfaces[0].dhcp.ip.family: 6 is",
        "spec.interfaces[1].netboot.pxelinux is not served: write",
        "spec.interfaces[1].netboot.rpi is not served: a Raspberry Pi",
        "spec.interfaces[1].netboot.allowWorkflow: false is",
        "netboot.osie",
    ] {
        assert!(condition.message.contains(part), "{}", condition.message);
    }
    o.report = Arc::new(HardwareReport { status: Some(status), ..HardwareReport::clone(&o.report) });
    assert_eq!(plan(&o, now() + SignedDuration::from_hours(1)), Plan::default(), "it is written once");
    let right = json!([{"dhcp": {"mac": AGENT}, "netboot": {"allowPXE": true, "allowWorkflow": true}}]);
    o.hardware = vec![hardware(json!({"spec": {"interfaces": right}}))];
    let status = plan(&o, now()).status.expect("it is put right");
    assert!(conditions::get(&status.conditions, FIELDS_SERVED).is_none());
}

#[test]
fn why_dhcp_does_not_serve_a_server_is_a_condition_of_its_report() {
    let unserved = json!({"at": "2026-11-23T11:00:00Z", "macAddress": AGENT, "reason": "ForeignDhcp", "message": "why",
        "server": "192.168.1.1", "address": "192.168.1.77"});
    let seen = |unserved: Value| {
        let status = json!({"agentID": null, "attributes": null, "netboot": null, "unserved": unserved});
        report(json!({"metadata": owned()["metadata"], "status": status}))
    };
    let mut o = observed(seen(unserved));
    o.hardware = vec![hardware(json!({}))];
    let told = |o: &Observed| {
        let status = plan(o, now()).status.expect("news");
        let condition = conditions::get(&status.conditions, DHCP_SERVED).cloned();
        (status, condition.map(|told| (told.status, told.reason, told.message)))
    };
    let (status, Some((is, reason, message))) = told(&o) else { panic!("told") };
    assert_eq!((is.as_str(), reason.as_str()), ("False", "ForeignDhcp"));
    assert!(message.contains("of DHCP server 192.168.1.1 at 11:00:00Z") && message.contains(". Next: "), "{message}");
    o.report = Arc::new(HardwareReport { status: Some(status.clone()), ..HardwareReport::clone(&o.report) });
    assert_eq!(plan(&o, now()), Plan::default(), "it is written once");
    // What the inventory says comes first, and is as it is now.
    o.same_mac = Some(Blocked::HardwareNotApproved { hardware: NAME.to_owned() }.into());
    assert_eq!(told(&o).1.map(|told| told.1), Some("HardwareNotApproved".to_owned()));
    o.same_mac = None;
    o.report = Arc::new(HardwareReport {
        status: Some(HardwareReportStatus { unserved: None, ..status }),
        ..HardwareReport::clone(&o.report)
    });
    assert_eq!(told(&o).1, None, "it is served");
}
