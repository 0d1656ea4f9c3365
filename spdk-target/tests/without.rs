//! A program without SPDK says so.
#![cfg(not(spdk))]

use std::process::Command;

fn said(words: &[&str]) -> (bool, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_spdk-target")).args(words).output().expect("it starts");
    (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn it_ends_with_what_is_missing_and_what_to_do() {
    for words in [&["--no-pci"][..], &["io", "--bdev", "b", "--workload", "random-read"]] {
        let (succeeded, text) = said(words);
        assert!(!succeeded, "{words:?}");
        assert!(text.starts_with("spdk-target: ") && text.contains("cargo xtask spdk-target"), "{text}");
    }
}
