//! Paths with slashes. Sprig's `os…` are for the system that renders, which is Linux.

use super::{Function, function, is_true, str_of, string};
use gotmpl::{Result, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("base", "s", base),
    function("osBase", "s", base),
    function("dir", "s", dir),
    function("osDir", "s", dir),
    function("clean", "s", |a| Ok(string(&clean(str_of(&a[0]))))),
    function("osClean", "s", |a| Ok(string(&clean(str_of(&a[0]))))),
    function("ext", "s", ext),
    function("osExt", "s", ext),
    function("isAbs", "s", |a| is_true(str_of(&a[0]).starts_with('/'))),
    function("osIsAbs", "s", |a| is_true(str_of(&a[0]).starts_with('/'))),
];

fn base(a: &[Value]) -> Result<Value> {
    let path = str_of(&a[0]);
    let trimmed = path.trim_end_matches('/');
    Ok(string(match (path, trimmed.rsplit('/').next().unwrap_or_default()) {
        ("", _) => ".",
        (_, "") => "/",
        (_, last) => last,
    }))
}

fn dir(a: &[Value]) -> Result<Value> {
    let path = str_of(&a[0]);
    let end = path.rfind('/').map_or(0, |slash| slash + 1);
    Ok(string(&clean(&path[..end])))
}

fn ext(a: &[Value]) -> Result<Value> {
    let last = str_of(&a[0]).rsplit('/').next().unwrap_or_default();
    Ok(string(last.rfind('.').map_or("", |dot| &last[dot..])))
}

/// By the text alone: nothing is looked up.
fn clean(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => {
                parts.pop();
            }
            ("..", None) if is_absolute => {}
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (is_absolute, joined.as_str()) {
        (true, _) => format!("/{joined}"),
        (false, "") => ".".to_owned(),
        (false, _) => joined,
    }
}
