//! Go's own functions, where the engine's differ: `print` and the escapes take any number of values, `index` none but the first, and
//! floats are printed as Go prints them.

use super::convert::text;
use super::{Function, bounded, fault, function};
use gotmpl::{Result, Template, Value, html_escape, js_escape, url_encode};

pub(super) const FUNCTIONS: &[Function] = &[
    function("print", "a*", |a| bounded(printed(a, "<nil>"))),
    function("println", "a*", |a| bounded(a.iter().map(text).collect::<Vec<_>>().join(" ") + "\n")),
    function("html", "a*", |a| bounded(html_escape(&printed(a, "<no value>")))),
    function("js", "a*", |a| bounded(js_escape(&printed(a, "<no value>")))),
    function("urlquery", "a*", |a| bounded(url_encode(&printed(a, "<no value>")))),
    function("index", "aa*", |a| match &a[0] {
        Value::Nil => Err(fault("index: there is nothing to look into")),
        first => a[1..].iter().try_fold(first.clone(), |found, place| found.index(place)),
    }),
    function("printf", "sa*", printf),
];

/// With a space between two that are no texts.
fn printed(arguments: &[Value], nothing: &str) -> String {
    let mut out = String::new();
    for (at, argument) in arguments.iter().enumerate() {
        // What is written for nothing by the escapes is a text.
        let is_text = |value: &Value| match value {
            Value::Nil => nothing != "<nil>",
            other => matches!(other, Value::String(_)),
        };
        if at > 0 && !is_text(argument) && !is_text(&arguments[at - 1]) {
            out.push(' ');
        }
        match argument {
            Value::Nil => out.push_str(nothing),
            other => out.push_str(&text(other)),
        }
    }
    out
}

/// The engine's; what does not fit is refused, where Go writes so into the text.
fn printf(arguments: &[Value]) -> Result<Value> {
    let places: String = (0..arguments.len()).map(|at| format!(" (index . {at})")).collect();
    let done = Template::new("printf").parse(&format!("{{{{printf{places}}}}}"))?;
    let printed = done.execute_to_string(&Value::List(arguments.into()))?;
    let format = super::str_of(&arguments[0]);
    if verbs(format)
        .zip(&arguments[1..])
        .any(|(verb, value)| matches!(value, Value::Float(_)) && !"vsfFeEgG".contains(verb))
    {
        return Err(fault("printf: write %v, %f or %g for a number that is not whole"));
    }
    // Go's words for a value that does not fit its verb, with the name of Go's type.
    let is_given = |value: &Value| text(value).contains("%!");
    if printed.contains("%!") && !format.contains("%%!") && !arguments.iter().any(is_given) {
        return Err(fault("printf: the values do not fit the verbs"));
    }
    bounded(printed)
}

/// One after the other; `%%` takes no value.
fn verbs(format: &str) -> impl Iterator<Item = char> {
    let mut rest = format.chars();
    std::iter::from_fn(move || {
        rest.find(|c| *c == '%')?;
        rest.find(|c| c.is_ascii_alphabetic() || *c == '%')
    })
    .filter(|verb| *verb != '%')
}
