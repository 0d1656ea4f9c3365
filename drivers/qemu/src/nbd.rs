//! Asks a server of NBD for the size of an export, and no more: the option `NBD_OPT_INFO` of the fixed newstyle handshake
//! (the NBD protocol's proto.md). No data is read, and the export has no client for it.

use std::io;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY: u64 = 0x0003_e889_0455_65a9;
/// NBD_FLAG_C_FIXED_NEWSTYLE and NBD_FLAG_C_NO_ZEROES.
const FLAGS: u32 = 0b11;
const OPT_ABORT: u32 = 2;
const OPT_INFO: u32 = 6;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_UNKNOWN_EXPORT: u32 = (1 << 31) + 6;
const INFO_EXPORT: u16 = 0;
/// Longer than all that a server says of an export.
const LONGEST_REPLY: u32 = 64 << 10;

/// In bytes; `None`: there is no such export.
pub async fn size(socket: &Path, export: &str) -> io::Result<Option<u64>> {
    let mut stream = UnixStream::connect(socket).await?;
    let (magic, option) = (stream.read_u64().await?, stream.read_u64().await?);
    if (magic, option) != (MAGIC, OPTION) {
        return Err(io::Error::other("it does not speak NBD"));
    }
    stream.read_u16().await?;
    let name = u32::try_from(export.len()).map_err(io::Error::other)?;
    let mut request = FLAGS.to_be_bytes().to_vec();
    request.extend(OPTION.to_be_bytes());
    request.extend(OPT_INFO.to_be_bytes());
    request.extend((4 + name + 2).to_be_bytes());
    request.extend(name.to_be_bytes());
    request.extend(export.as_bytes());
    // No information is asked for besides what comes in any case.
    request.extend([0, 0]);
    stream.write_all(&request).await?;
    let size = answer(&mut stream).await?;
    let abort = [&OPTION.to_be_bytes()[..], &OPT_ABORT.to_be_bytes(), &[0; 4]].concat();
    // What was asked is known.
    let _ = stream.write_all(&abort).await;
    Ok(size)
}

async fn answer(stream: &mut UnixStream) -> io::Result<Option<u64>> {
    let mut size = None;
    loop {
        let (magic, _) = (stream.read_u64().await?, stream.read_u32().await?);
        let (kind, length) = (stream.read_u32().await?, stream.read_u32().await?);
        if magic != REPLY || length > LONGEST_REPLY {
            return Err(io::Error::other("it answers with what is not NBD"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data).await?;
        match (kind, data.as_slice()) {
            (REP_ACK, _) => return Ok(size),
            (REP_UNKNOWN_EXPORT, _) => return Ok(None),
            (REP_INFO, [a, b, rest @ ..]) if u16::from_be_bytes([*a, *b]) == INFO_EXPORT => {
                size = rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            }
            (REP_INFO, _) => {}
            _ => {
                let said = String::from_utf8_lossy(&data).into_owned();
                return Err(io::Error::other(format!("it refuses with {kind:#x}: {said}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).expect("short");
        [&REPLY.to_be_bytes()[..], &OPT_INFO.to_be_bytes(), &kind.to_be_bytes(), &length.to_be_bytes(), data].concat()
    }

    async fn asked(replies: Vec<u8>) -> io::Result<Option<u64>> {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nbd");
        let server = UnixListener::bind(&socket).expect("a socket");
        let serve = async {
            let (mut stream, _) = server.accept().await.expect("a client");
            stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").await.expect("greeted");
            let mut request = [0; 4 + 8 + 4 + 4 + 4 + 1 + 2];
            stream.read_exact(&mut request).await.expect("asked");
            assert_eq!(&request[..12], b"\0\0\0\x03IHAVEOPT");
            assert_eq!(&request[12..], b"\0\0\0\x06\0\0\0\x07\0\0\0\x01d\0\0");
            stream.write_all(&replies).await.expect("answered");
        };
        tokio::join!(serve, size(&socket, "d")).1
    }

    #[tokio::test]
    async fn the_size_is_read_among_other_information() {
        let export = [&[0, 0][..], &(96_u64 << 20).to_be_bytes(), &[0, 1]].concat();
        let replies = [reply(REP_INFO, &[0, 3, 0, 0]), reply(REP_INFO, &export), reply(REP_ACK, &[])].concat();
        assert_eq!(asked(replies).await.expect("an answer"), Some(96 << 20));
    }

    #[tokio::test]
    async fn no_export_is_no_error_and_a_refusal_is_one() {
        assert_eq!(asked(reply(REP_UNKNOWN_EXPORT, b"no")).await.expect("an answer"), None);
        let refused = asked(reply((1 << 31) + 2, b"policy")).await.expect_err("refused");
        assert!(refused.to_string().contains("policy"), "{refused}");
        assert!(asked(vec![0; 20]).await.is_err());
    }
}
