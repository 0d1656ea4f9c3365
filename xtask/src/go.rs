//! Programs in Go: `tools/build.sh` builds a module below `tools`, or one program of it, and keeps it.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The script, with the module as its argument.
pub(crate) fn script(root: &Path, module: &str) -> Command {
    let mut script = Command::new(root.join("tools/build.sh"));
    script.arg(module);
    script
}

/// Runs the script; gives the folder that the programs are in.
pub(crate) fn build(mut script: Command) -> Result<PathBuf> {
    let done = script.stderr(Stdio::inherit()).output().context("run tools/build.sh")?;
    let arguments: Vec<_> = script.get_args().map(|argument| argument.to_string_lossy()).collect();
    ensure!(done.status.success(), "tools/build.sh {}: {} (its output is above)", arguments.join(" "), done.status);
    Ok(PathBuf::from(String::from_utf8_lossy(&done.stdout).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// Stands for Go: it says as its version what it is given as such, and builds a file with all that it was told.
    const GO: &str = r#"#!/bin/sh
case "$1 $2" in
"env GOVERSION") echo go1.26; echo "${GOARCH:-amd64}";;
"env GOPROXY") echo https://proxy.example;;
env*) eval "echo \"\${$2:-}\"";;
build*)
    while [ "$1" != -o ]; do shift; done
    env | grep '^GO' | grep -v -e '^GOCACHE=' | sort > "$2/told";;
esac
"#;

    /// The folder, and what Go was told.
    fn told(home: &Path, variables: &[(&str, &str)]) -> (PathBuf, String) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").expect("PATH"));
        let mut script = script(root, "gotemplate");
        script.env("PATH", path).env("XDG_CACHE_HOME", home.join("cache")).envs(variables.iter().copied());
        let folder = build(script).expect("built");
        let text = fs::read_to_string(folder.join("told")).expect("what Go was told");
        (folder, text)
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a folder");
        let go = home.path().join("bin/go");
        fs::create_dir(home.path().join("bin")).and_then(|()| fs::write(&go, GO)).expect("written");
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).expect("a program");
        home
    }

    #[test]
    fn no_setting_of_the_machine_reaches_a_program_in_go() {
        let (plain, set) = (home(), home());
        let settings = [
            ("GOFLAGS", "-gcflags=all=-N"),
            ("GOAMD64", "v3"),
            ("GOARM64", "v9.0"),
            ("GOEXPERIMENT", "jsonv2"),
            ("GOFIPS140", "latest"),
        ];
        let (folder, without) = told(plain.path(), &[]);
        let (same_folder, with) = told(set.path(), &settings);
        assert_eq!(with, without);
        assert_eq!(same_folder.file_name(), folder.file_name(), "the key differs");
        for (name, _) in settings {
            assert!(!with.contains(&format!("{name}=")), "{with}");
        }
        assert!(with.contains("GOENV=off\n") && with.contains("GOPROXY=https://proxy.example\n"), "{with}");
    }

    #[test]
    fn another_architecture_is_kept_apart() {
        let home = home();
        let (folder, _) = told(home.path(), &[]);
        let (other, with) = told(home.path(), &[("GOARCH", "arm64")]);
        assert_ne!(other, folder);
        assert!(with.contains("GOARCH=arm64\n"), "{with}");
    }
}
