//! The virtual server, run as the program it is.
//!
//! `manners`: Redfish, faults, and slots while the host is off. `conforms`: the ports' suites through the shipped
//! drivers. `judged`: Redfish before its own validator. `boots`: what a guest sees, by real boots; `virtual_media`: what it boots
//! from a CD. `rbd`: the same on images of a real Ceph, `lvol`: on a logical volume of a storage node.

mod boot_options;
mod boots;
mod conforms;
mod judged;
mod lvol;
mod manners;
mod rbd;
mod support;
mod virtual_media;
