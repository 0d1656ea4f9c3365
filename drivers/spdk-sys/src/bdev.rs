//! A bdev, opened for I/O on the app thread.

use crate::app::{self, App};
use crate::bindings as sys;
use crate::error::Error;
use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::ptr::{self, NonNull};
use std::rc::Rc;

/// The system's numbers for "no such device" and "cannot allocate memory".
const ENODEV: i32 = 19;
const ENOMEM: i32 = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// Stays open while a clone of it is kept or an operation is on its way. Whoever keeps one has to ask [`Bdev::is_leaving`] now
/// and then: SPDK removes no bdev that is open, and does not end before it has.
#[derive(Clone)]
pub struct Bdev(pub(crate) Rc<Open>);

pub(crate) struct Open {
    pub(crate) descriptor: NonNull<sys::spdk_bdev_desc>,
    pub(crate) channel: NonNull<sys::spdk_io_channel>,
    leaving: Box<Cell<bool>>,
}

impl Bdev {
    pub fn open(app: App, name: &str, access: Access) -> Result<Self, Error> {
        app.check();
        let what = || format!("open the bdev {name}");
        let text = CString::new(name).map_err(|_| Error::new(what(), -ENODEV))?;
        let leaving = Box::new(Cell::new(false));
        let mut descriptor = ptr::null_mut();
        // SAFETY: this is the app thread; `leaving` lives as long as the descriptor, see the drop below.
        let code = unsafe {
            let context = (&raw const *leaving).cast_mut().cast();
            let write = access == Access::ReadWrite;
            sys::spdk_bdev_open_ext(text.as_ptr(), write, Some(on_event), context, &raw mut descriptor)
        };
        if code != 0 {
            return Err(Error::new(what(), code));
        }
        let descriptor = NonNull::new(descriptor).ok_or_else(|| Error::new(what(), -ENODEV))?;
        // SAFETY: the descriptor is open, and this is its thread.
        let Some(channel) = NonNull::new(unsafe { sys::spdk_bdev_get_io_channel(descriptor.as_ptr()) }) else {
            // SAFETY: it is open, and nobody else has it.
            unsafe { sys::spdk_bdev_close(descriptor.as_ptr()) };
            return Err(Error::new(format!("a channel to the bdev {name}"), -ENOMEM));
        };
        Ok(Self(Rc::new(Open { descriptor, channel, leaving })))
    }

    /// It is being removed, or SPDK ends: let go of it.
    pub fn is_leaving(&self) -> bool {
        self.0.leaving.get()
    }

    pub fn block_size(&self) -> u32 {
        // SAFETY: a bdev is there while its descriptor is open.
        unsafe { sys::spdk_bdev_get_block_size(self.0.bdev()) }
    }

    pub fn size_bytes(&self) -> u64 {
        // SAFETY: a bdev is there while its descriptor is open.
        let blocks = unsafe { sys::spdk_bdev_get_num_blocks(self.0.bdev()) };
        blocks * u64::from(self.block_size())
    }

    /// Of the memory that it reads to and writes from.
    pub fn alignment(&self) -> usize {
        // SAFETY: a bdev is there while its descriptor is open.
        unsafe { sys::spdk_bdev_get_buf_align(self.0.bdev()) }
    }
}

impl Open {
    fn bdev(&self) -> *mut sys::spdk_bdev {
        assert!(app::is_here(), "SPDK has ended");
        // SAFETY: the descriptor is open.
        unsafe { sys::spdk_bdev_desc_get_bdev(self.descriptor.as_ptr()) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if app::is_here() {
            // SAFETY: this is the thread that opened them, and no operation is on its way: each keeps this value.
            unsafe {
                sys::spdk_put_io_channel(self.channel.as_ptr());
                sys::spdk_bdev_close(self.descriptor.as_ptr());
            }
        }
    }
}

extern "C" fn on_event(event: sys::spdk_bdev_event_type, _: *mut sys::spdk_bdev, context: *mut c_void) {
    if event == sys::SPDK_BDEV_EVENT_REMOVE {
        // SAFETY: it is the `leaving` of an `Open`, whose descriptor is open; this is its thread.
        unsafe { &*context.cast::<Cell<bool>>() }.set(true);
    }
}
