//! SPDK's life in this process, and its app thread.

use crate::bindings as sys;
use crate::error::Error;
use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The system's numbers for "already in progress", "invalid argument" and "shut down".
const EALREADY: i32 = 114;
const EINVAL: i32 = 22;
const ESHUTDOWN: i32 = 108;

pub struct Options {
    /// In SPDK's log.
    pub name: String,
    /// Where it serves JSON-RPC; `None`: nowhere.
    pub rpc_socket: Option<PathBuf>,
    /// What it calls at its start, in the format of SPDK's `save_config`.
    pub config: Option<PathBuf>,
    /// The cores that it polls on: a mask (`0x3`) or a list (`[0,1]`).
    pub cores: String,
    pub memory: Memory,
    /// Takes the machine's own NVMe devices that are bound to a driver for user space.
    pub pci: bool,
    /// Refuses a core that another SPDK polls on.
    pub lock_cores: bool,
    /// Starts its subsystems only when `framework_start_init` was called.
    pub wait_for_rpc: bool,
    /// Where vhost-user sockets are made; `None`: in the working directory.
    pub vhost_folder: Option<PathBuf>,
}

#[derive(Default)]
pub struct Memory {
    /// `None`: all huge pages that are free.
    pub mib: Option<u32>,
    pub without_huge_pages: bool,
    /// A mounted hugetlbfs; `None`: where the system has one.
    pub huge_folder: Option<PathBuf>,
}

/// Stands for being on the app thread. Nobody else has one.
#[derive(Clone, Copy)]
pub struct App {
    here: PhantomData<*const ()>,
}

/// The app thread while it takes work.
static THREAD: Mutex<Option<Address>> = Mutex::new(None);
static STARTED: AtomicBool = AtomicBool::new(false);

struct Address(NonNull<sys::spdk_thread>);

// SAFETY: it is only ever given to `spdk_thread_send_msg`, which any thread may call.
unsafe impl Send for Address {}

fn thread() -> MutexGuard<'static, Option<Address>> {
    THREAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the caller is on the app thread of an SPDK that runs.
pub(crate) fn is_here() -> bool {
    // SAFETY: they compare a variable of the calling thread with one of SPDK's, both of which are there before SPDK starts
    // and after it has ended.
    unsafe {
        let own = sys::spdk_get_thread();
        !own.is_null() && sys::spdk_thread_is_app_thread(own)
    }
}

impl App {
    /// In a callback that SPDK makes on the app thread.
    pub(crate) fn here() -> Self {
        Self { here: PhantomData }
    }

    /// A value that was kept until SPDK had ended is good for nothing.
    pub(crate) fn check(self) {
        assert!(is_here(), "SPDK has ended, or this is not its app thread");
    }

    /// Ends SPDK: bdevs are closed, [`run`] returns. Work that was sent before is still done.
    pub fn end(self) {
        self.check();
        thread().take();
        // SAFETY: SPDK runs, and may be told to stop more than once.
        unsafe { sys::spdk_app_stop(0) };
    }
}

/// Starts SPDK; `started` is called when its subsystems and its configuration are. Comes back when it was ended by
/// [`App::end`], by SIGINT or SIGTERM, or could not be started. Once per process.
pub fn run<F: FnOnce(App) + 'static>(options: &Options, started: F) -> Result<(), Error> {
    if STARTED.swap(true, Ordering::SeqCst) {
        return Err(Error::new("start SPDK a second time in one process", -EALREADY));
    }
    let name = text(options.name.as_bytes())?;
    let cores = text(options.cores.as_bytes())?;
    let [rpc_socket, config, huge_folder, vhost_folder] =
        [&options.rpc_socket, &options.config, &options.memory.huge_folder, &options.vhost_folder]
            .map(|path| path.as_deref().map(path_text).transpose());
    let (rpc_socket, config, huge_folder, vhost_folder) = (rpc_socket?, config?, huge_folder?, vhost_folder?);
    if let Some(folder) = &vhost_folder {
        // SAFETY: it copies the text; SPDK has not started yet.
        let code = unsafe { sys::spdk_vhost_set_socket_path(folder.as_ptr()) };
        if code != 0 {
            return Err(Error::new(format!("the folder for vhost sockets {}", folder.to_string_lossy()), code));
        }
    }
    let mut opts = sys::spdk_app_opts::default();
    // SAFETY: it writes no more than it is told.
    unsafe { sys::spdk_app_opts_init(&raw mut opts, size_of::<sys::spdk_app_opts>()) };
    opts.name = name.as_ptr();
    opts.reactor_mask = cores.as_ptr();
    opts.rpc_addr = pointer(rpc_socket.as_ref());
    opts.json_config_file = pointer(config.as_ref());
    opts.hugedir = pointer(huge_folder.as_ref());
    if let Some(mib) = options.memory.mib {
        opts.mem_size = c_int::try_from(mib).map_err(|_| Error::new(format!("{mib} MiB of memory"), -EINVAL))?;
    }
    opts.no_huge = options.memory.without_huge_pages;
    opts.no_pci = !options.pci;
    opts.disable_cpumask_locks = !options.lock_cores;
    opts.delay_subsystem_init = options.wait_for_rpc;
    opts.shutdown_cb = Some(shut_down);
    let mut started = Some(started);
    // SAFETY: the texts, `opts` and `started` live until it returns, which is when SPDK has ended; `on_start` gets what it
    // casts to.
    let code = unsafe { sys::spdk_app_start(&raw mut opts, Some(on_start::<F>), (&raw mut started).cast()) };
    thread().take();
    // SAFETY: SPDK has ended, or was never started, which this is good for too.
    unsafe { sys::spdk_app_fini() };
    match code {
        0 => Ok(()),
        code => Err(Error::new("SPDK", code)),
    }
}

fn text(bytes: &[u8]) -> Result<CString, Error> {
    CString::new(bytes).map_err(|_| Error::new("a text with a zero byte in it", -EINVAL))
}

fn path_text(path: &Path) -> Result<CString, Error> {
    text(path.as_os_str().as_bytes())
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |text| text.as_ptr())
}

extern "C" fn on_start<F: FnOnce(App)>(context: *mut c_void) {
    // SAFETY: it is the `started` of `run`, which waits; nobody else looks at it.
    let started = unsafe { &mut *context.cast::<Option<F>>() };
    // SAFETY: SPDK runs.
    *thread() = NonNull::new(unsafe { sys::spdk_thread_get_app_thread() }).map(Address);
    if let Some(started) = started.take() {
        started(App::here());
    }
}

/// At SIGINT or SIGTERM, on the app thread.
extern "C" fn shut_down() {
    App::here().end();
}

/// Has `work` done on the app thread. Refused when SPDK has not started or is ending.
pub fn send<F: FnOnce(App) + Send + 'static>(work: F) -> Result<(), Error> {
    let thread = thread();
    let Some(Address(app)) = &*thread else {
        return Err(Error::new("SPDK does not run", -ESHUTDOWN));
    };
    let work = Box::into_raw(Box::new(work));
    // SAFETY: the app thread lives on while `thread` is locked: it is taken away before SPDK stops it. `on_message` gets what
    // it casts to, once.
    unsafe { sys::spdk_thread_send_msg(app.as_ptr(), Some(on_message::<F>), work.cast()) };
    Ok(())
}

extern "C" fn on_message<F: FnOnce(App)>(context: *mut c_void) {
    // SAFETY: it comes from `Box::into_raw` in `send`, and this is called once.
    let work = unsafe { Box::from_raw(context.cast::<F>()) };
    work(App::here());
}
