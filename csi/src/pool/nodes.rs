//! Which nodes have this pool. A node plugin says so itself when it starts, in the pool, where the controller reads it:
//! so a volume is never published to a node that could not open it.

use super::{Fault, Pool, files};

impl Pool {
    pub fn register_node(&self, node: &str) -> Result<(), Fault> {
        let path = self.nodes_dir().join(node);
        files::at("register this node as", &path, std::fs::write(&path, ""))?;
        files::sync_folder(&self.nodes_dir())
    }

    pub fn knows_node(&self, node: &str) -> bool {
        is_node_id(node) && self.nodes_dir().join(node).is_file()
    }
}

/// What may be a node's id: a Kubernetes node name, which is also a file name.
pub fn is_node_id(text: &str) -> bool {
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.';
    (1..=253).contains(&text.len()) && text.bytes().all(known) && !text.starts_with('.')
}
