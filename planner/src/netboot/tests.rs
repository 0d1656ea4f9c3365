use super::*;
use serde_json::json;
use std::sync::Arc;

const MAC: &str = "52:54:00:00:00:01";

fn hardware(name: &str, change: serde_json::Value) -> Arc<Hardware> {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"interfaces": [{"dhcp": {"mac": MAC}, "netboot": {"allowPXE": true}}]},
    });
    json_patch(&mut object, &change);
    Arc::new(serde_json::from_value(object).expect("a Hardware"))
}

fn json_patch(into: &mut serde_json::Value, change: &serde_json::Value) {
    match change {
        serde_json::Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| json_patch(&mut into[key.as_str()], value));
        }
        value => *into = value.clone(),
    }
}

fn of(change: serde_json::Value) -> Verdict {
    let directory = Directory::new(vec![hardware("a", change)]);
    verdict(&directory.by_mac(MAC).expect("one"))
}

#[test]
fn only_a_server_that_may_boots() {
    assert_eq!(of(json!({})), Verdict::Boot);
    for interfaces in [
        json!([{"dhcp": {"mac": MAC}}]),
        json!([{"dhcp": {"mac": MAC}, "netboot": {}}]),
        json!([{"dhcp": {"mac": MAC}, "netboot": {"allowPXE": false}}]),
    ] {
        assert!(matches!(of(json!({"spec": {"interfaces": interfaces}})), Verdict::AddressOnly(_)));
    }
}

#[test]
fn a_claimed_server_gets_nothing_whatever_its_allow_pxe_says() {
    let claimed = json!({"metadata": {"annotations": {"metalplane.io/claimed-by": "uid"}}});
    let said = of(claimed);
    let Verdict::Nothing(why @ Why::Claimed { .. }) = said else { panic!("{said:?}") };
    assert!(why.to_string().contains("claimed by BareMetalMachine 'uid'"), "{why}");
}

fn claimed(strategy: &str, install: Option<&str>) -> serde_json::Value {
    let mut annotations = json!({"metalplane.io/claimed-by": "uid", "metalplane.io/boot-strategy": strategy});
    if let Some(install) = install {
        annotations["metalplane.io/install"] = json!(install);
    }
    json!({"metadata": {"annotations": annotations}})
}

/// Over everything that may stand on a Hardware: only an installation that is begun lets a claimed server boot.
#[test]
fn a_claimed_server_boots_the_installer_only_while_its_installation_is_begun() {
    let installs = [None, Some("1/Done/w"), Some("2/Begun/"), Some("rubbish"), Some("1/Begun/w"), Some("7/Begun/w")];
    for strategy in ["CloudDisk", "Workflow", "Auto", ""] {
        for install in installs {
            for allow in [json!(true), json!(false), json!(null)] {
                let mut change = claimed(strategy, install);
                change["spec"] = json!({"interfaces": [{"dhcp": {"mac": MAC}, "netboot": {"allowPXE": allow}}]});
                let said = of(change);
                let begun = strategy == "Workflow" && install.is_some_and(|install| install.ends_with("Begun/w"));
                match (begun, strategy) {
                    (true, _) => assert_eq!(said, Verdict::Boot),
                    (false, "Workflow") => {
                        assert!(matches!(said, Verdict::LocalDisk(Why::BootsLocally { .. })), "{install:?}: {said:?}");
                    }
                    _ => assert!(matches!(said, Verdict::Nothing(Why::Claimed { .. })), "{strategy}: {said:?}"),
                }
            }
        }
    }
}

/// The controller may be away when an installation ends: the server restarts, and its firmware may ask the network first.
#[test]
fn a_server_whose_installation_was_a_success_boots_its_own_disk() {
    let workflow = |uid: &str, state: &str| -> Arc<Workflow> {
        let labels = json!({"metalplane.io/machine-uid": "uid"});
        let object = json!({"metadata": {"name": "w", "uid": uid, "labels": labels}, "spec": {"hardwareRef": "a"},
            "status": {"state": state, "tasks": [{"name": "t", "actions": [{"name": "a", "state": state}]}]}});
        Arc::new(serde_json::from_value(object).expect("a Workflow"))
    };
    let said = |change: serde_json::Value, workflow: Arc<Workflow>| {
        let directory = Directory::new(vec![hardware("a", change)]).with_workflows(&[workflow]);
        verdict(&directory.by_mac(MAC).expect("one"))
    };
    let begun = || claimed("Workflow", Some("1/Begun/w"));
    assert!(matches!(said(begun(), workflow("w", "SUCCESS")), Verdict::LocalDisk(Why::BootsLocally { .. })));
    assert_eq!(said(begun(), workflow("w", "RUNNING")), Verdict::Boot);
    assert_eq!(said(begun(), workflow("w", "FAILED")), Verdict::Boot);
    assert_eq!(said(claimed("Workflow", Some("2/Begun/v")), workflow("w", "SUCCESS")), Verdict::Boot, "a reinstall");
    let mut erased = begun();
    erased["metadata"]["annotations"]["metalplane.io/erase"] = json!("1/Begun/w");
    assert_eq!(said(erased, workflow("w", "SUCCESS")), Verdict::Boot, "what is erased starts no system");
}

#[test]
fn a_claimed_server_runs_the_workflow_on_record_and_no_other() {
    let workflow = |uid: &str, machine: bool| -> Workflow {
        let labels = if machine { json!({"metalplane.io/machine-uid": "uid"}) } else { json!({}) };
        serde_json::from_value(json!({"metadata": {"name": "w", "uid": uid, "labels": labels}})).expect("a Workflow")
    };
    let runs = |change: serde_json::Value| {
        let directory = Directory::new(vec![hardware("a", change)]);
        [("w", true), ("v", true), ("v", false)].map(|(uid, machine)| directory.may_run(MAC, &workflow(uid, machine)))
    };
    assert_eq!(runs(json!({})), [false, false, true]);
    assert_eq!(runs(claimed("CloudDisk", Some("1/Begun/w"))), [false; 3]);
    assert_eq!(runs(claimed("Workflow", None)), [false; 3]);
    assert_eq!(runs(claimed("Workflow", Some("1/Done/w"))), [false; 3]);
    assert_eq!(runs(claimed("Workflow", Some("1/Begun/w"))), [true, false, false]);
    // Of nobody's server, and of two at once.
    assert!(Directory::default().may_run(MAC, &workflow("v", false)));
    assert!(!Directory::default().may_run(MAC, &workflow("w", true)));
    let both = vec![hardware("a", claimed("Workflow", Some("1/Begun/w"))), hardware("b", json!({}))];
    assert!(!Directory::new(both).may_run(MAC, &workflow("w", true)));
}

/// By its name it is read, for the record has its UID alone.
#[test]
fn the_workflow_on_record_is_known_by_name() {
    let named = |change| on_record(&hardware("hw", change));
    assert_eq!(named(json!({})), None);
    assert_eq!(named(claimed("Workflow", None)), None);
    let machine = claimed("Workflow", None)["metadata"]["annotations"]["metalplane.io/claimed-by"].clone();
    let machine = machine.as_str().expect("a UID");
    assert_eq!(named(claimed("Workflow", Some("2/Done/w"))), Some(names::install(machine, 2)), "how it ended is asked");
    let mut erased = claimed("Workflow", Some("2/Done/w"));
    erased["metadata"]["annotations"]["metalplane.io/erase"] = json!("1/Begun/e");
    assert_eq!(named(erased), Some(names::erase(machine, 1)));
}

/// Over everything that may stand on a Hardware: once its disks are to be erased no installation runs, and it boots while that is begun.
#[test]
fn a_server_that_is_erased_boots_for_that_and_runs_that_alone() {
    let workflow = |uid: &str| -> Workflow {
        let labels = json!({"metalplane.io/machine-uid": "uid"});
        serde_json::from_value(json!({"metadata": {"name": "w", "uid": uid, "labels": labels}})).expect("a Workflow")
    };
    for strategy in ["CloudDisk", "Workflow"] {
        for install in [None, Some("1/Begun/w"), Some("1/Done/w")] {
            for erase in ["1/Begun/e", "1/Done/e", "1/WithData/e", "0/WithData/none", "rubbish"] {
                let mut change = claimed(strategy, install);
                change["metadata"]["annotations"]["metalplane.io/erase"] = json!(erase);
                let directory = Directory::new(vec![hardware("a", change)]);
                let boots = verdict(&directory.by_mac(MAC).expect("one")) == Verdict::Boot;
                let begun = strategy == "Workflow" && erase == "1/Begun/e";
                let runs = ["e", "w"].map(|uid| directory.may_run(MAC, &workflow(uid)));
                assert_eq!((boots, runs), (begun, [begun, false]), "{strategy} {install:?} {erase}");
            }
        }
    }
}

/// Of an erasing that was given up the Workflow is RUNNING for as long as its time is.
#[test]
fn a_workflow_that_may_not_run_hides_none() {
    let run = |uid: &str, state: &str| -> Workflow {
        let task = json!({"id": "t", "name": "t", "agentID": MAC, "actions": [{"id": "a", "name": "a", "state": state,
            "image": "erase", "timeoutSeconds": 60, "executionStart": null}]});
        let metadata = json!({"name": uid, "uid": uid, "labels": {"metalplane.io/machine-uid": "uid"}});
        let state = if state == "RUNNING" { "RUNNING" } else { "PENDING" };
        serde_json::from_value(json!({"metadata": metadata, "status": {"state": state, "tasks": [task]}})).expect("one")
    };
    let mut change = claimed("Workflow", None);
    change["metadata"]["annotations"]["metalplane.io/erase"] = json!("2/Begun/second");
    let all = [run("first", "RUNNING"), run("second", "PENDING")];
    let directory = Directory::new(vec![hardware("a", change)]);
    let names: Vec<_> = directory.candidates(MAC, &all).iter().map(|run| run.metadata.name.clone()).collect();
    assert_eq!(names, [Some("second".to_owned())]);
    assert_eq!(crate::workflow::candidates(MAC, &all).len(), 1, "else it would be hidden");
}

fn workflow(name: &str, hour: u8, state: Option<&str>) -> Arc<Workflow> {
    let object = json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-11-24T{hour:02}:00:00Z")},
        "spec": {"hardwareRef": "a"},
        "status": {"state": state},
    });
    Arc::new(serde_json::from_value(object).expect("a Workflow"))
}

#[test]
fn a_server_that_its_last_workflow_installed_boots_its_disk() {
    let of = |workflows: &[Arc<Workflow>]| {
        let directory = Directory::new(vec![hardware("a", json!({}))]).with_workflows(workflows);
        verdict(&directory.by_mac(MAC).expect("one"))
    };
    let done = workflow("done", 10, Some("SUCCESS"));
    let installed = Verdict::LocalDisk(Why::Installed { hardware: "a".to_owned(), workflow: "done".to_owned() });
    assert_eq!(of(std::slice::from_ref(&done)), installed);
    assert_eq!(of(&[workflow("failed", 9, Some("FAILED")), done.clone()]), installed);
    for (name, hour, state) in [
        ("waits", 11, Some("PENDING")),
        ("older", 9, Some("RUNNING")),
        ("new", 11, None),
        ("failed", 11, Some("FAILED")),
        ("late", 11, Some("TIMEOUT")),
    ] {
        assert_eq!(of(&[done.clone(), workflow(name, hour, state)]), Verdict::Boot, "{name}");
    }
}

#[test]
fn two_with_one_mac_are_both_named_and_neither_answered() {
    let directory = Directory::new(vec![hardware("b", json!({})), hardware("a", json!({}))]);
    let why = directory.by_mac(MAC).expect_err("two");
    assert_eq!(why, Why::SameMac { mac: MAC.to_owned(), names: vec!["a".to_owned(), "b".to_owned()] });
    assert_eq!(directory.conflicts().collect::<Vec<_>>(), [why]);
    assert!(directory.by_mac("52:54:00:00:00:02").is_err());
}

#[test]
fn by_an_address_that_interfaces_of_one_hardware_share_it_is_that_server_and_of_two_none() {
    const SECOND: &str = "52:54:00:00:00:02";
    let address: IpAddr = "10.88.0.9".parse().expect("an address");
    let bond = |name: &str, [first, second]: [(&str, bool); 2]| {
        let of = |(mac, boots): (&str, bool)| json!({"dhcp": {"mac": mac, "ip": {"address": address}}, "netboot": {"allowPXE": boots}});
        hardware(name, json!({"spec": {"interfaces": [of(first), of(second)]}}))
    };
    let of = |all: &[&Arc<Hardware>]| Directory::new(all.iter().map(|one| (*one).clone()).collect());
    for (boots, by) in [([true, true], MAC), ([false, true], SECOND), ([false, false], MAC)] {
        let directory = of(&[&bond("a", [(MAC, boots[0]), (SECOND, boots[1])])]);
        assert_eq!(directory.by_address(address).expect("one server").mac, by, "{boots:?}");
        assert!(!directory.tells_interface(address) && directory.has_address(address));
    }
    let one = bond("a", [(MAC, true), (SECOND, true)]);
    let other = json!([{"dhcp": {"mac": "52:54:00:00:00:03", "ip": {"address": address}}}]);
    let both = of(&[&one, &hardware("b", json!({"spec": {"interfaces": other}}))]);
    assert_eq!(both.by_address(address).map(|subject| subject.mac), Err(Why::UnknownAddress { address }));
    let shares_mac = of(&[&one, &hardware("b", json!({"spec": {"interfaces": [{"dhcp": {"mac": SECOND}}]}}))]);
    let why = shares_mac.by_address(address).map(|subject| subject.mac);
    assert!(matches!(&why, Err(Why::SameMac { mac, .. }) if mac == SECOND), "{why:?}");
}

#[test]
fn an_agent_is_its_id_or_its_mac() {
    let directory = Directory::new(vec![hardware("a", json!({"spec": {"agentID": "rack1"}}))]);
    assert_eq!(directory.by_mac(MAC).expect("one").agent(), "rack1");
    assert_eq!(directory.by_agent("rack1").count(), 1);
    assert_eq!(directory.by_agent(MAC).count(), 1);
    assert_eq!(directory.by_agent("rack2").count(), 0);
}

fn client(arch: u16, asked: Asked) -> Client {
    Client { arch: Some(arch), asked, ..Client::default() }
}

fn tftp(name: &str) -> Option<BootFile> {
    Some(BootFile::TftpProgram { name: name.to_owned(), by_url: false })
}

#[test]
fn firmware_gets_the_program_of_its_processor() {
    let programs = Programs::default();
    for (arch, name) in
        [(0, "undionly.kpxe"), (7, "ipxe.efi"), (9, "ipxe.efi"), (11, "snp-arm64.efi"), (20, "undionly.kpxe")]
    {
        assert_eq!(boot_file(&client(arch, Asked::Pxe), &programs, None), tftp(name), "{arch}");
    }
    let by_http = |arch| boot_file(&client(arch, Asked::UefiHttp), &programs, None);
    assert_eq!(by_http(16), Some(BootFile::HttpProgram("ipxe.efi".to_owned())));
    assert_eq!(by_http(999), None);
    assert_eq!(boot_file(&client(7, Asked::AddressOnly), &programs, None), None);
    assert_eq!(boot_file(&Client { asked: Asked::Pxe, ..Client::default() }, &programs, None), None);
    let configured = Programs { by_arch: [(7, "mine.efi".to_owned())].into(), ..Programs::default() };
    assert_eq!(boot_file(&client(7, Asked::Pxe), &configured, None), tftp("mine.efi"));
    assert_eq!(boot_file(&client(7, Asked::Pxe), &configured, Some("its.efi")), tftp("its.efi"));
}

#[test]
fn ipxe_reaches_the_script_in_at_most_two_loads() {
    let configured = Programs { user_class: Some("Mine".to_owned()), ..Programs::default() };
    for arch in 0..50 {
        for asked in [Asked::Pxe, Asked::UefiHttp] {
            for class in ["Tinkerbell", "Mine"] {
                let client = Client { user_class: Some(class.to_owned()), ..client(arch, asked) };
                assert_eq!(boot_file(&client, &configured, None), Some(BootFile::Script));
            }
            let stock = Client { user_class: Some("iPXE".to_owned()), ipxe_http: true, ..client(arch, asked) };
            assert_eq!(boot_file(&stock, &configured, None), Some(BootFile::Script));
        }
    }
    // An iPXE in a card's ROM that cannot fetch by HTTP is given one that can.
    let rom = Client { user_class: Some("iPXE".to_owned()), ..client(0, Asked::Pxe) };
    let given = Some(BootFile::TftpProgram { name: "undionly.kpxe".to_owned(), by_url: true });
    assert_eq!(boot_file(&rom, &configured, None), given);
}
