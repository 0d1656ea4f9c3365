//! The graph of packages, as `cargo metadata` tells it.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Command;

pub(super) struct Graph {
    pub(super) packages: Vec<Package>,
}

pub(super) struct Package {
    pub(super) name: String,
    /// Its folder below the workspace's; none for a package from elsewhere.
    pub(super) folder: Option<String>,
    pub(super) arrows: Vec<Arrow>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Normal,
    Build,
    Dev,
}

pub(super) struct Arrow {
    pub(super) to: usize,
    pub(super) kind: Kind,
}

impl Graph {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let target = host()?;
        cargo.current_dir(root).args(["metadata", "--format-version=1", "--filter-platform", &target]);
        let done = cargo.output().context("run cargo metadata")?;
        ensure!(done.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&done.stderr).trim());
        Self::parse(&serde_json::from_slice(&done.stdout).context("read cargo metadata")?)
    }

    pub(super) fn parse(metadata: &Value) -> Result<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("cargo metadata lacks a name");
        let list = |value: &Value| value.as_array().cloned().context("cargo metadata lacks a list");
        let root = text(&metadata["workspace_root"])?;
        let mut index = BTreeMap::new();
        let mut packages = Vec::new();
        for package in list(&metadata["packages"])? {
            let manifest = text(&package["manifest_path"])?;
            let folder = manifest.strip_prefix(&root).and_then(|path| path.strip_suffix("/Cargo.toml"));
            index.insert(text(&package["id"])?, packages.len());
            packages.push(Package {
                name: text(&package["name"])?,
                folder: folder.map(|path| path.trim_start_matches('/').to_owned()),
                arrows: Vec::new(),
            });
        }
        for node in list(&metadata["resolve"]["nodes"])? {
            let from = index[&text(&node["id"])?];
            for dependency in list(&node["deps"])? {
                let to = index[&text(&dependency["pkg"])?];
                for kind in list(&dependency["dep_kinds"])? {
                    let kind = match kind["kind"].as_str() {
                        None => Kind::Normal,
                        Some("build") => Kind::Build,
                        Some(_) => Kind::Dev,
                    };
                    packages[from].arrows.push(Arrow { to, kind });
                }
            }
        }
        Ok(Self { packages })
    }

    /// The shortest path of normal dependencies from a package to one called `name`.
    pub(super) fn path(&self, from: usize, name: &str) -> Option<Vec<&str>> {
        let mut came_from = BTreeMap::from([(from, from)]);
        let mut next = VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            if self.packages[at].name == name && at != from {
                let mut path = vec![self.packages[at].name.as_str()];
                let mut step = at;
                while step != from {
                    step = came_from[&step];
                    path.push(&self.packages[step].name);
                }
                path.reverse();
                return Some(path);
            }
            for arrow in self.packages[at].arrows.iter().filter(|arrow| arrow.kind == Kind::Normal) {
                came_from.entry(arrow.to).or_insert_with(|| {
                    next.push_back(arrow.to);
                    at
                });
            }
        }
        None
    }
}

/// The machine's own target: what only another platform needs does not count.
fn host() -> Result<String> {
    let done = Command::new("rustc").arg("-vV").output().context("run rustc -vV")?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}
