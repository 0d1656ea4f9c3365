//! What Metalplane's installer can do, which runs no containers. A Workflow that asks its server's installer for anything else ends before
//! its first action, and not in the middle of a disk.

use super::ended::{self, Why};
use super::serve::served_now;
use super::state;
use super::turn::has_begun;
use api::tinkerbell::workflow::{Task, Workflow, WorkflowStatus};
use jiff::Timestamp;

/// By the last word of an action's image.
pub const BUILT_IN: [&str; 13] = [
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
/// Runs the image that its environment names here.
const WAITS: (&str, &str) = ("waitdaemon", "IMAGE");

/// The last word of an image's name, without its registry and tag.
pub fn word(image: &str) -> &str {
    let path = image.split('@').next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    last.split(':').next().unwrap_or_default()
}

/// The first action of this agent that the installer has not, and what is said of it.
pub fn lacking(tasks: &[Task], agent: &str) -> Option<((usize, usize), String)> {
    let own = tasks.iter().enumerate().filter(|(_, task)| task.agent_id == agent);
    let mut all =
        own.flat_map(|(at, task)| task.actions.iter().enumerate().map(move |(n, action)| ((at, n), task, action)));
    all.find_map(|(place, task, action)| {
        let image = action.image.as_deref().unwrap_or_default();
        let (key, inner) = match word(image) == WAITS.0 {
            true => (WAITS.1, action.environment.get(WAITS.1).or(task.environment.get(WAITS.1)).map_or("", String::as_str)),
            false => ("image", image),
        };
        (!BUILT_IN.contains(&word(inner))).then(|| {
            let said = format!(
                "{key} '{inner}': the installer has no such action, and runs no containers; it has {} and {}. For others let this server \
                 boot HookOS or Captain (spec.interfaces[].netboot.osie of its Hardware)",
                BUILT_IN.join(", "),
                WAITS.0
            );
            (place, said)
        })
    })
}

/// What becomes of a Workflow of which nothing has begun, when an installer asks for it that lacks one of its actions.
pub fn refused(agent: &str, workflow: &Workflow, now: Timestamp) -> Option<WorkflowStatus> {
    let (before, _) = served_now(workflow)?;
    if before.tasks.iter().any(|task| task.agent_id == agent && has_begun(task)) {
        return None;
    }
    let (place, message) = lacking(&before.tasks, agent)?;
    let mut status = before.clone();
    ended::end(&mut status, &[place], &Why { state: state::FAILED, reason: "ActionNotBuiltIn", message }, now);
    Some(status)
}
