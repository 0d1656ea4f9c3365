//! Before a new leader serves anything: every VNic that exists gets its holds. Where a version without AddressHolds led before, two
//! may have one address: the one that comes first by [`seniority`] gets it, before any that is created later can. No Vpc had admitted the
//! Subnet there.

use super::{subnet_of, subnets, vnics};
use crate::Controller;
use crate::cache::key;
use crate::error::Error;
use crate::work::Work;
use api::VNic;
use planner::network::addresses::{is_assigned, seniority};
use runtime::queue::Key;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// After so many an object is left to its queue: one that cannot be written, by a webhook that is down say, must not keep all others
/// waiting.
const ATTEMPTS: u32 = 8;
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Of VNics that have their addresses nothing is asked.
pub(crate) async fn before_all(c: &Controller) {
    let mut vnics: Vec<Arc<VNic>> = c.world.vnics.all().into_iter().filter(|vnic| !is_assigned(vnic)).collect();
    vnics.sort_by_cached_key(|vnic| seniority(vnic));
    let subnets: BTreeSet<Key> = vnics.iter().map(|vnic| subnet_of(vnic)).collect();
    for subnet in subnets {
        one(c, Work::Subnet, &subnet).await;
    }
    for vnic in vnics {
        one(c, Work::VNic, &key(&vnic.metadata)).await;
    }
}

async fn one(c: &Controller, work: Work, of: &Key) {
    for attempt in 0.. {
        let done = match work {
            Work::Subnet => subnets::be_admitted(c, of).await,
            _ => vnics::rounds(c, of).await.map(drop),
        };
        match done {
            Ok(()) => break,
            // It is refused to any other VNic as well.
            Err(error @ Error::Refused { .. }) => {
                tracing::warn!(?work, name = %of.1, namespace = %of.0, "{error}");
                break;
            }
            Err(error) if attempt + 1 == ATTEMPTS => {
                tracing::warn!(?work, name = %of.1, namespace = %of.0, "{error}");
                c.world.look(work, of.clone());
                break;
            }
            Err(error) => {
                tracing::debug!(?work, name = %of.1, namespace = %of.0, "{error}");
                sleep(FIRST_DELAY * 2u32.pow(attempt)).await;
            }
        }
    }
}
