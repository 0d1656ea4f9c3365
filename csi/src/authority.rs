//! kubelet's plugin watcher calls a plugin with the socket's path as HTTP/2 `:authority`, escaped (`%2Fvar%2Flib…`). That is
//! no authority, and hyper's h2 ends such a stream with PROTOCOL_ERROR before any code of ours sees it. So what comes from
//! kubelet passes through here on its way to the server: in header blocks the value of `:authority` becomes `localhost`,
//! all else is passed on as it is. Only the registration socket needs this: on the driver's own socket kubelet and the
//! sidecars say `localhost` themselves.
//!
//! The block is walked, not decoded (RFC 7541, 6). The entry keeps its place in the dynamic table, so later requests of
//! the connection, which refer to it by number, mean the new value.

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, copy, duplex, split},
    net::UnixStream,
};

/// What every HTTP/2 connection of a client begins with has 24 bytes.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// `:authority` in HPACK's static table.
const AUTHORITY: usize = 1;
const REPLACEMENT: &[u8] = b"localhost";
const BUFFER: usize = 64 << 10;

/// The server's end of a connection from kubelet.
pub fn corrected(kubelet: UnixStream) -> DuplexStream {
    let (ours, servers) = duplex(BUFFER);
    tokio::spawn(async move {
        let (from_kubelet, mut to_kubelet) = kubelet.into_split();
        let (mut from_server, to_server) = split(ours);
        let inbound = relay(from_kubelet, to_server);
        let outbound = copy(&mut from_server, &mut to_kubelet);
        // Either end may go first, and then the connection is over.
        let ended = tokio::select! {
            ended = inbound => ended,
            ended = outbound => ended.map(drop),
        };
        if let Err(error) = ended {
            tracing::debug!("the connection from kubelet ended: {error}");
        }
    });
    servers
}

async fn relay(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut preface = [0; PREFACE];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    loop {
        let mut header = [0; FRAME_HEADER];
        if from.read(&mut header[..1]).await? == 0 {
            return Ok(());
        }
        from.read_exact(&mut header[1..]).await?;
        let [a, b, c, kind, flags, ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        from.read_exact(&mut payload).await?;
        if kind == HEADERS
            && let Some(changed) = headers(flags, &payload)
        {
            payload = changed;
            // Never longer than what came but for a few bytes, far from the three bytes' limit.
            header[..3].copy_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        }
        to.write_all(&header).await?;
        to.write_all(&payload).await?;
        to.flush().await?;
    }
}

/// The payload of a HEADERS frame, corrected; `None` if it is malformed, which the server shall judge.
fn headers(flags: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let padding = if flags & PADDED == 0 { 0 } else { usize::from(*payload.first()?) };
    let start = usize::from(flags & PADDED != 0) + if flags & PRIORITY == 0 { 0 } else { 5 };
    let end = payload.len().checked_sub(padding)?;
    let corrected = block(payload.get(start..end)?)?;
    Some([&payload[..start], &corrected, &payload[end..]].concat())
}

fn block(block: &[u8]) -> Option<Vec<u8>> {
    let mut corrected = Vec::with_capacity(block.len() + REPLACEMENT.len());
    let mut at = 0;
    while let Some(first) = block.get(at) {
        // The kinds of field, by their leading bits: how many bits the number has, and whether strings follow.
        let (bits, literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let (number, mut next) = integer(block, at, bits)?;
        if literal {
            if number == 0 {
                next = after_string(block, next)?;
            }
            let value = next;
            next = after_string(block, value)?;
            if number == AUTHORITY {
                corrected.extend_from_slice(&block[at..value]);
                corrected.push(REPLACEMENT.len() as u8);
                corrected.extend_from_slice(REPLACEMENT);
                at = next;
                continue;
            }
        }
        corrected.extend_from_slice(&block[at..next]);
        at = next;
    }
    Some(corrected)
}

/// A number and where it ends: what fits into the prefix, or the prefix full and the rest in steps of seven bits.
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let full = (1usize << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & full;
    let mut next = at + 1;
    if value < full {
        return Some((value, next));
    }
    for shift in [0, 7, 14, 21] {
        let byte = usize::from(*block.get(next)?);
        next += 1;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, next));
        }
    }
    None
}

fn after_string(block: &[u8], at: usize) -> Option<usize> {
    let (length, start) = integer(block, at, 7)?;
    let end = start.checked_add(length)?;
    (end <= block.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::{FRAME_HEADER, HEADERS, PADDED, PREFACE, PRIORITY, block, headers, relay};

    /// `:method: POST`, `:scheme: http`, a literal `:path`, `:authority` indexed from now on, `te: trailers` by name.
    fn fields(authority: &[u8]) -> Vec<u8> {
        let path = [b"\x44\x0b", &b"/a.B/GetInf"[..]].concat();
        let authority = [&[0x41, authority.len() as u8], authority].concat();
        let te = b"\x40\x02te\x08trailers";
        [b"\x83\x86", &path[..], &authority, te].concat()
    }

    #[test]
    fn the_authority_is_replaced_and_nothing_else() {
        let wrong = fields(b"%2Fvar%2Flib%2Fkubelet");
        assert_eq!(block(&wrong), Some(fields(b"localhost")));
        let right = fields(b"localhost");
        assert_eq!(block(&right), Some(right.clone()));
        // By reference to the dynamic table, as later requests have it.
        assert_eq!(block(b"\x83\xbe\xbf"), Some(b"\x83\xbe\xbf".to_vec()));
    }

    #[test]
    fn padding_and_priority_stay_where_they_are() {
        let payload =
            |authority: &[u8]| [&b"\x03"[..], b"\x00\x00\x00\x00\x10", &fields(authority), b"\0\0\0"].concat();
        assert_eq!(headers(PADDED | PRIORITY, &payload(b"%2Fx")), Some(payload(b"localhost")));
    }

    #[test]
    fn what_is_malformed_is_left_to_the_server() {
        let whole = fields(b"%2Fvar");
        for cut in [whole.len() - 1, 4, 20] {
            assert_eq!(block(&whole[..cut]), None, "cut at {cut}");
        }
        assert_eq!(block(b"\x7f\xff\xff\xff\xff\xff"), None);
        assert_eq!(headers(PADDED, b"\xff\x83"), None);
        assert_eq!(headers(PADDED, b""), None);
    }

    #[tokio::test]
    async fn a_connection_passes_with_its_header_blocks_corrected() {
        let frame = |kind: u8, payload: &[u8]| {
            let length = (payload.len() as u32).to_be_bytes();
            [&length[1..], &[kind, 4, 0, 0, 0, 1], payload].concat()
        };
        let stream = |authority: &[u8]| {
            let preface = [b'p'; PREFACE];
            [&preface[..], &frame(4, b""), &frame(HEADERS, &fields(authority)), &frame(0, b"\x41\x01data")].concat()
        };
        let mut passed = Vec::new();
        relay(&stream(b"%2Fvar%2Flib")[..], &mut passed).await.expect("a whole stream");
        assert_eq!(passed, stream(b"localhost"));
        let cut = &stream(b"x")[..PREFACE + FRAME_HEADER + 3];
        relay(cut, &mut Vec::new()).await.expect_err("a stream that ends within a frame");
    }
}
