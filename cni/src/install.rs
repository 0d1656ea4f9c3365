//! `metalplane install --bin-dir=DIR [--chain=DIR]`: puts this very program where a runtime looks for plugins, and behind the cluster
//! network's own plugins. The chart's init container runs it on each node.

use crate::error::Error;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "metalplane";
const USAGE: &str =
    "write: metalplane install --bin-dir=DIR, and --chain=DIR for the folder of the network configurations";

#[derive(Debug, PartialEq, Eq)]
pub struct Install {
    bin_dir: PathBuf,
    chain: Option<PathBuf>,
}

impl Install {
    /// `None`: it is a runtime that calls, which gives no argument.
    pub fn of(arguments: &[String]) -> Option<Result<Self, Error>> {
        let (verb, flags) = arguments.split_first()?;
        let (mut bin_dir, mut chain) = (None, None);
        for flag in flags {
            match flag.split_once('=') {
                Some(("--bin-dir", dir)) if !dir.is_empty() => bin_dir = Some(PathBuf::from(dir)),
                Some(("--chain", dir)) if !dir.is_empty() => chain = Some(PathBuf::from(dir)),
                _ => return Some(Err(Error::environment(format!("'{flag}': {USAGE}")))),
            }
        }
        Some(match (verb.as_str(), bin_dir) {
            ("install", Some(bin_dir)) => Ok(Self { bin_dir, chain }),
            _ => Err(Error::environment(USAGE)),
        })
    }

    /// May be run again, also while the plugin that is there is being called.
    pub fn run(&self) -> Result<(), Error> {
        let own = std::env::current_exe().map_err(|error| Error::io(format!("find this program: {error}")))?;
        let program = fs::read(&own).map_err(|error| failed("read", &own, &error))?;
        fs::create_dir_all(&self.bin_dir).map_err(|error| failed("make", &self.bin_dir, &error))?;
        replace(&self.bin_dir.join(PROGRAM), &program, 0o755)?;
        self.chain.as_deref().map_or(Ok(()), chain)
    }
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("{what} {}: {error}", path.display()))
}

/// Appears whole.
fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    // A runtime reads every file of the folder that ends in .conflist, .conf or .json.
    let mut new = path.as_os_str().to_owned();
    new.push(".metalplane-new");
    let new = PathBuf::from(new);
    fs::write(&new, content).map_err(|error| failed("write", &new, &error))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).map_err(|error| failed("change", &new, &error))?;
    fs::rename(&new, path).map_err(|error| failed("write", path, &error))
}

/// At the end of the list that a runtime takes: the first by its name.
fn chain(folder: &Path) -> Result<(), Error> {
    let entries = fs::read_dir(folder).map_err(|error| failed("read", folder, &error))?;
    let is_one = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        ["conflist", "conf", "json"].contains(&ending)
    };
    let first = entries.flatten().map(|entry| entry.path()).filter(is_one).min();
    let first = first.ok_or_else(|| {
        Error::again(format!("{}: the cluster network has written no configuration yet", folder.display()))
    })?;
    let text = fs::read(&first).map_err(|error| failed("read", &first, &error))?;
    let decode = |error| Error::decode(format!("{}: {error}", first.display()));
    let mut list: Value = serde_json::from_slice(&text).map_err(decode)?;
    let Some(plugins) = list["plugins"].as_array_mut() else {
        return Err(Error::invalid(format!("{}: no list of plugins: a chain needs a .conflist", first.display())));
    };
    if plugins.iter().any(|plugin| plugin["type"] == PROGRAM) {
        return Ok(());
    }
    plugins.push(json!({"type": PROGRAM, "capabilities": {"io.kubernetes.cri.pod-annotations": true}}));
    let text = serde_json::to_vec_pretty(&list).map_err(decode)?;
    let mode = fs::metadata(&first).map_err(|error| failed("read", &first, &error))?.permissions().mode();
    replace(&first, &text, mode & 0o777)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_is_put_behind_the_first_list_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let (bin, conf) = (dir.path().join("bin"), dir.path().join("conf"));
        let arguments =
            ["install".to_owned(), format!("--bin-dir={}", bin.display()), format!("--chain={}", conf.display())];
        let install = Install::of(&arguments).expect("it installs").expect("well");
        fs::create_dir(&conf).expect("a folder");
        assert_eq!(install.run().expect_err("no list yet").code, 11);
        let list =
            |name: &str| -> Value { serde_json::from_slice(&fs::read(conf.join(name)).expect("there")).expect("JSON") };
        let written = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "mtu": 1450}]});
        for name in ["10-pods.conflist", "20-other.conflist"] {
            fs::write(conf.join(name), written.to_string()).expect("write");
        }
        for _ in 0..2 {
            install.run().expect("installed");
            let ours = json!({"type": "metalplane", "capabilities": {"io.kubernetes.cri.pod-annotations": true}});
            assert_eq!(list("10-pods.conflist")["plugins"], json!([{"type": "ptp", "mtu": 1450}, ours]));
            assert_eq!(list("20-other.conflist"), written, "the runtime does not take that one");
        }
        let mode = fs::metadata(bin.join(PROGRAM)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        fs::write(conf.join("05-single.conf"), r#"{"cniVersion": "1.0.0", "type": "ptp"}"#).expect("write");
        assert_eq!(install.run().expect_err("no list").code, 7);
    }

    #[test]
    fn arguments_are_a_runtimes_or_well_formed() {
        let of = |words: &[&str]| Install::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]), None);
        for wrong in [&["install"] as &[&str], &["remove", "--bin-dir=/b"], &["install", "--bin-dir=/b", "-v"]] {
            assert!(of(wrong).expect("no runtime").is_err(), "{wrong:?}");
        }
    }
}
