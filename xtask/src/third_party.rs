//! Licences of what is compiled into programs that ship: Rust's crates and standard library, the C library that they are linked with, Go's modules and
//! standard library. Most of these licences want their text, and the names in it, beside each copy.
//!
//! A crate that comes without a file of its licence is named with the licence that it declares. The same sources give the same text.

use anyhow::{Context, Result, ensure};
use sandbox::architecture::Architecture;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How files are called that have to go with a program.
const FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"];
/// Of the library alone, below the toolchain; the compiler's own is another one.
const STANDARD_LIBRARY: &str = "share/doc/rust/COPYRIGHT-library.html";
/// Of the C library, as Debian's package has it.
const C_LIBRARY: &str = "/usr/share/doc/libc6-dev/copyright";

/// One work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Work {
    /// Its name and version.
    name: String,
    /// As its package declares it.
    licence: String,
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// `None`: one of ours.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `dev`, `build`; `None`: it is linked.
    kind: Option<String>,
}

/// What is in the programs of these packages of the workspace.
pub(crate) fn of_rust(root: &Path, packages: &[&str], architecture: Architecture) -> Result<Vec<Work>> {
    let target = format!("{}-unknown-linux-gnu", architecture.machine());
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", &target];
    let metadata = said(Command::new("cargo").current_dir(root).args(arguments))?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("read what cargo says of the packages")?;
    let mut works: Vec<Work> = linked(&metadata, packages)?.into_iter().map(of_crate).collect::<Result<_>>()?;
    let sysroot = PathBuf::from(said(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
    let texts =
        fs::read_to_string(sysroot.join(STANDARD_LIBRARY)).map(|page| without_tags(&page)).into_iter().collect();
    works.push(Work { name: "Rust's standard library".to_owned(), licence: "MIT OR Apache-2.0".to_owned(), texts });
    let licence = "LGPL-2.1-or-later, and others".to_owned();
    let texts = fs::read_to_string(C_LIBRARY).into_iter().collect();
    works.push(Work { name: "the GNU C Library".to_owned(), licence, texts });
    Ok(works)
}

/// Those that are linked with one of `packages`, without ours.
fn linked<'a>(metadata: &'a Metadata, packages: &[&str]) -> Result<Vec<&'a Package>> {
    let ours = metadata.packages.iter().filter(|package| package.source.is_none());
    let mut wanted: Vec<&str> =
        ours.filter(|package| packages.contains(&package.name.as_str())).map(|package| package.id.as_str()).collect();
    ensure!(wanted.len() == packages.len(), "not all of {packages:?} are packages of the workspace");
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        if seen.insert(id) {
            let of_it = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let is_linked = |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
            wanted.extend(of_it.filter(is_linked).map(|dependency| dependency.pkg.as_str()));
        }
    }
    let is_theirs = |package: &&Package| package.source.is_some() && seen.contains(package.id.as_str());
    Ok(metadata.packages.iter().filter(is_theirs).collect())
}

fn of_crate(package: &Package) -> Result<Work> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    let licence = package.license.clone().unwrap_or_else(|| "see below".to_owned());
    Ok(Work { name: format!("{} {}", package.name, package.version), licence, texts: texts_in(folder)? })
}

/// What is in a program of a module below `tools`.
pub(crate) fn of_go(root: &Path, module: &str, program: &str) -> Result<Vec<Work>> {
    let folder = root.join("tools").join(module);
    let go = |arguments: &[&str]| said(Command::new("go").current_dir(&folder).args(arguments));
    let tools = go(&["list", "-mod=readonly", "-f", "{{.ImportPath}}", "tool"])?;
    let package = tools.lines().find(|path| path.rsplit('/').next() == Some(program));
    let package = package.with_context(|| format!("tools/{module} has no program {program}"))?;
    let format = "{{with .Module}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}";
    let modules = go(&["list", "-mod=readonly", "-deps", "-f", format, package])?;
    let modules: BTreeSet<(&str, &str)> = modules.lines().filter_map(|line| line.split_once('\t')).collect();
    let work = |(name, folder): (&str, &str)| {
        let texts = texts_in(Path::new(folder))?;
        Ok(Work { name: name.to_owned(), licence: "see below".to_owned(), texts })
    };
    let mut works: Vec<Work> = modules.into_iter().map(work).collect::<Result<_>>()?;
    let texts = texts_in(Path::new(go(&["env", "GOROOT"])?.trim()))?;
    works.push(Work { name: "Go's standard library".to_owned(), licence: "BSD-3-Clause".to_owned(), texts });
    Ok(works)
}

fn said(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("start {command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    String::from_utf8(done.stdout).with_context(|| format!("{command:?} says what is no text"))
}

/// Of the files in a folder that have to go with a program, sorted by their names.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_uppercase()).unwrap_or_default();
        if path.is_file() && FILES.iter().any(|begin| name.starts_with(begin)) {
            files.push(path);
        }
    }
    files.sort();
    let text = |path: &PathBuf| {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).trim().replace("\r\n", "\n"))
    };
    files.iter().map(text).collect()
}

/// The text of a page.
fn without_tags(page: &str) -> String {
    let parts = page.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    let text: String = parts.collect();
    let text = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&#39;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text, |text, (written, meant)| text.replace(written, meant));
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|line, before| line.trim().is_empty() && before.trim().is_empty());
    lines.join("\n").trim().to_owned()
}

/// All of them; a text that several have stands there once.
pub(crate) fn notice(what: &str, mut works: Vec<Work>) -> String {
    works.sort();
    works.dedup();
    let mut notice = format!("{what} contains the following works.\n\n");
    let mut of_text: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for work in &works {
        let none = if work.texts.is_empty() { "; its package has no file with it" } else { "" };
        notice.push_str(&format!("- {} ({}{none})\n", work.name, work.licence));
        work.texts.iter().for_each(|text| of_text.entry(text).or_default().push(&work.name));
    }
    let mut texts: Vec<(Vec<&str>, &str)> = of_text.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        notice.push_str(&format!("\n{}\nOf {}:\n\n{text}\n", "=".repeat(80), names.join(", ")));
    }
    notice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace")
    }

    #[test]
    fn what_is_linked_is_named_with_its_licence_and_what_only_tests_need_is_not() {
        let works = of_rust(root(), &["bmctl"], Architecture::Amd64).expect("cargo tells");
        let named = |name: &str| works.iter().find(|work| work.name.split(' ').next() == Some(name));
        let tokio = named("tokio").expect("bmctl has tokio");
        assert_eq!(tokio.licence, "MIT");
        assert!(tokio.texts.iter().any(|text| text.contains("Permission is hereby granted")), "{tokio:?}");
        assert!(named("bmctl").is_none() && named("api").is_none(), "they are ours");
        assert!(named("proptest").is_none() && named("trybuild").is_none());
        let error = of_rust(root(), &["nobody"], Architecture::Amd64).expect_err("there is none");
        assert!(error.to_string().contains("nobody"), "{error}");
    }

    #[test]
    fn a_page_is_read_as_text() {
        let page = "<h1>Rust</h1>\n\n\n<p class=\"a\">A &amp; B &lt;a@b&gt;</p>\n";
        assert_eq!(without_tags(page), "Rust\n\nA & B <a@b>");
    }

    #[test]
    fn a_text_that_several_have_stands_there_once() {
        let work = |name: &str, texts: &[&str]| Work {
            name: name.to_owned(),
            licence: "MIT".to_owned(),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        };
        let works = vec![work("b 1", &["the text"]), work("a 1", &["the text", "its own"]), work("c 1", &[])];
        let notice = notice("The program x", works.clone());
        assert_eq!(notice.matches("the text").count(), 1, "{notice}");
        assert!(notice.contains("Of a 1, b 1:\n\nthe text\n"), "{notice}");
        assert!(notice.contains("- c 1 (MIT; its package has no file with it)"), "{notice}");
        let again = works.into_iter().rev().chain([work("a 1", &["the text", "its own"])]).collect();
        assert_eq!(super::notice("The program x", again), notice, "whatever the order");
    }
}
