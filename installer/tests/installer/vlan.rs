//! A switch between a virtual server and QEMU's network: at the server's port that network is one VLAN, tagged. What the server sends
//! without that tag goes nowhere.

use std::path::Path;
use tokio::net::UnixDatagram;

/// Of IEEE 802.1Q: its EtherType, behind both addresses.
const TAG: [u8; 2] = [0x81, 0x00];
const ADDRESSES: usize = 12;

/// Starts it, with its sockets in the folder. What QEMU is told, for a NIC with `netdev=net`.
pub fn switch(folder: &Path, id: u16) -> Vec<String> {
    let path = |end: &str| folder.join(end).display().to_string();
    let [server, network] = ["server", "network"].map(|end| {
        let socket = UnixDatagram::bind(path(&format!("{end}.switch"))).expect("a socket");
        (socket, path(&format!("{end}.qemu")))
    });
    let end = |name: &str, end: &str| {
        let (local, remote) = (path(&format!("{end}.qemu")), path(&format!("{end}.switch")));
        format!("dgram,id={name},local.type=unix,local.path={local},remote.type=unix,remote.path={remote}")
    };
    let netdevs = [
        end("net", "server"),
        end("far", "network"),
        "user,id=user".to_owned(),
        "hubport,id=one,hubid=1,netdev=user".to_owned(),
        "hubport,id=other,hubid=1,netdev=far".to_owned(),
    ];
    tokio::spawn(async move {
        let mut buffers = [[0; 4096]; 2];
        let [of_server, of_network] = &mut buffers;
        loop {
            // As on a wire, what is sent to nobody is lost.
            tokio::select! {
                Ok(length) = server.0.recv(of_server) => if let Some(frame) = untagged(&of_server[..length], id) {
                    let _ = network.0.send_to(&frame, &network.1).await;
                },
                Ok(length) = network.0.recv(of_network) => {
                    let _ = server.0.send_to(&tagged(&of_network[..length], id), &server.1).await;
                },
                else => return,
            }
        }
    });
    netdevs.into_iter().flat_map(|netdev| ["-netdev".to_owned(), netdev]).collect()
}

fn untagged(frame: &[u8], id: u16) -> Option<Vec<u8>> {
    let (addresses, rest) = frame.split_at_checked(ADDRESSES)?;
    let rest = rest.strip_prefix(&TAG)?.strip_prefix(&id.to_be_bytes())?;
    Some([addresses, rest].concat())
}

fn tagged(frame: &[u8], id: u16) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(frame.len().min(ADDRESSES));
    [addresses, &TAG, &id.to_be_bytes(), rest].concat()
}
