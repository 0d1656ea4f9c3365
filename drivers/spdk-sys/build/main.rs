//! Finds SPDK and makes the bindings. Where that cannot be, the crate is built empty and says what is missing: a
//! workspace is built on machines that have no SPDK.

#[cfg(feature = "native")]
mod native;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(spdk)");
    println!("cargo::rerun-if-changed=build");
    match bind() {
        Ok(()) => {
            println!("cargo::rustc-cfg=spdk");
            // For the build script of who depends on it: `DEP_SPDK_FOUND`.
            println!("cargo::metadata=found=yes");
        }
        Err(missing) => {
            let missing = missing.replace('\n', " ");
            println!("cargo::rustc-env=SPDK_MISSING={missing}");
            if cfg!(feature = "native") {
                println!("cargo::warning={missing}");
            }
        }
    }
}

#[cfg(feature = "native")]
use native::bind;

#[cfg(not(feature = "native"))]
fn bind() -> Result<(), String> {
    Err("it was built without SPDK: `cargo xtask spdk-target` builds it with it".to_owned())
}
