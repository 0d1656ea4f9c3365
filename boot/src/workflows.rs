//! Renders Workflows, ends those whose time is over, and tells what they wait for: the loop around `planner::workflow::{advance, told}`.

use crate::identity::Identity;
use crate::references::Reader;
use crate::silence::{EVERY, Listener};
use crate::world::World;
use planner::workflow::references::References;
use planner::workflow::{Advance, Heard, advance_with, told};
use runtime::clock;
use std::sync::Arc;
use std::time::Duration;

/// After a write that failed, and at most so long without a look.
const AGAIN: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

pub async fn run(world: Arc<World>, identity: Identity, reader: Reader) {
    let (mut changes, mut listener) = (world.changes(), Listener::default());
    loop {
        changes.mark_unchanged();
        let wait = round(&world, &identity, &reader, &mut listener).await;
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// How long nothing is to be done, if nothing changes.
async fn round(world: &World, identity: &Identity, reader: &Reader, listener: &mut Listener) -> Duration {
    let now = clock::now();
    let mut wait = LONGEST;
    let (workflows, directory) = (world.workflows(), world.directory().borrow().clone());
    let queues = directory.queues(&workflows);
    for workflow in workflows {
        let named = |name: &Option<String>| name.clone().unwrap_or_default();
        let template = world.template(&named(&workflow.spec.template_ref));
        let hardware = world.hardware(&named(&workflow.spec.hardware_ref));
        let (template, hardware) = (template.as_deref(), hardware.as_deref());
        let references = reader.read(References::asked(&workflow, template, hardware, &reader.rules)).await;
        let Advance { status, wake_at } = advance_with(&workflow, template, hardware, &references, now);
        if let Some(at) = wake_at {
            wait = wait.min(Duration::try_from(at.duration_since(now)).unwrap_or_default());
        }
        let name = named(&workflow.metadata.name);
        let status = match status {
            Some(status) => Some(status),
            None => {
                let heard = listener.listen(world, identity, &directory, &workflow).await;
                let heard = |agent: &str| heard.get(agent).copied().unwrap_or(Heard::Unknown);
                let ahead = |agent: &str| queues.get(&(agent.to_owned(), name.clone())).cloned();
                told(&workflow, ahead, heard, now)
            }
        };
        let Some(status) = status else { continue };
        let state = status.state.clone();
        match world.write(&workflow, status).await {
            Ok(true) => tracing::info!(workflow = name, state, "advanced"),
            // The watch tells what it is by now.
            Ok(false) => {}
            Err(error) => {
                tracing::warn!("{error:#}");
                wait = wait.min(AGAIN);
            }
        }
    }
    listener.forget();
    if listener.is_listening() { wait.min(EVERY) } else { wait }
}
