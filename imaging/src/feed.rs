//! Chunks from the network as a stream of bytes, counted and hashed as they pass.

use crate::Algorithm;
use bytes::Bytes;
use sha2::{Digest, Sha256, Sha512};
use std::io::{self, BufRead, Read};
use tokio::sync::mpsc::Receiver;

pub(crate) enum Chunk {
    /// Comes first: how many bytes the server says there are.
    Begin {
        length: Option<u64>,
    },
    Data(Bytes),
    /// All was sent. Without it the stream was cut off.
    End {
        /// By its length or its last chunk; not only because the server closed the connection.
        measured: bool,
    },
}

/// How the stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Measured,
    Closed,
    CutOff,
}

pub(crate) enum Hash {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hash {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(data),
            Self::Sha512(hash) => hash.update(data),
        }
    }

    /// In lower-case hex.
    pub(crate) fn digest(self) -> String {
        let digest = match self {
            Self::Sha256(hash) => hash.finalize().to_vec(),
            Self::Sha512(hash) => hash.finalize().to_vec(),
        };
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(crate) struct Feed {
    chunks: Receiver<Chunk>,
    hash: Hash,
    /// Received, hashed, and not read yet.
    ready: Bytes,
    pub(crate) length: Option<u64>,
    pub(crate) received: u64,
    pub(crate) end: Option<End>,
}

impl Feed {
    pub(crate) fn new(chunks: Receiver<Chunk>, algorithm: Algorithm) -> Self {
        Self { chunks, hash: Hash::new(algorithm), ready: Bytes::new(), length: None, received: 0, end: None }
    }

    /// The first bytes, as many as were asked for if there are so many; they are read again afterwards.
    pub(crate) fn head(&mut self, length: usize) -> Vec<u8> {
        let mut head = self.ready.to_vec();
        while head.len() < length {
            match self.receive() {
                Some(data) => head.extend_from_slice(&data),
                None => break,
            }
        }
        self.ready = Bytes::from(head);
        self.ready[..self.ready.len().min(length)].to_vec()
    }

    /// Reads what nobody wants, to the end, so that all of it is hashed; how much that was.
    pub(crate) fn drain(&mut self) -> u64 {
        let mut left = std::mem::take(&mut self.ready).len() as u64;
        while let Some(data) = self.receive() {
            left += data.len() as u64;
        }
        left
    }

    /// Of all that was received, in lower-case hex.
    pub(crate) fn digest(self) -> String {
        self.hash.digest()
    }

    /// The next data; none at the end, whichever it is.
    fn receive(&mut self) -> Option<Bytes> {
        while self.end.is_none() {
            match self.chunks.blocking_recv() {
                Some(Chunk::Begin { length }) => self.length = length,
                Some(Chunk::Data(data)) if data.is_empty() => {}
                Some(Chunk::Data(data)) => {
                    self.hash.update(&data);
                    self.received += data.len() as u64;
                    return Some(data);
                }
                Some(Chunk::End { measured: true }) => self.end = Some(End::Measured),
                Some(Chunk::End { measured: false }) => self.end = Some(End::Closed),
                None => self.end = Some(End::CutOff),
            }
        }
        None
    }
}

impl BufRead for Feed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.ready.is_empty()
            && let Some(data) = self.receive()
        {
            self.ready = data;
        }
        match self.end {
            Some(End::CutOff) if self.ready.is_empty() => Err(io::Error::other("the stream was cut off")),
            _ => Ok(&self.ready),
        }
    }

    fn consume(&mut self, amount: usize) {
        let _ = self.ready.split_to(amount);
    }
}

impl Read for Feed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let length = ready.len().min(buffer.len());
        buffer[..length].copy_from_slice(&ready[..length]);
        self.consume(length);
        Ok(length)
    }
}
