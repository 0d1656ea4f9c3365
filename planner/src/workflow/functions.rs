//! Functions of templates: those of sprig's hermetic set that templates for servers use, with sprig's order of arguments,
//! and upstream's own. A name that is not here is refused when the text is parsed, by its name.

use super::values::{string, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gotmpl::{Result, Template, TemplateError, Value};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A text that a function makes may not be longer: what it is part of could not be rendered.
const LONGEST: usize = super::MAX_RENDERED;

type Function = fn(&[Value]) -> Result<Value>;

const FUNCTIONS: &[(&str, usize, Function)] = &[
    ("default", 1, |a| Ok(a.get(1).filter(|given| given.is_truthy()).unwrap_or(&a[0]).clone())),
    ("empty", 1, |a| Ok(Value::Bool(!a[0].is_truthy()))),
    ("coalesce", 0, |a| Ok(a.iter().find(|value| value.is_truthy()).cloned().unwrap_or(Value::Nil))),
    ("ternary", 3, |a| Ok(if a[2].is_truthy() { a[0].clone() } else { a[1].clone() })),
    ("fail", 1, |a| Err(TemplateError::Exec(text(&a[0])))),
    ("toString", 1, |a| Ok(string(&text(&a[0])))),
    ("upper", 1, |a| Ok(string(&text(&a[0]).to_uppercase()))),
    ("lower", 1, |a| Ok(string(&text(&a[0]).to_lowercase()))),
    ("trim", 1, |a| Ok(string(text(&a[0]).trim()))),
    ("trimAll", 2, |a| Ok(string(text(&a[1]).trim_matches(|c| text(&a[0]).contains(c))))),
    ("trimPrefix", 2, |a| {
        let (prefix, all) = (text(&a[0]), text(&a[1]));
        Ok(string(all.strip_prefix(&prefix).unwrap_or(&all)))
    }),
    ("trimSuffix", 2, |a| {
        let (suffix, all) = (text(&a[0]), text(&a[1]));
        Ok(string(all.strip_suffix(&suffix).unwrap_or(&all)))
    }),
    ("replace", 3, |a| {
        let replaced = text(&a[2]).replace(&text(&a[0]), &text(&a[1]));
        bounded(replaced)
    }),
    ("contains", 2, |a| Ok(Value::Bool(text(&a[1]).contains(&text(&a[0]))))),
    ("hasPrefix", 2, |a| Ok(Value::Bool(text(&a[1]).starts_with(&text(&a[0]))))),
    ("hasSuffix", 2, |a| Ok(Value::Bool(text(&a[1]).ends_with(&text(&a[0]))))),
    ("quote", 0, |a| Ok(string(&joined(a, |text| format!("{text:?}"))))),
    ("squote", 0, |a| Ok(string(&joined(a, |text| format!("'{text}'"))))),
    ("indent", 2, |a| bounded(indented(&a[0], &a[1])?)),
    ("nindent", 2, |a| bounded(format!("\n{}", indented(&a[0], &a[1])?))),
    ("splitList", 2, |a| {
        let (separator, all) = (text(&a[0]), text(&a[1]));
        Ok(Value::List(all.split(separator.as_str()).map(string).collect()))
    }),
    ("join", 2, |a| {
        let parts: Vec<_> = list(&a[1])?.iter().map(text).collect();
        bounded(parts.join(&text(&a[0])))
    }),
    ("list", 0, |a| Ok(Value::List(a.into()))),
    ("first", 1, |a| Ok(list(&a[0])?.first().cloned().unwrap_or(Value::Nil))),
    ("last", 1, |a| Ok(list(&a[0])?.last().cloned().unwrap_or(Value::Nil))),
    ("rest", 1, |a| Ok(Value::List(list(&a[0])?.get(1..).unwrap_or_default().into()))),
    ("has", 2, |a| Ok(Value::Bool(list(&a[1])?.iter().any(|item| item == &a[0])))),
    ("hasKey", 2, |a| Ok(Value::Bool(a[0].field(&text(&a[1])).is_some()))),
    ("get", 2, |a| Ok(a[0].field(&text(&a[1])).cloned().unwrap_or_else(|| string("")))),
    ("add", 0, |a| numbers(a, |sum, n| sum.checked_add(n))),
    ("mul", 1, |a| numbers(a, |product, n| product.checked_mul(n))),
    ("sub", 2, |a| numbers(a, |difference, n| difference.checked_sub(n))),
    ("div", 2, |a| numbers(a, |quotient, n| quotient.checked_div(n))),
    ("mod", 2, |a| numbers(a, |remainder, n| remainder.checked_rem(n))),
    ("int", 1, |a| Ok(Value::Int(number(&a[0]).unwrap_or_default()))),
    ("int64", 1, |a| Ok(Value::Int(number(&a[0]).unwrap_or_default()))),
    ("atoi", 1, |a| Ok(Value::Int(number(&a[0]).unwrap_or_default()))),
    ("b64enc", 1, |a| bounded(STANDARD.encode(text(&a[0])))),
    ("b64dec", 1, |a| {
        let bytes = STANDARD.decode(text(&a[0])).map_err(|_| fault("b64dec: this is no base64"))?;
        String::from_utf8(bytes).map(|text| string(&text)).map_err(|_| fault("b64dec: this is no UTF-8"))
    }),
    ("sha256sum", 1, |a| {
        let digest = Sha256::digest(text(&a[0]));
        Ok(string(&digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
    }),
    ("toJson", 1, |a| Ok(string(&json(&a[0])?.to_string()))),
    ("fromJson", 1, |a| {
        serde_json::from_str(&text(&a[0])).map(|json| value(&json)).map_err(|_| fault("fromJson: this is no JSON"))
    }),
    ("toYaml", 1, |a| {
        let yaml = serde_saphyr::to_string(&json(&a[0])?).map_err(|_| fault("toYaml: this has no YAML"))?;
        bounded(yaml.trim_end().to_owned())
    }),
    ("fromYaml", 1, |a| {
        let all = text(&a[0]);
        if all.trim().is_empty() {
            return Err(fault("fromYaml: the text is empty"));
        }
        let json: serde_json::Value = serde_saphyr::from_str(&all).map_err(|_| fault("fromYaml: this is no YAML"))?;
        Ok(value(&json))
    }),
    ("formatPartition", 2, |a| Ok(string(&partition(&text(&a[0]), number(&a[1])?)))),
    ("netmaskToPrefixLength", 1, |a| {
        let mask: std::net::Ipv4Addr =
            text(&a[0]).parse().map_err(|_| fault("netmaskToPrefixLength: this is no netmask"))?;
        let bits = u32::from(mask);
        match bits.leading_ones() + bits.trailing_zeros() {
            32 => Ok(string(&bits.leading_ones().to_string())),
            _ => Err(fault("netmaskToPrefixLength: the ones of this netmask are not in one piece")),
        }
    }),
];

pub(super) fn add(template: Template) -> Template {
    FUNCTIONS.iter().fold(template, |template, &(name, least, function)| {
        template.func(name, move |arguments: &[Value]| match arguments.len() >= least {
            true => function(arguments),
            false => Err(TemplateError::ArgCount { name: name.to_owned(), expected: least, got: arguments.len() }),
        })
    })
}

fn fault(text: &str) -> TemplateError {
    TemplateError::Exec(text.to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn bounded(text: String) -> Result<Value> {
    if text.len() > LONGEST { Err(fault("a text became longer than 256 KiB")) } else { Ok(string(&text)) }
}

fn joined(arguments: &[Value], each: fn(&str) -> String) -> String {
    let given = arguments.iter().filter(|argument| !matches!(argument, Value::Nil));
    given.map(|argument| each(&text(argument))).collect::<Vec<_>>().join(" ")
}

fn indented(width: &Value, lines: &Value) -> Result<String> {
    let width = usize::try_from(number(width)?).ok().filter(|width| *width <= 1024);
    let pad = " ".repeat(width.ok_or_else(|| fault("indent: write 0 to 1024 columns"))?);
    let lines = text(lines);
    // Not longer than what can be rendered, whatever the number of lines.
    if lines.len().saturating_add(lines.matches('\n').count().saturating_mul(pad.len())) > LONGEST {
        return Err(fault("a text became longer than 256 KiB"));
    }
    Ok(format!("{pad}{}", lines.replace('\n', &format!("\n{pad}"))))
}

fn list(value: &Value) -> Result<&Arc<[Value]>> {
    match value {
        Value::List(list) => Ok(list),
        other => Err(TemplateError::TypeMismatch { expected: "list", got: other.type_name() }),
    }
}

fn number(value: &Value) -> Result<i64> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::Uint(number) => i64::try_from(*number).map_err(|_| fault("a number is too large")),
        #[expect(clippy::cast_possible_truncation, reason = "Go's conversion cuts too")]
        Value::Float(number) => Ok(*number as i64),
        other => text(other).trim().parse().map_err(|_| fault("a text is no number")),
    }
}

fn numbers(arguments: &[Value], step: fn(i64, i64) -> Option<i64>) -> Result<Value> {
    let mut all = arguments.iter().map(number);
    let first = all.next().unwrap_or(Ok(0))?;
    let end = all.try_fold(first, |end, next| step(end, next?).ok_or_else(|| fault("a number is out of range")))?;
    Ok(Value::Int(end))
}

fn json(value: &Value) -> Result<serde_json::Value> {
    Ok(match value {
        Value::Nil => serde_json::Value::Null,
        Value::Bool(b) => (*b).into(),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::String(text) => text.as_ref().into(),
        Value::List(list) => list.iter().map(json).collect::<Result<Vec<_>>>()?.into(),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| Ok((key.to_string(), json(value)?)));
            serde_json::Value::Object(entries.collect::<Result<_>>()?)
        }
        Value::Function(_) => return Err(fault("a function has no JSON")),
    })
}

/// `/dev/sda` and 1 are `/dev/sda1`, `/dev/nvme0n1` and 1 are `/dev/nvme0n1p1`, `/dev/disk/by-id/x` and 1 are `…/x-part1`.
fn partition(device: &str, number: i64) -> String {
    if device.starts_with("/dev/disk/") {
        format!("{device}-part{number}")
    } else if device.ends_with(|last: char| last.is_ascii_digit()) {
        format!("{device}p{number}")
    } else {
        format!("{device}{number}")
    }
}
