//! Reads and writes of a bdev.
//!
//! An operation is a value that is given away when it is submitted, and comes back when it is done: nothing is allocated in
//! between, and nobody can touch memory that a device writes to.

use crate::app::{self, App};
use crate::bdev::{Bdev, Open};
use crate::bindings as sys;
use crate::error::Error;
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::rc::Rc;

/// The system's number for "cannot allocate memory".
const ENOMEM: i32 = 12;

/// Memory that devices reach.
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
}

impl Buffer {
    /// Filled with zeros.
    pub fn new(app: App, length: usize, alignment: usize) -> Result<Self, Error> {
        app.check();
        // SAFETY: SPDK runs; the unused argument may be null.
        let start = unsafe { sys::spdk_dma_zmalloc(length, alignment, ptr::null_mut()) };
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { start, length }),
            None => Err(Error::new(format!("{length} bytes of SPDK's memory"), -ENOMEM)),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        assert!(app::is_here(), "SPDK has ended, and its memory with it");
        // SAFETY: it was allocated with this length, filled with zeros, and is freed by the drop only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(app::is_here(), "SPDK has ended, and its memory with it");
        // SAFETY: as above; who has it exclusively has its memory exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if app::is_here() {
            // SAFETY: it comes from `spdk_dma_zmalloc`, and SPDK runs.
            unsafe { sys::spdk_dma_free(self.start.as_ptr().cast()) };
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// An operation with its memory.
pub struct Io {
    pub buffer: Buffer,
    pub direction: Direction,
    /// In bytes.
    pub offset: u64,
    /// Who waits for it, and on what.
    flight: Option<(Rc<dyn Done>, Rc<Open>)>,
}

/// Gets operations that are done, on the app thread.
pub trait Done {
    fn done(self: Rc<Self>, io: Box<Io>, succeeded: bool);
}

impl Io {
    pub fn new(buffer: Buffer) -> Box<Self> {
        Box::new(Self { buffer, direction: Direction::Read, offset: 0, flight: None })
    }
}

impl Bdev {
    /// Starts an operation over the whole of its memory. Refused (not a whole number of blocks, beyond the end, opened for
    /// reading only), it is dropped.
    pub fn submit(&self, mut io: Box<Io>, then: Rc<dyn Done>) -> Result<(), Error> {
        assert!(app::is_here(), "SPDK has ended");
        io.flight = Some((then, Rc::clone(&self.0)));
        let (direction, offset, length) = (io.direction, io.offset, io.buffer.length as u64);
        let memory = io.buffer.start.as_ptr().cast();
        let (descriptor, channel) = (self.0.descriptor.as_ptr(), self.0.channel.as_ptr());
        let context = Box::into_raw(io);
        // SAFETY: descriptor and channel are open until the operation is done, for it keeps them; so is its memory, which
        // nobody else has. `on_done` gets what it casts to, once, and not before this returns.
        let code = unsafe {
            let context = context.cast();
            match direction {
                Direction::Read => {
                    sys::spdk_bdev_read(descriptor, channel, memory, offset, length, Some(on_done), context)
                }
                Direction::Write => {
                    sys::spdk_bdev_write(descriptor, channel, memory, offset, length, Some(on_done), context)
                }
            }
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it comes from `Box::into_raw` above; SPDK has refused it, so nobody else has it.
        drop(unsafe { Box::from_raw(context) });
        Err(Error::new(format!("{direction:?} {length} bytes at {offset}"), code))
    }
}

extern "C" fn on_done(operation: *mut sys::spdk_bdev_io, succeeded: bool, context: *mut c_void) {
    // SAFETY: it is done, and nobody looks at it any more.
    unsafe { sys::spdk_bdev_free_io(operation) };
    // SAFETY: it comes from `Box::into_raw` in `submit`, and this is called once.
    let mut io = unsafe { Box::from_raw(context.cast::<Io>()) };
    if let Some((then, open)) = io.flight.take() {
        then.done(io, succeeded);
        drop(open);
    }
}
