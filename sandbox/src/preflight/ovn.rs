//! Another OVN than the distribution's: `OVN_DIR` names a folder that has one, with the Open vSwitch that it was built for.
//!
//! The folder is the root of unpacked packages (`usr/bin`, `usr/share`, …) or what an installation below a prefix made (`bin`, `sbin`,
//! `share`, `lib`). Packages of a newer distribution need that distribution's C library: where the folder has a loader of its own the programs are
//! started by it. For each program there is a script in the cache folder, and that folder comes first in PATH: whoever starts a program
//! by its name starts this one.

use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

pub const VARIABLE: &str = "OVN_DIR";

const NEEDED: [&str; 13] = [
    "ovsdb-server",
    "ovsdb-tool",
    "ovsdb-client",
    "ovs-vswitchd",
    "ovs-vsctl",
    "ovs-appctl",
    "ovs-ofctl",
    "ovn-northd",
    "ovn-controller",
    "ovn-appctl",
    "ovn-nbctl",
    "ovn-sbctl",
    "ovn-trace",
];
const PROGRAMS: [&str; 3] = ["bin", "sbin", "lib/openvswitch-switch"];
const LOADERS: [&str; 4] = [
    "lib64/ld-linux-x86-64.so.2",
    "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    "lib/ld-linux-aarch64.so.1",
    "lib/aarch64-linux-gnu/ld-linux-aarch64.so.1",
];

/// The folder of scripts, if another OVN is asked for.
pub(super) fn given(cache: &Path) -> Result<Option<PathBuf>> {
    match env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        Some(folder) => scripts(Path::new(&folder), cache).map(Some),
        None => Ok(None),
    }
}

fn scripts(root: &Path, cache: &Path) -> Result<PathBuf> {
    let root = root.canonicalize().with_context(|| format!("{VARIABLE}={}", root.display()))?;
    let prefixes = [root.join("usr"), root.clone()];
    let prefix = prefixes.iter().find(|prefix| prefix.join("share/ovn/ovn-nb.ovsschema").is_file());
    let prefix = prefix.with_context(|| {
        format!(
            "{VARIABLE}={}: it has neither usr/share/ovn/ovn-nb.ovsschema nor share/ovn/ovn-nb.ovsschema",
            root.display()
        )
    })?;
    let programs = NEEDED.map(|name| (name, find(prefix, name)));
    let missing: Vec<&str> = programs.iter().filter(|(_, path)| path.is_none()).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        bail!("{VARIABLE}={}: it lacks {}", root.display(), missing.join(", "));
    }
    let name = root.to_string_lossy().trim_matches('/').replace('/', "-");
    let folder = cache.join(format!("ovn-{name}"));
    let (bin, share) = (folder.join("bin"), folder.join("share"));
    fs::create_dir_all(&bin).with_context(|| format!("create {}", bin.display()))?;
    for (name, path) in programs.into_iter().filter_map(|(name, path)| Some((name, path?))) {
        write(&bin, name, &script(&root, prefix, &path))?;
    }
    // Schemas are looked for beside the programs.
    if fs::read_link(&share).ok() != Some(prefix.join("share")) {
        let _ = fs::remove_file(&share);
        std::os::unix::fs::symlink(prefix.join("share"), &share)
            .with_context(|| format!("create {}", share.display()))?;
    }
    Ok(bin)
}

fn find(prefix: &Path, name: &str) -> Option<PathBuf> {
    PROGRAMS.iter().map(|folder| prefix.join(folder).join(name)).find(|path| path.is_file())
}

fn script(root: &Path, prefix: &Path, program: &Path) -> String {
    let quoted = |path: &Path| format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"));
    let libraries = super::library_folders(root).into_iter().chain([prefix.join("lib").to_string_lossy().into_owned()]);
    let libraries = quoted(Path::new(&libraries.collect::<Vec<_>>().join(":")));
    let loader = LOADERS.iter().flat_map(|loader| [prefix.join(loader), root.join(loader)]).find(|path| path.is_file());
    let mut script = "#!/bin/sh\n".to_owned();
    let (program, name) = (quoted(program), program.file_name().unwrap_or_default().to_string_lossy().into_owned());
    // Writing to a String cannot fail.
    let _ = match loader {
        Some(loader) => {
            writeln!(script, "exec {} --argv0 {name} --library-path {libraries} {program} \"$@\"", quoted(&loader))
        }
        None => writeln!(script, "LD_LIBRARY_PATH={libraries} exec {program} \"$@\""),
    };
    script
}

/// Whole or not at all: others may be starting it.
fn write(folder: &Path, name: &str, script: &str) -> Result<()> {
    let path = folder.join(name);
    if fs::read_to_string(&path).is_ok_and(|there| there == script) {
        return Ok(());
    }
    let new = folder.join(format!(".{name}-{}", std::process::id()));
    fs::write(&new, script).with_context(|| format!("write {}", new.display()))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn tree(programs: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        let usr = root.path().join("usr");
        for folder in ["bin", "sbin", "lib/openvswitch-switch", "share/ovn"] {
            fs::create_dir_all(usr.join(folder)).expect("created");
        }
        fs::write(usr.join("share/ovn/ovn-nb.ovsschema"), "{}").expect("written");
        for name in programs {
            let folder = if *name == "ovs-vswitchd" { "lib/openvswitch-switch" } else { "bin" };
            write(&usr.join(folder), name, "#!/bin/sh\necho $0 $LD_LIBRARY_PATH \"$@\"\n").expect("written");
        }
        root
    }

    #[test]
    fn what_it_has_is_started_by_its_name_with_its_libraries() {
        let (root, cache) = (tree(&NEEDED), tempfile::tempdir().expect("a folder"));
        for _ in 0..2 {
            let bin = scripts(root.path(), cache.path()).expect("made");
            let said = Command::new(bin.join("ovs-vswitchd")).args(["a b", "c"]).output().expect("started");
            let said = String::from_utf8(said.stdout).expect("text");
            let real = root.path().canonicalize().expect("there");
            assert!(said.starts_with(real.join("usr/lib/openvswitch-switch/ovs-vswitchd").to_str().expect("text")));
            assert!(said.contains("/usr/lib:") || said.contains("/usr/lib "), "{said}");
            assert!(said.trim_end().ends_with("a b c"), "{said}");
            assert!(bin.parent().expect("a folder").join("share/ovn/ovn-nb.ovsschema").is_file());
        }
    }

    #[test]
    fn what_it_lacks_is_named() {
        let cache = tempfile::tempdir().expect("a folder");
        let lacks = |root: &Path| format!("{:#}", scripts(root, cache.path()).expect_err("refused"));
        let root = tree(&NEEDED[1..]);
        assert!(lacks(root.path()).ends_with("it lacks ovsdb-server"));
        assert!(lacks(cache.path()).contains("ovn-nb.ovsschema"));
        assert!(lacks(Path::new("/nowhere")).contains("OVN_DIR=/nowhere"));
    }
}
