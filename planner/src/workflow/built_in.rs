//! What Metalplane's installer can do, which runs no containers. A Workflow that asks its server's installer for anything else ends before
//! its first action, and not in the middle of a disk.

use super::ended::{self, Why};
use super::serve::served_now;
use super::state;
use super::turn::has_begun;
use api::tinkerbell::workflow::{Task, Workflow, WorkflowStatus};
use jiff::Timestamp;
use serde_json::Value;

/// The way out.
const OTHERS: &str = "boot HookOS or Captain (spec.interfaces[].netboot.osie of its Hardware)";
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
/// Partitions disks as a document describes them, which its environment may have.
const ROOTIO: (&str, &str) = ("rootio", "METADATA");
/// What of that document the installer does not make, and what such a thing is called.
const UNMADE: [(&str, &str); 2] = [("volume_groups", "LVM"), ("raid", "software RAID")];
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
        let named = |key: &str| action.environment.get(key).or(task.environment.get(key)).map_or("", String::as_str);
        let (key, inner) = match word(image) == WAITS.0 {
            true => (WAITS.1, named(WAITS.1)),
            false => ("image", image),
        };
        let said = match word(inner) {
            word if !BUILT_IN.contains(&word) => format!(
                "{key} '{inner}': the installer has no such action, and runs no containers; it has {} and {}. For others let this server {OTHERS}",
                BUILT_IN.join(", "),
                WAITS.0
            ),
            word if word == ROOTIO.0 => {
                let (key, what) = unmade(named(ROOTIO.1))?;
                format!(
                    "{}: metadata.instance.storage.{key}: the installer makes no {what}: leave it out, or let this server {OTHERS}",
                    ROOTIO.1
                )
            }
            _ => return None,
        };
        Some((place, said))
    })
}

/// What this document asks for. One that cannot be read, or is fetched, the action itself refuses.
fn unmade(document: &str) -> Option<(&'static str, &'static str)> {
    let document: Value = serde_json::from_str(document).ok()?;
    let storage = document.pointer("/metadata/instance/storage")?;
    UNMADE.into_iter().find(|(key, _)| storage[key].as_array().is_some_and(|all| !all.is_empty()))
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
