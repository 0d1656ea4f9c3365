//! The south-bound database: which ports northd has made, which of them are up, and which number northd and the chassis have reached.

use super::CHASSIS;
use anyhow::{Context, Result};
use ovsdb::index::Indexed;
use ovsdb::session::View;
use ovsdb::value::Value;
use ovsdb::{Addresses, Remotes, Schedule, Session, SessionConfig, chassis, client::Limits};
use planner::network::rows::{SITE, UID};
use sandbox::cluster::ovn::SOUTH_BOUND;
use sandbox::layout::Layout;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PORTS: &str = "Port_Binding";
/// What northd copies from the port of the north-bound database.
const IDS: &str = "external_ids";
const UP: &str = "up";
const NUMBER: &str = "nb_cfg";
/// Northd's transactions at this size keep the server from answering for seconds.
const LIMITS: Limits =
    Limits { connect: Duration::from_secs(10), call: Duration::from_secs(60), probe: Duration::from_secs(60) };

pub struct South {
    session: Session,
}

impl South {
    pub fn follow(layout: &Layout, site_uid: &str) -> Result<Self> {
        let address: Addresses = format!("unix:{}", SOUTH_BOUND.socket(layout).display()).parse()?;
        let tables = [(PORTS, [IDS, UP].as_slice()), ("SB_Global", &[NUMBER]), ("Chassis_Private", &["name", NUMBER])];
        let columns = |all: &[&str]| all.iter().map(|&column| column.to_owned()).collect();
        let config = SessionConfig {
            remotes: Remotes::new(address, None)?,
            database: chassis::DATABASE.to_owned(),
            monitored: tables.into_iter().map(|(table, all)| (table.to_owned(), columns(all))).collect(),
            limits: LIMITS,
            schedule: Schedule::default(),
        };
        let ours = Indexed {
            column: IDS.to_owned(),
            key: UID.to_owned(),
            only: (SITE.to_owned(), site_uid.to_owned()),
            sets: BTreeMap::new(),
        };
        Ok(Self { session: Session::start_with_leader(config, Some(ours)) })
    }

    /// When it was so.
    pub async fn until(&self, what: &str, limit: Duration, is_so: impl Fn(&View) -> bool) -> Result<Instant> {
        let mut changes = self.session.changes();
        let seen = tokio::time::timeout(limit, changes.wait_for(|view| is_so(view))).await;
        let seen = seen.with_context(|| format!("{what}: not within {} s", limit.as_secs()))?;
        seen.context("the session has ended").map(|_| Instant::now())
    }
}

/// How many ports are of VNics, Subnets and other objects of ours.
pub fn objects(view: &View) -> usize {
    view.cache.owners().count()
}

pub fn has_port(view: &View, uid: &str) -> bool {
    view.cache.rows_of(uid, PORTS).next().is_some()
}

/// As the chassis says, once the port's flows are installed.
pub fn is_up(view: &View, uid: &str) -> bool {
    view.cache.rows_of(uid, PORTS).any(|(_, port)| port.get(UP) == Some(&Value::from(true)))
}

/// All that was in the north-bound database at this number is in the south-bound one.
pub fn northd_reached(view: &View, number: i64) -> bool {
    view.cache.rows("SB_Global").any(|(_, row)| reached(row.get(NUMBER), number))
}

pub fn chassis_reached(view: &View, number: i64) -> bool {
    view.cache.find("Chassis_Private", "name", CHASSIS).is_some_and(|(_, row)| reached(row.get(NUMBER), number))
}

fn reached(value: Option<&Value>, number: i64) -> bool {
    value.and_then(Value::as_integer).is_some_and(|reached| reached >= number)
}
