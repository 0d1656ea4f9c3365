//! Streams that are whole, and every way in which one is not.
//!
//! The streams are made by the crates that read them; the last test holds all four against the programs that everybody packs images with.

use super::*;
use std::io::Write;
use std::process::{Command, Stdio};

const FORMATS: [Format; 4] = [Format::Gzip, Format::Zstd, Format::Xz, Format::Bzip2];

fn pack(format: Format, data: &[u8]) -> Vec<u8> {
    match format {
        Format::Raw | Format::Qcow2 => data.to_vec(),
        Format::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(data).expect("packed");
            encoder.finish().expect("packed")
        }
        Format::Zstd => zstd_of(data, |_| Ok(())),
        Format::Xz => {
            let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::default()).expect("options");
            encoder.write_all(data).expect("packed");
            encoder.finish().expect("packed")
        }
        Format::Bzip2 => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(data).expect("packed");
            encoder.finish().expect("packed")
        }
    }
}

/// With a checksum, as the program `zstd` packs.
fn zstd_of(data: &[u8], set: impl Fn(&mut zstd::Encoder<'static, Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.include_checksum(true).and_then(|()| set(&mut encoder)).expect("set");
    encoder.write_all(data).expect("packed");
    encoder.finish().expect("packed")
}

/// What an image is: as the sink does it, with what is left behind the end.
fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let format = format(&packed[..packed.len().min(HEAD)], "http://x/image", Packing::Compressed);
    let format = format.map_err(|error| error.message)?;
    let mut rest = packed;
    let mut data = Vec::new();
    open(format, &mut rest).and_then(|mut reader| reader.read_to_end(&mut data)).map_err(|error| error.to_string())?;
    match rest.len() {
        0 => Ok(data),
        left => Err(format!("{left} bytes follow its end")),
    }
}

fn data() -> Vec<u8> {
    (0..1200u32).map(|i| if i < 600 { 0 } else { (i * i / 7 % 251) as u8 }).collect()
}

#[test]
fn what_was_packed_is_unpacked_in_one_member_and_in_several() {
    for format in FORMATS {
        let packed = pack(format, &data());
        assert_eq!(magic(&packed[..HEAD]), Some(format));
        assert!(unpack(&packed).expect("unpacked") == data(), "{format:?}");
        let twice = [packed.clone(), packed].concat();
        assert!(unpack(&twice).expect("unpacked") == [data(), data()].concat(), "{format:?}, two members");
        assert_eq!(unpack(&pack(format, &[])).expect("unpacked"), Vec::<u8>::new(), "{format:?}, nothing");
    }
}

#[test]
fn every_prefix_of_a_stream_is_a_failure() {
    for format in FORMATS {
        let packed = pack(format, &data());
        for length in 0..packed.len() {
            assert!(unpack(&packed[..length]).is_err(), "{format:?}: {length} of {} bytes", packed.len());
        }
    }
}

#[test]
fn no_changed_bit_gives_other_data() {
    for format in FORMATS {
        let packed = pack(format, &data());
        let mut unseen = 0;
        for bit in 0..packed.len() * 8 {
            let mut changed = packed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            if let Ok(unpacked) = unpack(&changed) {
                // What says when and where a file was packed has no check.
                unseen += 1;
                assert!(unpacked == data(), "{format:?}: bit {bit} of {}", packed.len() * 8);
            }
        }
        assert!(unseen < 100, "{format:?}: {unseen} changed bits were not seen");
    }
}

#[test]
fn what_follows_the_end_is_a_failure() {
    for format in FORMATS {
        for garbage in [&b"\n"[..], &[0; 4], b"garbage that is longer than any header of a stream", &[0x1f, 0x8b]] {
            let packed = [pack(format, &data()), garbage.to_vec()].concat();
            // xz allows zeros in fours between streams and after the last one.
            let padding = format == Format::Xz && garbage == [0; 4];
            assert_eq!(unpack(&packed).is_ok(), padding, "{format:?}: {garbage:?}");
        }
    }
}

#[test]
fn a_zstd_stream_may_have_frames_without_data() {
    let skipped = [&[0x52, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"hello"].concat();
    let packed = pack(Format::Zstd, &data());
    let whole = [skipped.clone(), packed.clone(), skipped.clone()].concat();
    assert!(unpack(&whole).expect("unpacked") == data());
    let cut = [packed, skipped[..10].to_vec()].concat();
    assert!(unpack(&cut).is_err());
}

#[test]
fn a_zstd_frame_is_held_against_the_size_that_it_says() {
    let said = data().len() as u64;
    let packed = zstd_of(&data(), |encoder| {
        encoder.set_pledged_src_size(Some(said))?;
        encoder.include_checksum(false)
    });
    assert!(unpack(&packed).expect("unpacked") == data());
    // The field for the size, of two bytes: 256 less than what it is. Nothing else checks this frame.
    let field = u16::try_from(said - 256).expect("fits").to_le_bytes();
    let at: Vec<usize> = packed.windows(2).enumerate().filter(|(_, two)| *two == field).map(|(at, _)| at).collect();
    let mut changed = packed;
    changed[at[0]] ^= 1;
    assert!(unpack(&changed).is_err(), "a frame of another size");
}

/// A frame that wants so much kept, of which a stream need not have more than a header.
fn of_window(log: u32) -> Vec<u8> {
    let level = zstd::zstd_safe::CParameter::WindowLog(log);
    let mut all = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    all.set_parameter(level).expect("set");
    // Flushed in between, so that it is a stream of unknown size.
    all.write_all(&data()).and_then(|()| all.flush()).expect("packed");
    all.write_all(&data()).expect("packed");
    all.finish().expect("packed")
}

#[test]
fn a_zstd_stream_that_needs_too_much_memory_is_refused() {
    let twice = [data(), data()].concat();
    assert!(unpack(&of_window(ZSTD_WINDOW)).expect("as much as the program zstd takes") == twice);
    let error = unpack(&of_window(ZSTD_WINDOW + 1)).expect_err("twice as much");
    assert!(error.to_lowercase().contains("memory"), "{error}");
}

#[test]
fn the_name_and_what_is_said_are_held_against_the_first_bytes() {
    let gzip = pack(Format::Gzip, &data());
    let of =
        |bytes: &[u8], name: &str, packing| format(&bytes[..HEAD], &format!("http://x/{name}?sig=secret"), packing);
    assert_eq!(of(&gzip, "disk", Packing::ByMagic), Ok(Format::Gzip));
    assert_eq!(of(&gzip, "disk", Packing::AsIs), Ok(Format::Raw));
    assert_eq!(of(&data(), "disk.raw", Packing::ByMagic), Ok(Format::Raw));
    let qcow2 = [qcow2::MAGIC, &[0; 20]].concat();
    for packing in [Packing::ByMagic, Packing::Uncompressed, Packing::Qcow2] {
        assert_eq!(of(&qcow2, "disk", packing), Ok(Format::Qcow2));
    }
    for (bytes, name, packing, said) in [
        (&gzip, "disk.gz", Packing::Uncompressed, "is gzip"),
        (&data(), "disk", Packing::Compressed, "neither"),
        (&data(), "disk.xz", Packing::ByMagic, "ends with .xz"),
        (&qcow2, "disk", Packing::AsIs, "write format: Qcow2"),
        (&data(), "disk", Packing::Qcow2, "write format: Raw"),
        (&gzip, "disk", Packing::Qcow2, "is gzip"),
        (&qcow2, "disk", Packing::Compressed, "is qcow2"),
    ] {
        let error = of(bytes, name, packing).expect_err("refused");
        assert!(error.message.contains(said) && !error.message.contains("secret"), "{error}");
    }
}

/// The programs of everybody: their streams, with their defaults.
#[test]
fn streams_of_the_usual_programs_are_read() {
    let byte = |i: u64| if i % 70_000 < 35_000 { 0 } else { (i * i / 7 % 251) as u8 };
    let data: Vec<u8> = (0..3_000_000).map(byte).collect();
    for (format, program, arguments) in [
        (Format::Gzip, "gzip", &["-c"][..]),
        (Format::Zstd, "zstd", &["-q", "-c"]),
        (Format::Zstd, "zstd", &["-q", "-c", "-19", "--long=26"]),
        (Format::Xz, "xz", &["-c"]),
        (Format::Xz, "xz", &["-c", "-T2", "--block-size=1MiB", "--check=sha256"]),
        (Format::Bzip2, "bzip2", &["-c"]),
    ] {
        let child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            eprintln!("SKIP streams_of_the_usual_programs_are_read: {program} is not installed");
            continue;
        };
        let (mut stdin, input) = (child.stdin.take().expect("piped"), data.clone());
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let packed = child.wait_with_output().expect("packed").stdout;
        writer.join().expect("no panic").expect("written");
        assert_eq!(magic(&packed[..HEAD]), Some(format), "{program} {arguments:?}");
        assert!(unpack(&packed).expect("unpacked") == data, "{program} {arguments:?}");
        assert!(unpack(&packed[..packed.len() - 1]).is_err(), "{program} {arguments:?}: one byte is missing");
    }
}
