//! What the app thread does again and again.

use crate::app::App;
use crate::bindings as sys;
use crate::error::Error;
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;
use std::ptr;
use std::time::Duration;

/// The system's number for "cannot allocate memory".
const ENOMEM: i32 = 12;

struct Poller<F> {
    poller: *mut sys::spdk_poller,
    work: F,
}

impl App {
    /// Calls `work` every `period` until it breaks.
    pub fn every<F: FnMut() -> ControlFlow<()> + 'static>(self, period: Duration, work: F) -> Result<(), Error> {
        self.check();
        let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        let context = Box::into_raw(Box::new(Poller { poller: ptr::null_mut(), work }));
        // SAFETY: this is the app thread; `on_time` gets what it casts to, until it unregisters itself.
        let poller = unsafe { sys::spdk_poller_register(Some(on_time::<F>), context.cast(), period) };
        if poller.is_null() {
            // SAFETY: it comes from `Box::into_raw` above, and nobody has it.
            drop(unsafe { Box::from_raw(context) });
            return Err(Error::new("register a poller", -ENOMEM));
        }
        // SAFETY: it is called first when this thread polls again, so nobody else looks at it now.
        unsafe { (*context).poller = poller };
        Ok(())
    }
}

extern "C" fn on_time<F: FnMut() -> ControlFlow<()>>(context: *mut c_void) -> c_int {
    // SAFETY: it is the box of `every`, which lives until the poller is unregistered below; a poller is not called within
    // itself.
    let own = unsafe { &mut *context.cast::<Poller<F>>() };
    if (own.work)().is_break() {
        // SAFETY: this is the thread that registered it, and within its own call that is allowed. It is not called again, so
        // the box has no other owner.
        unsafe {
            sys::spdk_poller_unregister(&raw mut own.poller);
            drop(Box::from_raw(context.cast::<Poller<F>>()));
        }
    }
    // Busy: it did something.
    1
}
