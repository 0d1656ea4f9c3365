//! [`ports::SouthBound`] on a real OVN_Southbound database: a Chassis says who there is, its Chassis_Private what it has installed.
//!
//! Both tables are followed whole, without conditions: `nb_cfg` is raised above the number of every chassis, of those that no Dpu names (yet) too, and a
//! chassis is two rows. Tables that grow with the network (Port_Binding, Logical_Flow) are not followed.

use crate::session::{Session, SessionConfig};
use crate::value::Value;
use async_trait::async_trait;
use ports::south_bound::Chassis;
use ports::{PortError, SouthBound};
use std::collections::{BTreeMap, BTreeSet};

pub const DATABASE: &str = "OVN_Southbound";

/// What [`OvnSouthBound`] reads, for [`SessionConfig::monitored`].
pub fn monitored() -> BTreeMap<String, Vec<String>> {
    [("Chassis", ["name", "other_config"].as_slice()), ("Chassis_Private", &["name", "nb_cfg"])]
        .into_iter()
        .map(|(table, columns)| (table.to_owned(), columns.iter().map(|&column| column.to_owned()).collect()))
        .collect()
}

pub struct OvnSouthBound {
    session: Session,
}

impl OvnSouthBound {
    /// Of a cluster the leader is asked, as of the north-bound database: another server may be behind. Connects in the background;
    /// needs a Tokio runtime.
    pub fn new(config: SessionConfig) -> Self {
        Self { session: Session::start_with_leader(config, None) }
    }
}

/// `physnet1:br-ex,physnet2:br-dc` (ovn-controller(8)).
fn mapped(config: Option<&Value>) -> BTreeSet<String> {
    let mappings = config.and_then(|config| config.get("ovn-bridge-mappings"));
    let pairs = mappings.unwrap_or_default().split(',').filter_map(|pair| pair.trim().split_once(':'));
    pairs.map(|(network, _)| network.to_owned()).collect()
}

#[async_trait]
impl SouthBound for OvnSouthBound {
    fn chassis(&self) -> Result<BTreeMap<String, Chassis>, PortError> {
        let view = self.session.current().map_err(|error| error.for_port("reading the chassis"))?;
        let named = |table| view.cache.rows(table).filter_map(|(_, row)| Some((row.get("name")?.as_str()?, row)));
        let mut all: BTreeMap<String, Chassis> = named("Chassis")
            .map(|(name, row)| {
                (name.to_owned(), Chassis { physical_networks: mapped(row.get("other_config")), installed: None })
            })
            .collect();
        for (name, row) in named("Chassis_Private") {
            // A chassis that has just registered says 0: no change was ever given that number.
            let number = row.get("nb_cfg").and_then(Value::as_integer).and_then(|number| u64::try_from(number).ok());
            if let Some(chassis) = all.get_mut(name) {
                chassis.installed = number.filter(|number| *number > 0);
            }
        }
        Ok(all)
    }

    async fn changes(&self) -> Result<(), PortError> {
        self.session.touched().await;
        self.session.current().map(|_| ()).map_err(|error| error.for_port("following the chassis"))
    }
}
