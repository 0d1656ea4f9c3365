//! One session: every command and what it answered goes into the transcript; every step is counted.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) struct Session {
    kubectl: PathBuf,
    pub(super) kubeconfig: PathBuf,
    /// For what is kept; `bin` in it is the PATH.
    pub(super) folder: PathBuf,
    transcript: File,
    counted: usize,
    wrong: Vec<String>,
}

/// What the session runs besides kubectl and its plug-in: `kubectl diff` needs the one, a completion the other.
const PROGRAMS: [&str; 2] = ["bash", "diff"];

/// The caller's PATH may have plug-ins of kubectl, even ours.
fn path_of_its_own(bin: &Path) -> Result<()> {
    fs::create_dir_all(bin).context("make a folder for plug-ins")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    for name in PROGRAMS {
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
        let found = found.with_context(|| format!("{name} is not on the PATH: install it"))?;
        symlink(&found, bin.join(name)).with_context(|| format!("link {}", found.display()))?;
    }
    Ok(())
}

/// What a command answered.
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    pub(super) fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// Every part is in the answer; lines that kubectl broke are joined.
    fn has(&self, parts: &[&str]) -> Result<(), String> {
        let joined = self.all().split_whitespace().collect::<Vec<_>>().join(" ");
        match parts.iter().find(|part| !joined.contains(**part)) {
            None => Ok(()),
            Some(part) => Err(format!("it does not say '{part}'")),
        }
    }
}

impl Session {
    pub(super) fn new(folder: &Path, kubectl: &Path, kubeconfig: &Path) -> Result<Self> {
        let transcript = File::create(folder.join("session.txt")).context("make session.txt")?;
        path_of_its_own(&folder.join("bin"))?;
        Ok(Self {
            kubectl: kubectl.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            folder: folder.to_owned(),
            transcript,
            counted: 0,
            wrong: Vec::new(),
        })
    }

    pub(super) fn steps(&self) -> usize {
        self.counted
    }

    pub(super) fn wrong(&self) -> Vec<String> {
        self.wrong.clone()
    }

    /// Runs kubectl; not a step by itself.
    pub(super) fn say(&mut self, words: &[&str], input: Option<&str>) -> Said {
        let kubeconfig = self.kubeconfig.clone();
        self.say_as(&kubeconfig, words, input)
    }

    /// The same as somebody else.
    pub(super) fn say_as(&mut self, kubeconfig: &Path, words: &[&str], input: Option<&str>) -> Said {
        let mut command = Command::new(&self.kubectl);
        command.args(words).env("KUBECONFIG", kubeconfig);
        let who = if kubeconfig == self.kubeconfig { "" } else { "KUBECONFIG=agent " };
        let shown = format!("{who}kubectl {}", words.join(" "));
        self.answer(command, &shown, input)
    }

    /// Another program, with kubectl's environment.
    pub(super) fn other(&mut self, mut command: Command, shown: &str) -> Result<Said> {
        command.env("KUBECONFIG", &self.kubeconfig);
        Ok(self.answer(command, shown, None))
    }

    fn answer(&mut self, mut command: Command, shown: &str, input: Option<&str>) -> Said {
        command.env("PATH", self.folder.join("bin"));
        command.env("KUBECACHEDIR", self.folder.join("cache")).env("COLUMNS", "80");
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let said = match outcome(command, input) {
            Ok(said) => said,
            Err(error) => Said { code: -1, out: String::new(), err: format!("{error:#}\n") },
        };
        let input = input.map(|text| format!(" <<EOF\n{}\nEOF", text.trim_end())).unwrap_or_default();
        let code = if said.code == 0 { String::new() } else { format!("[exit code {}]\n", said.code) };
        let out = if prints_a_credential(shown) && said.code == 0 { "(a credential: not kept)\n" } else { &said.out };
        self.note(&format!("$ {shown}{input}\n{out}{}{code}\n", said.err));
        said
    }

    fn note(&mut self, text: &str) {
        // A transcript that cannot be written is a step that failed.
        if let Err(error) = self.transcript.write_all(text.as_bytes()) {
            self.wrong.push(format!("session.txt: {error}"));
        }
    }

    /// Counts a step.
    pub(super) fn step(&mut self, what: &str, result: Result<(), String>) {
        self.counted += 1;
        match result {
            Ok(()) => self.note(&format!("# ok {}: {what}\n\n", self.counted)),
            Err(why) => {
                self.note(&format!("# FAILED {}: {what}: {why}\n\n", self.counted));
                self.wrong.push(format!("{what}: {why}"));
            }
        }
    }

    /// A step: this works, and says all that.
    pub(super) fn works(&mut self, what: &str, words: &[&str], input: Option<&str>, parts: &[&str]) -> Said {
        let said = self.say(words, input);
        self.judged(what, &said, true, parts);
        said
    }

    /// A step: this is refused, with all that.
    pub(super) fn refused(&mut self, what: &str, words: &[&str], input: Option<&str>, parts: &[&str]) {
        let said = self.say(words, input);
        self.judged(what, &said, false, parts);
    }

    pub(super) fn judged(&mut self, what: &str, said: &Said, works: bool, parts: &[&str]) {
        let result = match (said.code == 0, works) {
            (true, false) => Err("it was accepted".to_owned()),
            (false, true) => Err(format!("it failed: {}", said.err.trim())),
            _ => said.has(parts),
        };
        self.step(what, result);
    }

    /// Asks until the answer is as it should be: for what the API server takes up a moment later.
    pub(super) fn until(&mut self, words: &[&str], is_so: impl Fn(&Said) -> bool) -> Said {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let said = self.say(words, None);
            if is_so(&said) || Instant::now() > deadline {
                return said;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn prints_a_credential(shown: &str) -> bool {
    shown.contains("kubectl create token ") || shown.contains("kubectl config view --raw")
}

fn outcome(mut command: Command, input: Option<&str>) -> Result<Said> {
    let mut child = command.spawn().context("start it")?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).context("write its input")?;
    }
    let done = child.wait_with_output().context("wait for it")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { code: done.status.code().unwrap_or(-1), out: text(&done.stdout), err: text(&done.stderr) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_plug_in_on_the_callers_path_is_not_found() {
        let folder = std::env::temp_dir().join(format!("kubectl-session-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let kubectl = folder.join("kubectl");
        fs::write(&kubectl, "#!/bin/sh\necho \"$PATH\"; diff /dev/null /dev/null && bash -c 'echo both run'\n")
            .expect("written");
        fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).expect("executable");
        let mut session = Session::new(&folder, &kubectl, &folder.join("kubeconfig")).expect("a session");
        let said = session.say(&["plugin", "list"], None);
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(said.all(), format!("{}\nboth run\n", folder.join("bin").display()));
    }
}
