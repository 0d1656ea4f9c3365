//! Tells the code whether SPDK is there: the build of `spdk-sys` has looked.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(spdk)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("DEP_SPDK_FOUND").is_some() {
        println!("cargo::rustc-cfg=spdk");
    }
}
