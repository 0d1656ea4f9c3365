//! RBD on real parts: images of a real Ceph, connected by what opens them on a DPU. Each fence of it is what refuses a DPU in
//! the end, so the suites of both ports run on it.

mod by_daemon;
mod by_spdk;
mod lab;
