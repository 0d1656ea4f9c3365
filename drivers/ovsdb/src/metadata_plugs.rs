//! The ports at which this node answers guests who ask about themselves: Interfaces of ours without a grant, told from those of NICs by the
//! external id `metalplane-metadata`. All that changes is one transaction: at no moment are two devices one logical port.

use crate::cache::Cache;
use crate::switch::{DATABASE, LOGICAL_PORT, MAC, add_to_bridge, holders, remove_from_bridge};
use crate::transact::{Condition, Function, Transaction};
use crate::value::{Row, Value};
use ports::switch::MetadataPlug;
use std::collections::BTreeSet;
use uuid::Uuid;

const METADATA: &str = "metalplane-metadata";

/// Those that are plugged.
pub(crate) fn plugged(cache: &Cache) -> impl Iterator<Item = (Uuid, MetadataPlug)> {
    cache.rows("Interface").filter_map(|(uuid, row)| {
        let ids = row.get("external_ids")?;
        ids.get(METADATA)?;
        let text = |key: &str| ids.get(key).unwrap_or_default().to_owned();
        let device = row.get("name").and_then(Value::as_str)?.to_owned();
        Some((uuid, MetadataPlug { device, logical_port: text(LOGICAL_PORT), mac: text(MAC) }))
    })
}

/// What makes them the wanted ones; `None`: nothing has to be done. An error: the device that somebody else has.
pub(crate) fn change(cache: &Cache, bridge: Uuid, wanted: &[MetadataPlug]) -> Result<Option<Transaction>, String> {
    let there: Vec<(Uuid, MetadataPlug)> = plugged(cache).collect();
    let kept: BTreeSet<&MetadataPlug> =
        there.iter().filter(|(_, plug)| wanted.contains(plug)).map(|(_, plug)| plug).collect();
    let leaving: Vec<&(Uuid, MetadataPlug)> = there.iter().filter(|(_, plug)| !wanted.contains(plug)).collect();
    let coming: Vec<&MetadataPlug> = wanted.iter().filter(|plug| !kept.contains(plug)).collect();
    if leaving.is_empty() && coming.is_empty() {
        return Ok(None);
    }
    let mut transaction = Transaction::new(DATABASE);
    for (interface, plug) in leaving {
        let still_ours =
            [Condition::row(*interface), Condition::includes("external_ids", Value::map([(METADATA, "true")]))];
        let name = Row::from([("name".to_owned(), Value::from(plug.device.as_str()))]);
        transaction.expect("Interface", &still_ours, &["name"], &[name]);
        remove_from_bridge(&mut transaction, &holders(cache, *interface));
    }
    for plug in coming {
        let is_leaving = there.iter().any(|(_, leaving)| leaving.device == plug.device);
        if cache.find("Interface", "name", &plug.device).is_some() && !is_leaving {
            return Err(plug.device.clone());
        }
        if !is_leaving {
            let named = Condition::new("name", Function::Equal, plug.device.as_str());
            transaction.expect("Interface", &[named], &["name"], &[]);
        }
        let ids = [(METADATA, "true"), (LOGICAL_PORT, plug.logical_port.as_str()), (MAC, plug.mac.as_str())];
        let name = ("name".to_owned(), Value::from(plug.device.as_str()));
        let interface =
            transaction.insert("Interface", &Row::from([name.clone(), ("external_ids".to_owned(), Value::map(ids))]));
        let port = transaction.insert("Port", &Row::from([name, ("interfaces".to_owned(), Value::from(interface))]));
        add_to_bridge(&mut transaction, bridge, port);
    }
    transaction.comment("metalplane: metadata ports");
    Ok(Some(transaction))
}
