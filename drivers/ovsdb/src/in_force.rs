//! Whether OVN has installed everything for a port (docs/design/network.md, 6).
//!
//! `ovn-controller` says `ovn-installed` in the Interface's external_ids, which is too early; and in those of the bridge, as
//! `ovn-nb-cfg`, which state of the network it has installed as a whole. A port is in force once that number has grown beyond
//! the one that was there when the port was first seen to be installed.
//!
//! That number is remembered beside `ovn-installed`, as `metalplane-installed-at`, with the time at which OVN installed the
//! port where OVN tells it (`ovn-installed-ts`): so a restarted agent finds it again, and what was remembered of an earlier
//! time does not count. A number that is smaller than the remembered one (the north-bound database was restored) is
//! remembered anew. Whoever sees that the memory is not as it should be corrects it; the `wait` of that transaction repeats
//! what was read of the Interface, so of several writers, and of one that is late, none does harm. Of the bridge nothing
//! is repeated: a number that grew since then grew after the port was installed.

use crate::cache::Cache;
use crate::transact::{Condition, Mutation, Transaction};
use crate::value::{Row, Value};
use uuid::Uuid;

const INSTALLED: &str = "ovn-installed";
const INSTALLED_TIME: &str = "ovn-installed-ts";
const NUMBER: &str = "ovn-nb-cfg";
const MEMORY: &str = "metalplane-installed-at";
const CHASSIS: &str = "system-id";

/// What `ovn-controller` says of the switch as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached {
    /// A chassis that has said nothing has reached nothing: zero.
    number: u64,
}

impl Reached {
    pub(crate) fn of(cache: &Cache, bridge: &str) -> Self {
        let row = cache.find("Bridge", "name", bridge).map(|(_, row)| row);
        let said = row.and_then(|row| row.get("external_ids")?.get(NUMBER)?.parse().ok());
        Self { number: said.unwrap_or(0) }
    }

    /// Of a port with these external_ids: whether OVN has installed it, and whether it is in force.
    pub(crate) fn judge(self, ids: &Value) -> (bool, bool) {
        let in_force = Memory::of(ids).is_some_and(|memory| memory.holds(ids) && self.number > memory.number);
        (is_installed(ids), is_installed(ids) && in_force)
    }

    /// What makes the memory of this Interface what it should be; `None`: it is.
    pub(crate) fn correct(self, interface: Uuid, row: &Row) -> Option<Transaction> {
        let (number, ids) = (self.number, row.get("external_ids")?);
        let known = ids.get(MEMORY);
        let holds = |memory: Memory| memory.holds(ids) && memory.number <= number;
        let wanted = match is_installed(ids) {
            true if Memory::of(ids).is_some_and(holds) => return None,
            true => Some(format!("{number}@{}", ids.get(INSTALLED_TIME).unwrap_or_default())),
            false => None,
        };
        if known == wanted.as_deref() {
            return None;
        }
        let column = || "external_ids".to_owned();
        let delete = known.map(|old| Mutation::Delete(column(), Value::map([(MEMORY, old)])));
        let insert = wanted.map(|new| Mutation::Insert(column(), Value::map([(MEMORY, new.as_str())])));
        let mutations: Vec<_> = delete.into_iter().chain(insert).collect();
        let mut transaction = Transaction::new(crate::switch::DATABASE);
        let this = [Condition::row(interface)];
        transaction.expect("Interface", &this, &["external_ids"], &[Row::from([(column(), ids.clone())])]);
        transaction.mutate("Interface", &this, &mutations);
        Some(transaction)
    }
}

/// What OVN knows the switch by.
pub(crate) fn chassis(cache: &Cache) -> Option<String> {
    let said = |row: &Row| row.get("external_ids")?.get(CHASSIS).map(str::to_owned);
    cache.rows("Open_vSwitch").find_map(|(_, row)| said(row))
}

fn is_installed(ids: &Value) -> bool {
    ids.get(INSTALLED) == Some("true")
}

/// `<number>@<when OVN installed the port>`.
struct Memory<'a> {
    number: u64,
    time: &'a str,
}

impl<'a> Memory<'a> {
    fn of(ids: &'a Value) -> Option<Self> {
        let (number, time) = ids.get(MEMORY)?.split_once('@')?;
        Some(Self { number: number.parse().ok()?, time })
    }

    /// It is of the present time that the port is installed.
    fn holds(&self, ids: &Value) -> bool {
        self.time == ids.get(INSTALLED_TIME).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(pairs: &[(&str, &str)]) -> Value {
        Value::map(pairs.iter().copied())
    }

    fn corrected(number: u64, pairs: &[(&str, &str)]) -> Option<String> {
        let row = Row::from([("external_ids".to_owned(), ids(pairs))]);
        let transaction = Reached { number }.correct(Uuid::nil(), &row)?;
        let mutate = transaction.params()[2]["mutations"].clone();
        Some(mutate.as_array()?.iter().map(|m| format!("{} {};", m[1].as_str().unwrap_or_default(), m[2][1])).collect())
    }

    #[test]
    fn the_number_is_remembered_once_and_anew_when_it_is_void() {
        let installed = ("ovn-installed", "true");
        let memory = |text| ("metalplane-installed-at", text);
        let time = |text| ("ovn-installed-ts", text);
        assert_eq!(corrected(7, &[]), None);
        assert_eq!(corrected(7, &[installed]).as_deref(), Some("insert [[\"metalplane-installed-at\",\"7@\"]];"));
        for kept in ["7@", "3@"] {
            assert_eq!(corrected(7, &[installed, memory(kept)]), None, "{kept}");
        }
        for void in ["8@", "3@100", "nonsense"] {
            let written = corrected(7, &[installed, memory(void)]).expect("remembered anew");
            assert!(written.contains(void) && written.ends_with("\"7@\"]];"), "{written}");
        }
        let since = corrected(7, &[installed, memory("3@100"), time("200")]).expect("installed another time");
        assert!(since.ends_with("\"7@200\"]];"), "{since}");
        let gone = corrected(7, &[memory("3@")]).expect("forgotten");
        assert!(gone.starts_with("delete") && !gone.contains("insert"), "{gone}");
    }

    #[test]
    fn in_force_is_a_number_beyond_the_remembered_one() {
        let judge = |number, pairs: &[(&str, &str)]| Reached { number }.judge(&ids(pairs));
        let (installed, at) = (("ovn-installed", "true"), ("metalplane-installed-at", "7@100"));
        let time = ("ovn-installed-ts", "100");
        assert_eq!(judge(9, &[]), (false, false));
        assert_eq!(judge(9, &[installed]), (true, false), "not remembered yet");
        assert_eq!(judge(7, &[installed, at, time]), (true, false));
        assert_eq!(judge(8, &[installed, at, time]), (true, true));
        assert_eq!(judge(8, &[installed, at]), (true, false), "of another time");
        assert_eq!(judge(8, &[at, time]), (false, false), "installed no longer");
        assert_eq!(judge(0, &[installed, at, time]), (true, false), "a chassis that says nothing");
    }
}
