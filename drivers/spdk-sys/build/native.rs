//! SPDK by pkg-config: where its headers are, what is linked, and the bindings by bindgen.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a target is made of. What registers itself (transports, bdev modules, RPC methods) is in no other's list of needs.
const MODULES: [&str; 12] = [
    "spdk_event",
    "spdk_event_bdev",
    "spdk_event_nvmf",
    "spdk_event_vhost_blk",
    "spdk_bdev_modules",
    "spdk_sock_modules",
    "spdk_accel_modules",
    "spdk_scheduler_modules",
    "spdk_keyring_modules",
    "spdk_env_dpdk",
    "spdk_env_dpdk_rpc",
    "spdk_syslibs",
];

/// Everything that this crate calls.
const FUNCTIONS: [&str; 29] = [
    "spdk_app_fini",
    "spdk_app_opts_init",
    "spdk_app_start",
    "spdk_app_stop",
    "spdk_bdev_close",
    "spdk_bdev_desc_get_bdev",
    "spdk_bdev_free_io",
    "spdk_bdev_get_block_size",
    "spdk_bdev_get_buf_align",
    "spdk_bdev_get_device_stat",
    "spdk_bdev_get_io_channel",
    "spdk_bdev_get_name",
    "spdk_bdev_get_num_blocks",
    "spdk_bdev_get_product_name",
    "spdk_bdev_open_ext",
    "spdk_bdev_read",
    "spdk_bdev_write",
    "spdk_dma_free",
    "spdk_dma_zmalloc",
    "spdk_for_each_bdev",
    "spdk_get_thread",
    "spdk_get_ticks_hz",
    "spdk_poller_register",
    "spdk_poller_unregister",
    "spdk_put_io_channel",
    "spdk_thread_get_app_thread",
    "spdk_thread_is_app_thread",
    "spdk_thread_send_msg",
    "spdk_vhost_set_socket_path",
];

/// Else what is missing, and what to do.
pub fn bind() -> Result<(), String> {
    for name in ["SPDK_DIR", "PKG_CONFIG_PATH", "PKG_CONFIG"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|one| one == "crt-static") {
        return Err("SPDK needs shared libraries, and this is built static: use `cargo xtask spdk-target`".to_owned());
    }
    let folder = env::var_os("SPDK_DIR").map(PathBuf::from);
    let flags = Flags::of(folder.as_deref())?;
    bindings(&flags)?;
    flags.link();
    Ok(())
}

fn bindings(flags: &Flags) -> Result<(), String> {
    println!("cargo::rerun-if-changed=build/spdk.h");
    let builder = bindgen::Builder::default()
        .header("build/spdk.h")
        .clang_args(flags.headers.iter().map(|folder| format!("-I{}", folder.display())))
        .allowlist_function(format!("^({})$", FUNCTIONS.join("|")))
        .allowlist_type("^spdk_bdev_(event_type|reset_stat_mode)$")
        .rust_edition(bindgen::RustEdition::Edition2024)
        .derive_debug(false)
        .derive_default(true)
        .generate_comments(false)
        .prepend_enum_name(false);
    let made = builder.generate().map_err(|error| format!("no bindings to SPDK's headers: {error}"))?;
    let file = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it")).join("bindings.rs");
    made.write_to_file(&file).map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

/// What pkg-config says, in its order and without repetition.
#[derive(Default)]
struct Flags {
    headers: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    /// By name, or a path to an archive.
    libraries: Vec<String>,
}

impl Flags {
    fn of(folder: Option<&Path>) -> Result<Self, String> {
        let mut pkg_config = Command::new(env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into()));
        pkg_config.args(["--cflags", "--libs"]).args(MODULES);
        let mut flags = Self::default();
        if let Some(folder) = folder {
            // A source folder with its build, or where it was installed to.
            let mut paths = ["build/lib/pkgconfig", "lib/pkgconfig"].map(|sub| folder.join(sub)).to_vec();
            paths.extend(env::split_paths(&env::var_os("PKG_CONFIG_PATH").unwrap_or_default()));
            pkg_config.env("PKG_CONFIG_PATH", env::join_paths(paths).map_err(|error| format!("SPDK_DIR: {error}"))?);
            // libvfio-user's archive is named without a folder.
            flags.folders = ["build/libvfio-user/usr/local/lib", "lib"].map(|sub| folder.join(sub)).to_vec();
        }
        let done = pkg_config.output().map_err(|error| format!("pkg-config does not start: {error}"))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let said = said.lines().next().unwrap_or_default();
            return Err(format!(
                "SPDK was not found: set SPDK_DIR to its folder, or PKG_CONFIG_PATH (pkg-config: {said})"
            ));
        }
        flags.read(&String::from_utf8_lossy(&done.stdout));
        Ok(flags)
    }

    fn read(&mut self, said: &str) {
        for word in said.split_whitespace() {
            if let Some(folder) = word.strip_prefix("-I") {
                push(&mut self.headers, folder.into());
            } else if let Some(folder) = word.strip_prefix("-L") {
                push(&mut self.folders, folder.into());
            } else if let Some(name) = word.strip_prefix("-l") {
                push(&mut self.libraries, name.to_owned());
            } else if word.ends_with(".a") {
                push(&mut self.libraries, word.to_owned());
            }
        }
    }

    fn link(&self) {
        for folder in &self.folders {
            println!("cargo::rustc-link-search=native={}", folder.display());
        }
        for library in &self.libraries {
            let path = Path::new(library);
            if let (Some(folder), Some(name)) = (path.parent(), path.file_stem().filter(|_| path.is_absolute())) {
                println!("cargo::rustc-link-search=native={}", folder.display());
                println!("cargo::rustc-link-lib=static:-bundle={}", name.to_string_lossy().trim_start_matches("lib"));
            } else if library.starts_with("spdk_") || library.starts_with("rte_") {
                // They register what they have in constructors, which nobody names.
                println!("cargo::rustc-link-lib=static:+whole-archive,-bundle={library}");
            } else if self.folders.iter().any(|folder| folder.join(format!("lib{library}.a")).exists()) {
                println!("cargo::rustc-link-lib=static:-bundle={library}");
            } else {
                println!("cargo::rustc-link-lib=dylib={library}");
            }
        }
    }
}

fn push<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}
