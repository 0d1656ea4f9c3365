//! Kubernetes quantities as bytes.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The number of bytes that a quantity such as `40Gi`, `500M` or `1e9` stands for; `None` if it is none or not whole.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let factor: f64 = match suffix {
        "" => 1.0,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        exponent if exponent.starts_with(['e', 'E']) => return whole(text.parse().ok()?),
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(integer) => integer.checked_mul(factor as u64),
        Err(_) => whole(number.parse::<f64>().ok()? * factor),
    }
}

/// Bytes as the largest binary unit that divides them.
pub fn quantity(bytes: u64) -> Quantity {
    for (shift, suffix) in [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return Quantity(format!("{}{suffix}", bytes >> shift));
        }
    }
    Quantity(bytes.to_string())
}

fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && value >= 0.0 && value < u64::MAX as f64).then(|| value.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_bytes() {
        for (text, expected) in [("40Gi", 40 << 30), ("1k", 1000), ("1.5Gi", 3 << 29), ("1e3", 1000), ("7", 7)] {
            assert_eq!(bytes(&Quantity(text.into())), Some(expected), "{text}");
        }
        for text in ["", "Gi", "-1", "4Q"] {
            assert_eq!(bytes(&Quantity(text.into())), None, "{text}");
        }
        assert_eq!(quantity(3 << 29).0, "1536Mi");
        assert_eq!(quantity(40 << 30).0, "40Gi");
    }
}
