//! The actions that are built in. Each is named by the last word of its image, without registry and tag, and takes the
//! environment that upstream's image of that name takes.

mod archive2disk;
mod cexec;
pub(crate) mod erase;
mod grub2disk;
mod image2disk;
mod kexec;
mod labels;
mod oci2disk;
mod programs;
mod rootio;
mod seed;
mod writefile;
mod written;

use crate::agent::{Action, Actions, Then};
use crate::boot_entries;
use crate::disks::Disks;
use crate::lines::Lines;
use crate::session::Session;
use imaging::{Progress, Proxies};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the installer does for a Workflow; `waitdaemon` is one of these.
pub const NAMES: [&str; 13] = [
    "image2disk",
    "qemuimg2disk",
    "oci2disk",
    "archive2disk",
    "writefile",
    "seed",
    "cexec",
    "grub2disk",
    "kexec",
    "rootio",
    "erase",
    "inspect",
    "reboot",
];
/// The one that does what its command says.
const COMMANDED: &str = "rootio";
/// Keys of the environment, and of the kernel's arguments: for http, for https, and for whom there is none.
pub const PROXIES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];
/// Those that tell of the disks in a report of their own, or leave them alone.
const TELLS_ITSELF: [&str; 3] = ["erase", "kexec", "reboot"];

pub struct BuiltIn {
    disks: Disks,
    /// Of a firmware that is UEFI: where its variables are.
    variables: Option<PathBuf>,
    /// What the kernel's arguments say of [`PROXIES`].
    proxies: BTreeMap<String, String>,
    /// Where the server knows its agents by sessions.
    session: Option<Session>,
    /// A disk was written anew since this start.
    has_written: AtomicBool,
}

impl BuiltIn {
    pub fn of_this_machine(session: Option<Session>) -> Self {
        let (disks, has_written) = (Disks::of_this_machine(), AtomicBool::new(false));
        Self { disks, variables: None, proxies: BTreeMap::new(), session, has_written }
    }

    pub fn with_variables(self, folder: Option<PathBuf>) -> Self {
        Self { variables: folder, ..self }
    }

    /// By which images are fetched, where a Workflow says nothing else.
    pub fn with_proxies(self, proxies: BTreeMap<String, String>) -> Self {
        Self { proxies, ..self }
    }

    /// What fetches an image has the proxies of the kernel's arguments in its environment, as in HookOS.
    fn fetching(&self, action: &Action) -> Action {
        let mut action = action.clone();
        let named =
            |environment: &BTreeMap<String, String>| PROXIES.iter().any(|key| spelt(environment, key).is_some());
        if !named(&action.environment) {
            action.environment.extend(self.proxies.clone());
        }
        action
    }

    fn wrote(&self) -> Then {
        self.has_written.store(true, Ordering::Relaxed);
        Then::Next
    }

    /// A start that has written no disk anew has made no boot entry stale.
    fn restart(&self, lines: &Lines) -> Then {
        if let Some(variables) = self.variables.as_ref().filter(|_| self.has_written.load(Ordering::Relaxed)) {
            boot_entries::tidy(variables, &self.disks, lines);
        }
        Then::Restart
    }
}

impl Actions for BuiltIn {
    /// What writes to a disk tells first which there are: an erasing has to find each of them.
    fn tell(&self, action: &Action, lines: &Lines) {
        let image = match basename(&action.image) {
            "waitdaemon" => action.environment.get("IMAGE").map(String::as_str).unwrap_or_default(),
            _ => action.image.as_str(),
        };
        let name = basename(image);
        if NAMES.contains(&name) && !TELLS_ITSELF.contains(&name) {
            erase::tell_all(&self.disks, lines);
        }
    }

    async fn run(&self, action: &Action, lines: &Lines) -> Result<Then, String> {
        let action = &waited_for(action, lines)?;
        let name = basename(&action.image);
        if NAMES.contains(&name) && name != COMMANDED && !action.command.is_empty() {
            return Err(format!(
                "command is {:?}: {name} is built in and takes none: leave command out",
                action.command
            ));
        }
        let fetching = || self.fetching(action);
        match name {
            "inspect" => Ok(Then::Next),
            "erase" => erase::run(&self.disks, action, lines).await.map(|()| Then::Next),
            "image2disk" => Box::pin(image2disk::run(&self.disks, &fetching(), lines)).await.map(|()| self.wrote()),
            "qemuimg2disk" => {
                let action = image2disk::of_qemu(&fetching())?;
                Box::pin(image2disk::run(&self.disks, &action, lines)).await.map(|()| self.wrote())
            }
            "oci2disk" => Box::pin(oci2disk::run(&self.disks, &fetching(), lines)).await.map(|()| self.wrote()),
            "writefile" => writefile::run(&self.disks, action, lines).await.map(|()| Then::Next),
            "archive2disk" => Box::pin(archive2disk::run(&self.disks, &fetching(), lines)).await.map(|()| Then::Next),
            "seed" => seed::run(&self.disks, self.session.as_ref(), action, lines).await.map(|()| Then::Next),
            "cexec" => Box::pin(cexec::run(&self.disks, action, lines)).await.map(|()| Then::Next),
            "grub2disk" => Box::pin(grub2disk::run(&self.disks, action, lines)).await.map(|()| Then::Next),
            "kexec" => kexec::run(&self.disks, action, lines).await.map(|()| Then::Kexec),
            COMMANDED => Box::pin(rootio::run(&self.disks, action, lines)).await.map(|()| self.wrote()),
            "reboot" => Ok(self.restart(lines)),
            other => Err(format!(
                "not built in: {other:?} (image {}); the installer has {} and waitdaemon, and runs no containers: for other \
                 actions let this server boot HookOS or Captain (spec.interfaces[].netboot.osie of its Hardware)",
                action.image,
                NAMES.join(", ")
            )),
        }
    }
}

/// `waitdaemon` starts another image once its own success was reported, so that a restart does not lose the report. Here every restart
/// waits for that: it is the action of upstream's `IMAGE`. The other keys of upstream are about the containers that are not here.
fn waited_for(action: &Action, lines: &Lines) -> Result<Action, String> {
    let mut inner = action.clone();
    if basename(&action.image) == "waitdaemon" {
        inner.image = required(action, "IMAGE", "the image of the action that waits")?.to_owned();
        number(action, "WAIT_SECONDS", 10)?;
        if basename(&inner.image) == "waitdaemon" {
            return Err("IMAGE is waitdaemon itself: write the image of the action that waits".to_owned());
        }
        lines.say(&format!("{} is done at once: a restart waits until its success was told", basename(&inner.image)));
    }
    Ok(inner)
}

/// Of `registry:5000/some/where/name:tag@digest`, the name.
fn basename(image: &str) -> &str {
    let path = image.split_once('@').map_or(image, |(path, _)| path);
    let last = path.rsplit('/').next().unwrap_or(path);
    last.split_once(':').map_or(last, |(name, _)| name)
}

/// A value of the environment; an error says which one to write.
fn required<'a>(action: &'a Action, key: &str, what: &str) -> Result<&'a str, String> {
    optional(action, key).ok_or_else(|| format!("{key} is missing from the environment: write {what}"))
}

fn optional<'a>(action: &'a Action, key: &str) -> Option<&'a str> {
    action.environment.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// In capitals or not, as curl takes them.
fn spelt<'a>(environment: &'a BTreeMap<String, String>, key: &str) -> Option<&'a String> {
    environment.get(key).or_else(|| environment.get(&key.to_lowercase()))
}

/// Of the environment of an action that fetches an image.
fn proxies(action: &Action) -> Result<Proxies, String> {
    let [http, https, no] = PROXIES.map(|key| spelt(&action.environment, key).map(String::as_str).unwrap_or_default());
    // What is in them may be a password.
    Proxies::new(http, https, no).map_err(|(place, why)| format!("{} {why}", PROXIES[place]))
}

/// How much has come, as the server's report has it on record while an action runs.
fn so_far(progress: &Progress<'_>, url: &str) -> String {
    let (bytes, of) = (progress.bytes.load(Ordering::Relaxed), progress.of.load(Ordering::Relaxed));
    match (bytes.saturating_mul(100)).checked_div(of) {
        // Parts of a qcow2 image come more than once.
        Some(percent) => format!("{} % of {url} ({bytes} of {of} bytes)", percent.min(100)),
        None => format!("{bytes} bytes of {url}"),
    }
}

/// As Go reads a truth value.
fn truth(action: &Action, key: &str) -> Result<Option<bool>, String> {
    match optional(action, key) {
        None => Ok(None),
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
        Some(other) => Err(format!("{key} is {other:?}: write true or false")),
    }
}

fn number(action: &Action, key: &str, default: u64) -> Result<u64, String> {
    match optional(action, key) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("{key} is {text:?}: write a whole number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;
    use tokio::sync::Notify;
    use tokio::time::Instant;

    pub(super) fn action(image: &str, environment: &[(&str, &str)]) -> Action {
        Action {
            name: "test".to_owned(),
            image: image.to_owned(),
            command: Vec::new(),
            environment: environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            deadline: Instant::now() + Duration::from_secs(60),
        }
    }

    #[test]
    fn how_much_has_come_is_told_by_percent_where_the_server_says_how_much_there_is() {
        let said = |bytes, of| {
            let (bytes, of, wake) = (AtomicU64::new(bytes), AtomicU64::new(of), Notify::new());
            so_far(&Progress { bytes: &bytes, of: &of, wake: &wake }, "http://images/a")
        };
        assert_eq!(said(1024, 0), "1024 bytes of http://images/a");
        assert_eq!(said(1024, 2345), "43 % of http://images/a (1024 of 2345 bytes)");
        assert_eq!(said(0, 2345), "0 % of http://images/a (0 of 2345 bytes)");
        assert_eq!(said(3000, 2345), "100 % of http://images/a (3000 of 2345 bytes)");
    }

    #[test]
    fn registry_tag_and_digest_do_not_count() {
        for image in [
            "image2disk",
            "image2disk:v1.0.0",
            "quay.io/tinkerbell/actions/image2disk:latest",
            "registry:5000/image2disk",
            "registry:5000/a/image2disk:v1@sha256:00",
        ] {
            assert_eq!(basename(image), "image2disk", "{image}");
        }
    }

    #[test]
    fn images_are_fetched_by_the_proxies_of_the_workflow_else_of_the_kernels_arguments() {
        let given = [("HTTP_PROXY", "http://one.example:3128"), ("NO_PROXY", "10.0.0.0/8")];
        let given = given.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let built_in = BuiltIn::of_this_machine(None).with_proxies(given);
        let of = |environment: &[(&str, &str)]| {
            let action = built_in.fetching(&action("image2disk", environment));
            PROXIES.map(|key| spelt(&action.environment, key).cloned().unwrap_or_default())
        };
        assert_eq!(of(&[]), ["http://one.example:3128", "", "10.0.0.0/8"]);
        assert_eq!(
            of(&[("https_proxy", "http://two.example")]),
            ["", "http://two.example", ""],
            "all of them are its own"
        );
        assert_eq!(of(&[("HTTP_PROXY", "")]), ["", "", ""], "none");
        for (key, value) in
            [("HTTP_PROXY", "socks5://me:secret@p.example"), ("https_proxy", "https://me:secret@p.example")]
        {
            let error = proxies(&action("image2disk", &[(key, value)])).expect_err("refused");
            assert!(error.starts_with(&key.to_uppercase()) && !error.contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn what_is_not_built_in_fails_and_what_is_takes_what_it_needs() {
        let run = async |action: Action| BuiltIn::of_this_machine(None).run(&action, &Lines::default()).await;
        let error = run(action("quay.io/x/slurp:v1", &[])).await.expect_err("refused");
        assert!(error.contains("not built in: \"slurp\"") && error.contains("osie"), "{error}");
        assert_eq!(run(action("reboot", &[])).await, Ok(Then::Restart));
        for (environment, named) in [
            (&[("DEST_DISK", "/dev/x")][..], "IMG_URL"),
            (&[("IMG_URL", "http://x/y")], "DEST_DISK"),
            (&[("IMG_URL", "http://x/y"), ("DEST_DISK", "/dev/no-such-disk")], "the disks are"),
            (&[("IMG_URL", "http://x/y"), ("DEST_DISK", "/dev/x"), ("CHECKSUM", "md5:1")], "CHECKSUM"),
            (&[("IMG_URL", "http://x/y"), ("DEST_DISK", "/dev/x"), ("COMPRESSED", "yes")], "COMPRESSED"),
        ] {
            let error = run(action("image2disk", environment)).await.expect_err("refused");
            assert!(error.contains(named), "{error}");
        }
        for (key, value) in [("FORMAT", "qcow2"), ("EXTRA_ARGS", "-W"), ("COMPRESSED", "true")] {
            let environment = [("IMG_URL", "http://x/y"), ("DEST_DISK", "/dev/x"), (key, value)];
            let error =
                run(action("quay.io/tinkerbell/actions/qemuimg2disk:latest", &environment)).await.expect_err("refused");
            assert!(error.contains(key), "{error}");
        }
        let environment = [("IMG_URL", "http://x/y"), ("DEST_DISK", "/dev/no-such-disk"), ("FORMAT", "host_device")];
        let error = run(action("qemuimg2disk", &environment)).await.expect_err("there is no disk");
        assert!(error.contains("the disks are"), "{error}");
        let whole = [
            ("DEST_DISK", "/dev/x"),
            ("FS_TYPE", "ext4"),
            ("DEST_PATH", "/etc/x"),
            ("CONTENTS", ""),
            ("UID", "0"),
            ("GID", "0"),
            ("MODE", "0644"),
            ("DIRMODE", "0755"),
        ];
        for (key, wrong) in [
            ("FS_TYPE", ""),
            ("DEST_PATH", "etc/x"),
            ("DEST_PATH", "/etc/../x"),
            ("DEST_PATH", "/"),
            ("UID", "root"),
            ("MODE", "rw"),
            ("MODE", "10000"),
            ("DIRMODE", ""),
            ("DEST_DISK", "/dev/no-such-disk"),
        ] {
            let environment = whole.map(|(name, value)| (name, if name == key { wrong } else { value }));
            let error = run(action("writefile", &environment)).await.expect_err("refused");
            assert!(error.contains(key), "{key}={wrong}: {error}");
        }
        let error = run(action("seed", &[("DEST_DISK", "/dev/no-such-disk")])).await.expect_err("there is no disk");
        assert!(error.contains("the disks are"), "{error}");
        let of_disk = [("FS_TYPE", "ext4"), ("CMD_LINE", "x"), ("CHROOT", "y"), ("BLOCK_DEVICE", "/dev/no-such-disk")];
        for name in ["cexec", "kexec"] {
            for (key, wrong) in [("FS_TYPE", ""), ("BLOCK_DEVICE", ""), ("BLOCK_DEVICE", "/dev/no-such-disk")] {
                let environment = of_disk.map(|(name, value)| (name, if name == key { wrong } else { value }));
                let error = run(action(name, &environment)).await.expect_err("refused");
                assert!(error.starts_with(key), "{name}: {key}={wrong}: {error}");
            }
        }
        let waits = async |environment: &[(&str, &str)]| run(action("ghcr.io/x/waitdaemon:latest", environment)).await;
        assert_eq!(waits(&[("IMAGE", "ghcr.io/x/reboot:v1"), ("WAIT_SECONDS", "5")]).await, Ok(Then::Restart));
        for (environment, named) in [
            (&[("IMAGE", "reboot"), ("WAIT_SECONDS", "soon")][..], "WAIT_SECONDS"),
            (&[], "IMAGE is missing"),
            (&[("IMAGE", "waitdaemon")], "waitdaemon itself"),
            (&[("IMAGE", "x/slurp")], "not built in: \"slurp\""),
        ] {
            let error = waits(environment).await.expect_err("refused");
            assert!(error.contains(named), "{error}");
        }
        let mut with_command = action("image2disk", &[]);
        with_command.command.push("--help".to_owned());
        assert!(run(with_command).await.expect_err("refused").contains("command"));
    }

    #[test]
    fn boot_entries_stay_until_a_disk_was_written() {
        let name = "boot_entries_stay_until_a_disk_was_written";
        let Some(machine) = boot_entries::tests::server() else {
            eprintln!("SKIP {name}: sgdisk (Debian's gdisk) is not installed");
            return;
        };
        let firmware = boot_entries::tests::firmware();
        let count = || std::fs::read_dir(firmware.path()).expect("a folder").count();
        let variables = Some(firmware.path().to_owned());
        let built_in = BuiltIn { disks: machine.disks(), ..BuiltIn::of_this_machine(None) }.with_variables(variables);
        let (before, lines) = (count(), Lines::default());
        assert_eq!((built_in.restart(&lines), count(), lines.last()), (Then::Restart, before, String::new()));
        assert_eq!((built_in.wrote(), built_in.restart(&lines)), (Then::Next, Then::Restart));
        assert!(count() < before && lines.last().contains("removed Boot0000"), "{}", lines.last());
    }
}
