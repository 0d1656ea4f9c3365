//! Files that are no images of disks, from a server that is told what to send.

use imaging::{Error, Kind, Packing, Progress, Proxies, Source, Streamed};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::sync::atomic::AtomicU64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Answers one request with these bytes, and closes.
async fn server(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        // Who has read enough goes away.
        let _ = stream.write_all(&answer).await;
    });
    format!("http://{address}/archive?signature=secret")
}

fn measured(length: usize, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes(), body].concat()
}

/// The reader takes the first four bytes.
async fn read(answer: Vec<u8>, packing: Packing, checksum: Option<&str>) -> Result<Streamed<Vec<u8>>, Error> {
    let source = Source {
        url: server(answer).await,
        checksum: checksum.map(|text| text.parse().expect("a checksum")),
        checksum_field: "TARFILE_CHECKSUM",
        packing,
        user_agent: "test".to_owned(),
        authorities: imaging::Authorities::Public,
        authorities_field: "CA_BUNDLE",
        access: None,
        proxies: Proxies::default(),
    };
    let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
    let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
    imaging::read(&source, &progress, std::future::pending(), |reader| {
        let mut first = vec![0; 4];
        reader.read_exact(&mut first).map_err(|error| format!("four bytes: {error}"))?;
        Ok(first)
    })
    .await
}

fn sha256(data: &[u8]) -> String {
    format!("sha256:{}", Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn content() -> (Vec<u8>, Vec<u8>) {
    let plain: Vec<u8> = (0..300_000).map(|i| (i % 251) as u8 + 1).collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&plain).expect("packed");
    (plain, encoder.finish().expect("packed"))
}

#[tokio::test]
async fn all_of_it_is_read_and_its_checksum_is_of_either_form() {
    let (plain, packed) = content();
    let expected = |bytes: &[u8]| {
        Ok(Streamed { bytes: bytes.len() as u64, unpacked: plain.len() as u64, made: plain[..4].to_vec() })
    };
    for checksum in [None, Some(sha256(&packed)), Some(sha256(&plain))] {
        let found = read(measured(packed.len(), &packed), Packing::Compressed, checksum.as_deref()).await;
        assert_eq!(found, expected(&packed));
    }
    let found = read(measured(plain.len(), &plain), Packing::Uncompressed, Some(&sha256(&plain))).await;
    assert_eq!(found, expected(&plain));
    let of_another = sha256(b"another");
    let error =
        read(measured(packed.len(), &packed), Packing::Compressed, Some(&of_another)).await.expect_err("another");
    for said in ["TARFILE_CHECKSUM says", &of_another, &sha256(&packed), &sha256(&plain)] {
        assert!(error.message.contains(said), "{said}: {error}");
    }
}

#[tokio::test]
async fn what_has_no_end_or_not_its_own_is_a_failure() {
    let (plain, packed) = content();
    let half = &packed[..packed.len() / 2];
    let mut changed = packed.clone();
    let last = changed.len() - 6;
    changed[last] ^= 1;
    let unmeasured = [b"HTTP/1.1 200 OK\r\n\r\n", &plain[..]].concat();
    for (answer, packing, kind, said) in [
        (measured(packed.len(), half), Packing::Compressed, Kind::Unreachable, "it ended after"),
        (measured(half.len(), half), Packing::Compressed, Kind::Invalid, "gzip stream is damaged"),
        (measured(changed.len(), &changed), Packing::Compressed, Kind::Invalid, "gzip stream is damaged"),
        (unmeasured, Packing::Uncompressed, Kind::Invalid, "write its checksum as TARFILE_CHECKSUM"),
        (measured(2, b"ab"), Packing::Uncompressed, Kind::Invalid, "four bytes: "),
        (measured(8, b"QFI\xfb\0\0\0\x03"), Packing::Uncompressed, Kind::Invalid, "is a qcow2 image"),
    ] {
        let error = read(answer, packing, None).await.expect_err(said);
        assert!(error.kind == kind && error.message.contains(said), "{said}: {error:?}");
        assert!(!error.message.contains("secret"), "{error}");
    }
}
