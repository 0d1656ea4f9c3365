//! A web server with one golden image, for imports: real sockets, for what an agent reads with is real.
//!
//! The simulated clock stands still while an import is under way: its writer is a thread, for which tokio's paused clock
//! waits. So it takes no time, whatever the machine does, and nothing else happens meanwhile.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;

pub struct Golden {
    pub url: String,
    /// `sha256:…`
    pub checksum: String,
    pub bytes: Vec<u8>,
}

static GOLDEN: OnceLock<Golden> = OnceLock::new();

/// The port is the kernel's choice: all else of a run follows from its seed.
pub fn without_port(text: &str) -> String {
    match GOLDEN.get() {
        Some(golden) => text.replace(&golden.url, "http://web/golden.raw"),
        None => text.to_owned(),
    }
}

/// The same for the life of this process.
pub fn golden() -> &'static Golden {
    GOLDEN.get_or_init(|| {
        use sha2::Digest;
        // Data, a hole, data again, and an end in the middle of a block.
        let mut bytes: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
        bytes.resize(1 << 20, 0);
        bytes.extend(b"the end");
        let hex: String = sha2::Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, &golden().bytes));
            }
        });
        Golden { url: format!("http://{address}/golden.raw"), checksum: format!("sha256:{hex}"), bytes }
    })
}

/// Who asked may be gone by the time of the answer.
fn serve(mut stream: TcpStream, bytes: &[u8]) {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(read @ 1..) => request.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(bytes));
}
