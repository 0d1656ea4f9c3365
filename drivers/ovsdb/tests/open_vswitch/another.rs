//! The OVN that `OVN_DIR` names. Whoever starts the tests has put its programs before the distribution's, so that every test here is of that one;
//! without it none is, and this test says so by its name.

use crate::lab::{found, in_namespace};
use crate::rows::promises;
use std::fs;
use std::path::PathBuf;

pub fn named() -> Option<PathBuf> {
    std::env::var_os("OVN_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

#[test]
fn another_ovn_keeps_the_ports_promises() {
    let name = "another_ovn_keeps_the_ports_promises";
    let Some(folder) = named() else {
        eprintln!("SKIP {name}: another OVN is not run: OVN_DIR=FOLDER");
        return;
    };
    let root = folder.canonicalize().expect("OVN_DIR is a folder");
    // A script that starts the folder's program, or that itself.
    for program in ["ovsdb-server", "ovn-northd", "ovn-nbctl"] {
        let first = found(program).expect(program);
        let is_its_own = first.starts_with(&root) || {
            let script = fs::read(&first).expect("a program");
            String::from_utf8_lossy(&script).contains(root.to_str().expect("a plain path"))
        };
        assert!(is_its_own, "{} is what is run, and nothing of OVN_DIR={}", first.display(), root.display());
    }
    in_namespace(name, promises);
}
