//! What all bdevs did since SPDK started, read from SPDK itself.

use crate::app::App;
use crate::bindings as sys;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub operations: u64,
    pub bytes: u64,
    /// The sum of all their times.
    pub busy: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    pub name: String,
    /// What kind of bdev it is, in SPDK's words.
    pub product: String,
    pub size_bytes: u64,
    pub read: Traffic,
    pub written: Traffic,
}

/// Whoever drops the last of them has everything.
struct Gathering {
    all: RefCell<Vec<Statistics>>,
    then: Box<dyn FnOnce(Vec<Statistics>)>,
}

fn release(gathering: Rc<Gathering>) {
    if let Some(complete) = Rc::into_inner(gathering) {
        (complete.then)(complete.all.into_inner());
    }
}

/// One bdev that was asked.
struct Asked {
    descriptor: *mut sys::spdk_bdev_desc,
    answer: sys::spdk_bdev_io_stat,
    gathering: Rc<Gathering>,
}

impl App {
    /// Calls `then` when all bdevs have answered. One that leaves meanwhile is left out.
    pub fn statistics(self, then: impl FnOnce(Vec<Statistics>) + 'static) {
        self.check();
        let gathering = Rc::new(Gathering { all: RefCell::default(), then: Box::new(then) });
        for name in names() {
            ask(&name, &gathering);
        }
        release(gathering);
    }
}

fn names() -> Vec<CString> {
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: this is the app thread; `note` gets what it casts to, and is not called any more when this returns.
    unsafe { sys::spdk_for_each_bdev((&raw mut names).cast(), Some(note)) };
    names
}

extern "C" fn note(context: *mut c_void, bdev: *mut sys::spdk_bdev) -> c_int {
    // SAFETY: it is the list in `names`, which waits, and a bdev that SPDK keeps open meanwhile.
    unsafe { (*context.cast::<Vec<CString>>()).push(CStr::from_ptr(sys::spdk_bdev_get_name(bdev)).to_owned()) };
    0
}

fn ask(name: &CStr, gathering: &Rc<Gathering>) {
    let mut descriptor = ptr::null_mut();
    // SAFETY: this is the app thread. What leaves is closed when it has answered, so nothing is done at the event.
    let code =
        unsafe { sys::spdk_bdev_open_ext(name.as_ptr(), false, Some(on_event), ptr::null_mut(), &raw mut descriptor) };
    if code != 0 {
        return;
    }
    let answer = sys::spdk_bdev_io_stat::default();
    let asked = Box::into_raw(Box::new(Asked { descriptor, answer, gathering: Rc::clone(gathering) }));
    // SAFETY: the bdev is open until it has answered; the answer is written to a box that lives as long, and that `on_answer`
    // gets, once.
    unsafe {
        let bdev = sys::spdk_bdev_desc_get_bdev(descriptor);
        let answer = &raw mut (*asked).answer;
        let keep = sys::SPDK_BDEV_RESET_STAT_NONE;
        sys::spdk_bdev_get_device_stat(bdev, answer, keep, Some(on_answer), asked.cast());
    }
}

extern "C" fn on_event(_: sys::spdk_bdev_event_type, _: *mut sys::spdk_bdev, _: *mut c_void) {}

extern "C" fn on_answer(
    bdev: *mut sys::spdk_bdev,
    answer: *mut sys::spdk_bdev_io_stat,
    context: *mut c_void,
    code: c_int,
) {
    // SAFETY: it comes from `Box::into_raw` in `ask`, and this is called once.
    let asked = unsafe { Box::from_raw(context.cast::<Asked>()) };
    if code == 0 {
        // SAFETY: the bdev is open; SPDK has written the answer, and does not look at it any more.
        let statistics = unsafe { statistics(bdev, &*answer) };
        asked.gathering.all.borrow_mut().push(statistics);
    }
    // SAFETY: this is the thread that opened it.
    unsafe { sys::spdk_bdev_close(asked.descriptor) };
    release(asked.gathering);
}

/// # Safety
/// The bdev is open, and this is the app thread.
unsafe fn statistics(bdev: *mut sys::spdk_bdev, answer: &sys::spdk_bdev_io_stat) -> Statistics {
    // SAFETY: the caller's promise.
    let (name, product, size_bytes, rate) = unsafe {
        let size_bytes = sys::spdk_bdev_get_num_blocks(bdev) * u64::from(sys::spdk_bdev_get_block_size(bdev));
        let name = owned(sys::spdk_bdev_get_name(bdev));
        (name, owned(sys::spdk_bdev_get_product_name(bdev)), size_bytes, sys::spdk_get_ticks_hz())
    };
    let traffic = |operations, bytes, ticks| Traffic { operations, bytes, busy: duration(ticks, rate) };
    Statistics {
        name,
        product,
        size_bytes,
        read: traffic(answer.num_read_ops, answer.bytes_read, answer.read_latency_ticks),
        written: traffic(answer.num_write_ops, answer.bytes_written, answer.write_latency_ticks),
    }
}

/// # Safety
/// It is a text of C.
unsafe fn owned(text: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn duration(ticks: u64, rate: u64) -> Duration {
    let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
