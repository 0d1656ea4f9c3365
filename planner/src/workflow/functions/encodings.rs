//! Texts that hold other texts or data. Go's decoders give their error as the text; here it is refused.

use super::json::{Layout, encode};
use super::{Function, bounded, fault, function, str_of, string};
use crate::workflow::values::floats;
use data_encoding::{Encoding, Specification};
use gotmpl::{Result, Value};
use sha2::{Digest, Sha256, Sha512};

pub(super) const FUNCTIONS: &[Function] = &[
    function("b64enc", "s", |a| bounded(data_encoding::BASE64.encode(str_of(&a[0]).as_bytes()))),
    function("b64dec", "s", |a| decoded("b64dec", "base64", &data_encoding::BASE64, str_of(&a[0]))),
    function("b32enc", "s", |a| bounded(data_encoding::BASE32.encode(str_of(&a[0]).as_bytes()))),
    function("b32dec", "s", |a| decoded("b32dec", "base32", &data_encoding::BASE32, str_of(&a[0]))),
    function("sha1sum", "s", |a| Ok(string(&sha1_smol::Sha1::from(str_of(&a[0])).hexdigest()))),
    function("sha256sum", "s", |a| Ok(string(&hex(&Sha256::digest(str_of(&a[0])))))),
    function("sha512sum", "s", |a| Ok(string(&hex(&Sha512::digest(str_of(&a[0])))))),
    function("adler32sum", "s", |a| Ok(string(&adler32(str_of(&a[0])).to_string()))),
    function("toJson", "a", |a| bounded(encode(&a[0], Layout::Dense).unwrap_or_default())),
    function("mustToJson", "a", |a| bounded(encode(&a[0], Layout::Dense)?)),
    function("toRawJson", "a", |a| bounded(encode(&a[0], Layout::Raw)?)),
    function("mustToRawJson", "a", |a| bounded(encode(&a[0], Layout::Raw)?)),
    function("toPrettyJson", "a", |a| bounded(encode(&a[0], Layout::Pretty).unwrap_or_default())),
    function("mustToPrettyJson", "a", |a| bounded(encode(&a[0], Layout::Pretty)?)),
    function("fromJson", "s", |a| Ok(serde_json::from_str(str_of(&a[0])).map_or(Value::Nil, |json| floats(&json)))),
    function("mustFromJson", "s", |a| {
        serde_json::from_str(str_of(&a[0]))
            .map(|json| floats(&json))
            .map_err(|_| fault("mustFromJson: this is no JSON"))
    }),
];

pub(super) fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// As Go's: line breaks do not count, nor do bits behind the last byte.
fn decoded(name: &str, what: &str, encoding: &Encoding, all: &str) -> Result<Value> {
    let strict = encoding.specification();
    let lenient = Specification { check_trailing_bits: false, ignore: "\r\n".to_owned(), ..strict };
    let lenient = lenient.encoding().map_err(|_| fault(format!("{name}: there is no such encoding")))?;
    let bytes = lenient.decode(all.as_bytes()).map_err(|_| fault(format!("{name}: this is no {what}")))?;
    String::from_utf8(bytes).map(|text| string(&text)).map_err(|_| fault(format!("{name}: this is no UTF-8")))
}

/// RFC 1950.
fn adler32(text: &str) -> u32 {
    const MODULUS: u32 = 65_521;
    let (low, high) = text.bytes().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}
