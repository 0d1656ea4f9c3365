//! Bad graphs are told apart from good ones, and the table is the document's.

use super::graph::Graph;
use super::{arrows, file, reached, rules::FOLDERS};
use serde_json::{Value, json};

/// A folder and its dependencies.
type Package<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

/// A workspace of `name -> [(dependency, kind)]`; a name in capitals comes from elsewhere.
fn graph(packages: &[Package]) -> Graph {
    let id = |folder: &str| folder.rsplit('/').next().expect("a name").to_lowercase();
    let elsewhere = |folder: &str| folder.chars().next().is_some_and(char::is_uppercase);
    let nodes: Vec<Value> = packages
        .iter()
        .map(|(from, to)| {
            let deps: Vec<_> =
                to.iter().map(|(to, kind)| json!({"pkg": id(to), "dep_kinds": [{"kind": kind}]})).collect();
            json!({"id": id(from), "deps": deps})
        })
        .collect();
    let packages: Vec<Value> = packages
        .iter()
        .map(|(folder, _)| {
            let at = if elsewhere(folder) { "/registry" } else { "/w" };
            json!({"id": id(folder), "name": id(folder), "manifest_path": format!("{at}/{folder}/Cargo.toml")})
        })
        .collect();
    let metadata = json!({"workspace_root": "/w", "packages": packages, "resolve": {"nodes": nodes}});
    Graph::parse(&metadata).expect("a graph")
}

#[test]
fn arrows_of_the_table_pass() {
    let good = graph(&[
        ("api", &[("Serde", None)]),
        ("planner", &[("api", None)]),
        ("ports", &[("planner", None), ("api", None)]),
        ("drivers/qemu", &[("ports", None), ("sandbox", Some("dev"))]),
        ("dpu-agent", &[("drivers/qemu", None), ("api", None)]),
        ("sandbox", &[("drivers/qemu", None)]),
        ("xtask", &[("dpu-agent", None), ("sandbox", None)]),
        ("Serde", &[]),
    ]);
    assert_eq!(arrows(&good), Vec::<String>::new());
    assert_eq!(reached(&good), Vec::<String>::new());
}

#[test]
fn every_arrow_against_the_table_is_named() {
    let bad = graph(&[
        ("api", &[("planner", None)]),
        ("planner", &[]),
        ("drivers/qemu", &[("drivers/file", None), ("sandbox", None)]),
        ("drivers/file", &[("controller", Some("dev"))]),
        ("controller", &[]),
        ("sandbox", &[("controller", None)]),
        ("bmctl", &[("sandbox", Some("build"))]),
        ("gadget", &[]),
    ]);
    let found = arrows(&bad);
    for (arrow, line) in [
        "api -> planner (Normal",
        "drivers/qemu -> drivers/file (Normal",
        "drivers/qemu -> sandbox (Normal",
        "drivers/file -> controller (Dev",
        "sandbox -> controller (Normal",
        "bmctl -> sandbox (Build",
        "gadget: no line in the table",
    ]
    .iter()
    .zip(&found)
    {
        assert!(line.starts_with(arrow), "{line:?} is not about {arrow:?}");
    }
    assert_eq!(found.len(), 7, "{found:?}");
}

#[test]
fn the_path_to_something_impure_is_named() {
    let bad = graph(&[
        ("planner", &[("Uuid", None), ("Proptest", Some("dev"))]),
        ("Uuid", &[("Getrandom", None)]),
        ("Proptest", &[("Rand", None)]),
        ("Getrandom", &[]),
        ("Rand", &[]),
    ]);
    let found = reached(&bad);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("planner -> uuid -> getrandom"), "{found:?}");
}

#[test]
fn unsafe_and_misplaced_drivers_are_found_in_sources() {
    let text =
        "use ports::Bmc;\nuse redfish::Client;\n// use redfish::X and unsafe\nlet redfish = 1;\nunsafe { x() }\n";
    let found = file("controller/src/act.rs", text, false, &["redfish".to_owned()]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("controller/src/act.rs:2: driver `redfish`"), "{found:?}");
    assert!(found[1].starts_with("controller/src/act.rs:5: `unsafe`"), "{found:?}");
    assert_eq!(file("controller/src/wire_up.rs", text, true, &[]), Vec::<String>::new());
}

#[test]
fn the_table_is_the_documents() {
    let document = include_str!("../../../docs/design/architecture.md");
    let table = document.split("## Folders").nth(1).and_then(|text| text.split("\n## ").next()).expect("the table");
    let lines = table.lines().filter(|line| line.starts_with("| `"));
    let mut named = String::new();
    for line in lines {
        named.push_str(line.split('|').nth(1).expect("a first column"));
    }
    for folder in FOLDERS {
        let name = folder.name.rsplit('/').next().expect("a name").trim_end_matches('*');
        assert!(named.contains(name), "{name} is not in the table of architecture.md");
    }
}
