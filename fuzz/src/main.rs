//! libFuzzer over the functions of `boot::any_bytes`; `FUZZ_TARGET` names the one.

#![no_main]

use boot::any_bytes::{Engines, TARGETS, Target};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SITE: LazyLock<(Engines, Target)> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join("metalplane-fuzz");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("vmlinuz-x86_64"), "a kernel").expect("written");
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    let (_, run) = TARGETS.into_iter().find(|(target, _)| *target == name).expect("a target of that name");
    (Engines::new(&folder).expect("engines"), run)
});

fuzz_target!(|bytes: &[u8]| {
    let (engines, run) = &*SITE;
    run(engines, bytes);
});
