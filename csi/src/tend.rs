//! Storage nodes may be started anew at any time, and then have forgotten what they were told of their volumes.

use crate::pools::Pools;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const PERIOD: Duration = Duration::from_secs(5);

/// Tells them again, for as long as it is polled. What goes wrong is logged when it begins, and when it has ended.
pub(crate) async fn tend(pools: Arc<Pools>) {
    let mut problems: BTreeMap<String, String> = BTreeMap::new();
    let mut anew = true;
    loop {
        let all = pools.clone();
        let look = move || {
            let lvols = all.iter().filter(|pool| !pool.are_files());
            lvols.map(|pool| (pool.name().to_owned(), pool.tend(anew).err())).collect::<Vec<_>>()
        };
        let looked = tokio::task::spawn_blocking(look).await.unwrap_or_default();
        // What a pool that did not answer has left over may be what a call is working on by now.
        anew = false;
        for (pool, fault) in looked {
            match fault.map(|fault| fault.to_string()) {
                None => {
                    if problems.remove(&pool).is_some() {
                        tracing::info!(pool, "its storage node answers, and has what it needs");
                    }
                }
                Some(problem) => {
                    if problems.get(&pool) != Some(&problem) {
                        tracing::warn!(pool, "{problem}");
                    }
                    problems.insert(pool, problem);
                }
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}
