//! Whether a server may be believed and written to: what it says of itself in its database `_Server` (ovsdb-server(5)).
//!
//! A member of a RAFT cluster that has lost the others, or follows, may be behind. A server alone is its own leader and has no log
//! index. A cluster that was made anew, from a backup for example, is another cluster, whose log begins anew.

use serde_json::{Value as Json, json};

const DATABASE: &str = "_Server";
const MONITOR: &str = "metalplane-server";

#[derive(Debug, Default)]
pub(crate) struct Leader {
    /// The cluster, and the highest index that any of its servers has told: what was seen is never taken back.
    cluster: Option<String>,
    seen: i64,
}

impl Leader {
    /// Of the method `monitor`.
    pub(crate) fn params() -> Json {
        let columns = ["name", "model", "connected", "leader", "index", "cid"];
        json!([DATABASE, MONITOR, {"Database": {"columns": columns}}])
    }

    /// The updates of a notification, if it is about `_Server`.
    pub(crate) fn updates(params: &Json) -> Option<&Json> {
        params.get(1).filter(|_| params.get(0).and_then(Json::as_str) == Some(MONITOR))
    }

    /// The reason why this server will not do for `database`. `first`: the updates are the answer to `monitor`, so everything
    /// that there is.
    pub(crate) fn judge(&mut self, updates: &Json, database: &str, first: bool) -> Result<(), String> {
        let rows = updates.get("Database").and_then(Json::as_object);
        let named = |row: &&Json| row.get("name").and_then(Json::as_str) == Some(database);
        let Some(row) = rows.into_iter().flatten().filter_map(|(_, row)| row.get("new")).find(named) else {
            return if first { Err(format!("it has no database {database}")) } else { Ok(()) };
        };
        let is = |column: &str| row.get(column).and_then(Json::as_bool).unwrap_or_default();
        if !is("connected") {
            return Err(format!("its database {database} has lost the cluster"));
        }
        if !is("leader") {
            return Err(format!("it follows another server's {database}: only the leader of the cluster is asked"));
        }
        if let Some(index) = row.get("index").and_then(Json::as_i64) {
            let cluster = row.get("cid").filter(|cid| cid.get(0).and_then(Json::as_str) == Some("uuid"));
            let cluster = cluster.map(Json::to_string);
            if cluster != self.cluster {
                (self.cluster, self.seen) = (cluster, 0);
            }
            if index < self.seen {
                return Err(format!("its {database} is at index {index}, behind {} that was seen before", self.seen));
            }
            self.seen = index;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(connected: bool, leader: bool, index: Json) -> Json {
        let row = json!({"name": "db", "model": "clustered", "connected": connected, "leader": leader, "index": index});
        json!({"Database": {"u1": {"new": {"name": "other", "connected": false}}, "u2": {"new": row}}})
    }

    #[test]
    fn only_the_leader_will_do() {
        let mut judge = Leader::default();
        let standalone = server(true, true, json!(["set", []]));
        assert_eq!(judge.judge(&standalone, "db", true), Ok(()));
        for unfit in [server(true, false, json!(9)), server(false, true, json!(9))] {
            judge.judge(&unfit, "db", true).expect_err("no leader");
        }
        judge.judge(&standalone, "missing", true).expect_err("no such database");
        assert_eq!(judge.judge(&json!({"Database": {}}), "db", false), Ok(()), "news of others");
    }

    #[test]
    fn what_was_seen_is_not_taken_back() {
        let mut judge = Leader::default();
        assert_eq!(judge.judge(&server(true, true, json!(7)), "db", true), Ok(()));
        assert_eq!(judge.judge(&server(true, true, json!(7)), "db", true), Ok(()));
        assert_eq!(judge.judge(&server(true, true, json!(8)), "db", false), Ok(()));
        let error = judge.judge(&server(true, true, json!(7)), "db", true).expect_err("restored");
        assert!(error.contains('7') && error.contains('8'), "{error}");
        let mut anew = server(true, true, json!(2));
        anew["Database"]["u2"]["new"]["cid"] = json!(["uuid", "3e6f0ac6-7d8b-4d4e-8d5b-0b1ad6e8e5a1"]);
        assert_eq!(judge.judge(&anew, "db", true), Ok(()), "another cluster");
    }
}
