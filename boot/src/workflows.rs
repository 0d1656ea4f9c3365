//! Renders Workflows, and ends those whose time is over: the loop around `planner::workflow::advance`.

use crate::references::Reader;
use crate::world::World;
use planner::workflow::references::References;
use planner::workflow::{Advance, advance_with};
use runtime::clock;
use std::sync::Arc;
use std::time::Duration;

/// After a write that failed, and at most so long without a look.
const AGAIN: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

pub async fn run(world: Arc<World>, reader: Reader) {
    let mut changes = world.changes();
    loop {
        changes.mark_unchanged();
        let wait = round(&world, &reader).await;
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// How long nothing is to be done, if nothing changes.
async fn round(world: &World, reader: &Reader) -> Duration {
    let now = clock::now();
    let mut wait = LONGEST;
    for workflow in world.workflows() {
        let named = |name: &Option<String>| name.clone().unwrap_or_default();
        let template = world.template(&named(&workflow.spec.template_ref));
        let hardware = world.hardware(&named(&workflow.spec.hardware_ref));
        let (template, hardware) = (template.as_deref(), hardware.as_deref());
        let references = reader.read(References::asked(&workflow, template, hardware, &reader.rules)).await;
        let Advance { status, wake_at } = advance_with(&workflow, template, hardware, &references, now);
        if let Some(at) = wake_at {
            wait = wait.min(Duration::try_from(at.duration_since(now)).unwrap_or_default());
        }
        let Some(status) = status else { continue };
        let (name, state) = (named(&workflow.metadata.name), status.state.clone());
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
    wait
}
