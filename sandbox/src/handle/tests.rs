//! A sandbox that is kept lives on without its caller, whose output somebody may be reading.

use super::*;
use crate::supervisor::ReadyOvn;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

/// The sandbox that a child process starts and keeps.
const KEPT: &str = "SANDBOX_KEPT";

/// As `make demo KEEP=1 | tee log`: a reader of the caller's output has its end although the program stays.
#[tokio::test]
async fn a_program_that_stays_does_not_hold_its_callers_output() {
    let path = std::env::temp_dir().join(format!("stays-{}.out", std::process::id()));
    let (mut caller, output) = std::io::pipe().expect("a pipe");
    let mut command = Command::new("sh");
    command.args(["-c", "echo said; echo complained >&2; exec sleep 600"]).kill_on_drop(true).stdin(Stdio::null());
    command.stdout(output.try_clone().expect("another")).stderr(output);
    let mut said = says_into(&mut command, &path).expect("a file");
    let mut child = command.spawn().expect("started");
    drop(command);
    let mut nothing = String::new();
    caller.read_to_string(&mut nothing).expect("the end");
    assert_eq!(nothing, "");
    let mut text = String::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !text.contains("complained") && tokio::time::Instant::now() < deadline {
        said.read_to_string(&mut text).expect("readable");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(text, "said\ncomplained\n");
    assert!(child.try_wait().expect("known").is_none(), "it stays");
    child.kill().await.expect("ended");
    std::fs::remove_file(path).expect("removed");
}

/// Ends with the test, also when that fails.
struct Supervisor(Layout);

impl Supervisor {
    fn pid(&self) -> Option<Pid> {
        let pid = read_ready(&self.0).ok()?.supervisor;
        (pid > 0).then(|| Pid::from_raw(pid.try_into().expect("a process id")))
    }

    fn lives(&self) -> bool {
        self.pid().is_some_and(|pid| kill(pid, None).is_ok())
    }

    fn says_into(&self) -> PathBuf {
        Layout::root().join(format!("{}.out", self.0.name))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        let _ = std::fs::remove_dir_all(&self.0.dir);
        let _ = std::fs::remove_file(self.says_into());
    }
}

fn program(layout: &Layout) -> PathBuf {
    layout.dir.join("supervisor")
}

/// A program in the supervisor's place: it says something on both outputs, is ready, and stays.
fn write_program(layout: &Layout) -> std::io::Result<()> {
    let nothing = PathBuf::new;
    let ready = Ready {
        name: layout.name.clone(),
        supervisor: 0,
        kubeconfig: nothing(),
        admin_kubeconfig: nothing(),
        control_socket: nothing(),
        pool: nothing(),
        ovn: ReadyOvn {
            north_bound: String::new(),
            south_bound: String::new(),
            certificate: nothing(),
            private_key: nothing(),
            ca_cert: nothing(),
        },
        programs: Vec::new(),
        nodes: Vec::new(),
        servers: Vec::new(),
    };
    let ready = serde_json::to_string(&ready)?.replace("\"supervisor\":0", "\"supervisor\":'$$'");
    let path = layout.ready().display().to_string();
    let text = format!(
        "#!/bin/sh\necho said\necho complained >&2\necho '{ready}' >{path}.new\nmv {path}.new {path}\nexec sleep 600\n"
    );
    std::fs::create_dir_all(&layout.dir)?;
    std::fs::write(program(layout), text)?;
    std::fs::set_permissions(program(layout), std::fs::Permissions::from_mode(0o755))
}

/// The caller is a process of its own, this test's program: what a child inherits is inherited from a process.
#[tokio::test]
async fn a_sandbox_that_is_kept_does_not_hold_its_callers_output() {
    if let Ok(name) = std::env::var(KEPT) {
        let program = Some(program(&Layout::new(&name).expect("a name")));
        let kept = Sandbox::start(&name, Options { keep: true, program, ..Options::default() }).await;
        kept.map(drop).expect("the program is ready");
        return;
    }
    let test = "a_sandbox_that_is_kept_does_not_hold_its_callers_output";
    let supervisor = Supervisor(Layout::new(&format!("kept-{}", std::process::id())).expect("a name"));
    if let Err(error) = write_program(&supervisor.0) {
        eprintln!("SKIP {test}: cannot write {}: {error}", supervisor.0.dir.display());
        return;
    }
    let (mut said, output) = std::io::pipe().expect("a pipe");
    let mut caller = Command::new(std::env::current_exe().expect("a test has a program"));
    caller.args([&format!("handle::tests::{test}"), "--exact", "--nocapture"]).env(KEPT, &supervisor.0.name);
    caller.stdin(Stdio::null()).stdout(output.try_clone().expect("another")).stderr(output);
    let ended = caller.status();
    drop(caller);
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        said.read_to_string(&mut text).map(|_| text)
    });
    let ended = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("in time").expect("started");
    assert!(supervisor.lives(), "it was started, and stays");
    let text = tokio::time::timeout(Duration::from_secs(10), read).await;
    let text = text.expect("the caller's output has its end").expect("no panic").expect("readable");
    assert!(ended.success(), "{text}");
    assert!(supervisor.lives(), "it stays");
    let in_file = std::fs::read_to_string(supervisor.says_into()).expect("its own output");
    assert_eq!(in_file, "said\ncomplained\n");
}
