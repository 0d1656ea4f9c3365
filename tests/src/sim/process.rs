//! One life of a controller or an agent. When it dies its tasks are dropped, and what outlives them (a task that it
//! spawned) never hears from the outside again.

use super::api::watch::Shared;
use super::faults::{Fault, Who};
use super::scene::Scene;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a request that comes late is under way.
const LATE: Duration = Duration::from_secs(20);

pub struct Process {
    pub who: Who,
    pub name: String,
    pub scene: Arc<Scene>,
    pub watches: Shared,
    alive: watch::Sender<bool>,
}

impl Process {
    pub fn new(scene: &Arc<Scene>, who: Who, name: &str) -> Arc<Self> {
        Arc::new(Self {
            who,
            name: name.to_owned(),
            scene: scene.clone(),
            watches: Shared { manners: scene.manners(who), random: scene.random.clone(), cut: Some(scene.cuts(name)) },
            alive: watch::Sender::new(true),
        })
    }

    pub fn die(&self) {
        self.alive.send_replace(false);
    }

    pub async fn died(&self) {
        // The sender lives as long as `self`.
        let _ = self.alive.subscribe().wait_for(|alive| !alive).await;
    }

    /// Nothing of the API server reaches it.
    pub fn is_cut(&self) -> bool {
        self.watches.cut.as_ref().is_some_and(|cut| cut.get())
    }

    /// The way to the outside and back: takes a moment, and never ends for the dead.
    pub async fn travel(&self) {
        tokio::time::sleep(Duration::from_micros(200 + self.scene.random.below(2000))).await;
        if !*self.alive.borrow() {
            std::future::pending::<()>().await;
        }
    }

    /// Carries an effect out, or what the plan of faults makes of it. `lost`: what the caller hears when nobody answers;
    /// `refused`: when it is refused.
    pub async fn effect<T: Send + 'static>(
        &self,
        what: &str,
        act: impl Future<Output = T> + Send + 'static,
        lost: impl FnOnce() -> T,
        refused: impl FnOnce() -> T,
    ) -> T {
        self.travel().await;
        match self.scene.faults.effect(self.who, &self.name, what) {
            None | Some(Fault::Mark) => {
                let result = act.await;
                self.scene.check(what);
                self.travel().await;
                result
            }
            Some(Fault::Refuse) => refused(),
            Some(Fault::LoseAnswer) => {
                act.await;
                self.scene.check(what);
                lost()
            }
            Some(Fault::Crash) => {
                act.await;
                self.scene.check(what);
                self.die();
                std::future::pending().await
            }
            Some(Fault::CrashBefore) => {
                self.die();
                std::future::pending().await
            }
            Some(Fault::Late) => {
                let (scene, what) = (self.scene.clone(), what.to_owned());
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    act.await;
                    scene.check(&format!("late: {what}"));
                });
                self.die();
                std::future::pending().await
            }
        }
    }
}
