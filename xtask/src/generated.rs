//! Files that are written from code and committed: which are behind, and their writing.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A folder in which every file of one kind is generated.
pub(crate) struct Folder<'a> {
    /// Below the workspace.
    pub(crate) path: &'a str,
    /// What the generated files' names end in; others are left alone.
    pub(crate) suffix: &'a str,
    /// The command that writes them.
    pub(crate) command: &'a str,
}

impl Folder<'_> {
    /// Writes what is behind and removes what is too much; with `check` fails instead.
    pub(crate) fn update(&self, root: &Path, wanted: &BTreeMap<String, String>, check: bool) -> Result<()> {
        let folder = root.join(self.path);
        let stale = self.difference(&folder, wanted)?;
        if check {
            let (stale, command) = (stale.join(", "), self.command);
            ensure!(stale.is_empty(), "{}: behind the code: {stale}. Run `{command}` and commit", self.path);
            return Ok(());
        }
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        for name in stale {
            let path = folder.join(&name);
            match wanted.get(&name) {
                Some(text) => fs::write(&path, text),
                None => fs::remove_file(&path),
            }
            .with_context(|| format!("write {}", path.display()))?;
            println!("{}/{name}", self.path);
        }
        Ok(())
    }

    /// Names of the files that are missing, differ, or are too many.
    fn difference(&self, folder: &Path, wanted: &BTreeMap<String, String>) -> Result<Vec<String>> {
        let mut present = BTreeSet::new();
        if folder.exists() {
            for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if name.ends_with(self.suffix) {
                    present.insert(name);
                }
            }
        }
        present.extend(wanted.keys().cloned());
        Ok(present
            .into_iter()
            .filter(|name| fs::read_to_string(folder.join(name)).ok().as_ref() != wanted.get(name))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_changed_and_left_over_files_are_named_and_put_right() {
        let root = tempfile::tempdir().expect("folder");
        let folder = Folder { path: "out", suffix: ".yaml", command: "cargo xtask things" };
        fs::create_dir(root.path().join("out")).expect("created");
        for (name, text) in [("same.yaml", "1"), ("changed.yaml", "1"), ("left.yaml", "1"), ("NOTES.txt", "1")] {
            fs::write(root.path().join("out").join(name), text).expect("written");
        }
        let wanted = [("same", "1"), ("changed", "2"), ("new", "1")].map(|(n, t)| (format!("{n}.yaml"), t.to_owned()));
        let wanted = wanted.into();
        let refused = folder.update(root.path(), &wanted, true).expect_err("behind").to_string();
        assert!(refused.contains("changed.yaml, left.yaml, new.yaml. Run `cargo xtask things`"), "{refused}");
        folder.update(root.path(), &wanted, false).expect("written");
        folder.update(root.path(), &wanted, true).expect("up to date");
        assert!(root.path().join("out/NOTES.txt").exists());
    }
}
