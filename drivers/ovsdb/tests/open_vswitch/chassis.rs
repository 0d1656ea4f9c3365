//! [`ports::SouthBound`] on a real `ovsdb-server`; the chassis are made with OVN's own tool.

use crate::lab::{OpenVSwitchLab, in_namespace, missing_of_ovn};
use ovsdb::OvnSouthBound;
use ovsdb::chassis::{DATABASE, monitored};
use ports::south_bound::Chassis;
use ports::{ErrorClass, SouthBound};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[test]
fn a_chassis_tells_what_it_has_installed() {
    let name = "a_chassis_tells_what_it_has_installed";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        let mut lab = OpenVSwitchLab::ovn(DATABASE).await;
        let mut config = lab.config(monitored());
        config.database = DATABASE.to_owned();
        let south_bound = OvnSouthBound::new(config);
        let becomes = async |wanted: &[(&str, Option<u64>)], maps: &[&str]| {
            let physical_networks: BTreeSet<String> = maps.iter().map(|network| (*network).to_owned()).collect();
            let of = |(name, installed): &(&str, Option<u64>)| {
                let physical_networks = physical_networks.clone();
                ((*name).to_owned(), Chassis { installed: *installed, physical_networks })
            };
            let wanted: BTreeMap<String, Chassis> = wanted.iter().map(of).collect();
            let seen = async {
                while south_bound.chassis() != Ok(wanted.clone()) {
                    // An error is told too: of the time before the connection.
                    let _ = south_bound.changes().await;
                }
            };
            let limit = tokio::time::timeout(Duration::from_secs(60), seen).await;
            limit.unwrap_or_else(|_| panic!("never {wanted:?}: {:?}", south_bound.chassis()));
        };
        becomes(&[], &[]).await;
        lab.tool("ovn-sbctl", &["chassis-add", "dpu-1", "geneve", "192.0.2.1"]);
        becomes(&[("dpu-1", None)], &[]).await;
        lab.tool("ovn-sbctl", &["create", "chassis_private", "name=dpu-1"]);
        lab.tool("ovn-sbctl", &["create", "chassis_private", "name=gone", "nb_cfg=9"]);
        becomes(&[("dpu-1", None)], &[]).await;
        lab.tool("ovn-sbctl", &["set", "chassis_private", "dpu-1", "nb_cfg=7"]);
        becomes(&[("dpu-1", Some(7))], &[]).await;
        let mappings = "other_config:ovn-bridge-mappings=\"physnet1:br-ex, dc-2:br-dc\"";
        lab.tool("ovn-sbctl", &["set", "chassis", "dpu-1", mappings]);
        becomes(&[("dpu-1", Some(7))], &["physnet1", "dc-2"]).await;
        lab.stop_server();
        let lost = async { while south_bound.changes().await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(60), lost).await.expect("the loss is told");
        assert_eq!(south_bound.chassis().map_err(|error| error.class), Err(ErrorClass::Unreachable));
    });
}
