//! What the suites on RBD have in common.

use ceph::{Cluster, Clusters};
use sandbox::ceph::{CLUSTER, Lab, USER};
use std::collections::BTreeMap;
use std::net::TcpListener;

/// A port that nobody listens on just now.
pub fn free_port() -> u16 {
    let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
    socket.local_addr().expect("its address").port()
}

/// As Ceph's programs have it.
pub fn clusters(lab: &Lab) -> Clusters {
    let cluster = Cluster { user: USER.to_owned(), config_file: lab.config_file() };
    Clusters::new(BTreeMap::from([(CLUSTER.to_owned(), cluster)])).with_environment(lab.environment())
}
