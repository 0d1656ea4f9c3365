//! The layers of docs/design/architecture.md, held by a check and not by attention.
//!
//! [`rules`] is the table; [`graph`] what cargo knows. Checked are: arrows between the workspace's packages, what the
//! pure folders can reach, where drivers are named, where `unsafe` stands, and circles between files.

mod circles;
mod graph;
mod rules;
mod source;
#[cfg(test)]
mod tests;

use anyhow::{Result, bail};
use circles::Files;
use graph::{Graph, Kind};
use rules::{CIRCLES, FOLDERS, FOR_TESTS, Folder, IMPLIED, IMPURE, PURE, UNSAFE};
use std::path::Path;

pub(crate) fn run(root: &Path) -> Result<()> {
    let graph = Graph::read(root)?;
    let mut wrong = arrows(&graph);
    wrong.extend(reached(&graph));
    for package in &graph.packages {
        if let Some(folder) = &package.folder {
            wrong.extend(sources(root, folder, &drivers(&graph))?);
        }
    }
    for (folder, most) in CIRCLES {
        wrong.extend(circles(folder, *most, &Files::read(&root.join(folder).join("src"))?));
    }
    match wrong.len() {
        0 => Ok(()),
        count => bail!("{count} against the layers of docs/design/architecture.md:\n  {}", wrong.join("\n  ")),
    }
}

fn rule(folder: &str) -> Option<&'static Folder> {
    let exact = FOLDERS.iter().find(|rule| rule.name == folder);
    exact.or_else(|| FOLDERS.iter().find(|rule| matches(rule.name, folder)))
}

fn matches(pattern: &str, folder: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => folder.starts_with(prefix),
        None => pattern == folder,
    }
}

fn may(rule: &Folder, kind: Kind, to: &str) -> bool {
    let listed = |list: &[&str]| list.iter().any(|pattern| matches(pattern, to));
    let implied = IMPLIED.iter().any(|(first, second)| *second == to && rule.may.contains(first));
    (listed(rule.may) || implied || kind == Kind::Dev && listed(FOR_TESTS)) && !listed(rule.never)
}

/// Arrows between packages of the workspace that the table does not have.
fn arrows(graph: &Graph) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in &graph.packages {
        let Some(from) = &package.folder else { continue };
        let Some(rule) = rule(from) else {
            wrong.push(format!(
                "{from}: no line in the table; add one to architecture.md and xtask/src/layers/rules.rs"
            ));
            continue;
        };
        for arrow in &package.arrows {
            if let Some(to) = &graph.packages[arrow.to].folder
                && to != from
                && !may(rule, arrow.kind, to)
            {
                let list = if rule.may.is_empty() { "nothing".to_owned() } else { rule.may.join(", ") };
                wrong.push(format!("{from} -> {to} ({:?} dependency): {from} may depend on {list}", arrow.kind));
            }
        }
    }
    wrong
}

/// What the pure folders reach although they decide only.
fn reached(graph: &Graph) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, package) in graph.packages.iter().enumerate() {
        let Some(folder) = package.folder.as_deref().filter(|folder| PURE.contains(folder)) else { continue };
        for name in IMPURE {
            if let Some(path) = graph.path(at, name) {
                let path = path.join(" -> ");
                wrong.push(format!("{folder} is pure but reaches {name}: {path}; drop the first step that needs it"));
            }
        }
    }
    wrong
}

/// Circles of more files than the package may have.
fn circles(folder: &str, most: usize, files: &Files) -> Vec<String> {
    let said = |circle: Vec<String>| {
        let (count, files) = (circle.len(), circle.join(", "));
        format!(
            "{folder}: {count} files import each other in a circle (at most {most}): {files}; move what both need below"
        )
    };
    files.circles().into_iter().filter(|circle| circle.len() > most).map(said).collect()
}

/// Names by which drivers are imported.
fn drivers(graph: &Graph) -> Vec<String> {
    let folders = graph
        .packages
        .iter()
        .filter(|package| package.folder.as_deref().is_some_and(|folder| folder.starts_with("drivers/")));
    folders.map(|package| package.name.replace('-', "_")).collect()
}

/// Reads the sources of one package: `unsafe`, and drivers outside of `wire_up.rs`.
fn sources(root: &Path, folder: &str, drivers: &[String]) -> Result<Vec<String>> {
    let hide_drivers = rule(folder).is_some_and(|rule| rule.drivers_in_wire_up);
    let mut wrong = Vec::new();
    for below in ["src", "tests"] {
        for (path, text) in source::files(&root.join(folder).join(below))? {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let drivers = if hide_drivers && !is_exempt(&path) { drivers } else { &[] };
            wrong.extend(file(&name, &text, UNSAFE.contains(&folder), drivers));
        }
    }
    wrong.sort();
    Ok(wrong)
}

/// `wire_up.rs` names drivers; so may tests.
fn is_exempt(path: &Path) -> bool {
    path.ends_with("wire_up.rs") || path.iter().any(|part| part == "tests" || part == "tests.rs")
}

fn file(name: &str, text: &str, may_be_unsafe: bool, drivers: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in source::code(text).lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if !may_be_unsafe && source::has_word(line, "unsafe") {
            wrong.push(format!("{place}: `unsafe` belongs in {} alone", UNSAFE.join(" and ")));
        }
        let import = line.trim_start().trim_start_matches("pub ").trim_start_matches("(crate) ");
        let import = import.strip_prefix("use ").map(|path| path.trim_start_matches("::"));
        if let Some(driver) = drivers.iter().find(|driver| {
            import
                .and_then(|path| path.strip_prefix(driver.as_str()))
                .is_some_and(|rest| rest.starts_with([':', ';', ' ']))
        }) {
            wrong.push(format!("{place}: driver `{driver}` is named outside of wire_up.rs; take the port's trait"));
        }
    }
    wrong
}
