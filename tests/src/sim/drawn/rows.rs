//! The rows of two runs are compared by the names of their objects.
//!
//! What a VNic gets that asks for no address depends on who came first, where two would have the same one: of those it is compared that the
//! port has an address where the other run's has one, not which. Addresses that are asked for are compared as they are; nobody gets one
//! of them who did not ask, for they are reserved.

use super::super::simulation::Simulation;
use super::super::way_out;

pub(super) fn compared(s: &Simulation) -> Vec<String> {
    let vnics = s.scene.server.list("metalplane.io/vnics");
    let mut all = way_out::told(s);
    for vnic in vnics.iter().filter(|vnic| vnic["spec"]["addresses"].is_null()) {
        let of_it = format!("<VNic {}>", vnic["metadata"]["name"].as_str().unwrap_or_default());
        let chosen = vnic["status"]["addresses"].as_array().into_iter().flatten().filter_map(|one| one.as_str());
        for (number, address) in chosen.enumerate() {
            let told = format!("<address {number} of {of_it}>");
            all.iter_mut().filter(|row| row.contains(&of_it)).for_each(|row| *row = replaced(row, address, &told));
        }
    }
    all.sort();
    all
}

/// 10.40.0.2 is not a part of 10.40.0.20.
fn replaced(row: &str, address: &str, told: &str) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
    let (mut out, mut rest) = (String::new(), row);
    while let Some(at) = rest.find(address) {
        let (before, after) = (&rest[..at], &rest[at + address.len()..]);
        out.push_str(before);
        let whole = !out.ends_with(is_part) && !after.starts_with(is_part);
        out.push_str(if whole { told } else { address });
        rest = after;
    }
    out + rest
}

pub(super) fn difference(wanted: &[String], rows: &[String]) -> Option<String> {
    let missing: Vec<_> = wanted.iter().filter(|row| !rows.contains(row)).collect();
    let more: Vec<_> = rows.iter().filter(|row| !wanted.contains(row)).collect();
    let same = missing.is_empty() && more.is_empty() && wanted.len() == rows.len();
    (!same).then(|| format!("missing {missing:#?}, more {more:#?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_where_it_stands_by_itself() {
        let told = |row| replaced(row, "10.40.0.2", "<a>");
        assert_eq!(told("\"02:00 10.40.0.2\", 10.40.0.20 110.40.0.2"), "\"02:00 <a>\", 10.40.0.20 110.40.0.2");
        assert_eq!(replaced("fd00:40::2 fd00:40::2:1", "fd00:40::2", "<a>"), "<a> fd00:40::2:1");
    }

    #[test]
    fn rows_that_are_there_twice_are_another_set() {
        let row = |name: &str| name.to_owned();
        assert_eq!(difference(&[row("a"), row("b")], &[row("b"), row("a")]), None);
        assert!(difference(&[row("a")], &[row("a"), row("a")]).is_some());
        assert!(difference(&[row("a")], &[]).is_some());
    }
}
