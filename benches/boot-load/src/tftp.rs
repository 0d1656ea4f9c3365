//! One file by TFTP (RFC 1350, 2347, 2348, 2349, 7440). A server that does not take the block size and the window that are asked for is
//! an error: another transfer would be measured.

#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const AGAIN: Duration = Duration::from_secs(1);
const TRIES: u32 = 5;

#[derive(clap::Args)]
pub struct Options {
    #[arg(long)]
    server: Ipv4Addr,
    #[arg(long)]
    file: String,
    #[arg(long, default_value_t = 512)]
    block: usize,
    #[arg(long, default_value_t = 1)]
    window: u16,
    /// Of the server; tests have one of their own
    #[arg(long, default_value_t = 69, hide = true)]
    port: u16,
    /// Of the file, in hexadecimal digits
    #[arg(long)]
    sha256: String,
}

#[derive(Debug, Serialize)]
pub struct Measured {
    /// From the request to the last block.
    pub seconds: f64,
    pub bytes: usize,
    /// How often nothing came for a second, or a block was missing.
    pub again: usize,
}

struct Transfer<'a> {
    options: &'a Options,
    socket: UdpSocket,
    /// The port of this transfer.
    peer: SocketAddr,
    data: Vec<u8>,
    /// The last block that came in its turn.
    block: u64,
    again: usize,
}

pub fn run(options: &Options) -> Result<Measured> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("open a socket")?;
    socket.set_read_timeout(Some(AGAIN))?;
    let peer = (options.server, options.port).into();
    let mut transfer = Transfer { options, socket, peer, data: Vec::new(), block: 0, again: 0 };
    let began = Instant::now();
    transfer.open()?;
    transfer.read()?;
    let seconds = began.elapsed().as_secs_f64();
    let found: String = Sha256::digest(&transfer.data).iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(found == options.sha256, "{} bytes came, and their SHA-256 is {found}", transfer.data.len());
    Ok(Measured { seconds, bytes: transfer.data.len(), again: transfer.again })
}

impl Transfer<'_> {
    fn request(&self) -> Vec<u8> {
        let Options { file, block, window, .. } = self.options;
        let mut request = format!("\0\x01{file}\0octet\0");
        if *block != 512 {
            request += &format!("blksize\0{block}\0");
        }
        if *window != 1 {
            request += &format!("windowsize\0{window}\0");
        }
        request.into_bytes()
    }

    fn has_options(&self) -> bool {
        self.options.block != 512 || self.options.window != 1
    }

    /// Until the options are taken; without any the first block is the answer.
    fn open(&mut self) -> Result<()> {
        self.socket.send_to(&self.request(), self.peer).context("send the request")?;
        if !self.has_options() {
            return Ok(());
        }
        let (packet, from) = self.next(|transfer| transfer.request())?;
        let [0, 6, taken @ ..] = packet.as_slice() else {
            bail!("the options were not answered: {:?}", start(&packet))
        };
        let words: Vec<String> =
            taken.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).to_lowercase()).collect();
        let value = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
        for (name, wanted) in [("blksize", self.options.block), ("windowsize", self.options.window.into())] {
            let is_default = (name == "blksize" && wanted == 512) || (name == "windowsize" && wanted == 1);
            let is_taken = value(name).is_some_and(|value| *value == wanted.to_string());
            ensure!(is_taken || is_default, "the server does not take {name} {wanted}: it says {words:?}");
        }
        self.peer = from;
        self.acknowledge()
    }

    fn read(&mut self) -> Result<()> {
        let mut of_window = 0;
        loop {
            let (packet, from) = match self.has_options() || self.block > 0 {
                true => self.next(|transfer| ack(transfer.block))?,
                false => self.next(|transfer| transfer.request())?,
            };
            let [0, 3, high, low, data @ ..] = packet.as_slice() else {
                // The answer to the options, sent a second time.
                ensure!(packet.starts_with(&[0, 6]), "neither data nor options: {:?}", start(&packet));
                continue;
            };
            if self.block == 0 {
                self.peer = from;
            }
            if [*high, *low] != ack_number(self.block + 1) {
                // A gap: the server begins after what is acknowledged. What came twice is let pass.
                let ahead = u16::from_be_bytes([*high, *low]).wrapping_sub(u16::from_be_bytes(ack_number(self.block)));
                if ahead < self.options.window.saturating_mul(2) && ahead > 0 {
                    self.again += 1;
                    self.acknowledge()?;
                    of_window = 0;
                }
                continue;
            }
            self.block += 1;
            self.data.extend_from_slice(data);
            of_window += 1;
            let is_last = data.len() < self.options.block;
            if is_last || of_window == self.options.window {
                self.acknowledge()?;
                of_window = 0;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn acknowledge(&self) -> Result<()> {
        self.socket.send_to(&ack(self.block), self.peer).context("send an acknowledgement").map(drop)
    }

    /// The next packet of the server; `repeat`: what is sent where none comes.
    fn next(&mut self, repeat: impl Fn(&Self) -> Vec<u8>) -> Result<(Vec<u8>, SocketAddr)> {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        let mut buffer = [0; 2048];
        for _ in 0..TRIES {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let packet = &buffer[..length];
                    if let [0, 5, _, code, text @ ..] = packet {
                        bail!("the server refuses, {code}: {}", String::from_utf8_lossy(text).trim_end_matches('\0'));
                    }
                    return Ok((packet.to_vec(), from));
                }
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => {
                    self.again += 1;
                    self.socket.send_to(&repeat(self), self.peer).context("send it again")?;
                }
                Err(error) => return Err(error).context("receive"),
            }
        }
        bail!("no answer after block {} and {TRIES} tries", self.block)
    }
}

fn ack_number(block: u64) -> [u8; 2] {
    let [.., high, low] = block.to_be_bytes();
    [high, low]
}

fn ack(block: u64) -> Vec<u8> {
    [&[0, 4][..], &ack_number(block)].concat()
}

/// For a message.
fn start(packet: &[u8]) -> &[u8] {
    &packet[..packet.len().min(16)]
}
