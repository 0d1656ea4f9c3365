//! The network beside Kubernetes: the rows of OVN's north-bound database, and the ports and devices of a node.

use super::Site;
use anyhow::{Context, Result, ensure};
use planner::network::rows::{KIND, SITE, Table, UID};
use serde_json::{Deserializer, Value};
use std::collections::BTreeMap;

/// How the names of devices begin that the agent makes: a NIC's, the pod's end of a pair, and that of the metadata address.
const DEVICES: [&str; 3] = ["mp", "mq", "mm"];

/// A row that the controller wrote for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub table: &'static str,
    pub kind: String,
    pub uid: String,
}

impl Site {
    pub async fn nbctl(&self, args: &[&str]) -> Result<String> {
        self.enter("cp", &[&["ovn-nbctl", "--timeout=60"], args].concat()).await
    }

    /// All of ours, in every table that has some.
    pub async fn north_bound_rows(&self) -> Result<Vec<Row>> {
        let mut words = vec!["--format=json"];
        for table in Table::ALL {
            words.extend(["--", "--columns=external_ids", "list", table.name()]);
        }
        rows(&self.nbctl(&words).await?)
    }

    /// Of a node, by name: what the agent has made of the network there.
    pub async fn network_devices(&self, node: &str) -> Result<Vec<String>> {
        let ports = self.enter(node, &["ovs-vsctl", "list-ports", "br-int"]).await?;
        let devices = self.enter(node, &["ip", "-brief", "link"]).await?;
        Ok(ours("port", &ports).chain(ours("device", &devices)).collect())
    }
}

fn ours<'a>(what: &'a str, lines: &'a str) -> impl Iterator<Item = String> + 'a {
    // One end of a pair is shown as NAME@OTHER.
    let names = lines.lines().filter_map(|line| line.split([' ', '@']).next());
    names.filter(|name| DEVICES.iter().any(|begin| name.starts_with(begin))).map(move |name| format!("{what} {name}"))
}

/// From one answer for each table, in their order.
fn rows(answers: &str) -> Result<Vec<Row>> {
    let answers = Deserializer::from_str(answers).into_iter::<Value>();
    let answers: Vec<Value> = answers.collect::<Result<_, _>>().context("read what ovn-nbctl says")?;
    ensure!(answers.len() == Table::ALL.len(), "ovn-nbctl told of {} tables", answers.len());
    let mut all = Vec::new();
    for (table, answer) in Table::ALL.into_iter().zip(answers) {
        let listed = answer["data"].as_array().with_context(|| format!("ovn-nbctl told of no row: {answer}"))?;
        for row in listed {
            // A map is ["map", [[KEY, VALUE], …]].
            let pairs: Vec<(String, String)> =
                serde_json::from_value(row[0][1].clone()).with_context(|| format!("the notes of a row: {row}"))?;
            let mut notes: BTreeMap<String, String> = pairs.into_iter().collect();
            if notes.contains_key(SITE) {
                let (kind, uid) = (notes.remove(KIND).unwrap_or_default(), notes.remove(UID).unwrap_or_default());
                all.push(Row { table: table.name(), kind, uid });
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_by_whose_they_are() {
        let none = r#"{"data":[],"headings":["external_ids"]}"#;
        let two = r#"{"data":[[["map",[["metalplane-kind","VNic"],["metalplane-site","s"],["metalplane-uid","u"]]]],[["map",[["a","b"]]]]],"headings":["external_ids"]}"#;
        let told = |of_ports: &str| {
            let answers = Table::ALL.map(|table| if table == Table::LogicalSwitchPort { of_ports } else { none });
            rows(&answers.join("\n"))
        };
        let port = Row { table: "Logical_Switch_Port", kind: "VNic".to_owned(), uid: "u".to_owned() };
        assert_eq!(told(two).expect("readable"), [port]);
        assert!(rows(none).is_err() && told("no JSON").is_err());
    }

    #[test]
    fn devices_of_others_are_not_ours() {
        let shown = "lo UNKNOWN 00:00:00:00:00:00\nmp12@mq12 UP 02:00:00:00:00:01\nmgmt0 UP\nmm34 UNKNOWN\n";
        assert_eq!(ours("device", shown).collect::<Vec<_>>(), ["device mp12", "device mm34"]);
    }
}
