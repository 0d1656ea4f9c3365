//! MAC addresses.

/// The modified EUI-64 of a MAC address (RFC 4291, appendix A), by which IPv6 interface identifiers are made.
pub(crate) fn eui64(mac: &str) -> Option<u64> {
    let bytes: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    let [a, b, c, d, e, f] = bytes.try_into().ok()?;
    Some(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}
